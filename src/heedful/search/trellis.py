"""The trellis: what every hypothesis chose at every step, so that each can be read back.

Depth t holds the rows that are alive after t tokens. Each row knows its parent row one depth
above; what a row looked at on its way to the next depth is kept once, however many children
it has. Attention thus follows the beam without being copied at every step.
"""

from __future__ import annotations

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
        self._sentences: list[list[int]] = []
        self._parents: list[list[int]] = []
        self._tokens: list[list[int]] = []
        self._log_probs: list[list[float]] = []
        self._weights: list[Tensor | NDArray[np.float32]] = []
        self._endings: list[Ending] = []

    @property
    def depth(self) -> int:
        """How many tokens the rows now alive have."""
        return len(self._tokens)

    def begin(self, sentences: NDArray[np.int64]) -> None:
        """Open a row for each of these sentences."""
        self._sentences.append(sentences.tolist())

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
        above = self._sentences[-1]
        self._parents.append(parents.tolist())
        self._sentences.append([above[parent] for parent in self._parents[-1]])
        self._tokens.append(tokens.tolist())
        self._log_probs.append(log_probs.tolist())

    def end(self, ending: Ending) -> None:
        """Let a row end."""
        self._endings.append(ending)

    def looked(self, depth: int, row: int) -> NDArray[np.float32]:
        """All weights (depth + 1, S) of a row of this depth, its next token's included."""
        return self._looked(self._line(depth, row))

    def read(self, ending: Ending) -> Hypothesis:
        """Follow a hypothesis back to its beginning."""
        line = self._line(ending.depth, ending.row)
        tokens = [said[row] for said, row in zip(self._tokens, line[1:], strict=False)]
        worth = [own[row] for own, row in zip(self._log_probs, line[1:], strict=False)]
        looked, own = self._looked(line), np.array([*worth, ending.log_prob])
        return Hypothesis(tokens, sum(own.tolist()), ending.score, looked[:-1], own, looked[-1])

    def tree(self, sentence: int, *, end: int) -> list[Node]:
        """All that was held for a sentence, parents before children."""
        nodes: list[Node] = []
        numbers: dict[tuple[int, int], int] = {}
        for depth, sentences in enumerate(self._sentences):
            for row in (row for row, owner in enumerate(sentences) if owner == sentence):
                if depth == 0:
                    numbers[depth, row] = len(nodes)
                    nodes.append(Node(None, None, 0.0, 0.0, "pruned"))
                elif self._log_probs[depth - 1][row] > -np.inf:
                    numbers[depth, row] = len(nodes)
                    parent = numbers[depth - 1, self._parents[depth - 1][row]]
                    token = self._tokens[depth - 1][row]
                    _continue(nodes, parent, token, self._log_probs[depth - 1][row])
        for ending in self._endings:
            if (parent_of_end := numbers.get((ending.depth, ending.row))) is not None:
                _continue(nodes, parent_of_end, end, ending.log_prob, "ended")
        return nodes

    def _line(self, depth: int, row: int) -> list[int]:
        """The rows of a hypothesis, at depth 0 and every one up to this."""
        line = [row]
        for parents in reversed(self._parents[:depth]):
            line.append(parents[line[-1]])
        return line[::-1]

    def _looked(self, line: list[int]) -> NDArray[np.float32]:
        looked = [self._weights_at(depth)[row] for depth, row in enumerate(line)]
        return np.concatenate(looked).reshape(len(line), -1)

    def _weights_at(self, depth: int) -> NDArray[np.float32]:
        """Weights stay where the model put them until somebody asks."""
        weights = self._weights[depth]
        if isinstance(weights, Tensor):
            weights = weights.float().cpu().numpy()
            self._weights[depth] = weights
        return weights


def _continue(
    nodes: list[Node], parent: int, token: int, log_prob: float, fate: Fate = "pruned"
) -> None:
    before = nodes[parent]
    nodes[parent] = before._replace(fate="went on")
    nodes.append(Node(parent, token, log_prob, before.total + log_prob, fate))
