"""Positions: how does a vector know where it stands?

A place gets a vector of its own, which is added to what stands there or set beside it. Law: a
vector follows from the number of its place alone, so a text read piece by piece, each piece
with the place of its first word, is told the same as one read whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import suppress
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from heedful.shapes import Float, Int

# Pair i of a vector turns once in 2 pi base^(2 i / width) places (Vaswani et al. 2017, 3.5).
BASE = 10000.0

_NUM_NEAR = 512


class Positions(nn.Module, ABC):
    """A vector for every place, wherever a text ends."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    @abstractmethod
    def forward(
        self, places: Int[Tensor, "*B T"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*B T E"]:
        """Give the vectors of these places, the first being 0, in this precision."""


class SinusoidalPositions(Positions):
    """sin(p / 10000^(2 i / E)) in column 2 i, its cosine in 2 i + 1  (Vaswani et al. 2017, 3.5).

    Of an odd size, the last sine goes without its cosine. Nothing is learned, and the formula
    goes on past any length.
    """

    def forward(
        self, places: Int[Tensor, "*B T"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*B T E"]:
        """Give the vectors of these places, the first being 0, in this precision."""
        # A GPU cannot say in time that a place is far off.
        if places.device.type == "cpu" and type(places) is Tensor:
            with suppress(IndexError):
                return functional.embedding(places, _near_places(self.size, dtype))
        return _waves(places, self.size, dtype)


def _waves(places: Int[Tensor, "*B T"], size: int, dtype: torch.dtype) -> Float[Tensor, "*B T E"]:
    turns = angles(places, size)  # (*B, T, (E + 1) / 2)
    pairs = torch.stack([turns.sin(), turns.cos()], dim=-1)
    return pairs.flatten(-2)[..., :size].to(dtype)


@lru_cache(maxsize=16)
def _near_places(size: int, dtype: torch.dtype) -> Float[Tensor, "places E"]:
    """The vectors of the first places, which are asked for again at every step of a search."""
    with torch.inference_mode(mode=False):
        return _waves(torch.arange(_NUM_NEAR, device="cpu"), size, dtype)


class LearnedPositions(Positions):
    """A learned vector for each of the first places  (Gehring et al. 2017, section 3.1).

    Places beyond `max_positions` share the vector of the last: to refuse them would let the
    longest text of a batch decide over its neighbours.
    """

    def __init__(self, size: int, *, max_positions: int) -> None:
        super().__init__(size)
        self.table = nn.Embedding(max_positions, size)
        # As long as the vectors of words that are told their places: see layers/embeddings.py.
        nn.init.normal_(self.table.weight, std=1.0)

    def forward(
        self, places: Int[Tensor, "*B T"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*B T E"]:
        """Give the vectors of these places, the first being 0, in this precision."""
        return self.table(places.clamp(max=self.table.num_embeddings - 1)).to(dtype)


class Placing(nn.Module, ABC):
    """How vectors and their places come together."""

    def __init__(self, positions: Positions) -> None:
        super().__init__()
        self.positions = positions

    @property
    @abstractmethod
    def output_size(self) -> int:
        """Width of a vector that knows its place."""

    @abstractmethod
    def forward(
        self, vectors: Float[Tensor, "*B T E"], first: Int[Tensor, "*B"] | int = 0
    ) -> Float[Tensor, "*B T D"]:
        """Tell vectors their places; `first` is the place of the first one of each row."""

    def vectors_from(
        self, first: Int[Tensor, "*B"] | int, vectors: Float[Tensor, "*B T E"]
    ) -> Float[Tensor, "*#B T P"]:
        """Give as many places as there are vectors, counted from `first`."""
        numbers = torch.arange(vectors.size(-2), device=vectors.device)
        start = first if isinstance(first, int) else first.unsqueeze(-1)
        return self.positions(start + numbers, vectors.dtype)


class AddPositions(Placing):
    """vector + position  (Vaswani et al. 2017, 3.5).

    The paper multiplies embeddings by the root of their width before (3.4), lest places drown
    the words: that is the work of the embedding.
    """

    @property
    def output_size(self) -> int:
        """As wide as the vectors were."""
        return self.positions.size

    def forward(
        self, vectors: Float[Tensor, "*B T E"], first: Int[Tensor, "*B"] | int = 0
    ) -> Float[Tensor, "*B T E"]:
        """Tell vectors their places; `first` is the place of the first one of each row."""
        return vectors + self.vectors_from(first, vectors)


class ConcatenatePositions(Placing):
    """[vector; position], for vectors of width `vector_size`."""

    def __init__(self, positions: Positions, *, vector_size: int) -> None:
        super().__init__(positions)
        self.vector_size = vector_size

    @property
    def output_size(self) -> int:
        """The widths of both together."""
        return self.vector_size + self.positions.size

    def forward(
        self, vectors: Float[Tensor, "*B T E"], first: Int[Tensor, "*B"] | int = 0
    ) -> Float[Tensor, "*B T D"]:
        """Tell vectors their places; `first` is the place of the first one of each row."""
        places = self.vectors_from(first, vectors)  # (*B, T, P) or (T, P)
        return torch.cat([vectors, places.expand(*vectors.shape[:-1], -1)], dim=-1)


def angles(
    places: Int[Tensor, "*B T"], size: int, *, base: float = BASE
) -> Float[Tensor, "*B T _"]:
    """Give p / base^(2 i / size), the angle of each place in each pair of numbers."""
    # float64: an angle grows with its place while only its remainder by 2 pi counts. bfloat16
    # loses that from place 256 on; float32 is off by 0.004 at place 100,000.
    exponents = torch.arange(0, size, 2, dtype=torch.float64, device=places.device) / size
    return places.unsqueeze(-1) * base**-exponents
