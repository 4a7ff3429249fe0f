"""The trellis: what every hypothesis chose at every step, so that each can be read back.

Depth t holds the rows that are alive after t tokens. Each row knows its parent row one depth
above; what a row looked at on its way to the next depth is kept once, however many children
it has. Attention thus follows the beam without being copied at every step.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from heedful.shapes import Float, Int


class Hypothesis(NamedTuple):
    """A complete output, its worth, and where each of its tokens looked."""

    tokens: list[int]  # without begin and end symbols
    log_prob: float  # of all tokens and the end symbol
    score: float  # log_prob after the length penalty
    weights: NDArray[np.float32]  # (tokens, source positions)


class Ending(NamedTuple):
    """The place where a hypothesis ended."""

    depth: int
    row: int
    log_prob: float
    score: float


class Trellis:
    """The choices of a search, step by step."""

    def __init__(self) -> None:
        self._parents: list[NDArray[np.int64]] = []
        self._tokens: list[NDArray[np.int64]] = []
        self._weights: list[NDArray[np.float32]] = []

    @property
    def depth(self) -> int:
        """How many tokens the rows now alive have."""
        return len(self._tokens)

    def look(self, weights: Float[Tensor, "B S"]) -> None:
        """Record where the rows now alive look for their next token."""
        self._weights.append(weights.float().cpu().numpy())

    def grow(self, parents: Int[Tensor, "B"], tokens: Int[Tensor, "B"]) -> None:
        """Let new rows follow, each with its parent and its token."""
        self._parents.append(parents.cpu().numpy())
        self._tokens.append(tokens.cpu().numpy())

    def read(self, ending: Ending) -> Hypothesis:
        """Follow a hypothesis back to its beginning."""
        tokens, weights, row = [], [], ending.row
        for depth in reversed(range(ending.depth)):
            tokens.append(int(self._tokens[depth][row]))
            row = self._parents[depth][row]
            weights.append(self._weights[depth][row])
        width = self._weights[0].shape[1]
        looked = np.array(weights[::-1], dtype=np.float32).reshape(len(tokens), width)
        return Hypothesis(tokens[::-1], ending.log_prob, ending.score, looked)
