"""Share of decoding time outside the model.

    python -m benchmarks.overhead [--rounds 7]

A Transformer of 3+3 layers, width 256, with random weights, decodes 64 sources in batches of
32 with greedy search and a beam of 5: outputs of equal lengths, which leave the batch together, and
of different lengths, which leave it one by one. Prints the share of the time that is not spent in
the model: ranking, bookkeeping, reordering of the state.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

# As the command line does; read by torch when it is first imported.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch import Tensor

from benchmarks.peers.with_heedful import build
from benchmarks.peers.workload import NUM_STEPS, Workload, batches
from heedful.data.batching import SourceBatch, collate_sources
from heedful.models.base import DecodableModel
from heedful.search import LengthPenalty, StepOutput

BATCH_SIZE, NUM_SOURCES = 32, 64
MAX_OUTSIDE = 0.10
Lengths = Callable[[SourceBatch], Tensor]


class TimedModel(DecodableModel):
    """A model that measures the time spent in it."""

    def __init__(self, model: DecodableModel) -> None:
        self.model = model
        self.seconds = 0.0

    def initial_state(self, sources: SourceBatch) -> Any:
        start = time.perf_counter()
        state = self.model.initial_state(sources)
        self.seconds += time.perf_counter() - start
        return state

    def step(self, tokens: Tensor, state: Any) -> StepOutput[Any]:
        start = time.perf_counter()
        step = self.model.step(tokens, state)
        self.seconds += time.perf_counter() - start
        return step


def equal(sources: SourceBatch) -> Tensor:
    return torch.full_like(sources.lengths, NUM_STEPS - 1)


def different(sources: SourceBatch) -> Tensor:
    """Return the source lengths: from 6 to about 25 tokens."""
    return sources.lengths


LENGTHS: dict[str, Lengths] = {"equal": equal, "different": different}


def share_outside(model: DecodableModel, task: Workload, lengths: Lengths) -> float:
    """Decode once and return the share of the time outside the model.

    With random parameters EOS is one token of 8,000, so all outputs reach their maximum length.
    """
    timed, work = TimedModel(model), [collate_sources(batch) for batch in batches(task)]
    start = time.perf_counter()
    for sources in work:
        timed.search(
            sources,
            beam_size=task.beam,
            max_lengths=lengths(sources),
            length_penalty=LengthPenalty(),
        )
    return 1 - timed.seconds / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="how often each is timed")
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    model = build("transformer")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, single precision")
    for beam in (1, 5):
        for name, lengths in LENGTHS.items():
            task = Workload(beam, BATCH_SIZE, NUM_SOURCES)
            shares = [share_outside(model, task, lengths) for _ in range(1 + rounds)][1:]
            print(
                f"  beam {beam}, {name:<9} lengths {statistics.median(shares):6.1%} outside the "
                f"model, in {rounds} rounds from {min(shares):.1%} to {max(shares):.1%}   "
                f"(at most {MAX_OUTSIDE:.0%})"
            )


if __name__ == "__main__":
    main()
