"""Self-attention: full, within blocks, or over a compressed sequence.

Causal attention reads sequences by chunks, with earlier positions in a `SelfAttentionCache`; rows
may have different lengths, and each continues at its own end. Invariants: block attention is full
attention under a block mask; a causal position sees a compressed segment only if the whole segment
lies at or before it.
"""

from abc import ABC, abstractmethod
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import pad
from typing_extensions import override

from heedful.attention.attention import Attention, AttentionOutput
from heedful.attention.masks import block_local_mask, causal_mask, check_padding_mask
from heedful.attention.memory import AttentionState, Memory, PreparedKeys
from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type
from heedful.errors import check
from heedful.pytree import Nested, map_pairs
from heedful.shapes import AnyMask, Bool, Float, HiddenStates, Int, Lengths, Positions, TargetMask

PositionMask = Bool[Tensor, "#B T S"]


class BatchPositions(NamedTuple):
    """Positions of the columns of a batch in their sequences."""

    start_positions: Int[Tensor, "B"]  # of each row's first column
    lengths: Lengths  # number of real columns
    mask: TargetMask  # True for real columns

    @classmethod
    def from_lengths(
        cls, inputs: HiddenStates, start_positions: Int[Tensor, "B"], lengths: Lengths
    ) -> "BatchPositions":
        """Mark the first `lengths` columns of the inputs as real."""
        columns = torch.arange(inputs.size(1), device=inputs.device)
        return cls(start_positions, lengths, columns < lengths.unsqueeze(1))


class KVCache(NamedTuple):
    """Values and prepared keys of the positions read so far; undefined behind a row's end."""

    values: Float[Tensor, "B *H S V"]
    keys: PreparedKeys


class SelfAttentionCache(NamedTuple):
    """State of self-attention between positions."""

    kv_cache: KVCache | None  # None before the first position
    attention_state: AttentionState | None = None  # where attention depends on it
    recent: Float[Tensor, "B R D"] | None = None  # last inputs, for the next compressed segment


class SelfAttentionOutput(NamedTuple):
    """Output of causal self-attention."""

    outputs: HiddenStates
    weights: Float[Tensor, "B T S"] | None  # over all positions so far
    cache: SelfAttentionCache


class SelfAttention(nn.Module, ABC):
    """Interface of self-attention."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention
        attention.role = "self"

    def initial_state(self, inputs: HiddenStates) -> SelfAttentionCache:
        """Return the cache before the first position, for as many rows as the inputs have."""
        return SelfAttentionCache(None)

    @abstractmethod
    def forward_bidirectional(self, inputs: HiddenStates, mask: AnyMask = None) -> HiddenStates:
        """Attend from each position to those that the mask (B, T) marks as real; None: to all."""

    @abstractmethod
    def forward(
        self,
        inputs: HiddenStates,
        cache: SelfAttentionCache,
        positions: BatchPositions,
        *,
        need_weights: bool = False,
    ) -> SelfAttentionOutput:
        """Attend from the next positions to themselves and earlier ones."""


class FullSelfAttention(SelfAttention):
    """Each position sees all others, or all earlier ones."""

    @override
    def forward_bidirectional(self, inputs: HiddenStates, mask: AnyMask = None) -> HiddenStates:
        memory = self.attention.build_memory(inputs, mask)
        return self.attention(inputs, memory, need_weights=False).context

    @override
    def forward(
        self,
        inputs: HiddenStates,
        cache: SelfAttentionCache,
        positions: BatchPositions,
        *,
        need_weights: bool = False,
    ) -> SelfAttentionOutput:
        start_positions = positions.start_positions
        kv_cache, query_positions = self._append(inputs, cache.kv_cache, start_positions)
        mask = self.build_mask(kv_cache.values.size(-2), query_positions)
        memory = as_memory(kv_cache, mask)
        state = self._attention_state(memory, cache, start_positions)
        attended = self.attention(inputs, memory, state, need_weights=need_weights)
        next_state = attended.state if self.attention.is_stateful else None
        next_cache = SelfAttentionCache(kv_cache, next_state)
        return SelfAttentionOutput(attended.context, attended.weights, next_cache)

    def build_mask(self, num_keys: int, query_positions: Int[Tensor, "#B T"]) -> PositionMask:
        """Return the causal mask of queries at these positions."""
        return causal_mask(num_keys, query_positions)

    def _append(
        self, inputs: HiddenStates, kv_cache: KVCache | None, start_positions: Int[Tensor, "B"]
    ) -> tuple[KVCache, Int[Tensor, "#B T"]]:
        """Append the values and keys of new positions; return the cache and these positions."""
        offsets = torch.arange(inputs.size(1), device=inputs.device)
        values, keys, _ = self.attention.build_memory(
            inputs, start_positions=None if kv_cache is None else start_positions
        )
        if kv_cache is None:
            return KVCache(values, keys), offsets.unsqueeze(0)
        positions = start_positions.unsqueeze(1) + offsets
        return write_to_cache(kv_cache, KVCache(values, keys), positions), positions

    def _attention_state(
        self, memory: Memory, cache: SelfAttentionCache, start_positions: Int[Tensor, "B"]
    ) -> AttentionState | None:
        """Return the state of the next queries, or None if attention does not depend on it."""
        is_first = cache.kv_cache is None and not self.attention.is_stateful
        if is_first or not self.attention.needs_positions:
            return None
        state = cache.attention_state or self.attention.initial_state(memory)
        num_new_keys = memory.values.size(-2) - state.last_weights.size(-1)
        head_dims = (None,) * (state.num_queries.dim() - 1)
        return state._replace(
            num_queries=start_positions[(..., *head_dims)].expand_as(state.num_queries),
            last_weights=pad(state.last_weights, (0, num_new_keys)),
            coverage=pad(state.coverage, (0, num_new_keys)),
        )


def write_to_cache(cached: Nested, added: Nested, positions: Positions) -> Nested:
    """Write nested tensors (B, ..., T, X) into a cache, at each row's own positions."""
    return map_pairs(lambda old, new: _write_rows(old, new, positions), cached, added)


def _write_rows(
    cached: Float[Tensor, "B *H S X"], new: Float[Tensor, "B *H T X"], positions: Positions
) -> Float[Tensor, "B *H R X"]:
    """Lengthen a tensor by T positions, then write each row at its own positions."""
    grown = pad(cached, (0, 0, 0, new.size(-2)))
    index = positions[(slice(None), *(None,) * (new.dim() - 3), slice(None), None)]
    return grown.scatter_(-2, index.expand(new.shape), new)


def as_memory(kv_cache: KVCache, visible: PositionMask) -> Memory:
    """Combine a cache with a mask, which is the same for all heads."""
    mask = visible.expand(len(kv_cache.values), -1, -1)
    return Memory(*kv_cache, mask if kv_cache.values.dim() == 3 else mask.unsqueeze(1))


class FullSelfAttentionConfig(BaseConfig):
    """Each position sees all others, or all earlier ones."""

    type: Literal["full"] = "full"

    def build(self, attention: Attention, *, size: int) -> SelfAttention:
        return FullSelfAttention(attention)


class BlockSelfAttention(FullSelfAttention):
    """Positions see their own block, at linear cost (Liu et al. 2018, section 4.2.3)."""

    def __init__(self, attention: Attention, *, block_size: int) -> None:
        super().__init__(attention)
        attention.is_segmented = True
        self.block_size = block_size

    @override
    def forward_bidirectional(self, inputs: HiddenStates, mask: AnyMask = None) -> HiddenStates:
        is_real = check_padding_mask(mask, inputs).unsqueeze(-1)
        block_mask = self._split_into_blocks(is_real).mT  # (B * blocks, 1, block)
        return self._attend_by_block(inputs, block_mask)

    @override
    def forward(
        self,
        inputs: HiddenStates,
        cache: SelfAttentionCache,
        positions: BatchPositions,
        *,
        need_weights: bool = False,
    ) -> SelfAttentionOutput:
        if cache.kv_cache is not None or need_weights or inputs.size(1) <= self.block_size:
            return super().forward(inputs, cache, positions, need_weights=need_weights)
        mask = causal_mask(self.block_size, device=inputs.device)
        outputs = self._attend_by_block(inputs, mask)
        kv_cache, _ = self._append(inputs, None, positions.start_positions)
        return SelfAttentionOutput(outputs, None, SelfAttentionCache(kv_cache))

    @override
    def build_mask(self, num_keys: int, query_positions: Int[Tensor, "#B T"]) -> PositionMask:
        is_same_block = block_local_mask(num_keys, self.block_size, query_positions)
        return causal_mask(num_keys, query_positions) & is_same_block

    def _attend_by_block(self, inputs: HiddenStates, mask: Bool[Tensor, "#N #L L"]) -> HiddenStates:
        blocks = self._split_into_blocks(inputs)
        memory = self.attention.build_memory(blocks, mask)
        context = self.attention(blocks, memory, need_weights=False).context
        return context.reshape(len(inputs), -1, context.size(-1))[:, : inputs.size(1)]

    def _split_into_blocks(self, values: Tensor) -> Tensor:
        """Split (B, S, X) into padded blocks (B * blocks, block, X)."""
        padding = -values.size(1) % self.block_size
        return pad(values, (0, 0, 0, padding)).reshape(-1, self.block_size, values.size(-1))


class BlockSelfAttentionConfig(BaseConfig):
    """Positions see their own block (Liu et al. 2018, local attention)."""

    type: Literal["block"] = "block"
    block_size: PositiveInt = 256
    """Positions per block; 256 in the paper."""

    def build(self, attention: Attention, *, size: int) -> SelfAttention:
        reason = "this attention depends on earlier alignments"
        message = f"'block' computes all blocks at once, but {reason}"
        hint = "use 'full', or another score or alignment"
        check(not attention.is_stateful, "attention_types.type", message, hint)
        return BlockSelfAttention(attention, block_size=self.block_size)


class CompressedSelfAttention(SelfAttention):
    """attend(q, conv_k(x), conv_v(x)), with convolutions as wide as their stride.

    (Liu et al. 2018, section 4.2.3: kernel and stride 3.) The paper compresses keys and values
    after their projections, here before them: both are linear, so the same maps can be learned. A
    position without a whole segment before it gets zeros, or the output bias of the heads.
    """

    def __init__(self, attention: Attention, *, size: int, stride: int) -> None:
        super().__init__(attention)
        attention.is_segmented = True
        self.stride = stride
        self.compress_keys = nn.Conv1d(size, size, stride, stride=stride)
        self.compress_values = nn.Conv1d(size, size, stride, stride=stride)

    @override
    def initial_state(self, inputs: HiddenStates) -> SelfAttentionCache:
        recent = inputs.new_zeros(len(inputs), self.stride - 1, inputs.size(-1))
        return SelfAttentionCache(None, recent=recent)

    @override
    def forward_bidirectional(self, inputs: HiddenStates, mask: AnyMask = None) -> HiddenStates:
        mask = check_padding_mask(mask, inputs)
        segments = self._compress(inputs * mask.unsqueeze(-1))
        memory = as_memory(segments, mask[:, :: self.stride].unsqueeze(1))
        return self.attention(inputs, memory, need_weights=False).context

    @override
    def forward(
        self,
        inputs: HiddenStates,
        cache: SelfAttentionCache,
        positions: BatchPositions,
        *,
        need_weights: bool = False,
    ) -> SelfAttentionOutput:
        """The weight of a segment is spread evenly over its positions."""
        assert cache.recent is not None
        device, starts = inputs.device, positions.start_positions.unsqueeze(1)
        recent_and_new = torch.cat([cache.recent, inputs], dim=1)  # from start - stride + 1 on
        kv_cache = self._append(recent_and_new, cache.kv_cache, starts)
        query_positions = starts + torch.arange(inputs.size(1), device=device)
        attended = self.attend(inputs, query_positions, kv_cache, need_weights=need_weights)
        weights = None
        if need_weights:
            assert attended.weights is not None
            weights = attended.weights.repeat_interleave(self.stride, dim=-1) / self.stride
        last = positions.lengths.unsqueeze(1) + torch.arange(self.stride - 1, device=device)
        recent = _gather(recent_and_new, last)
        next_cache = SelfAttentionCache(kv_cache, recent=recent)
        return SelfAttentionOutput(attended.context, weights, next_cache)

    def attend(
        self,
        queries: HiddenStates,
        positions: Positions,
        kv_cache: KVCache,
        *,
        need_weights: bool = False,
    ) -> AttentionOutput:
        """Attend from queries at these positions to the segments that end there or before."""
        segments = torch.arange(1, kv_cache.values.size(-2) + 1, device=queries.device)
        memory = as_memory(kv_cache, segments * self.stride - 1 <= positions.unsqueeze(-1))
        return self.attention(queries, memory, need_weights=need_weights)

    def _append(
        self,
        recent_and_new: Float[Tensor, "B R D"],
        kv_cache: KVCache | None,
        starts: Int[Tensor, "B 1"],
    ) -> KVCache:
        """Compress the segments of new positions; an incomplete one is compressed again later."""
        if kv_cache is None:
            return self._compress(recent_and_new[:, self.stride - 1 :])
        num_segments = (recent_and_new.size(1) - 1) // self.stride + 1
        segments = starts // self.stride + torch.arange(num_segments, device=starts.device)
        segment_starts = segments * self.stride - starts + self.stride - 1  # (B, segments)
        index = segment_starts.unsqueeze(-1) + torch.arange(self.stride, device=starts.device)
        index = index.flatten(1).clamp(max=recent_and_new.size(1) - 1)
        compressed = self._compress(_gather(recent_and_new, index))
        return write_to_cache(kv_cache, compressed, segments)

    def _compress(self, inputs: Float[Tensor, "B R D"]) -> KVCache:
        """Compress positions into segments, the last one padded with zeros."""
        padded = pad(inputs, (0, 0, 0, -inputs.size(1) % self.stride)).transpose(1, 2)
        keys = self.compress_keys(padded).transpose(1, 2)
        values = self.compress_values(padded).transpose(1, 2)
        return KVCache(*self.attention.build_memory(values, keys=keys)[:2])


def _gather(inputs: Float[Tensor, "B R D"], index: Int[Tensor, "B N"]) -> Float[Tensor, "B N D"]:
    return inputs.gather(1, index.unsqueeze(-1).expand(-1, -1, inputs.size(-1)))


class CompressedSelfAttentionConfig(BaseConfig):
    """Positions see all earlier ones, compressed (Liu et al. 2018, memory-compressed)."""

    type: Literal["compressed"] = "compressed"
    stride: PositiveInt = 3
    """Positions that are compressed into one; 3 in the paper."""

    def build(self, attention: Attention, *, size: int) -> SelfAttention:
        message = "compressed positions have no index, but this attention depends on positions"
        hint = "use 'full', or a score and an alignment that depend on content alone"
        check(not attention.needs_positions, "attention_types.type", message, hint)
        return CompressedSelfAttention(attention, size=size, stride=self.stride)


_SelfAttentions = FullSelfAttentionConfig | BlockSelfAttentionConfig | CompressedSelfAttentionConfig
SelfAttentionConfig = Annotated[
    _SelfAttentions, Field(discriminator="type"), allow_bare_type(_SelfAttentions)
]
