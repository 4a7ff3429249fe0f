"""Attention: a score, an alignment and a readout, asked together.

What can be attended to is a value, `Memory`, made ready once per source and passed in; what was
found is a value too, `Attended`. The module keeps nothing between calls.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from heedful.attention.alignments import Alignment
from heedful.attention.readouts import Readout
from heedful.attention.scores import Score
from heedful.shapes import Bool, Float


class Memory(NamedTuple):
    """What can be attended to, made ready once per source."""

    values: Float[Tensor, "*B S V"]
    keys: Float[Tensor, "*B S A"]  # already passed through Score.prepare
    mask: Bool[Tensor, "*B #T S"]


class Attended(NamedTuple):
    """What attention found, and where it looked."""

    context: Float[Tensor, "*B T V"]
    weights: Float[Tensor, "*B T S"]


class Attention(nn.Module):
    """The three choices that make an attention mechanism, and nothing else."""

    def __init__(self, score: Score, align: Alignment, read: Readout) -> None:
        super().__init__()
        self.score = score
        self.align = align
        self.read = read

    def remember(self, values: Float[Tensor, "*B S V"], mask: Bool[Tensor, "*#B #T S"]) -> Memory:
        """Make a source ready to be attended to."""
        everywhere = mask.expand(*values.shape[:-2], -1, -1)  # (*B, T or 1, S)
        return Memory(values, self.score.prepare(values), everywhere)

    def forward(self, queries: Float[Tensor, "*B T Q"], memory: Memory) -> Attended:
        """Look into the memory, once for every query."""
        scores = self.score(queries, memory.keys)
        weights = self.align(scores, memory.mask)
        return Attended(self.read(weights, memory.values), weights)
