"""Attention of long texts: too many weights to hold, of which rows are computed when they are read.

A map of 8,192 x 8,192 weights is 256 MiB for each head. Within `deferring_weights`, traces keep the
inputs of such calls instead; a map is shown from tiles of one byte a weight, in levels of which
each cell is the largest of four of the level before, so that no large weight vanishes. Invariants:
a row that is read is that of the call; a byte is 0 only where all weights below it are 0, and grows
with the largest of them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.attention.alignments import SoftAlignment
from heedful.attention.attention import Attention
from heedful.attention.edits import EditedAlignment
from heedful.attention.memory import AttentionState, Memory
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.scores import DOT_PRODUCT_SCORES
from heedful.pytree import map_tensors, tensors_of
from heedful.shapes import Float, Queries

TILE_SIDE = 256
_BLOCK_ROWS = 64  # that are computed together
_ALIKE_HEADS = DOT_PRODUCT_SCORES  # their heads have no parameters of their own
_max_weights: ContextVar[int | None] = ContextVar("max_weights", default=None)


@contextmanager
def deferring_weights(max_weights: int) -> Iterator[None]:
    """Let traces keep the inputs of calls that have more weights, instead of the weights."""
    token = _max_weights.set(max_weights)
    try:
        yield
    finally:
        _max_weights.reset(token)


def defers(num_weights: int) -> bool:
    """Return whether so many weights of a call are not to be held."""
    limit = _max_weights.get()
    return limit is not None and num_weights > limit


class DeferredWeights(NamedTuple):
    """A call of attention for one text, whose rows do not depend on one another."""

    attention: Attention
    queries: Queries
    memory: Memory  # without values, which weights do not depend on
    packed_mask: NDArray[np.uint8] | None  # where the mask differs between queries
    state: AttentionState | None
    num_heads: int

    @classmethod
    def from_call(
        cls,
        attention: Attention,
        queries: Queries,
        memory: Memory,
        state: AttentionState | None,
        num_heads: int,
    ) -> "DeferredWeights":
        """Keep what the weights of a call are computed from."""
        values, keys, mask = memory
        empty = values.new_zeros(1).expand(values.shape)
        packed = None
        if mask.size(-2) > 1:
            packed = np.packbits(mask.reshape(mask.shape[-2:]).cpu().numpy(), axis=-1)
            mask = mask[..., :1, :].clone()
        return cls(attention, queries, Memory(empty, keys, mask), packed, state, num_heads)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Heads, queries and keys."""
        return self.num_heads, self.queries.size(-2), self.memory.mask.size(-1)

    @property
    def num_bytes(self) -> int:
        """Return how much is kept."""
        tensors = tensors_of((self.queries, self.memory.keys))
        packed = 0 if self.packed_mask is None else self.packed_mask.nbytes
        return packed + sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    @torch.inference_mode()
    def read_rows(self, head: int, start: int, stop: int) -> Float[np.ndarray, "R S"]:
        """Compute rows of a head."""
        queries, mask = self.queries[..., start:stop, :], self._read_mask(start, stop)
        attention, state = self.attention, self.state
        if state is None and attention.needs_positions:
            state = attention.initial_state(self.memory)
        state = state and state._replace(num_queries=state.num_queries + start)
        if isinstance(attention, MultiHeadAttention) and type(attention.score) in _ALIKE_HEADS:
            rows = self._compute_head(attention, head, queries, mask, state)
        else:
            memory = self.memory._replace(mask=mask)
            rows = attention.compute_weights(queries, memory, state).weights.flatten(0, -3)[head]
        padding = (0, self.shape[-1] - rows.size(-1))
        return torch.nn.functional.pad(rows, padding).float().cpu().numpy()

    def _compute_head(
        self,
        attention: MultiHeadAttention,
        head: int,
        queries: Queries,
        mask: Tensor,
        state: AttentionState | None,
    ) -> Float[Tensor, "R V"]:
        """Compute weights of one head alone, by softmax up to the last position that is seen."""
        function, mask = attention.alignment_function, mask.flatten(0, -3)
        num_keys = mask.size(-1)
        if isinstance(function, SoftAlignment):
            seen = mask.flatten(0, -2).byte().amax(dim=0).nonzero()  # any() takes longer
            num_keys = int(seen.max()) + 1 if len(seen) else 1
        elif isinstance(function, EditedAlignment):
            function = function.for_head(head)
        projected = attention.query_projection(queries).unflatten(-1, (self.num_heads, -1))
        keys, head_queries = self.memory.keys, projected[..., head, :]
        keys = keys[..., head * keys.size(-3) // self.num_heads, :num_keys, :]
        state = map_tensors(lambda tensor: tensor[:, head], state)
        scores = attention.score(head_queries, keys, state)
        return function(scores, mask[..., :num_keys], head_queries, state).weights[0]

    def _read_mask(self, start: int, stop: int) -> Tensor:
        mask = self.memory.mask
        if self.packed_mask is None:
            return mask
        rows = np.unpackbits(self.packed_mask[start:stop], axis=-1, count=mask.size(-1))
        unpacked = torch.from_numpy(rows).bool().to(mask.device)
        return unpacked.view(*mask.shape[:-2], *unpacked.shape)


class MapPyramid(NamedTuple):
    """The weights of a map as bytes, finest level first."""

    levels: list[NDArray[np.uint8]]

    @classmethod
    def build(
        cls,
        read_rows: Callable[[int, int], NDArray[np.float32]],
        num_rows: int,
        num_columns: int,
        *,
        is_faint: bool = False,
    ) -> "MapPyramid":
        """Quantize a map by blocks of rows, and take the largest of each four cells.

        A byte is 255 w; with `is_faint` 255 w^(1/4), which tells small weights apart.
        """
        finest = np.empty((num_rows, num_columns), np.uint8)
        buffer = np.empty((_BLOCK_ROWS, num_columns), np.float32)
        for start in range(0, num_rows, _BLOCK_ROWS):
            stop = min(start + _BLOCK_ROWS, num_rows)
            rows, shades = read_rows(start, stop), buffer[: stop - start]
            np.sqrt(np.sqrt(rows, out=shades), out=shades) if is_faint else np.copyto(shades, rows)
            np.multiply(shades, 255, out=shades)
            np.ceil(shades, out=shades)  # no weight above 0 is 0
            np.minimum(shades, 255, out=shades)
            np.copyto(finest[start:stop], shades, casting="unsafe")
        levels = [finest]
        while max(levels[-1].shape) > TILE_SIDE:
            levels.append(_pool(levels[-1]))
        return cls(levels)

    @property
    def num_bytes(self) -> int:
        """Bytes of all levels."""
        return sum(level.nbytes for level in self.levels)

    def tile(self, level: int, x: int, y: int) -> bytes:
        """Return TILE_SIDE x TILE_SIDE bytes, row by row; zeros beyond the map."""
        top, left = y * TILE_SIDE, x * TILE_SIDE
        part = self.levels[level][top : top + TILE_SIDE, left : left + TILE_SIDE]
        padding = [(0, TILE_SIDE - size) for size in part.shape]
        return np.pad(part, padding).tobytes()


def count_tiles(num_rows: int, num_columns: int) -> list[tuple[int, int]]:
    """Return how many tiles each level has, below and beside each other."""
    counts = [(-(-num_rows // TILE_SIDE), -(-num_columns // TILE_SIDE))]
    while max(counts[-1]) > 1:
        counts.append((-(-counts[-1][0] // 2), -(-counts[-1][1] // 2)))
    return counts


def _pool(cells: NDArray[np.uint8]) -> NDArray[np.uint8]:
    rows, odd = cells[::2].copy(), cells[1::2]
    np.maximum(rows[: len(odd)], odd, out=rows[: len(odd)])
    columns, odd = rows[:, ::2].copy(), rows[:, 1::2]
    count = odd.shape[1]
    np.maximum(columns[:, :count], odd, out=columns[:, :count])
    return columns
