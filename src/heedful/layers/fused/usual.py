"""Usual layers: which Transformer layers are so usual that they have faster forms?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from heedful.attention.alignments import Softmax
from heedful.attention.attend import Attends
from heedful.attention.heads import MultiHead
from heedful.attention.products import DotScore, ScaledDotScore
from heedful.attention.readouts import Expectation
from heedful.layers.feedforward import FeedForward, PlaceWise
from heedful.layers.residual import Residual
from heedful.layers.self_attention import FullSelfAttention, SelfAttention


class Sublayers(NamedTuple):
    """What a Transformer layer is made of."""

    self_attention: SelfAttention
    self_residual: Residual
    source_attention: tuple[Attends, Residual] | None
    feedforward: PlaceWise
    residual: Residual


def are_usual(layers: Sequence[Sublayers]) -> bool:
    """Whether layers have plain heads that see everything, and two maps with a bend between."""
    return all(map(_is_usual, layers))


def _is_usual(layer: Sublayers) -> bool:
    # The very types: a subclass may look or think otherwise.
    return (
        type(layer.self_attention) is FullSelfAttention
        and all(map(_has_plain_heads, _attentions(layer)))
        and type(layer.feedforward) is FeedForward
        and layer.feedforward.gate is None
    )


def _has_plain_heads(attention: Attends) -> bool:
    return (
        type(attention) is MultiHead
        and attention.num_groups == attention.num_heads
        and type(attention.score) in {DotScore, ScaledDotScore}
        and type(attention.align) is Softmax
        and type(attention.read) is Expectation
        and not attention.is_penalised
    )


def listeners(layers: Sequence[Sublayers]) -> list[Mapping[int, Any]]:
    """Who listens where layers look, as they come and go; faster forms would tell them nothing."""
    return [attention._forward_hooks for layer in layers for attention in _attentions(layer)]


def _attentions(layer: Sublayers) -> list[Attends]:
    own = layer.self_attention.attention
    return [own] if layer.source_attention is None else [own, layer.source_attention[0]]


def heads_of(attention: Attends) -> tuple[MultiHead, float]:
    """The heads of a usual layer's attention, and the temperature of their weights."""
    assert isinstance(attention, MultiHead), type(attention)
    assert isinstance(attention.align, Softmax), type(attention.align)
    return attention, attention.align.temperature


def maps_of(feedforward: PlaceWise) -> FeedForward:
    """The feed-forward network of a usual layer."""
    assert isinstance(feedforward, FeedForward), type(feedforward)
    return feedforward
