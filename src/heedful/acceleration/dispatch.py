"""Rules: which form of a computation is used, given what its inputs are?

Law: all forms of one computation agree in value and in gradient, so a rule decides time and
memory, never results. No model and no configuration names a form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import Attention
from heedful.attention.dot_product_scores import DotScore, ScaledDotScore
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.readouts import WeightedSumReadout
from heedful.layers.feed_forward import FeedForward, PositionwiseLayer
from heedful.layers.self_attention import FullSelfAttention, SelfAttention
from heedful.layers.transformer import SublayerConnection

# Usual layers: which Transformer layers are so usual that they have faster forms?


class Sublayers(NamedTuple):
    """What a Transformer layer is made of."""

    self_attention: SelfAttention
    self_attention_residual: SublayerConnection
    cross_attention: tuple[Attention, SublayerConnection] | None
    feed_forward: PositionwiseLayer
    residual: SublayerConnection


def are_standard_layers(layers: Sequence[Sublayers]) -> bool:
    """Whether layers have plain heads that see everything, and two maps with a bend between."""
    return all(map(_is_standard_layer, layers))


def _is_standard_layer(layer: Sublayers) -> bool:
    # The very types: a subclass may look or think otherwise.
    return (
        type(layer.self_attention) is FullSelfAttention
        and all(map(_is_standard_attention, _attentions(layer)))
        and type(layer.feed_forward) is FeedForward
        and layer.feed_forward.gate is None
    )


def _is_standard_attention(attention: Attention) -> bool:
    return (
        type(attention) is MultiHeadAttention
        and attention.num_kv_heads == attention.num_heads
        and type(attention.score) in {DotScore, ScaledDotScore}
        and type(attention.alignment_function) is SoftmaxAlignment
        and type(attention.readout) is WeightedSumReadout
        and not attention.has_auxiliary_losses
    )


def forward_hooks(layers: Sequence[Sublayers]) -> list[Mapping[int, Any]]:
    """Who listens where layers look, as they come and go; faster forms would tell them nothing."""
    return [attention._forward_hooks for layer in layers for attention in _attentions(layer)]


def _attentions(layer: Sublayers) -> list[Attention]:
    own = layer.self_attention.attention
    return [own] if layer.cross_attention is None else [own, layer.cross_attention[0]]


def multi_head_and_temperature(attention: Attention) -> tuple[MultiHeadAttention, float]:
    """The heads of a usual layer's attention, and the temperature of their weights."""
    assert isinstance(attention, MultiHeadAttention), type(attention)
    assert isinstance(attention.alignment_function, SoftmaxAlignment), type(
        attention.alignment_function
    )
    return attention, attention.alignment_function.temperature


def as_feed_forward(feed_forward: PositionwiseLayer) -> FeedForward:
    """The feed-forward network of a usual layer."""
    assert isinstance(feed_forward, FeedForward), type(feed_forward)
    return feed_forward
