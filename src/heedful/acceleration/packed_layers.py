"""One decoding step of standard Transformer layers, with packed weights.

A step reads one position of every row, right behind the cached ones. Hypotheses of one sentence may
share a cache and a memory: F sentences with K rows each give R = F * K rows, and every product with
a cache or memory is one batched product over the sentences.

Invariant: a step gives what the plain layers give, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from heedful.acceleration import tuning
from heedful.acceleration.packed_linear import PackedLinear, activate_inplace
from heedful.attention.alignments import SoftmaxAlignment, mask_scores
from heedful.attention.attention import Attention
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.outputs import Memory
from heedful.layers.feed_forward import FeedForward
from heedful.layers.self_attention import KVCache
from heedful.layers.transformer import SublayerConnection, TransformerLayer
from heedful.shapes import Bool, Float

_BUFFER_KEY = "_buffer"


def append_with_capacity(
    cached: Float[Tensor, "B H S X"], new: Float[Tensor, "B H N X"]
) -> Float[Tensor, "B H S+N X"]:
    """Concatenate along the positions, writing into spare capacity where there is some.

    The result is a view of a larger buffer, which it carries as an attribute until it is appended
    to. Rows that were selected are another tensor without that attribute: they are copied. Only a
    tensor that comes back as it was returned gets spare capacity.
    """
    buffer: Tensor | None = vars(cached).pop(_BUFFER_KEY, None)
    size, new_size = cached.size(-2), cached.size(-2) + new.size(-2)
    if buffer is None:
        buffer = torch.cat([cached, new], dim=-2)
    else:
        if buffer.size(-2) < new_size:
            growth = max(tuning.CACHE_GROWTH_FACTOR * new.size(-2), size // 2)
            buffer = pad(cached, (0, 0, 0, growth))
        buffer[..., size:new_size, :] = new
    grown = buffer[..., :new_size, :]
    vars(grown)[_BUFFER_KEY] = buffer
    return grown


class PackedConnection(NamedTuple):
    """A residual connection and its norm, without dropout."""

    norm: Callable[[Tensor], Tensor]
    is_pre_norm: bool

    @classmethod
    def from_connection(cls, connection: SublayerConnection) -> PackedConnection:
        """Take the norm of a connection; a layer norm is called without `nn.Module.__call__`."""
        norm, is_pre_norm = connection.norm, connection.norm_order == "pre"
        if type(norm) is not nn.LayerNorm:
            return cls(norm, is_pre_norm)
        shape, weight, bias, eps = norm.normalized_shape, norm.weight, norm.bias, norm.eps
        return cls(lambda inputs: torch.layer_norm(inputs, shape, weight, bias, eps), is_pre_norm)

    def sublayer_input(self, inputs: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """Normalize the input of a sublayer with pre-norm."""
        return self.norm(inputs) if self.is_pre_norm else inputs

    def add_residual(
        self, inputs: Float[Tensor, "R D"], projection: PackedLinear, hidden: Float[Tensor, "R E"]
    ) -> Float[Tensor, "R D"]:
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
    ) -> PackedAttention:
        """Pack a standard attention sublayer."""
        heads, temperature = multi_head_and_temperature(attention)
        query_projection = PackedLinear.from_linear(heads.query_projection)
        projections = [query_projection.map_outputs(lambda outputs: outputs / temperature)]
        if is_self_attention:
            # `prepare_keys` of a dot-product score is linear: apply it to the weight, once.
            key_projection = PackedLinear.from_linear(heads.key_projection)
            projections += [
                key_projection.map_outputs(lambda outputs: _prepare_keys(heads, outputs)),
                PackedLinear.from_linear(heads.value_projection),
            ]
        return cls(
            PackedLinear.concatenate(projections),
            PackedLinear.from_linear(heads.output_projection),
            heads.num_heads,
            PackedConnection.from_connection(connection),
        )

    def self_attention_step(
        self,
        inputs: Float[Tensor, "R D"],
        kv_cache: KVCache | None,
        visible: Bool[Tensor, "F 1 K P"] | None,
        num_sentences: int,
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "F H K P"], KVCache]:
        """Attend to the cache and to the position itself."""
        projected = self.input_projection(self.connection.sublayer_input(inputs))
        head_size = projected.size(1) // (3 * self.num_heads)
        split_heads = projected.view(num_sentences, -1, 3, self.num_heads, head_size)
        queries, keys, values = split_heads.permute(2, 0, 3, 1, 4)  # (F, H, K, head size) each
        if kv_cache is not None:
            values = append_with_capacity(kv_cache.values, values)
            keys = append_with_capacity(kv_cache.keys, keys)
        scores = _batched_product(queries, keys.mT)
        weights = (scores if visible is None else mask_scores(scores, visible)).softmax(dim=-1)
        return self._read(inputs, weights, values), weights, KVCache(values, keys)

    def cross_attention_step(
        self, inputs: Float[Tensor, "R D"], memory: Memory
    ) -> tuple[Float[Tensor, "R D"], Float[Tensor, "F H K S"]]:
        """Attend to the memories of the sentences."""
        num_sentences, num_heads, _, size = memory.keys.shape
        projected = self.input_projection(self.connection.sublayer_input(inputs))
        queries = projected.view(num_sentences, -1, num_heads, size).transpose(1, 2)
        scores = mask_scores(_batched_product(queries, memory.keys.mT), memory.mask)
        weights = scores.softmax(dim=-1).mul_(memory.mask)
        return self._read(inputs, weights, memory.values), weights

    def _read(
        self,
        inputs: Float[Tensor, "R D"],
        weights: Float[Tensor, "F H K S"],
        values: Float[Tensor, "F H S V"],
    ) -> Float[Tensor, "R D"]:
        context = _batched_product(weights, values).transpose(1, 2)  # (F, K, H, V)
        return self.connection.add_residual(
            inputs, self.output_projection, context.reshape(len(inputs), -1)
        )


class PackedFeedForward(NamedTuple):
    """A feed-forward sublayer as packed projections."""

    input_projection: PackedLinear
    activation: nn.Module
    output_projection: PackedLinear
    connection: PackedConnection

    def step(self, inputs: Float[Tensor, "R D"]) -> Float[Tensor, "R D"]:
        """Apply the sublayer to one position of every row."""
        hidden = self.input_projection(self.connection.sublayer_input(inputs))
        return self.connection.add_residual(
            inputs, self.output_projection, activate_inplace(self.activation, hidden)
        )


class PackedLayer(NamedTuple):
    """A Transformer layer as packed projections."""

    self_attention: PackedAttention
    cross_attention: PackedAttention | None
    feed_forward: PackedFeedForward

    @classmethod
    def from_layer(cls, layer: TransformerLayer) -> PackedLayer:
        """Pack a standard layer."""
        cross_attention, feed_forward = layer.cross_attention, layer.feed_forward
        assert isinstance(feed_forward, FeedForward), type(feed_forward)
        return cls(
            PackedAttention.from_attention(
                layer.self_attention.attention,
                layer.self_attention_residual,
                is_self_attention=True,
            ),
            PackedAttention.from_attention(
                cross_attention.attention, cross_attention.residual, is_self_attention=False
            )
            if cross_attention
            else None,
            PackedFeedForward(
                PackedLinear.from_linear(feed_forward.input_projection),
                feed_forward.activation,
                PackedLinear.from_linear(feed_forward.output_projection),
                PackedConnection.from_connection(layer.feed_forward_residual),
            ),
        )


class PackedStepOutput(NamedTuple):
    """Output of all layers for one position."""

    outputs: Float[Tensor, "R 1 D"]
    weights: Float[Tensor, "R 1 S"] | None
    """Weights of the top layer's last attention, averaged over its heads."""
    kv_caches: list[KVCache]


def packed_step(
    layers: Sequence[PackedLayer],
    inputs: Float[Tensor, "R D"],
    kv_caches: Sequence[KVCache | None],
    memories: Sequence[Memory],
    *,
    visible: Bool[Tensor, "R P"] | None = None,
    need_weights: bool,
) -> PackedStepOutput:
    """Run one step of all layers.

    Memories and caches may have one row per sentence, for several rows of the inputs; `visible`
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
    mean_weights = weights.mean(dim=1).view(len(inputs), 1, -1) if need_weights else None
    return PackedStepOutput(inputs.unsqueeze(1), mean_weights, next_caches)


def multi_head_and_temperature(attention: Attention) -> tuple[MultiHeadAttention, float]:
    """Return a standard attention as its class, and the temperature of its softmax."""
    assert isinstance(attention, MultiHeadAttention), type(attention)
    assert isinstance(attention.alignment_function, SoftmaxAlignment), attention
    return attention, attention.alignment_function.temperature


def _prepare_keys(heads: MultiHeadAttention, keys: Tensor) -> Tensor:
    prepared: Tensor = heads.score.prepare_keys(keys.unflatten(-1, (heads.num_heads, -1)))
    return prepared.flatten(-2)


def _batched_product(
    rows: Float[Tensor, "F H K X"], matrices: Float[Tensor, "F H X N"]
) -> Float[Tensor, "F H K N"]:
    """Return rows @ matrices; `@` itself would expand and copy both."""
    products = torch.bmm(rows.flatten(0, 1), matrices.flatten(0, 1))
    return products.view(*rows.shape[:-1], matrices.size(-1))
