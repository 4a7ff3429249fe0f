"""One decoding step of standard Transformer layers, with packed weights and shared caches.

A step reads one position of each row, right behind the cached ones. The K hypotheses of each of F
sentences may share one memory of its source and one cache, which holds all positions that any of
them has added; each product with it is one batched product over the sentences. Each of the R = F *
K rows has a mask over the cached positions; reordering the beam changes masks and row indices, not
the cache. Invariants: a step matches the plain layers up to rounding; after any
reordering, each row continues as if it were the only one.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from heedful.acceleration import tuning
from heedful.acceleration.cpu.packed_linear import PackedLinear, activate_inplace
from heedful.attention.alignments import SoftmaxAlignment, mask_scores
from heedful.attention.attention import Attention
from heedful.attention.memory import Memory
from heedful.attention.multi_head import MultiHeadAttention
from heedful.layers.self_attention import KVCache
from heedful.layers.sublayers import FeedForward, SublayerConnection
from heedful.layers.transformer import TransformerLayer
from heedful.pytree import map_pairs, map_tensors, select_rows
from heedful.shapes import Bool, Float, Int

RowVectors = Float[Tensor, "R D"]
VisiblePositions = Bool[Tensor, "R P"]
"""The cached positions that belong to each row."""


class BeamSharedState(NamedTuple):
    """Decoding state of hypotheses that share memories and caches."""

    memories: tuple[Memory, ...]  # of all layers, with one row per sentence
    kv_caches: tuple[KVCache, ...] | None  # likewise; None before the first step
    sentence_index: Int[Tensor, "R"]  # the sentence of each row
    visible: VisiblePositions | None  # None if all positions belong to all rows
    start_positions: Int[Tensor, "R"]

    @classmethod
    def from_memories(
        cls,
        memories: tuple[Memory, ...],
        start_positions: Int[Tensor, "R"],
        kv_caches: tuple[KVCache, ...] | None = None,
    ) -> Self:
        """Return a state in which each row is a sentence of its own."""
        rows = torch.arange(len(start_positions), device=start_positions.device)
        return cls(memories, kv_caches, rows, None, start_positions)

    @property
    def num_sentences(self) -> int:
        """Rows of the memories and caches."""
        return len(self.memories[0].values)

    def map_rows(self, transform: Callable[[Tensor], Tensor]) -> Self:
        """Select rows; memories and caches stay as they are."""
        sentence_index, visible, start_positions = map_tensors(transform, self[2:])
        return type(self)(*self[:2], sentence_index, visible, start_positions)

    def regroup(self) -> Self:
        """Return the state with the rows of a sentence side by side, the same number for each.

        Sentences without rows are dropped. Where some have more rows than others, or more than can
        share a cache at little cost, each row becomes a sentence of its own.
        """
        rows = self.sentence_index.numpy()
        beam_size, rest = divmod(len(rows), self.num_sentences)
        is_small = 0 < beam_size <= tuning.MAX_SHARED_BEAM_SIZE and not rest
        if is_small and (rows == np.arange(self.num_sentences).repeat(beam_size)).all():
            return self
        sentences, counts = np.unique(rows, return_counts=True)
        is_even = (counts == counts[0]).all() and (rows == sentences.repeat(counts)).all()
        if not is_even or counts[0] > tuning.MAX_SHARED_BEAM_SIZE:
            memories, kv_caches = self.per_row()
            return self.from_memories(memories, self.start_positions, kv_caches)
        memories, kv_caches = select_rows(self[:2], torch.from_numpy(sentences))
        sentence_index = torch.from_numpy(np.arange(len(sentences)).repeat(counts))
        return type(self)(memories, kv_caches, sentence_index, *self[3:])

    def next_visible(self) -> VisiblePositions | None:
        """Return the mask after a step in which each row adds a position to its sentence."""
        num_rows = len(self.start_positions)
        beam_size = num_rows // self.num_sentences
        visible = self.visible
        if visible is None:
            if beam_size == 1:
                return None
            num_cached = 0 if self.kv_caches is None else self.kv_caches[0].values.size(-2)
            visible = torch.ones(num_rows, num_cached, dtype=torch.bool)
        added = torch.eye(beam_size, dtype=torch.bool).repeat(self.num_sentences, 1)
        return torch.cat([visible, added], dim=1)

    def per_row(self) -> tuple[tuple[Memory, ...], tuple[KVCache, ...] | None]:
        """Return memories and caches with one row for each hypothesis."""
        memories, kv_caches = select_rows(self[:2], self.sentence_index)
        if self.visible is not None:
            # All rows have the same number of visible positions.
            positions = self.visible.nonzero()[:, 1].view(len(self.start_positions), 1, -1, 1)
            kv_caches = map_tensors(lambda cache: cache.take_along_dim(positions, -2), kv_caches)
        return memories, kv_caches


class GrowingCache(KVCache):
    """A cache that may own a buffer of which it is the start, with spare positions behind it.

    Appending passes the buffer on to the longer cache, so that nothing is written twice. A cache
    that was appended to before, or whose rows were selected, owns none: it is copied.
    """

    buffers: KVCache | None = None

    def append(self, new: KVCache) -> Self:
        """Return the cache with new positions behind it."""
        size, new_size = self.values.size(-2), self.values.size(-2) + new.values.size(-2)
        buffers, self.buffers = self.buffers, None
        if buffers is None:
            buffers = map_pairs(lambda *parts: torch.cat(parts, dim=-2), KVCache(*self), new)
        else:
            if buffers.values.size(-2) < new_size:
                growth = max(tuning.CACHE_GROWTH_FACTOR * (new_size - size), size // 2)
                buffers = KVCache(*(pad(part, (0, 0, 0, growth)) for part in self))
            for buffer, added in zip(buffers, new, strict=True):
                buffer[..., size:new_size, :] = added
        grown = type(self)(*(buffer[..., :new_size, :] for buffer in buffers))
        grown.buffers = buffers
        return grown


class PackedConnection(NamedTuple):
    """A residual connection and its norm, without dropout."""

    norm: Callable[[Tensor], Tensor]
    is_pre_norm: bool

    @classmethod
    def from_connection(cls, connection: SublayerConnection) -> Self:
        """Take the norm of a connection; a layer norm is called without `nn.Module.__call__`."""
        norm, is_pre_norm = connection.norm, connection.norm_order == "pre"
        if type(norm) is not nn.LayerNorm:
            return cls(norm, is_pre_norm)
        shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
        return cls(lambda inputs: torch.layer_norm(inputs, shape, weight, bias, eps), is_pre_norm)

    def sublayer_input(self, inputs: RowVectors) -> RowVectors:
        """Normalize the input of a sublayer with pre-norm."""
        return self.norm(inputs) if self.is_pre_norm else inputs

    def add_residual(
        self, inputs: RowVectors, projection: PackedLinear, hidden: Float[Tensor, "R E"]
    ) -> RowVectors:
        """Add the projection of a sublayer's hidden layer; with post-norm, normalize the sum."""
        outputs = projection.add_to(inputs, hidden)
        return outputs if self.is_pre_norm else self.norm(outputs)


class PackedAttention(NamedTuple):
    """Multi-head softmax attention as packed projections."""

    input_projection: PackedLinear
    """Queries, divided by the temperature; in self-attention, keys and values behind them."""
    output_projection: PackedLinear
    num_heads: int
    connection: PackedConnection

    @classmethod
    def from_attention(
        cls, attention: Attention, connection: SublayerConnection, *, is_self_attention: bool
    ) -> Self:
        """Pack a standard attention sublayer."""
        heads, temperature = multi_head_and_temperature(attention)

        def prepare_keys(keys: Tensor) -> Tensor:
            return heads.score.prepare_keys(keys.unflatten(-1, (heads.num_heads, -1))).flatten(-2)

        query_projection = PackedLinear.from_linear(heads.query_projection)
        projections = [query_projection.map_outputs(lambda outputs: outputs / temperature)]
        if is_self_attention:
            # `prepare_keys` of a dot-product score is linear: apply it to the weight, once.
            key_projection = PackedLinear.from_linear(heads.key_projection)
            value_projection = PackedLinear.from_linear(heads.value_projection)
            projections += [key_projection.map_outputs(prepare_keys), value_projection]
        return cls(
            PackedLinear.concatenate(projections),
            PackedLinear.from_linear(heads.output_projection),
            heads.num_heads,
            PackedConnection.from_connection(connection),
        )

    def self_attention_step(
        self,
        inputs: RowVectors,
        kv_cache: KVCache | None,
        visible: Bool[Tensor, "F 1 K P"] | None,
        num_sentences: int,
    ) -> tuple[RowVectors, Float[Tensor, "F H K P"], KVCache]:
        """Attend to the cache and to the position itself."""
        projected = self.input_projection(self.connection.sublayer_input(inputs))
        head_size = projected.size(1) // (3 * self.num_heads)
        split_heads = projected.view(num_sentences, -1, 3, self.num_heads, head_size)
        queries, keys, values = split_heads.permute(2, 0, 3, 1, 4)  # (F, H, K, head size) each
        cache = GrowingCache(values, keys)
        if kv_cache is not None:
            owner = kv_cache if isinstance(kv_cache, GrowingCache) else GrowingCache(*kv_cache)
            cache = owner.append(cache)
        scores = _batched_product(queries, cache.keys.mT)
        weights = (scores if visible is None else mask_scores(scores, visible)).softmax(dim=-1)
        return self._read(inputs, weights, cache.values), weights, cache

    def cross_attention_step(
        self, inputs: RowVectors, memory: Memory
    ) -> tuple[RowVectors, Float[Tensor, "F H K S"]]:
        """Attend to the memories of the sentences."""
        num_sentences, num_heads, _, size = memory.keys.shape
        projected = self.input_projection(self.connection.sublayer_input(inputs))
        queries = projected.view(num_sentences, -1, num_heads, size).transpose(1, 2)
        scores = mask_scores(_batched_product(queries, memory.keys.mT), memory.mask)
        weights = scores.softmax(dim=-1).mul_(memory.mask)
        return self._read(inputs, weights, memory.values), weights

    def _read(
        self,
        inputs: RowVectors,
        weights: Float[Tensor, "F H K S"],
        values: Float[Tensor, "F H S V"],
    ) -> RowVectors:
        context = _batched_product(weights, values).transpose(1, 2)  # (F, K, H, V)
        hidden = context.reshape(len(inputs), -1)
        return self.connection.add_residual(inputs, self.output_projection, hidden)


class PackedFeedForward(NamedTuple):
    """A feed-forward sublayer as packed projections."""

    input_projection: PackedLinear
    activation: nn.Module
    output_projection: PackedLinear
    connection: PackedConnection

    def step(self, inputs: RowVectors) -> RowVectors:
        """Apply the sublayer to one position of each row."""
        hidden = self.input_projection(self.connection.sublayer_input(inputs))
        hidden = activate_inplace(self.activation, hidden)
        return self.connection.add_residual(inputs, self.output_projection, hidden)


class PackedLayer(NamedTuple):
    """A Transformer layer as packed projections."""

    self_attention: PackedAttention
    cross_attention: PackedAttention | None
    feed_forward: PackedFeedForward

    @classmethod
    def from_layer(cls, layer: TransformerLayer) -> Self:
        """Pack a standard layer."""
        attention, sublayer = layer.self_attention.attention, layer.cross_attention
        feed_forward = layer.feed_forward
        assert isinstance(feed_forward, FeedForward), type(feed_forward)
        pack, cross_attention = PackedAttention.from_attention, None
        if sublayer is not None:
            cross_attention = pack(sublayer.attention, sublayer.residual, is_self_attention=False)
        return cls(
            pack(attention, layer.self_attention_residual, is_self_attention=True),
            cross_attention,
            PackedFeedForward(
                PackedLinear.from_linear(feed_forward.input_projection),
                feed_forward.activation,
                PackedLinear.from_linear(feed_forward.output_projection),
                PackedConnection.from_connection(layer.feed_forward_residual),
            ),
        )


def packed_step(
    layers: Sequence[PackedLayer],
    inputs: RowVectors,
    kv_caches: Sequence[KVCache | None],
    memories: Sequence[Memory],
    visible: VisiblePositions | None = None,
) -> tuple[Float[Tensor, "R 1 D"], Float[Tensor, "F H K S"], tuple[KVCache, ...]]:
    """Run one step of all layers; return outputs, weights of the last attention, and caches.

    Memories and caches may have one row per sentence, for multiple rows of the inputs; `visible`
    then tells for each row which of the P positions, its own included, belong to its hypothesis.
    """
    next_caches: list[KVCache] = []
    weights: Tensor | None = None
    num_sentences = len(memories[0].values) if memories else len(inputs)
    if visible is not None:
        visible = visible.view(num_sentences, 1, -1, visible.size(1))
    for index, layer in enumerate(layers):
        inputs, weights, cache = layer.self_attention.self_attention_step(
            inputs, kv_caches[index], visible, num_sentences
        )
        if layer.cross_attention is not None:
            inputs, weights = layer.cross_attention.cross_attention_step(inputs, memories[index])
        inputs = layer.feed_forward.step(inputs)
        next_caches.append(cache)
    assert weights is not None, "there are no layers"
    return inputs.unsqueeze(1), weights, tuple(next_caches)


def multi_head_and_temperature(attention: Attention) -> tuple[MultiHeadAttention, float]:
    """Return a standard attention as its class, and the temperature of its softmax."""
    assert isinstance(attention, MultiHeadAttention), type(attention)
    assert isinstance(attention.alignment_function, SoftmaxAlignment), attention
    return attention, attention.alignment_function.temperature


def _batched_product(
    rows: Float[Tensor, "F H K X"], matrices: Float[Tensor, "F H X N"]
) -> Float[Tensor, "F H K N"]:
    """Return rows @ matrices; `@` itself would expand and copy both."""
    products = torch.bmm(rows.flatten(0, 1), matrices.flatten(0, 1))
    return products.view(*rows.shape[:-1], matrices.size(-1))
