"""Self-attention: how do the places of one sequence look at one another?

A sequence may look both ways, or only back; looking back, it can be read piece by piece, with
what was read before kept in a `Cache`. The cache is a value like any other state: it goes in,
comes out longer, and a search selects its rows. Rows may be of unlike length; each goes on from
its own end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from heedful.attention.attend import Attends, Memory
from heedful.attention.masks import padding
from heedful.attention.past import Past
from heedful.attention.scores import Prepared
from heedful.nested import Nested, combine
from heedful.shapes import Bool, Float, Int


class Held(NamedTuple):
    """What there is of the places that have been read; past a row's end it means nothing."""

    values: Float[Tensor, "B *H S V"]
    keys: Prepared


class Cache(NamedTuple):
    """What a sublayer keeps of the places it has read."""

    held: Held | None  # None before the first
    past: Past | None = None  # only where it counts where earlier places looked
    recent: Float[Tensor, "B R D"] | None = None  # the last inputs, where more are waited for


class SelfAttended(NamedTuple):
    """What places found, and what is kept to go on from."""

    outputs: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T S"] | None  # where each looked, of all places so far
    cache: Cache


class SelfAttention(nn.Module, ABC):
    """How far the places of a sequence see."""

    def __init__(self, attention: Attends) -> None:
        super().__init__()
        self.attention = attention
        attention.kind = "self"

    def begin(self, inputs: Float[Tensor, "B T D"]) -> Cache:
        """Nothing has been read, of as many rows as these."""
        return Cache(None)

    @abstractmethod
    def both_ways(
        self, inputs: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B S D"]:
        """Let the places of whole sequences look at those before and after them."""

    @abstractmethod
    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        cache: Cache,
        first: Int[Tensor, "B"],
        lengths: Int[Tensor, "B"],
        *,
        need_weights: bool = False,
    ) -> SelfAttended:
        """Let places look at themselves and back.

        `first` is the number of each row's first place and `lengths` how many there are. What a
        row holds past its end is overwritten by what it goes on with.
        """


class FullSelfAttention(SelfAttention):
    """Every place sees every other, or every earlier one."""

    def both_ways(
        self, inputs: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B S D"]:
        """Let the places of whole sequences look at those before and after them."""
        memory = self.attention.remember(inputs, padding(lengths, inputs.size(1)))
        return self.attention(inputs, memory, need_weights=False).context

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        cache: Cache,
        first: Int[Tensor, "B"],
        lengths: Int[Tensor, "B"],
        *,
        need_weights: bool = False,
    ) -> SelfAttended:
        """Let places look at themselves and back."""
        held, places = extend(self.attention, inputs, cache.held, first)
        seen = torch.arange(held.values.size(-2), device=places.device)
        memory = shown(held, self.visible(seen, places.unsqueeze(-1)))
        past = past_for(self.attention, memory, cache, first)
        attended = self.attention(inputs, memory, past, need_weights=need_weights)
        history = attended.past if self.attention.has_history else None
        return SelfAttended(attended.context, attended.weights, Cache(held, history))

    def visible(self, seen: Int[Tensor, "S"], own: Int[Tensor, "#B T 1"]) -> Bool[Tensor, "#B T S"]:
        """Say which places a place of this number sees."""
        return seen <= own


def extend(
    attention: Attends, inputs: Float[Tensor, "B T D"], held: Held | None, first: Int[Tensor, "B"]
) -> tuple[Held, Int[Tensor, "#B T"]]:
    """Add places to those that are held; give also the numbers of the new ones."""
    everything = torch.ones(1, 1, inputs.size(1), dtype=torch.bool, device=inputs.device)
    numbers = torch.arange(inputs.size(1), device=inputs.device)
    if held is None:
        values, keys, _ = attention.remember(inputs, everything)
        return Held(values, keys), numbers.unsqueeze(0)
    values, keys, _ = attention.remember(inputs, everything, first=first)
    places = first.unsqueeze(1) + numbers
    return write(held, Held(values, keys), places), places


def write(kept: Nested, added: Nested, places: Int[Tensor, "B T"]) -> Nested:
    """Put tensors (B, ..., T, X) into longer ones (B, ..., S + T, X), at each row's own places."""

    def put(old: Tensor, new: Tensor) -> Tensor:
        if _all_go_on(places, old.size(-2)):
            return torch.cat([old, new], dim=-2)
        grown = pad(old, (0, 0, 0, new.size(-2)))
        index = places[(slice(None), *(None,) * (new.dim() - 3), slice(None), None)]
        return grown.scatter(-2, index.expand(new.shape), new)

    return combine(put, kept, added)


def _all_go_on(places: Int[Tensor, "B T"], end: int) -> bool:
    """Whether every row goes on where what is held ends; a GPU would have to be waited for."""
    return places.device.type == "cpu" and bool((places[:, 0] == end).all())


def shown(held: Held, visible: Bool[Tensor, "#B T S"]) -> Memory:
    """Say what may be seen; heads, where there are any, stand between rows and places."""
    rows = visible.expand(len(held.values), -1, -1)
    return Memory(*held, rows if held.values.dim() == 3 else rows.unsqueeze(1))


def past_for(
    attention: Attends, memory: Memory, cache: Cache, first: Int[Tensor, "B"]
) -> Past | None:
    """Make what queries must know of those before them: the less, the faster they are."""
    if not attention.knows_places or (cache.held is None and not attention.has_history):
        return None
    past = cache.past or attention.begin(memory)
    longer = memory.values.size(-2) - past.last.size(-1)
    asked = first[(..., *(None,) * (past.asked.dim() - 1))].expand_as(past.asked)
    return past._replace(
        asked=asked, last=pad(past.last, (0, longer)), total=pad(past.total, (0, longer))
    )
