"""Attention of explanations that were too large to be sent: rows and tiles are read one by one.

Invariant: a worker holds the traces of the last few explanations, and a bounded number of bytes of
maps that were drawn.
"""

from collections import OrderedDict
from collections.abc import Sequence
from secrets import token_hex
from typing import NamedTuple

import numpy as np

from heedful.inspection.attention_layers import AttentionLayer
from heedful.inspection.large_maps import MapPyramid, count_tiles
from heedful.serving.protocol import ItemError, Result, TraceCall

MAX_TRACES = 3  # what is shown, what is compared with, and one before
_MAX_PYRAMID_BYTES = 2**27


class _MapKey(NamedTuple):
    trace: str
    layer: int
    head: int
    is_faint: bool


class HeldTraces:
    """Layers by the id of their explanation, and the pyramids of maps that were drawn."""

    def __init__(self) -> None:
        self._traces: OrderedDict[str, Sequence[AttentionLayer]] = OrderedDict()
        self._pyramids: OrderedDict[_MapKey, MapPyramid] = OrderedDict()

    def add(self, layers: Sequence[AttentionLayer]) -> str:
        """Hold the layers of an explanation and return its id; the oldest ones are dropped."""
        trace = token_hex(8)
        self._traces[trace] = layers
        while len(self._traces) > MAX_TRACES:
            self._drop(next(iter(self._traces)))
        return trace

    def _drop(self, trace: str) -> None:
        del self._traces[trace]
        for key in [key for key in self._pyramids if key.trace == trace]:
            del self._pyramids[key]

    def read(self, call: TraceCall) -> Result:
        """Return bytes: a row as float32, little-endian, or a tile as one byte for each weight."""
        if call.trace not in self._traces:
            return ItemError(404, "this explanation is not held any more", "explain again", "trace")
        layers = self._traces[call.trace]
        if call.layer >= len(layers):
            return _beyond("layer", len(layers))
        num_heads, num_rows, _ = layers[call.layer].weights.shape
        if call.head >= num_heads:
            return _beyond("head", num_heads)
        if call.tile is not None:
            return self._read_tile(layers[call.layer], call)
        if call.query >= num_rows:
            return _beyond("query", num_rows)
        row = layers[call.layer].read_rows(call.head, call.query, call.query + 1)
        return {"content": np.ascontiguousarray(row, "<f4").tobytes()}

    def _read_tile(self, layer: AttentionLayer, call: TraceCall) -> Result:
        assert call.tile is not None
        level, x, y = call.tile
        counts = count_tiles(*layer.weights.shape[1:])
        if level >= len(counts):
            return _beyond("level", len(counts))
        num_down, num_across = counts[level]
        if x >= num_across:
            return _beyond("x", num_across)
        if y >= num_down:
            return _beyond("y", num_down)
        return {"content": self._pyramid(layer, call).tile(level, x, y)}

    def _pyramid(self, layer: AttentionLayer, call: TraceCall) -> MapPyramid:
        key = _MapKey(call.trace, call.layer, call.head, call.is_faint)
        if key not in self._pyramids:
            # Before the new one is built: both together would need twice as much.
            used = sum(pyramid.num_bytes for pyramid in self._pyramids.values())
            while self._pyramids and used + 2 * layer.weights[0].size > _MAX_PYRAMID_BYTES:
                _, dropped = self._pyramids.popitem(last=False)
                used -= dropped.num_bytes
            self._pyramids[key] = MapPyramid.build(
                lambda start, stop: layer.read_rows(call.head, start, stop),
                *layer.weights.shape[1:],
                is_faint=call.is_faint,
            )
        self._pyramids.move_to_end(key)
        return self._pyramids[key]


def _beyond(field: str, count: int) -> ItemError:
    return ItemError(422, f"{field} is at most {count - 1}", "lower it", field)
