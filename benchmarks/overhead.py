"""How much of the time of decoding passes outside the model?

    python -m benchmarks.overhead [--rounds 7]

A Transformer of 3+3 layers, width 256, with random weights, writes about 64 sources in batches of
32, greedily and with a beam of 5: outputs of one length, which leave the batch together, and of
unlike lengths, which leave it one by one. Printed is the share of the time that is not spent in
`DecodableModel.start` or `DecodableModel.step`: ranking, keeping the book, moving the state of the model.
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
from benchmarks.peers.workload import NUM_STEPS, Task, batches
from heedful.data.batching import SourceBatch, collate_sources
from heedful.models.base import DecodableModel
from heedful.search import LengthPenalty, StepOutput

BATCH_SIZE, NUM_SOURCES = 32, 64
MOST_OUTSIDE = 0.10
Lengths = Callable[[SourceBatch], Tensor]


class Timed(DecodableModel):
    """A model that counts the seconds spent in it."""

    def __init__(self, model: DecodableModel) -> None:
        self.model = model
        self.seconds = 0.0

    def initial_state(self, sources: SourceBatch) -> Any:
        """Read sources."""
        began = time.perf_counter()
        state = self.model.initial_state(sources)
        self.seconds += time.perf_counter() - began
        return state

    def step(self, tokens: Tensor, state: Any) -> StepOutput[Any]:
        """Read one token."""
        began = time.perf_counter()
        step = self.model.step(tokens, state)
        self.seconds += time.perf_counter() - began
        return step


def equal(sources: SourceBatch) -> Tensor:
    return torch.full_like(sources.lengths, NUM_STEPS - 1)


def unlike(sources: SourceBatch) -> Tensor:
    """As long as the source: from 6 to some 25 tokens."""
    return sources.lengths


LENGTHS: dict[str, Lengths] = {"equal": equal, "unlike": unlike}


def share_outside(model: DecodableModel, task: Task, lengths: Lengths) -> float:
    """Decode once; of all the seconds, give the share that the model did not take.

    No output ends before its longest length: to random weights its end is one word of 8,000.
    """
    timed, work = Timed(model), [collate_sources(batch) for batch in batches(task)]
    began = time.perf_counter()
    for sources in work:
        timed.search(
            sources,
            beam_size=task.beam,
            max_lengths=lengths(sources),
            length_penalty=LengthPenalty(),
        )
    return 1 - timed.seconds / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9, help="how often each is timed")
    rounds = parser.parse_args().rounds
    torch.manual_seed(0)
    model = build("transformer")
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, single precision")
    for beam in (1, 5):
        for name, lengths in LENGTHS.items():
            task = Task(beam, BATCH_SIZE, NUM_SOURCES)
            shares = [share_outside(model, task, lengths) for _ in range(1 + rounds)][1:]
            print(
                f"  beam {beam}, {name:<6} lengths {statistics.median(shares):6.1%} outside the "
                f"model, in {rounds} rounds from {min(shares):.1%} to {max(shares):.1%}   "
                f"(at most {MOST_OUTSIDE:.0%})"
            )


if __name__ == "__main__":
    main()
