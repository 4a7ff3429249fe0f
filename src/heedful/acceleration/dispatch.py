"""Rules: which form of a computation is used, given what its inputs are?

Law: all forms of one computation agree in value and in gradient, so a rule decides time and
memory, never results. No model and no configuration names a form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.acceleration.attention import chunked_additive_score, sdpa_context
from heedful.attention.additive_scores import naive_additive_score
from heedful.attention.alignments import AlignmentFunction, SoftmaxAlignment
from heedful.attention.attention import Attention
from heedful.attention.dot_product_scores import BilinearScore, DotScore, ScaledDotScore
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.readouts import Readout, WeightedSumReadout
from heedful.attention.scores import ScoreFunction
from heedful.layers.feed_forward import FeedForward, PositionwiseLayer
from heedful.layers.self_attention import FullSelfAttention, SelfAttention
from heedful.layers.transformer import SublayerConnection
from heedful.shapes import Float

# Measured on two cores, A=256, forward and backward: with 16 queries a row chunks are faster from
# 2**19 elements on; with one query, where the hidden layer is no larger than the keys, recomputing
# costs up to twice the time at 2**20, 1.4 times at 2**22 and nothing from 2**23 on. Between them
# lies 2**22: 16 MiB in single precision.
MAX_NAIVE_ELEMENTS = 2**22


# Those whose score is the inner product of the query with the prepared key, and nothing more.
DOT_PRODUCT_SCORES = (DotScore, ScaledDotScore, BilinearScore)


AdditiveKernel = Callable[[Tensor, Tensor, Tensor], Tensor]


ContextKernel = Callable[[Tensor, Tensor, Tensor, Tensor, float], Tensor]


def select_context_kernel(
    score: ScoreFunction, alignment_function: AlignmentFunction, readout: Readout
) -> ContextKernel | None:
    """The form that takes a context and makes no weights; None where there is no such form."""
    # The very types: a subclass may score, share or take otherwise.
    if (
        type(score) in DOT_PRODUCT_SCORES
        and type(alignment_function) is SoftmaxAlignment
        and type(readout) is WeightedSumReadout
    ):
        return partial(sdpa_context, temperature=alignment_function.temperature)
    return None


def additive_score(
    queries: Float[Tensor, "*#B T A"], keys: Float[Tensor, "*#B S A"], vector: Float[Tensor, "A"]
) -> Float[Tensor, "*B T S"]:
    """Score by v . tanh(q + k), in the form that suits the inputs."""
    return select_additive_kernel(queries, keys)(queries, keys, vector)


def select_additive_kernel(
    queries: Float[Tensor, "*#B T A"], keys: Float[Tensor, "*#B S A"]
) -> AdditiveKernel:
    """The first form that applies."""
    return next(kernel for applies, kernel in ADDITIVE_KERNELS if applies(queries, keys))


def _fits_naive(queries: Tensor, keys: Tensor) -> bool:
    leading = torch.broadcast_shapes(queries.shape[:-2], keys.shape[:-2])
    return math.prod((*leading, *queries.shape[-2:], keys.size(-2))) <= MAX_NAIVE_ELEMENTS


def _always(queries: Tensor, keys: Tensor) -> bool:
    return True


ADDITIVE_KERNELS: tuple[tuple[Callable[[Tensor, Tensor], bool], AdditiveKernel], ...] = (
    (_fits_naive, naive_additive_score),
    (_always, chunked_additive_score),
)


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
