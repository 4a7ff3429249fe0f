"""One place: how does a common Transformer read the next token, without detours?

Search asks for one place of every row, again and again, and what stands between the products then
takes longer than they do. Here a layer is its products and little else: queries, keys and values
are one, and weights are laid out for few rows (`packing`). Law: outputs, weights and what is held
are those of the layers as they are written, but for rounding; either form can go on where the other
stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention.alignments import Softmax, hide
from heedful.attention.attend import Attends, Memory
from heedful.attention.heads import MultiHead
from heedful.attention.products import DotScore, ScaledDotScore
from heedful.attention.readouts import Expectation
from heedful.attention.scores import Score
from heedful.layers.feedforward import FeedForward, PlaceWise
from heedful.layers.fused.packing import Packed, pack
from heedful.layers.residual import Residual
from heedful.layers.self_attention import FullSelfAttention, Held, SelfAttention
from heedful.shapes import Float


class Sublayers(NamedTuple):
    """What a Transformer layer is made of."""

    self_attention: SelfAttention
    self_residual: Residual
    source_attention: tuple[Attends, Residual] | None
    feedforward: PlaceWise
    residual: Residual


class OnePlace(NamedTuple):
    """What layers made of one place."""

    outputs: Float[Tensor, "B D"]
    weights: Float[Tensor, "B 1 S"] | None  # where the top one looked last, on average
    held: list[Held]


class Looking(NamedTuple):
    """Attention of many heads, as its products."""

    into: Packed  # queries; keys and values, too, where a place looks at its own sequence
    out: Packed
    num_heads: int
    score: Score
    temperature: float
    residual: Residual


class Thinking(NamedTuple):
    """A feed-forward sublayer, as its products."""

    into: Packed
    activation: nn.Module
    out: Packed
    residual: Residual


class Layer(NamedTuple):
    """A Transformer layer, as its products."""

    within: Looking
    at_source: Looking | None
    thinking: Thinking


def are_common(layers: Sequence[Sublayers]) -> bool:
    """Whether layers are of the kinds that have this form; nobody must listen at them."""
    return all(map(_is_common, layers))


def _is_common(layer: Sublayers) -> bool:
    # The very types: a subclass may look or think otherwise.
    source = layer.source_attention
    return (
        type(layer.self_attention) is FullSelfAttention
        and _has_plain_heads(layer.self_attention.attention)
        and (source is None or _has_plain_heads(source[0]))
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
        and not attention._forward_hooks
    )


def pack_layers(layers: Sequence[Sublayers]) -> list[Layer]:
    """Lay out the weights of layers."""
    return [_pack_layer(layer) for layer in layers]


def _pack_layer(layer: Sublayers) -> Layer:
    feedforward = layer.feedforward
    assert isinstance(feedforward, FeedForward), type(feedforward)
    return Layer(
        _pack_looking(layer.self_attention.attention, layer.self_residual, is_within=True),
        layer.source_attention and _pack_looking(*layer.source_attention, is_within=False),
        Thinking(
            pack([feedforward.into]),
            feedforward.activation,
            pack([feedforward.out]),
            layer.residual,
        ),
    )


def _pack_looking(attention: Attends, residual: Residual, *, is_within: bool) -> Looking:
    assert isinstance(attention, MultiHead), type(attention)
    assert isinstance(attention.align, Softmax), type(attention.align)
    into = [attention.query_projection]
    if is_within:
        into += [attention.key_projection, attention.value_projection]
    return Looking(
        pack(into),
        pack([attention.output_projection]),
        attention.num_heads,
        attention.score,
        attention.align.temperature,
        residual,
    )


def read_one_place(
    layers: Sequence[Layer],
    inputs: Float[Tensor, "B D"],
    held: Sequence[Held | None],
    sources: Sequence[Memory],
    *,
    need_weights: bool,
) -> OnePlace:
    """Read a place of every row, right after those that are held."""
    kept, looked = list[Held](), None
    for number, layer in enumerate(layers):
        inputs, looked, now = _look_within(layer.within, inputs, held[number])
        if layer.at_source is not None:
            inputs, looked = _look_at(layer.at_source, inputs, sources[number])
        inputs = _think(layer.thinking, inputs)
        kept.append(now)
    assert looked is not None, "there is no layer"
    return OnePlace(inputs, looked.mean(dim=1) if need_weights else None, kept)


def _look_within(
    look: Looking, inputs: Float[Tensor, "B D"], held: Held | None
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B H 1 S"], Held]:
    asked = look.into(_enter(look.residual, inputs))
    queries, keys, values = asked.view(len(asked), 3, look.num_heads, 1, -1).unbind(dim=1)
    keys = look.score.prepare(keys)
    if held is not None:
        values = torch.cat([held.values, values], dim=-2)
        keys = torch.cat([held.keys, keys], dim=-2)
    # Every row holds as many places as there are, and sees them all.
    weights = (queries @ keys.mT / look.temperature).softmax(dim=-1)
    return _take(look, inputs, weights, values), weights, Held(values, keys)


def _look_at(
    look: Looking, inputs: Float[Tensor, "B D"], memory: Memory
) -> tuple[Float[Tensor, "B D"], Float[Tensor, "B H 1 S"]]:
    queries = look.into(_enter(look.residual, inputs)).view(len(inputs), look.num_heads, 1, -1)
    scores = hide(queries @ memory.keys.mT / look.temperature, memory.mask)
    weights = scores.softmax(dim=-1) * memory.mask
    return _take(look, inputs, weights, memory.values), weights


def _take(
    look: Looking,
    inputs: Float[Tensor, "B D"],
    weights: Float[Tensor, "B H 1 S"],
    values: Float[Tensor, "B H S V"],
) -> Float[Tensor, "B D"]:
    return _leave(look.residual, inputs, look.out((weights @ values).flatten(1)))


def _think(think: Thinking, inputs: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
    hidden = think.activation(think.into(_enter(think.residual, inputs)))
    return _leave(think.residual, inputs, think.out(hidden))


def _enter(residual: Residual, inputs: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
    entering: Tensor = residual.norm(inputs) if residual.placement == "before" else inputs
    return entering


def _leave(
    residual: Residual, inputs: Float[Tensor, "B D"], changed: Float[Tensor, "B D"]
) -> Float[Tensor, "B D"]:
    outputs: Tensor = inputs + changed
    return residual.norm(outputs) if residual.placement == "after" else outputs
