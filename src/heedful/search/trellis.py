"""The trellis: what every hypothesis chose at every step, so that each can be read back.

Depth t holds the rows that are alive after t tokens. Each row knows its parent row one depth
above; what a row looked at on its way to the next depth is kept once, however many children
it has. Attention thus follows the beam without being copied at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from heedful.shapes import Float


class Hypothesis(NamedTuple):
    """A complete output, its worth, and where each of its tokens looked."""

    tokens: list[int]  # without begin and end symbols
    log_prob: float  # of all tokens and the end symbol, as the model has it
    score: float  # what it was ranked by: after rules and penalties
    weights: NDArray[np.float32]  # (tokens, source positions)
    log_probs: NDArray[np.float64]  # (tokens + 1,) of each token, and last of the end symbol
    end_weights: NDArray[np.float32]  # (source positions,) where the end symbol looked


class Ending(NamedTuple):
    """The place where a hypothesis ended."""

    depth: int
    row: int
    log_prob: float  # of the end symbol
    score: float


Fate = Literal["went on", "ended", "pruned"]


class Node(NamedTuple):
    """A beginning that a search held, or the end of one.

    Ended outputs are nodes of their own, whose token is the end symbol.
    """

    parent: int | None  # number of the node it continues; None where nothing was said yet
    token: int | None
    log_prob: float  # of the token, as the model has it
    total: float  # of all tokens up to it
    fate: Fate  # pruned: nothing that continues it was kept


class Trellis:
    """The choices of a search, step by step."""

    def __init__(self) -> None:
        self._sentences: list[NDArray[np.int64]] = []
        self._parents: list[NDArray[np.int64]] = []
        self._tokens: list[NDArray[np.int64]] = []
        self._log_probs: list[NDArray[np.float64]] = []
        self._weights: list[Tensor | NDArray[np.float32]] = []
        self._endings: list[Ending] = []

    @property
    def depth(self) -> int:
        """How many tokens the rows now alive have."""
        return len(self._tokens)

    def begin(self, sentences: NDArray[np.int64]) -> None:
        """Open a row for each of these sentences."""
        self._sentences.append(sentences)

    def look(self, weights: Float[Tensor, "R S"]) -> None:
        """Record where the rows now alive look for their next token."""
        self._weights.append(weights)

    def grow(
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

    def end(self, ending: Ending) -> None:
        """Let a row end."""
        self._endings.append(ending)

    def looked(self, depth: int, row: int) -> NDArray[np.float32]:
        """All weights (depth + 1, S) of a row of this depth, its next token's included."""
        line = [row]
        for parents in reversed(self._parents[:depth]):
            line.append(int(parents[line[-1]]))
        looked = [self._weights_at(number)[row] for number, row in enumerate(reversed(line))]
        return np.concatenate(looked).reshape(len(line), -1)

    def read(self, endings: Sequence[Ending]) -> list[Hypothesis]:
        """Follow hypotheses back to their beginnings, all of them side by side."""
        if not endings:
            return []
        depths = np.array([ending.depth for ending in endings])
        rows = np.array([ending.row for ending in endings])
        deepest = int(depths.max())
        tokens = np.zeros((len(endings), deepest), dtype=np.int64)
        worth = np.zeros((len(endings), deepest))
        looking = [self._weights_at(depth) for depth in range(deepest + 1)]
        firsts = np.cumsum([0, *map(len, looking[:-1])])  # where each depth begins, all in one
        places = np.zeros((len(endings), deepest + 1), dtype=np.int64)
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
            _hypothesis(
                ending,
                tokens[number, : ending.depth],
                worth[number, : ending.depth],
                weights[places[number, : ending.depth + 1]],
            )
            for number, ending in enumerate(endings)
        ]

    def tree(self, sentence: int, *, end: int) -> list[Node]:
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
                    _continue(nodes, parent, token, float(self._log_probs[depth - 1][row]))
        for ending in self._endings:
            if (parent_of_end := numbers.get((ending.depth, ending.row))) is not None:
                _continue(nodes, parent_of_end, end, ending.log_prob, "ended")
        return nodes

    def _weights_at(self, depth: int) -> NDArray[np.float32]:
        """Weights stay where the model put them until somebody asks."""
        weights = self._weights[depth]
        if isinstance(weights, Tensor):
            weights = weights.float().cpu().numpy()
            self._weights[depth] = weights
        return weights


def _hypothesis(
    ending: Ending,
    tokens: NDArray[np.int64],
    worth: NDArray[np.float64],
    looked: NDArray[np.float32],
) -> Hypothesis:
    own = np.append(worth, ending.log_prob)
    total = sum(own.tolist())
    return Hypothesis(tokens.tolist(), total, ending.score, looked[:-1], own, looked[-1])


def _continue(
    nodes: list[Node], parent: int, token: int, log_prob: float, fate: Fate = "pruned"
) -> None:
    before = nodes[parent]
    nodes[parent] = before._replace(fate="went on")
    nodes.append(Node(parent, token, log_prob, before.total + log_prob, fate))
