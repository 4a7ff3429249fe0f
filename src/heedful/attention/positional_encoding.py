"""Positional encodings: sinusoidal or learned, added to vectors or concatenated with them.

Invariant: an encoding depends on the position alone, so a text read in pieces, each from its own
start position, gets the same encodings as the whole text.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.ops import op
from heedful.shapes import Float, Int

# Pair i has the wavelength 2 pi base^(2 i / size) (Vaswani et al. 2017, 3.5).
DEFAULT_BASE = 10000.0


class PositionalEncoding(nn.Module, ABC):
    """Interface: a vector for every position, without a limit."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    @abstractmethod
    def forward(
        self, positions: Int[Tensor, "*B T"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*B T E"]:
        """Return the encodings of positions, counted from 0."""


class SinusoidalEncoding(PositionalEncoding):
    """sin(p / 10000^(2 i / E)) in column 2 i, its cosine in 2 i + 1  (Vaswani et al. 2017, 3.5).

    With an odd size the last sine has no cosine. Nothing is learned, and no length is too long.
    """

    @override
    def forward(
        self, positions: Int[Tensor, "*B T"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*B T E"]:
        return sinusoids(positions, self.size, dtype)


@op
def sinusoids(
    positions: Int[Tensor, "*B T"], size: int, dtype: torch.dtype
) -> Float[Tensor, "*B T E"]:
    """Compute the sinusoidal encoding of positions."""
    angles = rotary_angles(positions, size)  # (*B, T, (E + 1) / 2)
    pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)
    return pairs.flatten(-2)[..., :size].to(dtype)


def rotary_angles(
    positions: Int[Tensor, "*B T"], size: int, *, base: float = DEFAULT_BASE
) -> Float[Tensor, "*B T _"]:
    """Return p / base^(2 i / size), the angle of each position in each pair of dimensions."""
    # float64: angles grow with the position, but only their remainder by 2 pi matters. bfloat16
    # loses it from position 256 on; float32 is off by 0.004 at position 100,000.
    exponents = torch.arange(0, size, 2, dtype=torch.float64, device=positions.device) / size
    return positions.unsqueeze(-1) * base**-exponents


class LearnedEncoding(PositionalEncoding):
    """A learned vector for each of the first positions  (Gehring et al. 2017, section 3.1).

    Positions beyond `max_positions` share the vector of the last: an error would let the longest
    text of a batch decide for all others.
    """

    def __init__(self, size: int, *, max_positions: int) -> None:
        super().__init__(size)
        self.embedding = nn.Embedding(max_positions, size)
        # As long as the token embeddings it is added to: see layers/embeddings.py.
        nn.init.normal_(self.embedding.weight, std=1.0)

    @override
    def forward(
        self, positions: Int[Tensor, "*B T"], dtype: torch.dtype = torch.float32
    ) -> Float[Tensor, "*B T E"]:
        return self.embedding(positions.clamp(max=self.embedding.num_embeddings - 1)).to(dtype)


class PositionCombiner(nn.Module, ABC):
    """Interface: how vectors and positional encodings are combined."""

    def __init__(self, encoding: PositionalEncoding) -> None:
        super().__init__()
        self.encoding = encoding

    @property
    @abstractmethod
    def output_size(self) -> int:
        """Size of the combined vectors."""

    @abstractmethod
    def forward(
        self, vectors: Float[Tensor, "*B T E"], start_positions: Int[Tensor, "*B"] | int = 0
    ) -> Float[Tensor, "*B T D"]:
        """Combine; `start_positions` are the positions of each row's first vector."""

    def encode_from(
        self, start_positions: Int[Tensor, "*B"] | int, vectors: Float[Tensor, "*B T E"]
    ) -> Float[Tensor, "*#B T P"]:
        """Return the encodings of as many positions as there are vectors."""
        offsets = torch.arange(vectors.size(-2), device=vectors.device)
        start = (
            start_positions if isinstance(start_positions, int) else start_positions.unsqueeze(-1)
        )
        return self.encoding(start + offsets, vectors.dtype)


class AddPositionalEncoding(PositionCombiner):
    """vector + encoding  (Vaswani et al. 2017, 3.5).

    The paper first multiplies embeddings by the square root of their size (3.4): `TokenEmbedding`
    does that.
    """

    @property
    @override
    def output_size(self) -> int:
        return self.encoding.size

    @override
    def forward(
        self, vectors: Float[Tensor, "*B T E"], start_positions: Int[Tensor, "*B"] | int = 0
    ) -> Float[Tensor, "*B T E"]:
        return vectors + self.encode_from(start_positions, vectors)


class ConcatPositionalEncoding(PositionCombiner):
    """[vector; encoding], for vectors of size `input_size`."""

    def __init__(self, encoding: PositionalEncoding, *, input_size: int) -> None:
        super().__init__(encoding)
        self.input_size = input_size

    @property
    @override
    def output_size(self) -> int:
        return self.input_size + self.encoding.size

    @override
    def forward(
        self, vectors: Float[Tensor, "*B T E"], start_positions: Int[Tensor, "*B"] | int = 0
    ) -> Float[Tensor, "*B T D"]:
        encodings = self.encode_from(start_positions, vectors)  # (*B, T, P) or (T, P)
        return torch.cat([vectors, encodings.expand(*vectors.shape[:-1], -1)], dim=-1)


class PositionalEncodingConfigBase(BaseConfig):
    """A positional encoding, added to vectors or concatenated with them."""

    type: str
    combine: Literal["add", "concat"] = "add"
    """Add the encoding to token embeddings, or concatenate it with them."""
    size: PositiveInt | None = None
    """Size of a concatenated encoding; by default that of the embeddings."""

    @model_validator(mode="after")
    def _check_size(self) -> PositionalEncodingConfigBase:
        if self.combine == "add" and self.size is not None:
            raise ValueError("size needs combine: concat")
        return self

    @abstractmethod
    def build_encoding(self, size: int) -> PositionalEncoding:
        """Build the encoding."""

    def build(self, *, embedding_size: int) -> PositionCombiner:
        encoding = self.build_encoding(self.size or embedding_size)
        if self.combine == "add":
            return AddPositionalEncoding(encoding)
        return ConcatPositionalEncoding(encoding, input_size=embedding_size)


class SinusoidalEncodingConfig(PositionalEncodingConfigBase):
    """Sines and cosines of many wavelengths, not learned (Vaswani et al. 2017)."""

    type: Literal["sinusoidal"] = "sinusoidal"

    @override
    def build_encoding(self, size: int) -> PositionalEncoding:
        return SinusoidalEncoding(size)


class LearnedEncodingConfig(PositionalEncodingConfigBase):
    """A learned vector for each of the first positions (Gehring et al. 2017)."""

    type: Literal["learned"] = "learned"
    max_positions: PositiveInt = 1024
    """Positions with their own vector; those beyond share that of the last."""

    @override
    def build_encoding(self, size: int) -> PositionalEncoding:
        return LearnedEncoding(size, max_positions=self.max_positions)


PositionalEncodingConfig = Annotated[
    SinusoidalEncodingConfig | LearnedEncodingConfig, Field(discriminator="type")
]
