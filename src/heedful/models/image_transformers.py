"""Transformer layers over the cells of an image: patches of pixels, or another image encoder.

Invariant: without positions the states of cells move with them, so a permutation of the cells
permutes the states.
"""

from typing import Annotated, Literal

from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad
from typing_extensions import override

from heedful.attention.positional_encoding import PositionalEncodingConfig, SinusoidalEncodingConfig
from heedful.config.base import with_default_type
from heedful.data.images.batching import ImageShape
from heedful.layers.transformer import TransformerConfigBase, TransformerStack
from heedful.models.efficientnet_encoder import EfficientNetEncoderConfig
from heedful.models.image_encoders import (
    CNNEncoderConfig,
    FeatureEncoderConfig,
    Grid,
    GridPositionalEncoding,
    ImageEncoder,
    ImageEncoderConfigBase,
    build_grid_encoding,
    normalize_pixels,
)
from heedful.shapes import Lengths, Losses, Shaped, SourceInputs, SourceStates


class PatchEmbedding(ImageEncoder):
    """W p + b for the pixels p of each patch  (Dosovitskiy et al. 2021, equation 1)."""

    def __init__(self, image_shape: ImageShape, patch_size: Grid, *, output_size: int) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.patch_size = patch_size
        (height, width), (rows, columns) = (image_shape.height, image_shape.width), patch_size
        self.grid = (-(-height // rows), -(-width // columns))
        self.projection = nn.Conv2d(image_shape.num_channels, output_size, patch_size, patch_size)
        self.output_size = output_size

    @override
    def encode_cells(
        self, images: Shaped[Tensor, "B C H W"], lengths: Lengths
    ) -> tuple[SourceStates, Losses]:
        pixels = normalize_pixels(images, self.projection.weight)
        missing = [
            -size % step for size, step in zip(pixels.shape[2:], self.patch_size, strict=True)
        ]
        padded = pad(pixels, (0, missing[1], 0, missing[0]))
        return self.projection(padded).flatten(2).mT, {}


class TransformerImageEncoder(ImageEncoder):
    """Transformer layers over the cells of another image encoder."""

    def __init__(
        self,
        cells: ImageEncoder,
        stack: TransformerStack,
        *,
        size: int,
        positions: GridPositionalEncoding | None,
        dropout: float,
    ) -> None:
        super().__init__()
        self.image_shape, self.grid = cells.image_shape, cells.grid
        self.cells = cells
        is_same_size = cells.output_size == size
        self.projection = nn.Identity() if is_same_size else nn.Linear(cells.output_size, size)
        self.positions = positions
        self.dropout = nn.Dropout(dropout)
        self.stack = stack
        self.output_size = size

    @override
    def encode_cells(self, images: SourceInputs, lengths: Lengths) -> tuple[SourceStates, Losses]:
        cells, cell_losses = self.cells.encode_cells(images, lengths)
        embedded = self.projection(cells)
        if self.positions is not None:
            embedded = self.positions(embedded)
        outputs, losses = self.stack.forward_bidirectional(self.dropout(embedded), lengths)
        return outputs, {**cell_losses, **losses}


class TransformerImageEncoderConfigBase(TransformerConfigBase):
    """Transformer layers over cells, which know their row and column."""

    positional_encoding: PositionalEncodingConfig | None = SinusoidalEncodingConfig()
    """Encoding of row and column, added to each cell before the first layer; null for none."""

    def build_over(self, cells: ImageEncoder) -> TransformerImageEncoder:
        """Build the layers over the cells of an encoder."""
        size = self.hidden_size
        return TransformerImageEncoder(
            cells,
            self.build_stack(config_path="encoder"),
            size=size,
            positions=build_grid_encoding(self.positional_encoding, size, cells.grid),
            dropout=self.dropout,
        )


class PatchEncoderConfig(ImageEncoderConfigBase, TransformerImageEncoderConfigBase):
    """Transformer layers over patches of an image (Dosovitskiy et al. 2021)."""

    type: Literal["patches"] = "patches"
    patch_size: Grid = (16, 16)
    """Height and width of a patch; images are padded to a multiple."""

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        (height, width), (rows, columns) = self.image_size, self.patch_size
        return -(-height // rows), -(-width // columns)

    def build(self) -> TransformerImageEncoder:
        embedding = PatchEmbedding(self.image_shape, self.patch_size, output_size=self.hidden_size)
        return self.build_over(embedding)


CellEncoderConfig = Annotated[
    FeatureEncoderConfig | CNNEncoderConfig | EfficientNetEncoderConfig,
    Field(discriminator="type"),
]
"""Encoders whose cells see a part of the image."""


class TransformerImageEncoderConfig(TransformerImageEncoderConfigBase):
    """Transformer layers over the cells of another image encoder."""

    type: Literal["transformer"] = "transformer"
    cells: CellEncoderConfig
    """The encoder of the cells."""

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of cells."""
        return self.cells.grid

    @property
    def image_shape(self) -> ImageShape:
        """Shape of the inputs."""
        return self.cells.image_shape

    def build(self) -> TransformerImageEncoder:
        return self.build_over(self.cells.build())


ImageEncoderConfig = Annotated[
    FeatureEncoderConfig
    | CNNEncoderConfig
    | EfficientNetEncoderConfig
    | PatchEncoderConfig
    | TransformerImageEncoderConfig,
    Field(discriminator="type"),
    with_default_type("features"),
]
"""All image encoders."""
