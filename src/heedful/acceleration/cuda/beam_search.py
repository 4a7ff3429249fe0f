"""Beam search on the device; the host reads the records of several steps at once.

Which hypotheses stay open depends only on the candidates of a step, so the device need not wait
for the host, which decides what has finished and when a beam stops. Invariant: the hypotheses
equal the ones of `beam_search`, up to rounding.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.acceleration import tuning
from heedful.acceleration.cuda.graphs import StaticFunction
from heedful.acceleration.cuda.search_graphs import EncodedSources, SearchNode
from heedful.acceleration.cuda.token_choice import BeamChoice, choose_candidates
from heedful.pytree import select_rows
from heedful.search import BeamSearchOptions, Hypothesis
from heedful.search.beam_search import Beams
from heedful.search.candidates import Candidates
from heedful.search.hypotheses import NaNLogProbsError
from heedful.search.logits_processors import MinLength
from heedful.shapes import Float, Lengths
from heedful.tokenization.vocabulary import BOS


class BeamStep(SearchNode):
    """A step of beam search, with its candidates and the rows and tokens that stay open."""

    choice: BeamChoice
    weights: Float[Tensor, "R S"]

    def __init__(self, search: "DeviceBeamSearch", previous: Any) -> None:
        super().__init__(previous.model, previous.sources, previous.pool, previous.depth + 1)
        self._search, self._previous = search, previous
        self._function = StaticFunction(self._compute)
        if search.bos.device.type == "cuda":
            self._assign(self._function.capture(self.pool))
            if previous.depth:
                previous.state = None  # later steps may use its memory

    def _compute(self) -> tuple[Any, ...]:
        search, previous = self._search, self._previous
        if isinstance(previous, BeamStep):
            inputs, totals = previous.choice.tokens, previous.choice.totals
            state = select_rows(previous.state, previous.choice.rows)
        else:
            inputs, totals, state = search.bos, search.zeros, previous.state
        logits, state, weights = self.model.compute_logits(inputs, state)
        choice = choose_candidates(
            logits, totals, search.min_lengths, self.depth - 1, search.beam_size
        )
        return state, weights.float(), choice

    def run(self) -> None:
        """Extend each hypothesis by a token."""
        if (result := self._function.run()) is not None:
            self._assign(result)

    def _assign(self, results: tuple[Any, ...]) -> None:
        self.state, self.weights, self.choice = results


class DeviceBeamSearch:
    """Beam search over the sources of a chain."""

    def __init__(self, sources: EncodedSources, beam_size: int) -> None:
        self.sources, self.beam_size = sources, beam_size
        lengths = sources.sources.lengths
        self.bos = torch.full_like(lengths, BOS)
        self.zeros = torch.zeros(len(lengths), 1, device=lengths.device)
        self.min_lengths = torch.zeros_like(lengths)
        self.steps: list[BeamStep] = []

    def run(
        self, beams: Beams, min_lengths: Lengths | None, source_length: int | None
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of the encoded sources, which `beams` collects."""
        beams.max_finished_fraction = 1.0  # rows keep their numbers until all beams have stopped
        num_beams = len(beams.beam_ids)
        self.min_lengths.zero_()
        if min_lengths is not None:
            self.min_lengths[:num_beams] = min_lengths
        max_steps = int(beams.max_lengths.max()) + 1
        # The first step has one row per beam; those after it are transferred together.
        depth, transfer = 1, DeviceToHostCopy(self._run_steps(0, 1), num_beams, source_length)
        while True:
            # The device continues while the host decides what has finished.
            end = min(depth + tuning.STEPS_PER_CHECK, max_steps)
            following = transfer
            if depth < end:
                following = DeviceToHostCopy(self._run_steps(depth, end), num_beams, source_length)
            for recorded in transfer.read(beams):
                beams.select(*recorded)
                if not len(beams.beam_ids):
                    return beams.hypotheses()
            assert depth < end, "a beam is open beyond its maximum length"
            depth, transfer = end, following

    def _run_steps(self, start: int, end: int) -> list[BeamStep]:
        for index in range(start, end):
            if index == len(self.steps):
                previous = self.steps[-1] if self.steps else self.sources
                self.steps.append(BeamStep(self, previous))
            self.steps[index].run()
        return self.steps[start:end]


class DeviceToHostCopy:
    """Candidates and weights of a few steps on their way to the host."""

    def __init__(
        self, steps: Sequence[BeamStep], num_beams: int, source_length: int | None
    ) -> None:
        num_rows = num_beams * len(steps[0].weights) // len(steps[0].choice.totals)
        columns = (
            torch.stack([step.choice.scores[:, :num_beams] for step in steps]),
            torch.stack([step.choice.ids[:, :num_beams] for step in steps]),
            torch.stack([step.choice.eos_log_probs[:num_rows] for step in steps]),
            torch.stack([step.weights[:num_rows, :source_length] for step in steps]),
        )
        self._columns = [column.to("cpu", non_blocking=True) for column in columns]
        self._event = torch.cuda.Event() if columns[0].is_cuda else None
        if self._event is not None:
            self._event.record()

    def read(self, beams: Beams) -> Iterator[tuple[Candidates, NDArray[np.float32]]]:
        """Wait, and yield the candidates and weights of each step."""
        if self._event is not None:
            self._event.synchronize()
        for scores, ids, eos_log_probs, weights in zip(*self._columns, strict=True):
            totals, log_probs = scores.numpy().astype(np.float64)
            tokens, rows = ids.numpy()
            if np.isnan(totals).any():
                raise NaNLogProbsError(beams.trellis.depth)
            has_stopped = beams.cumulative_log_probs.max(axis=1) == -np.inf
            totals[has_stopped] = -np.inf
            candidates = Candidates(totals, log_probs, tokens, rows, np.zeros_like(rows))
            candidates = beams.force_eos(candidates, eos_log_probs, eos_log_probs)
            yield candidates, weights.numpy()


def runs_on_device(options: BeamSearchOptions) -> bool:
    """Whether the device can choose the open hypotheses: nothing but a minimum length matters."""
    return (
        options.diversity.num_groups == 1
        and options.pruning.token_threshold == np.inf
        and options.constraints is None
        and [type(processor) for processor in options.processors] in ([], [MinLength])
    )
