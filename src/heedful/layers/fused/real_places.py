"""Real places: how do usual Transformer layers read whole sequences, and no padding?

A batch is a table as wide as its longest sequence; of one that is not sorted by length, two places
in five may be padding. Only attention needs the table: all else is done to the places that are
there, one below the other. Law: they come out as the layers as they are written give them, but for
rounding; padding comes out zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from heedful.attention.attend import Attends, Memory
from heedful.attention.heads import MultiHead
from heedful.layers.fused.in_place import bend
from heedful.layers.fused.usual import Sublayers, heads_of, maps_of
from heedful.shapes import Bool, Float, Int


class Table(NamedTuple):
    """Where the real places of a batch stand."""

    mask: Bool[Tensor, "B S"]
    numbers: Int[Tensor, "N"]  # of all places, row by row

    @classmethod
    def of(cls, mask: Bool[Tensor, "B S"]) -> Table:
        """Number the places that are there."""
        return cls(mask, mask.flatten().nonzero().squeeze(1))

    def take(self, table: Float[Tensor, "B S D"]) -> Float[Tensor, "N D"]:
        """Take the real places out of a table."""
        return table.flatten(0, 1).index_select(0, self.numbers)

    def put(self, places: Float[Tensor, "N D"]) -> Float[Tensor, "B S D"]:
        """Put real places into a table of zeros."""
        table = places.new_zeros(self.mask.numel(), places.size(1))
        return table.index_copy_(0, self.numbers, places).view(*self.mask.shape, -1)


def read_real_places(
    layers: Sequence[Sublayers], inputs: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]
) -> Float[Tensor, "B S D"]:
    """Let the places of whole sequences look both ways, layer by layer."""
    table = Table.of(mask)
    places = table.take(inputs)
    for layer in layers:
        heard = layer.self_residual.enter(places)
        found = _look(layer.self_attention.attention, heard, table)
        places = layer.self_residual.leave(places, found)
        feedforward = maps_of(layer.feedforward)
        hidden = bend(feedforward.activation, feedforward.into(layer.residual.enter(places)))
        places = layer.residual.leave(places, feedforward.out(hidden))
    return table.put(places)


def remember_real_places(
    layers: Sequence[Sublayers], states: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]
) -> tuple[Memory, ...]:
    """Make a source ready to be looked at by the layers that look at one."""
    table = Table.of(mask)
    places = table.take(states)
    found = []
    for attention, _ in (layer.source_attention for layer in layers if layer.source_attention):
        heads, _ = heads_of(attention)
        values = _spread(heads.value_projection, places, table, heads)
        keys = heads.score.prepare(_spread(heads.key_projection, places, table, heads))
        found.append(Memory(values.contiguous(), keys.contiguous(), mask[:, None, None]))
    return tuple(found)


def _look(attention: Attends, places: Float[Tensor, "N D"], table: Table) -> Float[Tensor, "N D"]:
    heads, temperature = heads_of(attention)
    keys = _spread(heads.key_projection, places, table, heads)
    context = scaled_dot_product_attention(
        _spread(heads.query_projection, places, table, heads),
        heads.score.prepare(keys),
        _spread(heads.value_projection, places, table, heads),
        attn_mask=table.mask[:, None, None],  # where it hides all, nobody is there to look
        scale=1 / temperature,
    )
    outputs: Tensor = heads.output_projection(table.take(context.transpose(1, 2).flatten(2)))
    return outputs


def _spread(
    project: nn.Linear, places: Float[Tensor, "N D"], table: Table, heads: MultiHead
) -> Float[Tensor, "B H S K"]:
    """Project real places, and put them into the tables of the heads."""
    return table.put(project(places)).unflatten(-1, (heads.num_heads, -1)).transpose(1, 2)
