"""Hypotheses with their log-probabilities and attention weights, and the trellis that stores them.

Depth t of a trellis has one row per hypothesis with t tokens, and each row points to its parent at
depth t - 1. The weights of a step are stored once, whatever number of children a row has, so that
reordering a beam copies no attention. Invariant: what is read back for a hypothesis is what forced
decoding gives for its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from heedful.errors import RunError
from heedful.search.protocol import StepOutput
from heedful.shapes import Float, Int


class Hypothesis(NamedTuple):
    """A complete output with its score and attention weights."""

    tokens: list[int]  # without BOS and EOS
    log_prob: float  # model log-probability of all tokens and EOS
    score: float  # what it was ranked by, after processors and penalties
    weights: NDArray[np.float32]  # (tokens, source positions)
    log_probs: NDArray[np.float64]  # (tokens + 1,), the last one of EOS
    eos_weights: NDArray[np.float32]  # (source positions,)


class FinishedRow(NamedTuple):
    """Row of the trellis at which a hypothesis ended."""

    depth: int
    row: int
    log_prob: float  # of EOS
    score: float


NodeStatus = Literal["continued", "finished", "pruned"]


class Node(NamedTuple):
    """Node of a search tree: a partial hypothesis, or a finished one whose token is EOS."""

    parent: int | None  # index of the parent node; None at the root
    token: int | None
    log_prob: float  # model log-probability of the token
    cumulative_log_prob: float
    status: NodeStatus  # pruned: no continuation was kept


class Trellis:
    """All tokens, parents, log-probabilities and weights of a search, by depth."""

    def __init__(self) -> None:
        self._sentences: list[NDArray[np.int64]] = []
        self._parents: list[NDArray[np.int64]] = []
        self._tokens: list[NDArray[np.int64]] = []
        self._log_probs: list[NDArray[np.float64]] = []
        self._weights: list[Tensor | NDArray[np.float32]] = []
        self._finished: list[FinishedRow] = []

    @property
    def depth(self) -> int:
        """Number of tokens that the current rows have."""
        return len(self._tokens)

    def start(self, sentence_ids: NDArray[np.int64]) -> None:
        """Open a root row for each of these sentences."""
        self._sentences.append(sentence_ids)

    def record_weights(self, weights: Float[Tensor, "R S"]) -> None:
        """Store the weights with which the current rows predict their next token."""
        self._weights.append(weights)

    def append(
        self,
        parents: NDArray[np.int64],
        tokens: NDArray[np.int64],
        log_probs: NDArray[np.float64],
    ) -> None:
        """Append the rows of the next depth; a row with log-probability -inf is only filler."""
        self._sentences.append(self._sentences[-1][parents])
        self._parents.append(parents)
        self._tokens.append(tokens)
        self._log_probs.append(log_probs)

    def finish(self, finished: FinishedRow) -> None:
        """Store that a row was followed by EOS."""
        self._finished.append(finished)

    def weights_of(self, depth: int, row: int) -> NDArray[np.float32]:
        """Return the weights (depth + 1, S) of a row, including those for its next token."""
        path = [row]
        for parents in reversed(self._parents[:depth]):
            path.append(int(parents[path[-1]]))
        weights = [self._weights_at(index)[row] for index, row in enumerate(reversed(path))]
        return np.concatenate(weights).reshape(len(path), -1)

    def backtrack(self, finished_rows: Sequence[FinishedRow]) -> list[Hypothesis]:
        """Return the hypotheses that end in these rows; all are followed back together."""
        if not finished_rows:
            return []
        depths = np.array([finished.depth for finished in finished_rows])
        rows = np.array([finished.row for finished in finished_rows])
        max_depth = int(depths.max())
        tokens = np.zeros((len(finished_rows), max_depth), dtype=np.int64)
        log_probs = np.zeros((len(finished_rows), max_depth))
        weights_by_depth = [self._weights_at(depth) for depth in range(max_depth + 1)]
        offsets = np.cumsum([0, *map(len, weights_by_depth[:-1])])
        weight_rows = np.zeros((len(finished_rows), max_depth + 1), dtype=np.int64)
        for depth in range(max_depth, -1, -1):
            active = np.flatnonzero(depths >= depth)
            active_rows = rows[active]
            weight_rows[active, depth] = offsets[depth] + active_rows
            if depth:
                tokens[active, depth - 1] = self._tokens[depth - 1][active_rows]
                log_probs[active, depth - 1] = self._log_probs[depth - 1][active_rows]
                rows[active] = self._parents[depth - 1][active_rows]
        weights = np.concatenate(weights_by_depth)
        return [
            _build_hypothesis(
                finished,
                tokens[index, : finished.depth],
                log_probs[index, : finished.depth],
                weights[weight_rows[index, : finished.depth + 1]],
            )
            for index, finished in enumerate(finished_rows)
        ]

    def tree(self, sentence: int, *, eos: int) -> list[Node]:
        """Return every hypothesis that the beam of a sentence held, parents before children."""
        nodes: list[Node] = []
        node_ids: dict[tuple[int, int], int] = {}  # (depth, row)
        for depth, sentences in enumerate(self._sentences):
            for row in np.flatnonzero(sentences == sentence).tolist():
                if depth == 0:
                    node_ids[depth, row] = len(nodes)
                    nodes.append(Node(None, None, 0.0, 0.0, "pruned"))
                elif self._log_probs[depth - 1][row] > -np.inf:
                    node_ids[depth, row] = len(nodes)
                    parent = node_ids[depth - 1, int(self._parents[depth - 1][row])]
                    token = int(self._tokens[depth - 1][row])
                    _add_child(nodes, parent, token, float(self._log_probs[depth - 1][row]))
        for finished in self._finished:
            if (last := node_ids.get((finished.depth, finished.row))) is not None:
                _add_child(nodes, last, eos, finished.log_prob, "finished")
        return nodes

    def _weights_at(self, depth: int) -> NDArray[np.float32]:
        """Return the weights of a depth; they stay on the model's device until they are needed."""
        weights = self._weights[depth]
        if isinstance(weights, Tensor):
            weights = weights.float().cpu().numpy()
            self._weights[depth] = weights
        return weights


def _build_hypothesis(
    finished: FinishedRow,
    tokens: NDArray[np.int64],
    log_probs: NDArray[np.float64],
    weights: NDArray[np.float32],
) -> Hypothesis:
    log_probs = np.append(log_probs, finished.log_prob)
    total = sum(log_probs.tolist())
    return Hypothesis(tokens.tolist(), total, finished.score, weights[:-1], log_probs, weights[-1])


def _add_child(
    nodes: list[Node], parent: int, token: int, log_prob: float, status: NodeStatus = "pruned"
) -> None:
    nodes[parent] = nodes[parent]._replace(status="continued")
    total = nodes[parent].cumulative_log_prob + log_prob
    nodes.append(Node(parent, token, log_prob, total, status))


class HypothesisRecorder:
    """Collects outputs that grow without branching: sampled or given ones."""

    def __init__(self, num_outputs: int) -> None:
        self._trellis = Trellis()
        self._trellis.start(np.arange(num_outputs))
        self._output_ids = np.arange(num_outputs)  # of the current rows
        self._finished = [FinishedRow(0, 0, 0.0, 0.0)] * num_outputs

    def record(
        self, step: StepOutput[Any], tokens: Int[Tensor, "R"], active_rows: Int[Tensor, "R2"]
    ) -> None:
        """Store the next token of every row; it is the last one of rows not in `active_rows`."""
        log_probs = step.log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1).double().cpu().numpy()
        if np.isnan(log_probs).any():
            raise nan_log_probs_error(self._trellis.depth)
        active = active_rows.cpu().numpy()
        self._trellis.record_weights(step.weights)
        for row in np.setdiff1d(np.arange(len(log_probs)), active).tolist():
            finished = FinishedRow(self._trellis.depth, row, float(log_probs[row]), 0.0)
            self._finished[self._output_ids[row]] = finished
        self._trellis.append(active, tokens.cpu().numpy()[active], log_probs[active])
        self._output_ids = self._output_ids[active]

    def hypotheses(self) -> list[Hypothesis]:
        """Return every output once all have ended; the score is the log-probability."""
        outputs = self._trellis.backtrack(self._finished)
        return [output._replace(score=output.log_prob) for output in outputs]


class NaNLogProbsError(RunError):
    """A model returned NaN log-probabilities."""


def nan_log_probs_error(depth: int) -> NaNLogProbsError:
    """Return the error for NaN log-probabilities after `depth` tokens."""
    return NaNLogProbsError(
        "search",
        f"the model's log-probabilities are NaN after {depth} tokens",
        "the parameters or activations have overflowed: use an earlier checkpoint, or float32",
    )
