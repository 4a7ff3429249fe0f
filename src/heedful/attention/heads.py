"""Heads: how does one question look in several places at once?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from heedful.attention.past import Past
from heedful.attention.scores import Comparison, Score
from heedful.shapes import Float


class HeadwiseScore(Score):
    """One score for each head, with parameters of its own: heads stand before the queries."""

    def __init__(self, heads: Sequence[Comparison]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(heads)

    def prepare(self, keys: Float[Tensor, "*B H S K"]) -> Float[Tensor, "*B H S A"]:
        """Let each head prepare its keys."""
        heads = cast(Iterable[Comparison], self.heads)
        pairs = zip(heads, keys.unbind(dim=-3), strict=True)
        return torch.stack([head.prepare(own) for head, own in pairs], dim=-3)

    def forward(
        self,
        queries: Float[Tensor, "*B H T Q"],
        prepared: Float[Tensor, "*B H S A"],
        past: Past | None = None,
    ) -> Float[Tensor, "*B H T S"]:
        """Let each head score its queries."""
        triples = zip(self.heads, queries.unbind(dim=-3), prepared.unbind(dim=-3), strict=True)
        return torch.stack([head(query, keys) for head, query, keys in triples], dim=-3)


def headwise(make: Callable[[], Comparison], num_heads: int | None) -> Score:
    """Make a score for so many heads: one for all of them if it has nothing to learn."""
    first = make()
    if num_heads is None or not any(True for _ in first.parameters()):
        return first
    return HeadwiseScore([first, *(make() for _ in range(num_heads - 1))])
