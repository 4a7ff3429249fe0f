"""One place: how does a usual Transformer read the next token, without detours?

Search asks for one place of every row, again and again, and what stands between the products then
takes longer than they do. Here a layer is its products and little else: queries, keys and values
are one, and weights are laid out for few rows (`packing`). Law: outputs, weights and what is held
are those of the layers as they are written, but for rounding; either form can go on where the other
stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from heedful.acceleration.dispatch import (
    Sublayers,
    are_standard_layers,
    as_feed_forward,
    forward_hooks,
    multi_head_and_temperature,
)
from heedful.acceleration.packed_weights import PackedLinear, activate_inplace, concat_linears, pack
from heedful.attention.alignments import mask_scores
from heedful.attention.attention import Attention
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.outputs import Memory
from heedful.layers.self_attention import KVCache
from heedful.layers.transformer import SublayerConnection
from heedful.shapes import Bool, Float, Int

# Room: how are places added to those that are held, without copying them all?
#
# Search adds to the same rows, step after step. What is held is then part of something longer, and
# the next places are written behind it. Law: what is given is what joining gives, and nobody who
# still has what was held before sees any difference.

_CAPACITY_FACTOR = 16  # times as many places as are added
_BUFFER_KEY = "_is_part_of"


def append_with_capacity(
    cached: Float[Tensor, "B H S X"], new: Float[Tensor, "B H N X"]
) -> Float[Tensor, "B H S+N X"]:
    """Put places behind those that are held.

    Whatever is given carries what it is a part of, until somebody adds to it. Rows that have moved
    come as another tensor: these are copied, and will be again. Only those that come back as they
    were given get room for more.
    """
    buffer: Tensor | None = vars(cached).pop(_BUFFER_KEY, None)
    size, new_size = cached.size(-2), cached.size(-2) + new.size(-2)
    if buffer is None:
        buffer = torch.cat([cached, new], dim=-2)
    else:
        if buffer.size(-2) < new_size:
            buffer = pad(cached, (0, 0, 0, max(_CAPACITY_FACTOR * new.size(-2), size // 2)))
        buffer[..., size:new_size, :] = new
    grown = buffer[..., :new_size, :]
    vars(grown)[_BUFFER_KEY] = buffer
    return grown


class SingleStepOutput(NamedTuple):
    """What layers made of one place."""

    outputs: Float[Tensor, "R 1 D"]
    weights: Float[Tensor, "R 1 S"] | None  # where the top one looked last, on average
    kv_caches: list[KVCache]


class ResidualPath(NamedTuple):
    """What goes past a sublayer, and where it is normalised."""

    norm: Callable[[Tensor], Tensor]
    is_pre_norm: bool

    @classmethod
    def from_residual(cls, residual: SublayerConnection) -> ResidualPath:
        """Take a residual's, without its detours."""
        norm = residual.norm
        if type(norm) is nn.LayerNorm:
            shape, weight, bias = norm.normalized_shape, norm.weight, norm.bias
            return cls(
                lambda inputs: torch.layer_norm(inputs, shape, weight, bias, norm.eps),
                residual.placement == "pre",
            )
        return cls(norm, residual.placement == "pre")

    def sublayer_input(self, inputs: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """Give what is to be changed."""
        return self.norm(inputs) if self.is_pre_norm else inputs

    def add_residual(
        self,
        inputs: Float[Tensor, "B D"],
        output_projection: PackedLinear,
        update: Float[Tensor, "B E"],
    ) -> Float[Tensor, "B D"]:
        """Add what comes of it to what went past."""
        outputs = output_projection.add_to(inputs, update)
        return outputs if self.is_pre_norm else self.norm(outputs)


class PackedAttention(NamedTuple):
    """Attention of many heads, as its products; their scores need nothing but a softmax."""

    input_projection: (
        PackedLinear  # queries; keys and values, too, where a place looks at its own sequence
    )
    output_projection: PackedLinear
    num_heads: int
    path: ResidualPath


class PackedFeedForward(NamedTuple):
    """A feed-forward sublayer, as its products."""

    input_projection: PackedLinear
    activation: nn.Module
    output_projection: PackedLinear
    path: ResidualPath


class PackedLayer(NamedTuple):
    """A Transformer layer, as its products."""

    self_attention: PackedAttention
    cross_attention: PackedAttention | None
    feed_forward: PackedFeedForward


class PackedLayers(NamedTuple):
    """Layers on top of one another, as their products."""

    layers: Sequence[PackedLayer]
    forward_hooks: Sequence[Mapping[int, Any]]  # those of every attention, as they come and go

    @property
    def has_forward_hooks(self) -> bool:
        """Whether somebody listens where the layers look; this form would tell nothing."""
        return any(self.forward_hooks)

    def step(
        self,
        inputs: Float[Tensor, "R D"],
        kv_cache: Sequence[KVCache | None],
        memories: Sequence[Memory],
        visible: Bool[Tensor, "R P"] | None = None,
        *,
        need_weights: bool,
    ) -> SingleStepOutput:
        """Read a place of every row, right after those that are held.

        Sources, and what is held, may have fewer rows: each then serves so many neighbours, and
        `seen` says which of the places, their own included, each of these has come by.
        """
        kept, last_weights = list[KVCache](), None
        num_sentences = len(memories[0].values) if memories else len(inputs)
        if visible is not None:
            visible = visible.view(num_sentences, 1, -1, visible.size(1))
        for number, layer in enumerate(self.layers):
            inputs, last_weights, layer_cache = _self_attention_step(
                layer.self_attention, inputs, kv_cache[number], visible, num_sentences
            )
            if layer.cross_attention is not None:
                inputs, last_weights = _cross_attention_step(
                    layer.cross_attention, inputs, memories[number]
                )
            inputs = _feed_forward_step(layer.feed_forward, inputs)
            kept.append(layer_cache)
        assert last_weights is not None, "there is no layer"
        weights = last_weights.mean(dim=1).view(len(inputs), 1, -1) if need_weights else None
        return SingleStepOutput(inputs.unsqueeze(1), weights, kept)


def pack_layers(layers: Sequence[Sublayers]) -> PackedLayers | None:
    """Lay out the weights of layers, if all are of the kinds that have this form."""
    if not are_standard_layers(layers):
        return None
    return PackedLayers(list(map(_pack_layer, layers)), forward_hooks(layers))


def _pack_layer(layer: Sublayers) -> PackedLayer:
    feed_forward = as_feed_forward(layer.feed_forward)
    return PackedLayer(
        _pack_attention(
            layer.self_attention.attention, layer.self_attention_residual, is_self_attention=True
        ),
        layer.cross_attention and _pack_attention(*layer.cross_attention, is_self_attention=False),
        PackedFeedForward(
            pack(feed_forward.input_projection),
            feed_forward.activation,
            pack(feed_forward.output_projection),
            ResidualPath.from_residual(layer.residual),
        ),
    )


def _pack_attention(
    attention: Attention, residual: SublayerConnection, *, is_self_attention: bool
) -> PackedAttention:
    heads, temperature = multi_head_and_temperature(attention)
    # Queries are divided by the temperature here, once.
    input_projection = [pack(heads.query_projection).transform(lambda each: each / temperature)]
    if is_self_attention:
        input_projection += [_pack_keys(heads), pack(heads.value_projection)]
    output_projection = pack(heads.output_projection)
    return PackedAttention(
        concat_linears(input_projection),
        output_projection,
        heads.num_heads,
        ResidualPath.from_residual(residual),
    )


def _pack_keys(heads: MultiHeadAttention) -> PackedLinear:
    """Prepare here, once: what products do to keys they may as well do to what makes them."""

    def prepare(each: Tensor) -> Tensor:
        keys: Tensor = heads.score.prepare_keys(each.unflatten(-1, (heads.num_heads, -1)))
        return keys.flatten(-2)

    return pack(heads.key_projection).transform(prepare)


def _self_attention_step(
    attention: PackedAttention,
    inputs: Float[Tensor, "R D"],
    kv_cache: KVCache | None,
    visible: Bool[Tensor, "F 1 K P"] | None,
    num_sentences: int,
) -> tuple[Float[Tensor, "R D"], Float[Tensor, "F H K P"], KVCache]:
    projected = attention.input_projection(attention.path.sublayer_input(inputs))
    split_heads = projected.view(
        num_sentences, -1, 3, attention.num_heads, projected.size(1) // (3 * attention.num_heads)
    )
    queries, keys, values = split_heads.permute(2, 0, 3, 1, 4)  # (F, H, K, Q) each
    if kv_cache is not None:
        values, keys = (
            append_with_capacity(kv_cache.values, values),
            append_with_capacity(kv_cache.keys, keys),
        )
    scores = _multiply(queries, keys.mT)
    weights = (scores if visible is None else mask_scores(scores, visible)).softmax(dim=-1)
    return _single_step_attend(attention, inputs, weights, values), weights, KVCache(values, keys)


def _cross_attention_step(
    attention: PackedAttention, inputs: Float[Tensor, "R D"], memory: Memory
) -> tuple[Float[Tensor, "R D"], Float[Tensor, "F H K S"]]:
    num_sentences, num_heads, _, size = memory.keys.shape
    projected = attention.input_projection(attention.path.sublayer_input(inputs)).view(
        num_sentences, -1, num_heads, size
    )
    scores = _multiply(projected.transpose(1, 2), memory.keys.mT)
    weights = mask_scores(scores, memory.mask).softmax(dim=-1).mul_(memory.mask)
    return _single_step_attend(attention, inputs, weights, memory.values), weights


def _single_step_attend(
    attention: PackedAttention,
    inputs: Float[Tensor, "R D"],
    weights: Float[Tensor, "F H K S"],
    values: Float[Tensor, "F H S V"],
) -> Float[Tensor, "R D"]:
    context = _multiply(weights, values).transpose(1, 2)  # (F, K, H, V)
    return attention.path.add_residual(
        inputs, attention.output_projection, context.reshape(len(inputs), -1)
    )


def _multiply(
    rows: Float[Tensor, "F H K X"], matrices: Float[Tensor, "F H X N"]
) -> Float[Tensor, "F H K N"]:
    """Rows @ matrices; torch would first spread and copy both."""
    products = torch.bmm(rows.flatten(0, 1), matrices.flatten(0, 1))
    return products.view(*rows.shape[:-1], matrices.size(-1))


def _feed_forward_step(
    feed_forward: PackedFeedForward, inputs: Float[Tensor, "B D"]
) -> Float[Tensor, "B D"]:
    hidden = activate_inplace(
        feed_forward.activation,
        feed_forward.input_projection(feed_forward.path.sublayer_input(inputs)),
    )
    return feed_forward.path.add_residual(inputs, feed_forward.output_projection, hidden)


# Real places: how do usual Transformer layers read whole sequences, and no padding?
#
# A batch is a table as wide as its longest sequence; of one that is not sorted by length, two places
# in five may be padding. Only attention needs the table: all else is done to the places that are
# there, one below the other. Law: they come out as the layers as they are written give them, but for
# rounding; padding comes out zero.


class Unpadding(NamedTuple):
    """Where the real places of a batch stand."""

    mask: Bool[Tensor, "B S"]
    indices: Int[Tensor, "N"]  # of all places, row by row

    @classmethod
    def from_mask(cls, mask: Bool[Tensor, "B S"]) -> Unpadding:
        """Number the places that are there."""
        return cls(mask, mask.flatten().nonzero().squeeze(1))

    def unpad(self, padded: Float[Tensor, "B S D"]) -> Float[Tensor, "N D"]:
        """Take the real places out of a table."""
        return padded.flatten(0, 1).index_select(0, self.indices)

    def pad(self, tokens: Float[Tensor, "N D"]) -> Float[Tensor, "B S D"]:
        """Put real places into a table of zeros."""
        table = tokens.new_zeros(self.mask.numel(), tokens.size(1))
        return table.index_copy_(0, self.indices, tokens).view(*self.mask.shape, -1)


def encode_unpadded(
    layers: Sequence[Sublayers], inputs: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]
) -> Float[Tensor, "B S D"]:
    """Let the places of whole sequences look both ways, layer by layer."""
    table = Unpadding.from_mask(mask)
    places = table.unpad(inputs)
    for layer in layers:
        sublayer_inputs = layer.self_attention_residual.sublayer_input(places)
        found = _real_places_attend(layer.self_attention.attention, sublayer_inputs, table)
        places = layer.self_attention_residual.add_residual(places, found)
        feed_forward = as_feed_forward(layer.feed_forward)
        hidden = activate_inplace(
            feed_forward.activation,
            feed_forward.input_projection(layer.residual.sublayer_input(places)),
        )
        places = layer.residual.add_residual(places, feed_forward.output_projection(hidden))
    return table.pad(places)


def build_memories_unpadded(
    layers: Sequence[Sublayers], states: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]
) -> tuple[Memory, ...]:
    """Make a source ready to be looked at by the layers that look at one."""
    table = Unpadding.from_mask(mask)
    places = table.unpad(states)
    found = []
    for attention, _ in (layer.cross_attention for layer in layers if layer.cross_attention):
        heads, _ = multi_head_and_temperature(attention)
        values = _project_to_heads(heads.value_projection, places, table, heads)
        keys = heads.score.prepare_keys(
            _project_to_heads(heads.key_projection, places, table, heads)
        )
        found.append(Memory(values.contiguous(), keys.contiguous(), mask[:, None, None]))
    return tuple(found)


def _real_places_attend(
    attention: Attention, tokens: Float[Tensor, "N D"], unpadding: Unpadding
) -> Float[Tensor, "N D"]:
    heads, temperature = multi_head_and_temperature(attention)
    keys = _project_to_heads(heads.key_projection, tokens, unpadding, heads)
    context = scaled_dot_product_attention(
        _project_to_heads(heads.query_projection, tokens, unpadding, heads),
        heads.score.prepare_keys(keys),
        _project_to_heads(heads.value_projection, tokens, unpadding, heads),
        attn_mask=unpadding.mask[:, None, None],  # where it hides all, nobody is there to look
        scale=1 / temperature,
    )
    outputs: Tensor = heads.output_projection(unpadding.unpad(context.transpose(1, 2).flatten(2)))
    return outputs


def _project_to_heads(
    project: nn.Linear,
    tokens: Float[Tensor, "N D"],
    unpadding: Unpadding,
    heads: MultiHeadAttention,
) -> Float[Tensor, "B H S K"]:
    """Project real places, and put them into the tables of the heads."""
    return unpadding.pad(project(tokens)).unflatten(-1, (heads.num_heads, -1)).transpose(1, 2)
