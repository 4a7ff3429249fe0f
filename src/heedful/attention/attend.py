"""Attention: a score, an alignment and a readout, asked together.

What can be attended to is a value, `Memory`, made ready once per source and passed in; what was
found is a value too, `Attended`, with the `Past` that the next queries go on from. The module
keeps nothing between calls. Law: queries asked together are answered as if one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from heedful.attention.alignments import Aligned, Alignment, Looked, join
from heedful.attention.past import Past
from heedful.attention.penalties import Penalty
from heedful.attention.readouts import Readout
from heedful.attention.scores import Prepared, Score
from heedful.errors import DataError
from heedful.shapes import Bool, Float

Kind = Literal["cross", "self", "own past", "grid"]


class Memory(NamedTuple):
    """What can be attended to, made ready once per source."""

    values: Float[Tensor, "*B S V"]
    keys: Prepared  # already passed through Score.prepare
    mask: Bool[Tensor, "*B #T S"]


class Attended(NamedTuple):
    """What attention found, and where it looked."""

    context: Float[Tensor, "*B T V"] | Float[Tensor, "*B T S V"]  # the latter if per position
    weights: Float[Tensor, "*B T S"]  # with many heads, their mean
    aligned: Aligned  # all that is known of where it looked; with many heads, of each
    past: Past | None  # for the next queries to go on from; None where none came in


class Attention(nn.Module):
    """The three choices that make an attention mechanism, and nothing else."""

    def __init__(
        self,
        score: Score,
        align: Alignment,
        read: Readout,
        *,
        penalties: Sequence[Penalty] = (),
        kind: Kind = "cross",
    ) -> None:
        super().__init__()
        self.score = score
        self.align = align
        self.read = read
        self.penalties = nn.ModuleList(penalties)
        self.kind = kind

    def remember(self, values: Float[Tensor, "*B S V"], mask: Bool[Tensor, "*#B #T S"]) -> Memory:
        """Make a source ready to be attended to."""
        if values.size(-2) == 0:
            raise DataError(
                "attention",
                "there is nothing to attend to: the source has no positions",
                "leave empty sources out, or end each with a symbol",
            )
        everywhere = mask.expand(*values.shape[:-2], -1, -1)  # (*B, T or 1, S)
        return Memory(values, self.score.prepare(values), everywhere)

    def begin(self, memory: Memory) -> Past:
        """Nothing has been asked of this memory."""
        values = memory.values
        nowhere = values.new_zeros(values.shape[:-1])  # (*B, S)
        nothing = torch.zeros_like(values[..., 0, :])  # (*B, V)
        draw = torch.rand if self.training else torch.ones
        chance = draw(nowhere.shape[:-1], device=values.device)
        return Past(torch.zeros_like(chance, dtype=torch.long), nowhere, nowhere, nothing, chance)

    def forward(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory, past: Past | None = None
    ) -> Attended:
        """Look into the memory, once for every query; no past means that none was asked yet."""
        if self.score.looks_back and queries.size(-2) > 1:
            return self._one_by_one(queries, memory, past or self.begin(memory))
        aligned = self.weigh(queries, memory, past)
        context = self.read(aligned.weights, memory.values, queries)
        after = past and self._after(past, aligned, context)
        return Attended(context, aligned.weights, aligned, after)

    def weigh(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory, past: Past | None = None
    ) -> Aligned:
        """Say where each query looks, without taking anything."""
        scores = self.score(queries, memory.keys, past)
        return self.align(scores, memory.mask, queries, past)

    def penalise(self, looked: Looked) -> dict[str, Float[Tensor, ""]]:
        """Say, by name, what is added to the loss for where attention went."""
        penalties = cast(Iterable[Penalty], self.penalties)
        return self.align.penalise(looked) | {each.name: each(looked) for each in penalties}

    def _one_by_one(
        self, queries: Float[Tensor, "*B T Q"], memory: Memory, past: Past | None
    ) -> Attended:
        contexts, parts = [], []
        for place, query in enumerate(queries.split(1, dim=-2)):
            mask = memory.mask
            seen = mask if mask.size(-2) == 1 else mask[..., place : place + 1, :]
            attended = self(query, memory._replace(mask=seen), past)
            past = attended.past
            contexts.append(attended.context)
            parts.append(attended.aligned)
        aligned = join(parts)
        context = torch.cat(contexts, dim=queries.dim() - 2)  # (*B, T, V) or (*B, T, S, V)
        return Attended(context, aligned.weights, aligned, past)

    def _after(self, past: Past, aligned: Aligned, context: Tensor) -> Past:
        return Past(
            past.asked + aligned.weights.size(-2),
            aligned.pointers[..., -1, :],
            past.total + aligned.weights.sum(dim=-2),
            past.context if self.read.is_per_position else context[..., -1, :],
            past.chance,
        )
