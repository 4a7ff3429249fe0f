"""The ways to tell vectors their places, as a configuration names them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from heedful.config import BaseConfig
from heedful.ops import op
from heedful.shapes import Float, Int

# Positions: how does a vector know where it stands?
#
# A place gets a vector of its own, which is added to what stands there or set beside it. Law: a
# vector follows from the number of its place alone, so a text read piece by piece, each piece
# with the place of its first word, is told the same as one read whole.

# Pair i of a vector turns once in 2 pi base^(2 i / width) places (Vaswani et al. 2017, 3.5).
DEFAULT_BASE = 10000.0


class PositionalEncoding(nn.Module, ABC):
    """A vector for every place, wherever a text ends."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    @abstractmethod
    def forward(
        self, positions: Int[Tensor, "*B T"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*B T E"]:
        """Give the vectors of these places, the first being 0, in this precision."""


class SinusoidalEncoding(PositionalEncoding):
    """sin(p / 10000^(2 i / E)) in column 2 i, its cosine in 2 i + 1  (Vaswani et al. 2017, 3.5).

    Of an odd size, the last sine goes without its cosine. Nothing is learned, and the formula
    goes on past any length.
    """

    def forward(
        self, positions: Int[Tensor, "*B T"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*B T E"]:
        """Give the vectors of these places, the first being 0, in this precision."""
        return sinusoids(positions, self.size, dtype)


@op
def sinusoids(
    positions: Int[Tensor, "*B T"], size: int, dtype: torch.dtype
) -> Float[Tensor, "*B T E"]:
    """Compute the sinusoidal encoding of positions."""
    angles = rotary_angles(positions, size)  # (*B, T, (E + 1) / 2)
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)
    return pairs.flatten(-2)[..., :size].to(dtype)


class LearnedEncoding(PositionalEncoding):
    """A learned vector for each of the first places  (Gehring et al. 2017, section 3.1).

    Places beyond `max_positions` share the vector of the last: to refuse them would let the
    longest text of a batch decide over its neighbours.
    """

    def __init__(self, size: int, *, max_positions: int) -> None:
        super().__init__(size)
        self.embedding = nn.Embedding(max_positions, size)
        # As long as the vectors of words that are told their places: see layers/embeddings.py.
        nn.init.normal_(self.embedding.weight, std=1.0)

    def forward(
        self, positions: Int[Tensor, "*B T"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*B T E"]:
        """Give the vectors of these places, the first being 0, in this precision."""
        return self.embedding(positions.clamp(max=self.embedding.num_embeddings - 1)).to(dtype)


class PositionCombiner(nn.Module, ABC):
    """How vectors and their places come together."""

    def __init__(self, encoding: PositionalEncoding) -> None:
        super().__init__()
        self.encoding = encoding

    @property
    @abstractmethod
    def output_size(self) -> int:
        """Width of a vector that knows its place."""

    @abstractmethod
    def forward(
        self, vectors: Float[Tensor, "*B T E"], start_positions: Int[Tensor, "*B"] | int = 0
    ) -> Float[Tensor, "*B T D"]:
        """Tell vectors their places; `first` is the place of the first one of each row."""

    def encode_from(
        self, start_positions: Int[Tensor, "*B"] | int, vectors: Float[Tensor, "*B T E"]
    ) -> Float[Tensor, "*#B T P"]:
        """Give as many places as there are vectors, counted from `first`."""
        numbers = torch.arange(vectors.size(-2), device=vectors.device)
        start = (
            start_positions if isinstance(start_positions, int) else start_positions.unsqueeze(-1)
        )
        return self.encoding(start + numbers, vectors.dtype)


class AddPositionalEncoding(PositionCombiner):
    """vector + position  (Vaswani et al. 2017, 3.5).

    The paper multiplies embeddings by the root of their width before (3.4), lest places drown
    the words: that is the work of the embedding.
    """

    @property
    def output_size(self) -> int:
        """As wide as the vectors were."""
        return self.encoding.size

    def forward(
        self, vectors: Float[Tensor, "*B T E"], start_positions: Int[Tensor, "*B"] | int = 0
    ) -> Float[Tensor, "*B T E"]:
        """Tell vectors their places; `first` is the place of the first one of each row."""
        return vectors + self.encode_from(start_positions, vectors)


class ConcatPositionalEncoding(PositionCombiner):
    """[vector; position], for vectors of width `input_size`."""

    def __init__(self, positions: PositionalEncoding, *, input_size: int) -> None:
        super().__init__(positions)
        self.input_size = input_size

    @property
    def output_size(self) -> int:
        """The widths of both together."""
        return self.input_size + self.encoding.size

    def forward(
        self, vectors: Float[Tensor, "*B T E"], start_positions: Int[Tensor, "*B"] | int = 0
    ) -> Float[Tensor, "*B T D"]:
        """Tell vectors their places; `first` is the place of the first one of each row."""
        places = self.encode_from(start_positions, vectors)  # (*B, T, P) or (T, P)
        return torch.cat([vectors, places.expand(*vectors.shape[:-1], -1)], dim=-1)


def rotary_angles(
    positions: Int[Tensor, "*B T"], size: int, *, base: float = DEFAULT_BASE
) -> Float[Tensor, "*B T _"]:
    """Give p / base^(2 i / size), the angle of each place in each pair of numbers."""
    # float64: an angle grows with its place while only its remainder by 2 pi counts. bfloat16
    # loses that from place 256 on; float32 is off by 0.004 at place 100,000.
    exponents = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device) / size
    return positions.unsqueeze(-1) * base**-exponents


class PositionalEncodingConfigBase(BaseConfig):
    """A vector for every place, and how it joins what stands there."""

    type: str
    combine: Literal["add", "concat"] = "add"
    """Whether the vector of a place is added to that of a word or set beside it."""
    size: PositiveInt | None = None
    """Width of what is set beside a word; by default as wide. What is added is always so."""

    @model_validator(mode="after")
    def _check_size(self) -> PositionalEncodingConfigBase:
        if self.combine == "add" and self.size is not None:
            raise ValueError("size can be chosen with join: concatenate only")
        return self

    @abstractmethod
    def build_encoding(self, size: int) -> PositionalEncoding:
        """Make the vectors of the places."""

    def build(self, *, embedding_size: int) -> PositionCombiner:
        """Make what tells vectors of this width their places."""
        positions = self.build_encoding(self.size or embedding_size)
        if self.combine == "add":
            return AddPositionalEncoding(positions)
        return ConcatPositionalEncoding(positions, input_size=embedding_size)


class SinusoidalEncodingConfig(PositionalEncodingConfigBase):
    """Waves of many lengths, nothing learned (Vaswani et al. 2017)."""

    type: Literal["sinusoidal"] = "sinusoidal"

    def build_encoding(self, size: int) -> PositionalEncoding:
        """Make the vectors of the places."""
        return SinusoidalEncoding(size)


class LearnedEncodingConfig(PositionalEncodingConfigBase):
    """A learned vector for each of the first places (Gehring et al. 2017)."""

    type: Literal["learned"] = "learned"
    max_positions: PositiveInt = 1024
    """Places with a vector of their own; those beyond share the vector of the last."""

    def build_encoding(self, size: int) -> PositionalEncoding:
        """Make the vectors of the places."""
        return LearnedEncoding(size, max_positions=self.max_positions)


PositionalEncodingConfig = Annotated[
    SinusoidalEncodingConfig | LearnedEncodingConfig,
    Field(discriminator="type"),
]
