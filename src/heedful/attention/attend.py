"""Attention: a score, an alignment and a readout, asked together.

What can be attended to is a value, `Memory`, made ready once per source and passed in; what was
found is a value too, `Attended`, with the `Past` that the next queries go on from. The module
keeps nothing between calls. Law: queries asked together are answered as if one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from heedful.attention.alignments import Aligned, Alignment, Looked, Sharing, join
from heedful.attention.fused.rules import context_form
from heedful.attention.past import Past
from heedful.attention.penalties import Penalty
from heedful.attention.readouts import Readout
from heedful.attention.scores import Prepared, Score
from heedful.errors import DataError
from heedful.shapes import Bool, Float, Int

Kind = Literal["cross", "self", "own past", "grid"]


class Memory(NamedTuple):
    """What can be attended to, made ready once per source."""

    values: Float[Tensor, "*B S V"]
    keys: Prepared  # already passed through Score.prepare
    mask: Bool[Tensor, "*B #T S"]


class Attended(NamedTuple):
    """What attention found, and where it looked."""

    context: Float[Tensor, "*B T V"] | Float[Tensor, "*B T S V"]  # the latter if per position
    weights: Float[Tensor, "*B T S"] | None  # with many heads, their mean; None if not needed
    aligned: Aligned | None  # all that is known of where it looked; with many heads, of each
    past: Past | None  # for the next queries to go on from; None where none came in


class Attends(nn.Module, ABC):
    """What can be asked to look into a memory, with one head or with many."""

    kind: Kind
    """What is looked into, seen from the queries."""

    if TYPE_CHECKING:
        # A submodule in one subclass, a property in the other: torch finds no submodule where a
        # base class has a property of its name.

        @property
        def score(self) -> Score:
            """How strongly places call."""

        @property
        def align(self) -> Alignment:
            """Where attention goes."""

        @property
        def read(self) -> Readout:
            """What is taken."""

    @property
    def has_history(self) -> bool:
        """Whether where earlier queries looked has a say in where is looked."""
        return self.score.looks_back or not isinstance(self.align, Sharing)

    @property
    def knows_places(self) -> bool:
        """Whether a query must be told its number."""
        return self.has_history or self.score.knows_places

    @property
    @abstractmethod
    def is_penalised(self) -> bool:
        """Whether anything is added to the loss for where attention goes."""

    @abstractmethod
    def remember(
        self,
        values: Float[Tensor, "*B S V"],
        mask: Bool[Tensor, "*#B #T S"],
        *,
        keys: Float[Tensor, "*B S V"] | None = None,
        first: Int[Tensor, "*B"] | None = None,
    ) -> Memory:
        """Make a source ready to be attended to.

        It is called for by its `keys`, where these are not what is taken. Of a source that goes
        on from another, `first` is the number of the first place of each row.
        """

    @abstractmethod
    def begin(self, memory: Memory) -> Past:
        """Nothing has been asked of this memory."""

    @abstractmethod
    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        memory: Memory,
        past: Past | None = None,
        *,
        need_weights: bool = True,
    ) -> Attended:
        """Look into the memory, once for every query; no past means that none was asked yet.

        Whoever carries no past and does not need the weights may get none: they are then not
        made where the context can be had without them.
        """

    @abstractmethod
    def weigh(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory, past: Past | None = None
    ) -> Aligned:
        """Say where each query looks, without taking anything."""

    @abstractmethod
    def penalise(self, looked: Looked) -> dict[str, Float[Tensor, ""]]:
        """Say, by name, what is added to the loss for where attention went."""


class Attention(Attends):
    """The three choices that make an attention mechanism, and nothing else."""

    score: Score
    align: Alignment
    read: Readout

    def __init__(
        self,
        score: Score,
        align: Alignment,
        read: Readout,
        *,
        penalties: Sequence[Penalty] = (),
        kind: Kind = "cross",
        dropout: float = 0.0,
    ) -> None:
        """`dropout` is the share of weights that are not taken by, in training."""
        super().__init__()
        self.score = score
        self.align = align
        self.read = read
        self.penalties = nn.ModuleList(penalties)
        self.kind = kind
        self.dropout = nn.Dropout(dropout)

    @property
    def is_penalised(self) -> bool:
        """Whether anything is added to the loss for where attention goes."""
        learns_by_it = type(self.align).penalise is not Alignment.penalise
        return learns_by_it or len(self.penalties) > 0

    def remember(
        self,
        values: Float[Tensor, "*B S V"],
        mask: Bool[Tensor, "*#B #T S"],
        *,
        keys: Float[Tensor, "*B S V"] | None = None,
        first: Int[Tensor, "*B"] | None = None,
    ) -> Memory:
        """Make a source ready to be attended to."""
        refuse_nothing(values)
        everywhere = mask.expand(*values.shape[:-2], -1, -1)  # (*B, T or 1, S)
        return Memory(values, self.prepare(values if keys is None else keys, first), everywhere)

    def prepare(
        self, keys: Float[Tensor, "*B S K"], first: Int[Tensor, "_"] | None = None
    ) -> Prepared:
        """Do once what concerns the keys alone; they stand from `first` on, or from 0."""
        return self.score.prepare(keys) if first is None else self.score.prepare_from(first, keys)

    def begin(self, memory: Memory) -> Past:
        """Nothing has been asked of this memory."""
        values = memory.values
        nowhere = values.new_zeros(values.shape[:-1])  # (*B, S)
        nothing = torch.zeros_like(values[..., 0, :])  # (*B, V)
        draw = torch.rand if self.training else torch.ones
        chance = draw(nowhere.shape[:-1], device=values.device)
        return Past(torch.zeros_like(chance, dtype=torch.long), nowhere, nowhere, nothing, chance)

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"],
        memory: Memory,
        past: Past | None = None,
        *,
        need_weights: bool = True,
    ) -> Attended:
        """Look into the memory, once for every query; no past means that none was asked yet."""
        if past is None and not need_weights:
            context = self.context_alone(queries, memory)
            if context is not None:
                return Attended(context, None, None, None)
        if self.score.looks_back and queries.size(-2) > 1:
            return self._one_by_one(queries, memory, past)
        return self._at_once(queries, memory, past)

    def context_alone(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory
    ) -> Float[Tensor, "*B T V"] | None:
        """Take a context without making weights, or None where that cannot be done.

        The memory may have fewer heads than the queries, if their number divides that of these.
        """
        form = context_form(self.score, self.align, self.read)
        dropped = self.dropout.p if self.training else 0.0
        return form and form(queries, memory.keys, memory.values, memory.mask, dropped)

    def weigh(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory, past: Past | None = None
    ) -> Aligned:
        """Say where each query looks, without taking anything."""
        scores = self.score(queries, memory.keys, past)
        # A score that asks for places alone says the same of every row, and says it once.
        scores = scores.expand(*queries.shape[:-1], -1)
        return self.align(scores, memory.mask, queries, past)

    def penalise(self, looked: Looked) -> dict[str, Float[Tensor, ""]]:
        """Say, by name, what is added to the loss for where attention went."""
        penalties = cast(Iterable[Penalty], self.penalties)
        return self.align.penalise(looked) | {each.name: each(looked) for each in penalties}

    def _at_once(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory, past: Past | None
    ) -> Attended:
        aligned = self.weigh(queries, memory, past)
        context = self.read(self.dropout(aligned.weights), memory.values, queries)
        after = past and self._after(past, aligned, context)
        return Attended(context, aligned.weights, aligned, after)

    def _one_by_one(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory, past: Past | None
    ) -> Attended:
        after: Past | None = past or self.begin(memory)
        contexts, parts = [], []
        for place, query in enumerate(queries.split(1, dim=-2)):
            mask = memory.mask
            seen = mask if mask.size(-2) == 1 else mask[..., place : place + 1, :]
            attended = self._at_once(query, memory._replace(mask=seen), after)
            after = attended.past
            contexts.append(attended.context)
            parts.append(cast(Aligned, attended.aligned))
        aligned = join(parts)
        context = torch.cat(contexts, dim=queries.dim() - 2)  # (*B, T, V) or (*B, T, S, V)
        return Attended(context, aligned.weights, aligned, past and after)

    def _after(self, past: Past, aligned: Aligned, context: Tensor) -> Past:
        return Past(
            past.asked + aligned.weights.size(-2),
            aligned.pointers[..., -1, :],
            past.total + aligned.weights.sum(dim=-2),
            past.context if self.read.is_per_position else context[..., -1, :],
            past.chance,
        )


def refuse_nothing(values: Float[Tensor, "*B S V"]) -> None:
    """Complain about a source without positions."""
    if values.size(-2) == 0:
        raise DataError(
            "attention",
            "there is nothing to attend to: the source has no positions",
            "leave empty sources out, or end each with a symbol",
        )
