"""Positional encodings: sinusoidal, learned or the index itself, added to vectors or concatenated.

Invariant: an encoding depends only on the position, so a text read in pieces, each from its own
start position, gets the same encodings as the whole text.
"""

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.pytree import widest_float
from heedful.shapes import Float, Int

# Pair i has the wavelength 2 pi base^(2 i / size) (Vaswani et al. 2017, 3.5).
DEFAULT_BASE = 10000.0

CombineOperation = Literal["add", "concat"]
SinusoidLayout = Literal["interleaved", "split"]
Positions = Int[Tensor, "*B T"]
Vectors = Float[Tensor, "*B T E"]


class PositionalEncoding(nn.Module, ABC):
    """Interface: a vector for each position, without a limit."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    @abstractmethod
    def forward(self, positions: Positions, dtype: torch.dtype = torch.float32) -> Vectors:
        """Return the encodings of positions, counted from 0."""


class SinusoidalEncoding(PositionalEncoding):
    """sin(p / 10000^(2 i / E)) in column 2 i, its cosine in 2 i + 1  (Vaswani et al. 2017, 3.5).

    With an odd size the last sine has no cosine. Nothing is learned, and no length is too long. In
    the layout "split" all sines come before all cosines, as in Marian.
    """

    def __init__(self, size: int, *, layout: SinusoidLayout = "interleaved") -> None:
        super().__init__(size)
        self.layout = layout

    @override
    def forward(self, positions: Positions, dtype: torch.dtype = torch.float32) -> Vectors:
        angles = rotary_angles(positions, self.size)  # (*B, T, (E + 1) / 2)
        pairs = torch.stack([angles.sin(), angles.cos()], dim=-1)
        encodings = pairs.flatten(-2)[..., : self.size].to(dtype)
        if self.layout == "split":
            return torch.cat([encodings[..., 0::2], encodings[..., 1::2]], dim=-1)
        return encodings


def rotary_angles(positions: Positions, size: int, *, base: float = DEFAULT_BASE) -> Vectors:
    """Return p / base^(2 i / size), the angle of each position in each pair of dimensions."""
    # float64: angles grow with the position, but only their remainder by 2 pi matters. bfloat16
    # loses it from position 256 on; float32 is off by 0.004 at position 100,000.
    dtype, device = widest_float(positions.device), positions.device
    exponents = torch.arange(0, size, 2, dtype=dtype, device=device) / size
    return positions.unsqueeze(-1) * base**-exponents


class LearnedEncoding(PositionalEncoding):
    """A learned vector for each of the first positions  (Gehring et al. 2017, section 3.1).

    Positions beyond them share the last vector: an error would let one long text fail its batch.
    """

    def __init__(self, size: int, *, max_positions: int, init_std: float = 1.0) -> None:
        super().__init__(size)
        self.embedding = nn.Embedding(max_positions, size)
        nn.init.normal_(self.embedding.weight, std=init_std)

    @override
    def forward(self, positions: Positions, dtype: torch.dtype = torch.float32) -> Vectors:
        return self.embedding(positions.clamp(max=self.embedding.num_embeddings - 1)).to(dtype)


class IndexEncoding(PositionalEncoding):
    """scale * p, one number: the position itself, appended to the vector as [x; p].

    It grows without a limit: one beyond all positions of training is a number that no layer has
    read. Half precision rounds it, bfloat16 from 256 on and float16 from 2048 on.
    """

    def __init__(self, size: int = 1, *, scale: float = 1.0) -> None:
        assert size == 1, size
        super().__init__(size)
        self.scale = scale

    @override
    def forward(self, positions: Positions, dtype: torch.dtype = torch.float32) -> Vectors:
        return (positions.unsqueeze(-1).to(widest_float(positions.device)) * self.scale).to(dtype)


class PositionCombiner(nn.Module):
    """vector + encoding  (Vaswani et al. 2017, 3.5), or [vector; encoding]."""

    def __init__(
        self, encoding: PositionalEncoding, *, input_size: int, combine: CombineOperation = "add"
    ) -> None:
        super().__init__()
        assert combine == "concat" or encoding.size == input_size, (encoding.size, input_size)
        self.encoding = encoding
        self.combine = combine
        self.output_size = input_size + (encoding.size if combine == "concat" else 0)

    def forward(
        self, vectors: Vectors, start_positions: Int[Tensor, "*B"] | int = 0
    ) -> Float[Tensor, "*B T D"]:
        """Combine; `start_positions` are the positions of each row's first vector."""
        positions = torch.arange(vectors.size(-2), device=vectors.device)
        if isinstance(start_positions, Tensor):
            start_positions = start_positions.unsqueeze(-1)
        encodings = self.encoding(start_positions + positions, vectors.dtype)  # (*B, T, P), (T, P)
        if self.combine == "add":
            return vectors + encodings
        return torch.cat([vectors, encodings.expand(*vectors.shape[:-1], -1)], dim=-1)


class PositionalEncodingConfigBase(BaseConfig):
    """A positional encoding, added to vectors or concatenated with them."""

    module_class: ClassVar[type[PositionalEncoding]]
    type: str
    combine: CombineOperation = "add"
    """Add the encoding to token embeddings, or concatenate it with them."""
    size: PositiveInt | None = None
    """Size of a concatenated encoding; by default the size of the embeddings."""

    @model_validator(mode="after")
    def _check_size(self) -> "PositionalEncodingConfigBase":
        if self.combine == "add" and self.size is not None:
            raise ValueError("size needs combine: concat")
        return self

    def token_size(self, total_size: int) -> int:
        """Return the size of a token embedding that has `total_size` with this encoding."""
        if self.combine == "add":
            return total_size
        return total_size - (self.size or total_size // 2)

    def build(self, *, embedding_size: int) -> PositionCombiner:
        options = self.options()
        combine, size = options.pop("combine"), options.pop("size") or embedding_size
        encoding = self.module_class(size, **options)
        return PositionCombiner(encoding, input_size=embedding_size, combine=combine)


class SinusoidalEncodingConfig(PositionalEncodingConfigBase):
    """Sines and cosines of many wavelengths, not learned (Vaswani et al. 2017)."""

    module_class = SinusoidalEncoding
    type: Literal["sinusoidal"] = "sinusoidal"
    layout: SinusoidLayout = "interleaved"
    """Sine and cosine of a wavelength side by side (the paper), or all sines before all cosines
    (split; Marian)."""


class LearnedEncodingConfig(PositionalEncodingConfigBase):
    """A learned vector for each of the first positions (Gehring et al. 2017)."""

    module_class = LearnedEncoding
    type: Literal["learned"] = "learned"
    max_positions: PositiveInt = 1024
    """Number of positions with their own vector; later ones share the last vector."""
    init_std: PositiveFloat = 1.0
    """Standard deviation of the vectors at first; 1 is that of the token embeddings they are added
    to, and less suits the cells of an image, which are smaller."""


class IndexEncodingConfig(PositionalEncodingConfigBase):
    """The position itself, appended to the embedding as one number; naive, for comparison."""

    module_class = IndexEncoding
    type: Literal["index"] = "index"
    combine: Literal["concat"] = "concat"
    """Always concatenated with the embedding."""
    size: Annotated[int, Field(ge=1, le=1)] = 1
    """Always one number."""
    scale: PositiveFloat = 1.0
    """Factor of the position: with 0.01, position 100 is 1."""


PositionalEncodingConfig = Annotated[
    SinusoidalEncodingConfig | LearnedEncodingConfig | IndexEncodingConfig,
    Field(discriminator="type"),
]
