"""Block attention: a sequence cut into blocks, each of which sees itself alone.

Law: it is full attention under a mask of blocks, for time and memory that grow with the length of
a sequence and not with its square.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import pad

from heedful.attention.attention import Attention
from heedful.attention.masks import padding_mask
from heedful.attention.outputs import AttentionOutput, AttentionState, Memory, PreparedKeys
from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type
from heedful.errors import ConfigError
from heedful.ops import op
from heedful.pytree import Nested, map_pairs
from heedful.shapes import Bool, Float, Int

# Self-attention: how do the places of one sequence look at one another?
#
# A sequence may look both ways, or only back; looking back, it can be read piece by piece, with
# what was read before kept in a `SelfAttentionCache`. The cache is a value like any other state: it goes in,
# comes out longer, and a search selects its rows. Rows may be of unlike length; each goes on from
# its own end.


class KVCache(NamedTuple):
    """What there is of the places that have been read; past a row's end it means nothing."""

    values: Float[Tensor, "B *H S V"]
    keys: PreparedKeys


class SelfAttentionCache(NamedTuple):
    """What a sublayer keeps of the places it has read."""

    kv_cache: KVCache | None  # None before the first
    attention_state: AttentionState | None = (
        None  # only where it counts where earlier places looked
    )
    recent: Float[Tensor, "B R D"] | None = None  # the last inputs, where more are waited for


class SelfAttentionOutput(NamedTuple):
    """What places found, and what is kept to go on from."""

    outputs: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T S"] | None  # where each looked, of all places so far
    cache: SelfAttentionCache


class SelfAttention(nn.Module, ABC):
    """How far the places of a sequence see."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention
        attention.role = "self"

    def initial_state(self, inputs: Float[Tensor, "B T D"]) -> SelfAttentionCache:
        """Nothing has been read, of as many rows as these."""
        return SelfAttentionCache(None)

    @abstractmethod
    def forward_bidirectional(
        self, inputs: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B S D"]:
        """Let the places of whole sequences look at those before and after them."""

    @abstractmethod
    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        cache: SelfAttentionCache,
        start_positions: Int[Tensor, "B"],
        lengths: Int[Tensor, "B"],
        *,
        need_weights: bool = False,
    ) -> SelfAttentionOutput:
        """Let places look at themselves and back.

        `first` is the number of each row's first place and `lengths` how many there are. What a
        row holds past its end is overwritten by what it goes on with.
        """


class FullSelfAttention(SelfAttention):
    """Every place sees every other, or every earlier one."""

    def forward_bidirectional(
        self, inputs: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B S D"]:
        """Let the places of whole sequences look at those before and after them."""
        memory = self.attention.build_memory(inputs, padding_mask(lengths, inputs.size(1)))
        return self.attention(inputs, memory, need_weights=False).context

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        cache: SelfAttentionCache,
        start_positions: Int[Tensor, "B"],
        lengths: Int[Tensor, "B"],
        *,
        need_weights: bool = False,
    ) -> SelfAttentionOutput:
        """Let places look at themselves and back."""
        held, places = append_to_cache(self.attention, inputs, cache.kv_cache, start_positions)
        seen = torch.arange(held.values.size(-2), device=places.device)
        memory = as_memory(held, self.visibility(seen, places.unsqueeze(-1)))
        past = attention_state_for(self.attention, memory, cache, start_positions)
        attended = self.attention(inputs, memory, past, need_weights=need_weights)
        next_state = attended.state if self.attention.is_stateful else None
        return SelfAttentionOutput(
            attended.context, attended.weights, SelfAttentionCache(held, next_state)
        )

    def visibility(
        self, key_positions: Int[Tensor, "S"], query_positions: Int[Tensor, "#B T 1"]
    ) -> Bool[Tensor, "#B T S"]:
        """Say which places a place of this number sees."""
        return key_positions <= query_positions


def append_to_cache(
    attention: Attention,
    inputs: Float[Tensor, "B T D"],
    kv_cache: KVCache | None,
    start_positions: Int[Tensor, "B"],
) -> tuple[KVCache, Int[Tensor, "#B T"]]:
    """Add places to those that are held; give also the numbers of the new ones."""
    full_mask = torch.ones(1, 1, inputs.size(1), dtype=torch.bool, device=inputs.device)
    numbers = torch.arange(inputs.size(1), device=inputs.device)
    if kv_cache is None:
        values, keys, _ = attention.build_memory(inputs, full_mask)
        return KVCache(values, keys), numbers.unsqueeze(0)
    values, keys, _ = attention.build_memory(inputs, full_mask, start_positions=start_positions)
    places = start_positions.unsqueeze(1) + numbers
    return write_to_cache(kv_cache, KVCache(values, keys), places), places


def write_to_cache(cached: Nested, added: Nested, positions: Int[Tensor, "B T"]) -> Nested:
    """Put tensors (B, ..., T, X) into longer ones (B, ..., S + T, X), at each row's own places."""
    return map_pairs(lambda old, new: write_rows(old, new, positions), cached, added)


@op
def write_rows(
    cached: Float[Tensor, "B *H S X"],
    new: Float[Tensor, "B *H T X"],
    positions: Int[Tensor, "B T"],
) -> Float[Tensor, "B *H R X"]:
    """Append room for T positions to a cache, then write each row at its own positions."""
    grown = pad(cached, (0, 0, 0, new.size(-2)))
    index = positions[(slice(None), *(None,) * (new.dim() - 3), slice(None), None)]
    return grown.scatter(-2, index.expand(new.shape), new)


AttendFunction = Callable[[Tensor, Tensor, Any], Tensor]


@op
def attend_at_positions(
    attend: AttendFunction,
    queries: Float[Tensor, "B T D"],
    positions: Int[Tensor, "B T"],
    memory: Any,
    parameters: Sequence[Tensor],
) -> Float[Tensor, "B T V"]:
    """Return attend(queries, positions, memory), where only `parameters` are learned."""
    return attend(queries, positions, memory)


def as_memory(kv_cache: KVCache, visible: Bool[Tensor, "#B T S"]) -> Memory:
    """Say what may be seen; heads, where there are any, stand between rows and places."""
    rows = visible.expand(len(kv_cache.values), -1, -1)
    return Memory(*kv_cache, rows if kv_cache.values.dim() == 3 else rows.unsqueeze(1))


def attention_state_for(
    attention: Attention,
    memory: Memory,
    cache: SelfAttentionCache,
    start_positions: Int[Tensor, "B"],
) -> AttentionState | None:
    """Make what queries must know of those before them: the less, the faster they are."""
    if not attention.needs_positions or (cache.kv_cache is None and not attention.is_stateful):
        return None
    past = cache.attention_state or attention.initial_state(memory)
    longer = memory.values.size(-2) - past.last_weights.size(-1)
    asked = start_positions[(..., *(None,) * (past.num_queries.dim() - 1))].expand_as(
        past.num_queries
    )
    return past._replace(
        num_queries=asked,
        last_weights=pad(past.last_weights, (0, longer)),
        coverage=pad(past.coverage, (0, longer)),
    )


class BlockSelfAttention(FullSelfAttention):
    """Places see those of their own block of so many  (Liu et al. 2018, section 4.2.3: 256)."""

    def __init__(self, attention: Attention, *, block_size: int) -> None:
        super().__init__(attention)
        self.block_size = block_size

    def forward_bidirectional(
        self, inputs: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B S D"]:
        """Let the places of whole sequences look at all those of their block."""
        numbers = torch.arange(inputs.size(1), device=inputs.device)
        real = (numbers < lengths.unsqueeze(1)).unsqueeze(-1)  # (B, S, 1)
        visible = self._split_into_blocks(real).transpose(1, 2)  # (B * blocks, 1, block)
        return self._attend_in_blocks(inputs, visible)

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        cache: SelfAttentionCache,
        start_positions: Int[Tensor, "B"],
        lengths: Int[Tensor, "B"],
        *,
        need_weights: bool = False,
    ) -> SelfAttentionOutput:
        """Let places look at themselves and back to where their block begins."""
        if cache.kv_cache is not None or need_weights or inputs.size(1) <= self.block_size:
            return super().forward(
                inputs, cache, start_positions, lengths, need_weights=need_weights
            )
        numbers = torch.arange(self.block_size, device=inputs.device)
        outputs = self._attend_in_blocks(inputs, (numbers <= numbers.unsqueeze(1)).unsqueeze(0))
        kv_cache, _ = append_to_cache(self.attention, inputs, None, start_positions)
        return SelfAttentionOutput(outputs, None, SelfAttentionCache(kv_cache))

    def visibility(
        self, key_positions: Int[Tensor, "S"], query_positions: Int[Tensor, "#B T 1"]
    ) -> Bool[Tensor, "#B T S"]:
        """Say which places a place of this number sees."""
        return (key_positions <= query_positions) & (
            key_positions // self.block_size == query_positions // self.block_size
        )

    def _attend_in_blocks(
        self, inputs: Float[Tensor, "B S D"], visible: Bool[Tensor, "#N #L L"]
    ) -> Float[Tensor, "B S D"]:
        blocks = self._split_into_blocks(inputs)
        memory = self.attention.build_memory(blocks, visible)
        attended = self.attention(blocks, memory, need_weights=False).context
        return attended.reshape(len(inputs), -1, attended.size(-1))[:, : inputs.size(1)]

    def _split_into_blocks(self, values: Tensor) -> Tensor:
        """Cut (B, S, X) into blocks that count as rows, (B * blocks, block, X)."""
        missing = -values.size(1) % self.block_size
        return pad(values, (0, 0, 0, missing)).reshape(-1, self.block_size, values.size(-1))


# Compressed attention: every place sees all that came before, but in fewer, wider pieces.
#
# Neighbouring places are pressed into one by a convolution that does not overlap, and only what is
# pressed can be looked at. Law: a place sees a piece when all of it lies at or before the place,
# so nothing of the future leaks; a place with no whole piece before it finds nothing, and gets
# zeros, or the bias of its heads where they have one.


class CompressedSelfAttention(SelfAttention):
    """attend(q, press_k(x), press_v(x)), both convolutions as wide as their stride.

    (Liu et al. 2018, section 4.2.3: kernel and stride 3.) The paper presses keys and values after
    they were projected, here before: two linear maps in a row, and the same maps can be learned.
    """

    def __init__(self, attention: Attention, *, size: int, stride: int) -> None:
        super().__init__(attention)
        self.stride = stride
        self.compress_keys = nn.Conv1d(size, size, stride, stride=stride)
        self.compress_values = nn.Conv1d(size, size, stride, stride=stride)

    def initial_state(self, inputs: Float[Tensor, "B T D"]) -> SelfAttentionCache:
        """Nothing has been read; the places before the first are zeros."""
        rows, size = len(inputs), inputs.size(-1)
        return SelfAttentionCache(None, recent=inputs.new_zeros(rows, self.stride - 1, size))

    def forward_bidirectional(
        self, inputs: Float[Tensor, "B S D"], lengths: Int[Tensor, "B"]
    ) -> Float[Tensor, "B S D"]:
        """Let the places of whole sequences look at all pieces; the last may be filled up."""
        numbers = torch.arange(inputs.size(1), device=inputs.device)
        real = (numbers < lengths.unsqueeze(1)).unsqueeze(-1)
        segments = self._compress(inputs * real)
        begins = torch.arange(segments.values.size(-2), device=inputs.device) * self.stride
        memory = as_memory(segments, (begins < lengths.unsqueeze(1)).unsqueeze(1))
        return self.attention(inputs, memory, need_weights=False).context

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        cache: SelfAttentionCache,
        start_positions: Int[Tensor, "B"],
        lengths: Int[Tensor, "B"],
        *,
        need_weights: bool = False,
    ) -> SelfAttentionOutput:
        """Let places look back at pieces; the weight of a piece is that of its places, evenly."""
        assert cache.recent is not None
        padded_inputs = torch.cat([cache.recent, inputs], dim=1)  # from place first - stride + 1 on
        kv_cache = self._append(padded_inputs, cache.kv_cache, start_positions)
        places = start_positions.unsqueeze(1) + torch.arange(inputs.size(1), device=inputs.device)
        outputs, weights = self._attend(inputs, kv_cache, places, need_weights)
        last = lengths.unsqueeze(1) + torch.arange(self.stride - 1, device=lengths.device)
        recent = padded_inputs.gather(1, last.unsqueeze(-1).expand(-1, -1, padded_inputs.size(-1)))
        spread = None if weights is None else self._expand_weights(weights)
        return SelfAttentionOutput(outputs, spread, SelfAttentionCache(kv_cache, recent=recent))

    def _append(
        self,
        padded_inputs: Float[Tensor, "B R D"],
        kv_cache: KVCache | None,
        start_positions: Int[Tensor, "B"],
    ) -> KVCache:
        """Press what has become whole, and what has not: that is pressed again when it is."""
        if kv_cache is None:
            return self._compress(padded_inputs[:, self.stride - 1 :])
        num_pieces = (
            padded_inputs.size(1) - 1
        ) // self.stride + 1  # that the new places can lie in
        numbers = start_positions.unsqueeze(1) // self.stride + torch.arange(
            num_pieces, device=start_positions.device
        )
        begins = (
            numbers * self.stride - start_positions.unsqueeze(1) + self.stride - 1
        )  # (B, pieces)
        within = begins.unsqueeze(-1) + torch.arange(self.stride, device=start_positions.device)
        index = within.flatten(1).clamp(max=padded_inputs.size(1) - 1).unsqueeze(-1)
        segments = self._compress(
            padded_inputs.gather(1, index.expand(-1, -1, padded_inputs.size(-1)))
        )
        return write_to_cache(kv_cache, segments, numbers)

    def _compress(self, inputs: Float[Tensor, "B R D"]) -> KVCache:
        """Press places into pieces, the last of them filled up with zeros."""
        filled = pad(inputs, (0, 0, 0, -inputs.size(1) % self.stride)).transpose(1, 2)
        keys, values = (
            press(filled).transpose(1, 2) for press in (self.compress_keys, self.compress_values)
        )
        everything = torch.ones(1, 1, keys.size(1), dtype=torch.bool, device=inputs.device)
        memory = self.attention.build_memory(values, everything, keys=keys)
        return KVCache(memory.values, memory.keys)

    def _expand_weights(self, weights: Float[Tensor, "B T S"]) -> Float[Tensor, "B T R"]:
        return weights.repeat_interleave(self.stride, dim=-1) / self.stride

    def _attend(
        self,
        inputs: Float[Tensor, "B T D"],
        kv_cache: KVCache,
        positions: Int[Tensor, "B T"],
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T S"] | None]:
        ends = (
            torch.arange(1, kv_cache.values.size(-2) + 1, device=positions.device) * self.stride - 1
        )

        def attend(queries: Tensor, positions: Tensor, kv_cache: KVCache) -> AttentionOutput:
            memory = as_memory(kv_cache, ends <= positions.unsqueeze(-1))
            return self.attention(queries, memory, need_weights=need_weights)

        if need_weights:
            attended = attend(inputs, positions, kv_cache)
            return attended.context, attended.weights
        contexts = attend_at_positions(
            lambda *args: attend(*args).context,
            inputs,
            positions,
            kv_cache,
            list(self.attention.parameters()),
        )
        return contexts, None


# How far self-attention sees, as a configuration names it.


class FullSelfAttentionConfig(BaseConfig):
    """Every place sees every other, or every earlier one."""

    type: Literal["full"] = "full"

    def build(self, attention: Attention, *, size: int) -> SelfAttention:
        """Make the self-attention of a layer of this width."""
        return FullSelfAttention(attention)


class BlockSelfAttentionConfig(BaseConfig):
    """A place sees those of its own block (Liu et al. 2018, local attention)."""

    type: Literal["block"] = "block"
    block_size: PositiveInt = 256
    """Places in a block; the paper's number."""

    def build(self, attention: Attention, *, size: int) -> SelfAttention:
        """Make the self-attention of a layer of this width."""
        if attention.is_stateful:
            raise ConfigError(
                "attention_types.type",
                "blocks are looked at side by side, but this attention goes by where it looked "
                "before",
                "choose the span 'full', or another score or alignment",
            )
        return BlockSelfAttention(attention, block_size=self.block_size)


class CompressedSelfAttentionConfig(BaseConfig):
    """A place sees all before it, pressed together (Liu et al. 2018, memory-compressed)."""

    type: Literal["compressed"] = "compressed"
    stride: PositiveInt = 3
    """Places that are pressed into one; the paper's number."""

    def build(self, attention: Attention, *, size: int) -> SelfAttention:
        """Make the self-attention of a layer of this width."""
        if attention.needs_positions:
            raise ConfigError(
                "attention_types.type",
                "places that were pressed together have no number, but this attention goes by it",
                "choose the span 'full', or a score and an alignment that go by content",
            )
        return CompressedSelfAttention(attention, size=size, stride=self.stride)


AnySpanConfig = FullSelfAttentionConfig | BlockSelfAttentionConfig | CompressedSelfAttentionConfig
SelfAttentionConfig = Annotated[
    AnySpanConfig,
    Field(discriminator="type"),
    allow_bare_type(AnySpanConfig | Literal["full", "block", "compressed"]),
]
