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

from heedful.attention.alignments import hide
from heedful.attention.attend import Attends, Memory
from heedful.attention.heads import MultiHead
from heedful.layers.fused.in_place import bend
from heedful.layers.fused.packing import Packed, pack, side_by_side
from heedful.layers.fused.room import add_behind
from heedful.layers.fused.usual import Sublayers, are_usual, heads_of, listeners, maps_of
from heedful.layers.residual import Residual
from heedful.layers.self_attention import Held
from heedful.shapes import Bool, Float


class OnePlace(NamedTuple):
    """What layers made of one place."""

    outputs: Float[Tensor, "R 1 D"]
    weights: Float[Tensor, "R 1 S"] | None  # where the top one looked last, on average
    held: list[Held]


class Path(NamedTuple):
    """What goes past a sublayer, and where it is normalised."""

    norm: Callable[[Tensor], Tensor]
    is_before: bool

    @classmethod
    def of(cls, residual: Residual) -> Path:
        """Take a residual's, without its detours."""
        norm = residual.norm
        if type(norm) is nn.LayerNorm:
            shape, weight, bias = norm.normalized_shape, norm.weight, norm.bias
            return cls(
                lambda inputs: torch.layer_norm(inputs, shape, weight, bias, norm.eps),
                residual.placement == "before",
            )
        return cls(norm, residual.placement == "before")

    def enter(self, inputs: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
        """Give what is to be changed."""
        return self.norm(inputs) if self.is_before else inputs

    def leave(
        self, inputs: Float[Tensor, "B D"], out: Packed, changed: Float[Tensor, "B E"]
    ) -> Float[Tensor, "B D"]:
        """Add what comes of it to what went past."""
        outputs = out.added_to(inputs, changed)
        return outputs if self.is_before else self.norm(outputs)


class Looking(NamedTuple):
    """Attention of many heads, as its products; their scores need nothing but a softmax."""

    into: Packed  # queries; keys and values, too, where a place looks at its own sequence
    out: Packed
    num_heads: int
    path: Path


class Thinking(NamedTuple):
    """A feed-forward sublayer, as its products."""

    into: Packed
    activation: nn.Module
    out: Packed
    path: Path


class Layer(NamedTuple):
    """A Transformer layer, as its products."""

    within: Looking
    at_source: Looking | None
    thinking: Thinking


class PackedLayers(NamedTuple):
    """Layers on top of one another, as their products."""

    layers: Sequence[Layer]
    listeners: Sequence[Mapping[int, Any]]  # those of every attention, as they come and go

    @property
    def are_heard(self) -> bool:
        """Whether somebody listens where the layers look; this form would tell nothing."""
        return any(self.listeners)

    def read(
        self,
        inputs: Float[Tensor, "R D"],
        held: Sequence[Held | None],
        sources: Sequence[Memory],
        seen: Bool[Tensor, "R P"] | None = None,
        *,
        need_weights: bool,
    ) -> OnePlace:
        """Read a place of every row, right after those that are held.

        Sources, and what is held, may have fewer rows: each then serves so many neighbours, and
        `seen` says which of the places, their own included, each of these has come by.
        """
        kept, looked = list[Held](), None
        num_families = len(sources[0].values) if sources else len(inputs)
        if seen is not None:
            seen = seen.view(num_families, 1, -1, seen.size(1))
        for number, layer in enumerate(self.layers):
            inputs, looked, now = _look_within(
                layer.within, inputs, held[number], seen, num_families
            )
            if layer.at_source is not None:
                inputs, looked = _look_at(layer.at_source, inputs, sources[number])
            inputs = _think(layer.thinking, inputs)
            kept.append(now)
        assert looked is not None, "there is no layer"
        weights = looked.mean(dim=1).view(len(inputs), 1, -1) if need_weights else None
        return OnePlace(inputs.unsqueeze(1), weights, kept)


def pack_layers(layers: Sequence[Sublayers]) -> PackedLayers | None:
    """Lay out the weights of layers, if all are of the kinds that have this form."""
    if not are_usual(layers):
        return None
    return PackedLayers(list(map(_pack_layer, layers)), listeners(layers))


def _pack_layer(layer: Sublayers) -> Layer:
    feedforward = maps_of(layer.feedforward)
    return Layer(
        _pack_looking(layer.self_attention.attention, layer.self_residual, is_within=True),
        layer.source_attention and _pack_looking(*layer.source_attention, is_within=False),
        Thinking(
            pack(feedforward.into),
            feedforward.activation,
            pack(feedforward.out),
            Path.of(layer.residual),
        ),
    )


def _pack_looking(attention: Attends, residual: Residual, *, is_within: bool) -> Looking:
    heads, temperature = heads_of(attention)
    # Queries are divided by the temperature here, once.
    into = [pack(heads.query_projection).changed(lambda each: each / temperature)]
    if is_within:
        into += [_pack_keys(heads), pack(heads.value_projection)]
    out = pack(heads.output_projection)
    return Looking(side_by_side(into), out, heads.num_heads, Path.of(residual))


def _pack_keys(heads: MultiHead) -> Packed:
    """Prepare here, once: what products do to keys they may as well do to what makes them."""

    def prepare(each: Tensor) -> Tensor:
        keys: Tensor = heads.score.prepare(each.unflatten(-1, (heads.num_heads, -1)))
        return keys.flatten(-2)

    return pack(heads.key_projection).changed(prepare)


def _look_within(
    look: Looking,
    inputs: Float[Tensor, "R D"],
    held: Held | None,
    seen: Bool[Tensor, "F 1 K P"] | None,
    num_families: int,
) -> tuple[Float[Tensor, "R D"], Float[Tensor, "F H K P"], Held]:
    asked = look.into(look.path.enter(inputs))
    parted = asked.view(num_families, -1, 3, look.num_heads, asked.size(1) // (3 * look.num_heads))
    queries, keys, values = parted.permute(2, 0, 3, 1, 4)  # (F, H, K, Q) each
    if held is not None:
        values, keys = add_behind(held.values, values), add_behind(held.keys, keys)
    scores = _multiply(queries, keys.mT)
    weights = (scores if seen is None else hide(scores, seen)).softmax(dim=-1)
    return _take(look, inputs, weights, values), weights, Held(values, keys)


def _look_at(
    look: Looking, inputs: Float[Tensor, "R D"], memory: Memory
) -> tuple[Float[Tensor, "R D"], Float[Tensor, "F H K S"]]:
    num_families, num_heads, _, size = memory.keys.shape
    asked = look.into(look.path.enter(inputs)).view(num_families, -1, num_heads, size)
    scores = _multiply(asked.transpose(1, 2), memory.keys.mT)
    weights = hide(scores, memory.mask).softmax(dim=-1).mul_(memory.mask)
    return _take(look, inputs, weights, memory.values), weights


def _take(
    look: Looking,
    inputs: Float[Tensor, "R D"],
    weights: Float[Tensor, "F H K S"],
    values: Float[Tensor, "F H S V"],
) -> Float[Tensor, "R D"]:
    context = _multiply(weights, values).transpose(1, 2)  # (F, K, H, V)
    return look.path.leave(inputs, look.out, context.reshape(len(inputs), -1))


def _multiply(
    rows: Float[Tensor, "F H K X"], matrices: Float[Tensor, "F H X N"]
) -> Float[Tensor, "F H K N"]:
    """Rows @ matrices; torch would first spread and copy both."""
    products = torch.bmm(rows.flatten(0, 1), matrices.flatten(0, 1))
    return products.view(*rows.shape[:-1], matrices.size(-1))


def _think(think: Thinking, inputs: Float[Tensor, "B D"]) -> Float[Tensor, "B D"]:
    hidden = bend(think.activation, think.into(think.path.enter(inputs)))
    return think.path.leave(inputs, think.out, hidden)
