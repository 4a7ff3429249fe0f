"""Evidence: what did a model think of outputs, and where did it look, token by token?

The outputs grow side by side, each in a row of its own; a row that has ended leaves the batch. So
it is when outputs are given and when they are drawn; where they are searched for, rows branch.
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

# The trellis: what every hypothesis chose at every step, so that each can be read back.
#
# Depth t holds the rows that are alive after t tokens. Each row knows its parent row one depth
# above; what a row looked at on its way to the next depth is kept once, however many children
# it has. Attention thus follows the beam without being copied at every step.


class Hypothesis(NamedTuple):
    """A complete output, its worth, and where each of its tokens looked."""

    tokens: list[int]  # without begin and end symbols
    log_prob: float  # of all tokens and the end symbol, as the model has it
    score: float  # what it was ranked by: after rules and penalties
    weights: NDArray[np.float32]  # (tokens, source positions)
    log_probs: NDArray[np.float64]  # (tokens + 1,) of each token, and last of the end symbol
    eos_weights: NDArray[np.float32]  # (source positions,) where the end symbol looked


class FinishedRow(NamedTuple):
    """The place where a hypothesis ended."""

    depth: int
    row: int
    log_prob: float  # of the end symbol
    score: float


NodeStatus = Literal["continued", "finished", "pruned"]


class Node(NamedTuple):
    """A beginning that a search held, or the end of one.

    Ended outputs are nodes of their own, whose token is the end symbol.
    """

    parent: int | None  # number of the node it continues; None where nothing was said yet
    token: int | None
    log_prob: float  # of the token, as the model has it
    cumulative_log_prob: float  # of all tokens up to it
    status: NodeStatus  # pruned: nothing that continues it was kept


class Trellis:
    """The choices of a search, step by step."""

    def __init__(self) -> None:
        self._sentences: list[NDArray[np.int64]] = []
        self._parents: list[NDArray[np.int64]] = []
        self._tokens: list[NDArray[np.int64]] = []
        self._log_probs: list[NDArray[np.float64]] = []
        self._weights: list[Tensor | NDArray[np.float32]] = []
        self._endings: list[FinishedRow] = []

    @property
    def depth(self) -> int:
        """How many tokens the rows now alive have."""
        return len(self._tokens)

    def start(self, sentence_ids: NDArray[np.int64]) -> None:
        """Open a row for each of these sentences."""
        self._sentences.append(sentence_ids)

    def record_weights(self, weights: Float[Tensor, "R S"]) -> None:
        """Record where the rows now alive look for their next token."""
        self._weights.append(weights)

    def append(
        self,
        parents: NDArray[np.int64],
        tokens: NDArray[np.int64],
        log_probs: NDArray[np.float64],
    ) -> None:
        """Let new rows follow, each with its parent, its token and what that was worth.

        A row whose token is worth -inf is there only to fill the batch.
        """
        self._sentences.append(self._sentences[-1][parents])
        self._parents.append(parents)
        self._tokens.append(tokens)
        self._log_probs.append(log_probs)

    def finish(self, finished: FinishedRow) -> None:
        """Let a row end."""
        self._endings.append(finished)

    def weights_of(self, depth: int, row: int) -> NDArray[np.float32]:
        """All weights (depth + 1, S) of a row of this depth, its next token's included."""
        line = [row]
        for parents in reversed(self._parents[:depth]):
            line.append(int(parents[line[-1]]))
        looked = [self._weights_at(number)[row] for number, row in enumerate(reversed(line))]
        return np.concatenate(looked).reshape(len(line), -1)

    def backtrack(self, finished_rows: Sequence[FinishedRow]) -> list[Hypothesis]:
        """Follow hypotheses back to their beginnings, all of them side by side."""
        if not finished_rows:
            return []
        depths = np.array([ending.depth for ending in finished_rows])
        rows = np.array([ending.row for ending in finished_rows])
        deepest = int(depths.max())
        tokens = np.zeros((len(finished_rows), deepest), dtype=np.int64)
        worth = np.zeros((len(finished_rows), deepest))
        looking = [self._weights_at(depth) for depth in range(deepest + 1)]
        firsts = np.cumsum([0, *map(len, looking[:-1])])  # where each depth begins, all in one
        places = np.zeros((len(finished_rows), deepest + 1), dtype=np.int64)
        for depth in range(deepest, -1, -1):
            there = np.flatnonzero(depths >= depth)
            own = rows[there]
            places[there, depth] = firsts[depth] + own
            if depth:
                tokens[there, depth - 1] = self._tokens[depth - 1][own]
                worth[there, depth - 1] = self._log_probs[depth - 1][own]
                rows[there] = self._parents[depth - 1][own]
        weights = np.concatenate(looking)
        return [
            _make_hypothesis(
                ending,
                tokens[number, : ending.depth],
                worth[number, : ending.depth],
                weights[places[number, : ending.depth + 1]],
            )
            for number, ending in enumerate(finished_rows)
        ]

    def tree(self, sentence: int, *, eos: int) -> list[Node]:
        """All that was held for a sentence, parents before children."""
        nodes: list[Node] = []
        numbers: dict[tuple[int, int], int] = {}
        for depth, sentences in enumerate(self._sentences):
            for row in np.flatnonzero(sentences == sentence).tolist():
                if depth == 0:
                    numbers[depth, row] = len(nodes)
                    nodes.append(Node(None, None, 0.0, 0.0, "pruned"))
                elif self._log_probs[depth - 1][row] > -np.inf:
                    numbers[depth, row] = len(nodes)
                    parent = numbers[depth - 1, int(self._parents[depth - 1][row])]
                    token = int(self._tokens[depth - 1][row])
                    _add_child(nodes, parent, token, float(self._log_probs[depth - 1][row]))
        for ending in self._endings:
            if (parent_of_end := numbers.get((ending.depth, ending.row))) is not None:
                _add_child(nodes, parent_of_end, eos, ending.log_prob, "finished")
        return nodes

    def _weights_at(self, depth: int) -> NDArray[np.float32]:
        """Weights stay where the model put them until somebody asks."""
        weights = self._weights[depth]
        if isinstance(weights, Tensor):
            weights = weights.float().cpu().numpy()
            self._weights[depth] = weights
        return weights


def _make_hypothesis(
    finished: FinishedRow,
    tokens: NDArray[np.int64],
    log_probs: NDArray[np.float64],
    weights: NDArray[np.float32],
) -> Hypothesis:
    own = np.append(log_probs, finished.log_prob)
    total = sum(own.tolist())
    return Hypothesis(tokens.tolist(), total, finished.score, weights[:-1], own, weights[-1])


def _add_child(
    nodes: list[Node], parent: int, token: int, log_prob: float, status: NodeStatus = "pruned"
) -> None:
    before = nodes[parent]
    nodes[parent] = before._replace(status="continued")
    nodes.append(Node(parent, token, log_prob, before.cumulative_log_prob + log_prob, status))


class HypothesisRecorder:
    """What is known of some outputs so far."""

    def __init__(self, count: int) -> None:
        self._trellis = Trellis()
        self._trellis.start(np.arange(count))
        self._rows = np.arange(count)  # the outputs that have not ended
        self._endings = [FinishedRow(0, 0, 0.0, 0.0)] * count

    def record(
        self, step: StepOutput[Any], tokens: Int[Tensor, "R"], active_rows: Int[Tensor, "R2"]
    ) -> None:
        """Take down a token of every row; for those whose places are not `active_rows` it is the end."""
        own = step.log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1).double().cpu().numpy()
        if np.isnan(own).any():
            raise nan_log_probs_error(self._trellis.depth)
        kept = active_rows.cpu().numpy()
        self._trellis.record_weights(step.weights)
        for place in np.setdiff1d(np.arange(len(own)), kept).tolist():
            ending = FinishedRow(self._trellis.depth, place, float(own[place]), 0.0)
            self._endings[self._rows[place]] = ending
        self._trellis.append(kept, tokens.cpu().numpy()[kept], own[kept])
        self._rows = self._rows[kept]

    def hypotheses(self) -> list[Hypothesis]:
        """Read every output back once all have ended; each scores what the model gives it."""
        found = self._trellis.backtrack(self._endings)
        return [each._replace(score=each.log_prob) for each in found]


class NaNLogProbsError(RunError):
    """A model that has nothing to say."""


def nan_log_probs_error(depth: int) -> NaNLogProbsError:
    """Name a model that has nothing to say."""
    return NaNLogProbsError(
        "search",
        f"the model's log-probabilities after {depth} tokens are not numbers",
        "its weights or its arithmetic have overflowed: use an earlier checkpoint, or float32",
    )
