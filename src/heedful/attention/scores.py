"""Scores: how strongly does each query call for each key?

A score turns queries (*B, T, Q) and prepared keys (*B, S, A) into numbers (*B, T, S). Work that
concerns the keys alone is done in `prepare`, once per source and never per step. `*B` stands
for any leading dimensions, so one score serves a recurrent decoder (B,) and many heads (B, H).
Each number depends on its own query, its own key, their places and what was asked before them,
and on nothing beside them. Scores add: `BilinearScore(...) + AlibiScore(...)` is a score.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from heedful.attention.past import Past
from heedful.shapes import Float, Int

# One tensor (*B, S, A), or a nested tuple of them where several scores prepare keys.
Prepared = Any


class Score(nn.Module, ABC):
    """How strongly each query calls for each key."""

    @property
    def looks_back(self) -> bool:
        """Whether a score depends on where earlier queries looked, and so must wait for them."""
        return False

    @property
    def knows_places(self) -> bool:
        """Whether a score depends on the number of the query, and not on what it holds alone."""
        return True

    @abstractmethod
    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Prepared:
        """Do once what concerns the keys alone."""

    def prepare_from(self, first: Int[Tensor, "B"], keys: Float[Tensor, "B *H S K"]) -> Prepared:
        """Prepare keys of which the first of each row has this number, and not 0.

        Most prepare a key alike wherever it stands.
        """
        return self.prepare(keys)

    @abstractmethod
    def forward(
        self, queries: Float[Tensor, "*B T Q"], prepared: Prepared, past: Past | None = None
    ) -> Float[Tensor, "*#B T S"]:
        """Score every query against every prepared key; no past means that these are the first."""

    def __add__(self, other: Score) -> Score:
        """Add the scores of another."""
        return SumScore([self, other])


class Comparison(Score):
    """A score that asks what a query and a key hold, whatever was asked before."""

    @property
    def knows_places(self) -> bool:
        """A query is compared alike whatever its number."""
        return False

    @abstractmethod
    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared: Float[Tensor, "*B S A"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        prepared: Float[Tensor, "*B S A"],
        past: Past | None = None,
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        return self.compare(queries, prepared)


class SumScore(Score):
    """score_1(q, k) + score_2(q, k) + ...: what is held and how far away it lies, say."""

    def __init__(self, summands: Sequence[Score]) -> None:
        super().__init__()
        self.summands = nn.ModuleList(summands)

    @property
    def looks_back(self) -> bool:
        """Whether any summand does."""
        return any(summand.looks_back for summand in self.summands)

    @property
    def knows_places(self) -> bool:
        """Whether any summand does."""
        return any(summand.knows_places for summand in self.summands)

    def prepare(self, keys: Float[Tensor, "*B S K"]) -> Prepared:
        """Prepare the keys for each summand."""
        summands = cast(Iterable[Score], self.summands)
        return tuple(summand.prepare(keys) for summand in summands)

    def prepare_from(self, first: Int[Tensor, "B"], keys: Float[Tensor, "B *H S K"]) -> Prepared:
        """Prepare keys that stand further on for each summand."""
        summands = cast(Iterable[Score], self.summands)
        return tuple(summand.prepare_from(first, keys) for summand in summands)

    def forward(
        self, queries: Float[Tensor, "*B T Q"], prepared: Prepared, past: Past | None = None
    ) -> Float[Tensor, "*#B T S"]:
        """Add what each summand says."""
        pairs = zip(self.summands, prepared, strict=True)
        parts = [summand(queries, keys, past) for summand, keys in pairs]
        return torch.stack(torch.broadcast_tensors(*parts)).sum(dim=0)
