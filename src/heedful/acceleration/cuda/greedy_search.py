"""Greedy search on the device: the host sees no token before all sentences have ended.

Every few steps it reads how many are open; once half of many rows have ended, the others continue
in a batch of half the size. Invariant: the hypotheses are those of `beam_search` with one
hypothesis, up to rounding.
"""

from collections import Counter
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.acceleration import tuning
from heedful.acceleration.cuda.graphs import StaticFunction
from heedful.acceleration.cuda.search_graphs import EncodedSources, SearchNode, count_positions
from heedful.acceleration.cuda.static_cache import StaticCacheState
from heedful.acceleration.cuda.token_choice import GreedyChoice, choose_tokens
from heedful.data.text.batching import SourceBatch
from heedful.pytree import map_tensors, select_rows
from heedful.search import Hypothesis, LengthPenalty
from heedful.shapes import Int, Lengths, SourceWeights
from heedful.tokenization.vocabulary import BOS, EOS


class GreedyRows(NamedTuple):
    """The rows of a step."""

    sentences: Int[Tensor, "R"]
    min_lengths: Lengths
    max_lengths: Lengths


class GreedyStep(SearchNode):
    """A step of greedy search, whose next token stays on the device."""

    rows: GreedyRows
    choice: GreedyChoice
    weights: SourceWeights
    num_open: Tensor | None = None

    def __init__(self, previous: Any, rows: GreedyRows, num_rows: int) -> None:
        super().__init__(previous.model, previous.sources, previous.pool, previous.depth + 1)
        self.num_rows = num_rows
        self.following: dict[int, GreedyStep] = {}
        """The next step, by its number of rows."""
        self._num_requests: Counter[int] = Counter()
        self._previous, self._previous_rows = previous, rows
        self._bos = torch.full_like(rows.sentences, BOS)
        self._function = StaticFunction(self._compute)
        if self._bos.device.type == "cuda":
            self._assign(self._function.capture(self.pool))
            if self.depth > 1 and num_rows == previous.num_rows and not previous.can_shrink:
                previous.state = None  # later steps may use its memory

    def _compute(self) -> tuple[Any, ...]:
        previous, rows, state = self._previous, self._previous_rows, self._previous.state
        choice: GreedyChoice | None = previous.choice if self.depth > 1 else None
        if self.num_rows < previous.num_rows:
            assert choice is not None
            open_first = choice.is_finished.byte().argsort(stable=True)[: self.num_rows]
            rows, choice, state = select_rows((rows, choice, state), open_first)
            state = state.compact() if isinstance(state, StaticCacheState) else state
        tokens, is_finished = (self._bos, None) if choice is None else (choice[0], choice[2])
        logits, state, weights = self.model.compute_logits(tokens, state)
        choice = choose_tokens(logits, *rows[1:], is_finished, self.depth - 1)
        num_open = (~choice.is_finished).sum() if self.is_checked else None
        return state, rows, choice, weights, num_open

    @property
    def is_checked(self) -> bool:
        """Whether the host waits for this step to see whether all sentences have ended."""
        return self.depth % tuning.STEPS_PER_CHECK == 0

    @property
    def can_shrink(self) -> bool:
        """Whether a smaller batch may follow; then its state is kept, which a shared cache is."""
        is_large = self.num_rows >= 2 * tuning.MIN_COMPACTED_ROWS
        return self.is_checked and is_large and isinstance(self.state, StaticCacheState)

    def run(self) -> None:
        """Choose the next token of each row."""
        if (result := self._function.run()) is not None:
            self._assign(result)

    def next_step(self, num_open: int) -> "GreedyStep":
        """Return the step that continues the open rows, of which there may be half as many.

        A smaller batch is captured when it is requested for the second time.
        """
        num_rows = self.num_rows
        while self.can_shrink and num_rows >= 2 * max(num_open, tuning.MIN_COMPACTED_ROWS):
            num_rows //= 2
        self._num_requests[num_rows] += 1
        if self._num_requests[num_rows] == 1:
            num_rows = self.num_rows
        if num_rows not in self.following:
            self.following[num_rows] = GreedyStep(self, self.rows, num_rows)
        return self.following[num_rows]

    def _assign(self, results: tuple[Any, ...]) -> None:
        self.state, self.rows, self.choice, self.weights, self.num_open = results


class GreedySearch:
    """Greedy search over the sources of a chain."""

    def __init__(self, sources: EncodedSources) -> None:
        lengths = sources.sources.lengths
        sentences = torch.arange(len(lengths), device=lengths.device)
        rows = GreedyRows(sentences, torch.zeros_like(lengths), torch.zeros_like(lengths))
        self._rows = rows
        self._first = GreedyStep(sources, rows, len(lengths))
        self._steps: list[GreedyStep] = []

    def run(self, max_lengths: Lengths, min_lengths: Lengths | None, max_steps: int) -> None:
        """Run the steps in which all sentences of the encoded batch end."""
        num_rows = len(max_lengths)
        self._rows.max_lengths.zero_()  # rows beyond the batch end at once
        self._rows.max_lengths[:num_rows] = max_lengths
        self._rows.min_lengths.zero_()
        if min_lengths is not None:
            self._rows.min_lengths[:num_rows] = min_lengths
        step, num_open = self._first, num_rows
        self._steps = []
        while True:
            step.run()
            self._steps.append(step)
            if step.num_open is not None:
                num_open = int(step.num_open)
            if num_open == 0 or len(self._steps) == max_steps:
                return
            step = step.next_step(num_open)

    def hypotheses(
        self, sources: SourceBatch, length_penalty: LengthPenalty
    ) -> list[list[Hypothesis]] | None:
        """Return the hypothesis of each source; None if a probability is 0 or not a number."""
        num_rows = len(sources.lengths)
        source_length = count_positions(sources) or self._steps[0].weights.size(-1)
        tokens = np.full((num_rows, len(self._steps)), EOS)
        log_probs = np.zeros(tokens.shape)
        weights = np.zeros((*tokens.shape, source_length), dtype=np.float32)
        start = 0
        for count, group in groupby(self._steps, key=lambda step: step.num_rows):
            steps = list(group)
            stop, limit = start + len(steps), num_rows if start == 0 else count
            columns = (
                steps[0].rows.sentences[:limit],
                torch.stack([step.choice.tokens[:limit] for step in steps], dim=1),
                torch.stack([step.choice.log_probs[:limit] for step in steps], dim=1),
                torch.stack([step.weights[:limit, :source_length] for step in steps], dim=1),
            )
            rows, *values = (column.numpy() for column in map_tensors(_to_host, columns))
            is_real = rows < num_rows  # those beyond have no sentence
            arrays: tuple[NDArray[Any], ...] = tokens, log_probs, weights
            for array, value in zip(arrays, values, strict=True):
                array[rows[is_real], start:stop] = value[is_real]
            start = stop
        return _build_hypotheses(tokens, log_probs, weights, length_penalty)


def _to_host(column: Tensor) -> Tensor:
    return (column.float() if column.is_floating_point() else column).cpu()


def _build_hypotheses(
    tokens: NDArray[Any],
    log_probs: NDArray[Any],
    weights: NDArray[Any],
    length_penalty: LengthPenalty,
) -> list[list[Hypothesis]] | None:
    lengths = (tokens == EOS).argmax(axis=1)
    totals = log_probs.cumsum(axis=1)[np.arange(len(lengths)), lengths]
    if not np.isfinite(totals).all():
        return None
    results = []
    outputs, sums = tokens.tolist(), totals.tolist()
    for row, length in enumerate(lengths.tolist()):
        hypothesis = Hypothesis(
            outputs[row][:length],
            sums[row],
            length_penalty(sums[row], length + 1),
            weights[row, :length],
            log_probs[row, : length + 1],
            weights[row, length],
        )
        results.append([hypothesis])
    return results
