""""""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from heedful.attention.outputs import AttentionState, PreparedKeys
from heedful.config import BaseConfig
from heedful.errors import ConfigError
from heedful.pytree import map_tensors
from heedful.shapes import Float, Int

# Scores: how strongly does each query call for each key?
#
# A score turns queries (*B, T, Q) and prepared keys (*B, S, A) into numbers (*B, T, S). Work that
# concerns the keys alone is done in `prepare`, once per source and never per step. `*B` stands
# for any leading dimensions, so one score serves a recurrent decoder (B,) and many heads (B, H).
# Each number depends on its own query, its own key, their places and what was asked before them,
# and on nothing beside them. Scores add: `BilinearScore(...) + AlibiScore(...)` is a score.


class ScoreFunction(nn.Module, ABC):
    """How strongly each query calls for each key."""

    @property
    def uses_history(self) -> bool:
        """Whether a score depends on where earlier queries looked, and so must wait for them."""
        return False

    @property
    def needs_positions(self) -> bool:
        """Whether a score depends on the number of the query, and not on what it holds alone."""
        return True

    @abstractmethod
    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> PreparedKeys:
        """Do once what concerns the keys alone."""

    def prepare_keys_at(
        self, start_positions: Int[Tensor, "B"], keys: Float[Tensor, "B *H S K"]
    ) -> PreparedKeys:
        """Prepare keys of which the first of each row has this number, and not 0.

        Most prepare a key alike wherever it stands.
        """
        return self.prepare_keys(keys)

    @abstractmethod
    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        prepared_keys: PreparedKeys,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "*#B T S"]:
        """Score every query against every prepared key; no past means that these are the first."""

    def __add__(self, other: ScoreFunction) -> ScoreFunction:
        """Add the scores of another."""
        return SumScore([self, other])


class SumScore(ScoreFunction):
    """score_1(q, k) + score_2(q, k) + ...: what is held and how far away it lies, say."""

    def __init__(self, terms: Sequence[ScoreFunction]) -> None:
        super().__init__()
        self.terms = nn.ModuleList(terms)

    @property
    def uses_history(self) -> bool:
        """Whether any summand does."""
        return any(summand.uses_history for summand in self.terms)

    @property
    def needs_positions(self) -> bool:
        """Whether any summand does."""
        return any(summand.needs_positions for summand in self.terms)

    def prepare_keys(self, keys: Float[Tensor, "*B S K"]) -> PreparedKeys:
        """Prepare the keys for each summand."""
        summands = cast(Iterable[ScoreFunction], self.terms)
        return tuple(summand.prepare_keys(keys) for summand in summands)

    def prepare_keys_at(
        self, start_positions: Int[Tensor, "B"], keys: Float[Tensor, "B *H S K"]
    ) -> PreparedKeys:
        """Prepare keys that stand further on for each summand."""
        summands = cast(Iterable[ScoreFunction], self.terms)
        return tuple(summand.prepare_keys_at(start_positions, keys) for summand in summands)

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        prepared_keys: PreparedKeys,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "*#B T S"]:
        """Add what each summand says."""
        pairs = zip(self.terms, prepared_keys, strict=True)
        parts = [summand(queries, keys, state) for summand, keys in pairs]
        return torch.stack(torch.broadcast_tensors(*parts)).sum(dim=0)


class ContentScore(ScoreFunction):
    """A score that asks what a query and a key hold, whatever was asked before."""

    @property
    def needs_positions(self) -> bool:
        """A query is compared alike whatever its number."""
        return False

    @abstractmethod
    def compare(
        self, queries: Float[Tensor, "*B T Q"], prepared_keys: Float[Tensor, "*B S A"]
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        prepared_keys: Float[Tensor, "*B S A"],
        state: AttentionState | None = None,
    ) -> Float[Tensor, "*B T S"]:
        """Score every query against every prepared key."""
        return self.compare(queries, prepared_keys)


class PerHeadScore(ScoreFunction):
    """One score for each head, with parameters of its own: heads stand before the queries."""

    def __init__(self, heads: Sequence[ScoreFunction]) -> None:
        super().__init__()
        self.heads = nn.ModuleList(heads)

    @property
    def uses_history(self) -> bool:
        """Whether any head's score does."""
        return any(head.uses_history for head in self.heads)

    @property
    def needs_positions(self) -> bool:
        """Whether any head's score does."""
        return any(head.needs_positions for head in self.heads)

    def prepare_keys(self, keys: Float[Tensor, "*B G S K"]) -> PreparedKeys:
        """Let each head prepare the keys of its group: (*B, H, S, A), nested as one head's are."""
        return self._prepare_per_head(keys, lambda head, own: head.prepare_keys(own))

    def prepare_keys_at(
        self, start_positions: Int[Tensor, "B"], keys: Float[Tensor, "B G S K"]
    ) -> PreparedKeys:
        """Let each head prepare keys that stand further on."""
        return self._prepare_per_head(
            keys, lambda head, own: head.prepare_keys_at(start_positions, own)
        )

    def _prepare_per_head(
        self, keys: Tensor, prepare: Callable[[ScoreFunction, Tensor], PreparedKeys]
    ) -> PreparedKeys:
        axis = keys.dim() - 3
        heads = cast(Sequence[ScoreFunction], self.heads)
        sharing = len(heads) // keys.size(axis)
        parts = [prepare(head, keys.select(axis, n // sharing)) for n, head in enumerate(heads)]
        return _stack(parts, axis)

    def forward(
        self,
        queries: Float[Tensor, "*B H T Q"],
        prepared_keys: PreparedKeys,
        state: AttentionState | None = None,
    ) -> Float[Tensor, "*#B H T S"]:
        """Let each head score its queries, with what it has asked before."""
        axis = queries.dim() - 3
        scores = []
        for number, head in enumerate(self.heads):
            head_queries = map_tensors(_select_head(axis, number), (queries, prepared_keys, state))
            scores.append(head(*head_queries))
        return torch.stack(torch.broadcast_tensors(*scores), dim=-3)


def build_per_head_score(
    make_score: Callable[[], ScoreFunction], num_heads: int | None
) -> ScoreFunction:
    """Make a score for so many heads: one for all of them if it has nothing to learn."""
    first = make_score()
    if num_heads is None or not any(True for _ in first.parameters()):
        return first
    return PerHeadScore([first, *(make_score() for _ in range(num_heads - 1))])


def _select_head(axis: int, number: int) -> Callable[[Tensor], Tensor]:
    return lambda each: each.select(axis, number)


def _stack(parts: Sequence[Any], axis: int) -> Any:
    """Stack nested values of one form, tensor by tensor."""
    if isinstance(parts[0], Tensor):
        return torch.stack(list(parts), dim=axis)
    return tuple(_stack(each, axis) for each in zip(*parts, strict=True))


class ContentScoreConfigBase(BaseConfig):
    """A score that compares a query with a key."""

    @abstractmethod
    def build_single_head(self, *, query_size: int, key_size: int) -> ScoreFunction:
        """Make the score for one head."""

    def build(
        self, *, query_size: int, key_size: int, num_heads: int | None = None
    ) -> ScoreFunction:
        """Make the score for these sizes; with heads, for queries (*B, H, T, Q)."""
        return build_per_head_score(
            lambda: self.build_single_head(query_size=query_size, key_size=key_size), num_heads
        )


def _check_equal_sizes(score: str, query_size: int, key_size: int) -> None:
    if query_size != key_size:
        raise ConfigError(
            "score.type",
            f"{score} needs equal sizes, but queries have {query_size} and keys {key_size}",
            "make the sizes equal, or choose 'bilinear' or 'additive'",
        )
