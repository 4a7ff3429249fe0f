"""Image encoders: pixels or stored features become the cells of a grid, row by row.

Pixels are (B, C, H, W) and features (B, S, C); integers are read as they are stored, so that a
batch travels to a GPU as bytes. Invariants: an image is encoded equally in every batch; cells
beyond the length of a row are zero and have no influence on the others.
"""

from abc import abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.masks import padding_mask
from heedful.attention.positional_encoding import PositionalEncoding, PositionalEncodingConfig
from heedful.config import BaseConfig
from heedful.data.images.batching import ImageShape
from heedful.data.images.image_files import ImageFit
from heedful.errors import check, format_count
from heedful.layers.convolution import ImageBatchNorm
from heedful.layers.transformer import Probability
from heedful.models.base import Encoder, EncoderOutput
from heedful.shapes import Float, Lengths, Losses, Shaped, SourceInputs, SourceStates

Grid = tuple[PositiveInt, PositiveInt]
"""Rows and columns, or height and width."""
MAX_PIXEL = 255


class ImageEncoder(Encoder):
    """Base class of image encoders."""

    image_shape: ImageShape
    """What it reads."""
    grid: tuple[int, int]

    @abstractmethod
    def encode_cells(self, images: SourceInputs, lengths: Lengths) -> tuple[SourceStates, Losses]:
        """Return the states of all cells, row by row, and auxiliary losses."""

    @override
    def forward(self, tokens: SourceInputs, lengths: Lengths) -> EncoderOutput:
        states, losses = self.encode_cells(tokens, lengths)
        is_padding = ~padding_mask(lengths, states.size(1)).mT  # (B, S, 1)
        states = states.masked_fill(is_padding, 0)
        return EncoderOutput(states, lengths, auxiliary_losses=losses)


class GridPositionalEncoding(nn.Module):
    """cell + [encoding of its row; encoding of its column], half of the channels each.

    With sinusoids this is the two-dimensional encoding of Parmar et al. 2018 (section 3.1).
    """

    def __init__(self, rows: PositionalEncoding, columns: PositionalEncoding, grid: Grid) -> None:
        super().__init__()
        self.rows = rows
        self.columns = columns
        self.grid = grid

    def forward(self, cells: Float[Tensor, "B S E"]) -> Float[Tensor, "B S E"]:
        """Add the encodings of all cells."""
        positions = torch.arange(cells.size(1), device=cells.device)
        num_columns = self.grid[1]
        rows = self.rows(positions // num_columns, cells.dtype)
        columns = self.columns(positions % num_columns, cells.dtype)
        return cells + torch.cat([rows, columns], dim=-1)


def build_grid_encoding(
    config: PositionalEncodingConfig | None, size: int, grid: Grid
) -> GridPositionalEncoding | None:
    """Build the encoding of a grid whose cells have `size` channels."""
    if config is None:
        return None
    location = "encoder.positional_encoding.combine"
    hint = "set it to 'add'; the type 'index' has only 'concat'"
    check(config.combine == "add", location, "cells of a grid need combine: add", hint)
    options = {
        key: value
        for key, value in config.options().items()
        if key in ("max_positions", "init_std")
    }
    rows, columns = (config.module_class(part, **options) for part in (size // 2, -(-size // 2)))
    return GridPositionalEncoding(rows, columns, grid)


# ----- stored features


class FeatureEncoder(ImageEncoder):
    """dropout(f(W (x - mean) / deviation + b)) for the features x of each cell.

    Codes are decoded first: x = step * code + offset. Training sets these four from its data, and
    a run contains them. Bytes with half as many channels hold two codes of 4 bits each, the even
    channel in the low half.
    """

    step: Tensor
    offset: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        image_shape: ImageShape,
        projection: nn.Module,
        *,
        output_size: int,
        positions: GridPositionalEncoding | None,
        dropout: float,
        standardize: bool = True,
    ) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.grid = (image_shape.height, image_shape.width)
        self.standardize = standardize
        for name, value in {"step": 1, "offset": 0, "mean": 0, "deviation": 1}.items():
            self.register_buffer(name, torch.full((image_shape.num_channels,), float(value)))
        self.projection = projection
        self.output_size = output_size
        self.positions = positions
        self.dropout = nn.Dropout(dropout)

    @override
    def encode_cells(
        self, images: Shaped[Tensor, "B S F"], lengths: Lengths
    ) -> tuple[SourceStates, Losses]:
        values = unpack_codes(images, self.image_shape.num_channels).to(self.mean.dtype)
        if not images.is_floating_point():
            values = values * self.step + self.offset
        cells = self.projection((values - self.mean) / self.deviation)
        if self.positions is not None:
            cells = self.positions(cells)
        return self.dropout(cells), {}


def unpack_codes(codes: Shaped[Tensor, "B S F"], num_channels: int) -> Shaped[Tensor, "B S C"]:
    """Return one number per channel; two codes of 4 bits in each byte become two numbers."""
    if codes.is_floating_point() or codes.size(-1) == num_channels:
        return codes
    return torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2)[..., :num_channels]


class FeatureEncoderConfig(BaseConfig):
    """Read stored features of the cells of a grid, for example those of a trained network."""

    type: Literal["features"] = "features"
    num_channels: PositiveInt
    """Channels of the features."""
    grid: Grid
    """Rows and columns of the grid."""
    hidden_size: PositiveInt | None = None
    """Size of a linear layer over each cell; null for the features as they are."""
    activation: Literal["none", "relu", "tanh"] = "none"
    """Activation after that layer."""
    standardize: bool = True
    """Shift and scale channels to mean 0 and deviation 1 over the training images."""
    positional_encoding: PositionalEncodingConfig | None = None
    """Encoding of row and column, added to each cell; default: none."""
    dropout: Probability = 0.0
    """Dropout probability of the cells."""

    @property
    def image_shape(self) -> ImageShape:
        """What the encoder reads."""
        return ImageShape(self.num_channels, *self.grid, fit=None)

    def build(self) -> FeatureEncoder:
        size = self.hidden_size or self.num_channels
        layers: list[nn.Module] = []
        if self.hidden_size:
            layers.append(nn.Linear(self.num_channels, self.hidden_size))
        if self.activation != "none":
            layers.append(nn.ReLU() if self.activation == "relu" else nn.Tanh())
        return FeatureEncoder(
            self.image_shape,
            nn.Sequential(*layers),
            output_size=size,
            positions=build_grid_encoding(self.positional_encoding, size, self.grid),
            dropout=self.dropout,
            standardize=self.standardize,
        )


# ----- images


def normalize_pixels(pixels: Shaped[Tensor, "B C H W"], like: Tensor) -> Float[Tensor, "B C H W"]:
    """Map bytes to [-1, 1]; floating-point pixels stay as they are."""
    if pixels.is_floating_point():
        return pixels.to(like.dtype)
    return pixels.to(like.dtype) * (2 / MAX_PIXEL) - 1


class ChannelsLastConv2d(nn.Conv2d):
    """A convolution for inputs in channels-last layout; its parameters are stored as usual.

    On a CPU a training step of a few layers takes half the time of the default layout, and three
    quarters of that with channels-last inputs alone.
    """

    @override
    def forward(self, input: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D Y X"]:
        weight = self.weight.contiguous(memory_format=torch.channels_last)
        return self._conv_forward(input, weight, self.bias)


class ConvolutionalStage(nn.Module):
    """Convolutions with norm and ReLU, a shortcut around all but the first, at a lower resolution.

    Either max-pooling follows them, or the first one has a stride, which is several times faster.
    """

    def __init__(
        self,
        sizes: tuple[int, int],
        *,
        num_layers: int,
        kernel_size: int,
        pooling: Grid,
        downsampling: Literal["max-pool", "stride"],
        norm: Literal["batch", "group", "none"],
    ) -> None:
        super().__init__()
        input_sizes = (sizes[0], *[sizes[1]] * (num_layers - 1))
        self.convolutions = nn.ModuleList(
            ChannelsLastConv2d(size, sizes[1], kernel_size, padding="same", bias=norm == "none")
            for size in input_sizes
        )
        if downsampling == "stride":
            self.convolutions[0] = ChannelsLastConv2d(
                *sizes, kernel_size, pooling, padding=kernel_size // 2, bias=norm == "none"
            )
            pooling = (1, 1)
        self.norms = nn.ModuleList(_build_norm(norm, sizes[1]) for _ in input_sizes)
        self.pooling = nn.MaxPool2d(pooling, ceil_mode=True) if pooling != (1, 1) else None

    def forward(self, inputs: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D Y X"]:
        """Apply the stage."""
        outputs = inputs
        for index, (convolution, norm) in enumerate(
            zip(self.convolutions, self.norms, strict=True)
        ):
            convolved = norm(convolution(outputs)).relu()
            outputs = outputs + convolved if index else convolved
        return outputs if self.pooling is None else self.pooling(outputs)


def _build_norm(norm: str, size: int) -> nn.Module:
    if norm == "none":
        return nn.Identity()
    return ImageBatchNorm(size) if norm == "batch" else nn.GroupNorm(_num_groups(size), size)


def _num_groups(size: int) -> int:
    """Return the largest number of groups, at most 8, that divides the channels."""
    return max(count for count in range(1, 9) if size % count == 0)


class CNNEncoder(ImageEncoder):
    """Stages of convolutions, each at a lower resolution than the one before."""

    def __init__(
        self,
        image_shape: ImageShape,
        stages: Sequence[nn.Module],
        *,
        grid: tuple[int, int],
        output_size: int,
        positions: GridPositionalEncoding | None,
        dropout: float,
    ) -> None:
        super().__init__()
        self.image_shape = image_shape
        self.grid = grid
        self.stages = nn.ModuleList(stages)
        self.output_size = output_size
        self.positions = positions
        self.dropout = nn.Dropout(dropout)

    @override
    def encode_cells(
        self, images: Shaped[Tensor, "B C H W"], lengths: Lengths
    ) -> tuple[SourceStates, Losses]:
        outputs = normalize_pixels(images, next(self.parameters()))
        outputs = outputs.contiguous(memory_format=torch.channels_last)
        for stage in self.stages:
            outputs = stage(outputs)
        cells = outputs.flatten(2).mT  # (B, S, C)
        if self.positions is not None:
            cells = self.positions(cells)
        return self.dropout(cells), {}


class ImageEncoderConfigBase(BaseConfig):
    """Common settings of encoders of images."""

    type: str
    image_size: Grid = (224, 224)
    """Height and width that images are resized to, in pixels."""
    num_channels: Literal[1, 3] = 3
    """3 for color, 1 for gray."""
    fit: ImageFit = "pad"
    """Resizing of images of another aspect ratio: `pad` (a white border), `crop` or `stretch`."""

    @property
    def image_shape(self) -> ImageShape:
        """What the encoder reads."""
        return ImageShape(self.num_channels, *self.image_size, self.fit)


class CNNEncoderConfig(ImageEncoderConfigBase):
    """A small convolutional network, trained from scratch."""

    type: Literal["cnn"] = "cnn"
    channels: tuple[PositiveInt, ...] = Field(default=(32, 64, 128), min_length=1)
    """Output channels of each stage."""
    layers_per_stage: PositiveInt = Field(default=2, le=1000)
    """Convolutions of each stage; those after the first have a shortcut around them."""
    kernel_size: PositiveInt = 3
    """Height and width of a kernel."""
    pooling: tuple[Grid, ...] = ((2, 2), (2, 2), (1, 1))
    """By how much each stage divides height and width; [1, 1] for not at all."""
    downsampling: Literal["max-pool", "stride"] = "max-pool"
    """How: max-pooling after the convolutions of a stage, or a stride of the first one, which is
    faster."""
    norm: Literal["batch", "group", "none"] = "batch"
    """Norm after each convolution: BatchNorm (Ioffe and Szegedy 2015), GroupNorm with 8 groups (Wu
    and He 2018), or none."""
    positional_encoding: PositionalEncodingConfig | None = None
    """Encoding of row and column, added to each cell; default: none."""
    dropout: Probability = 0.0
    """Dropout probability of the cells."""

    @model_validator(mode="after")
    def _check_pooling(self) -> "CNNEncoderConfig":
        if len(self.pooling) != len(self.channels):
            stages = format_count(len(self.channels), "stage")
            raise ValueError(f"channels has {stages}, but pooling has {len(self.pooling)}")
        if self.downsampling == "stride" and self.kernel_size % 2 == 0:
            raise ValueError(f"a stride needs an odd kernel_size, but it is {self.kernel_size}")
        return self

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns after all stages."""
        height, width = self.image_size
        for rows, columns in self.pooling:
            height, width = -(-height // rows), -(-width // columns)
        return height, width

    def build(self) -> CNNEncoder:
        stages = [
            ConvolutionalStage(
                sizes,
                num_layers=self.layers_per_stage,
                kernel_size=self.kernel_size,
                pooling=pooling,
                downsampling=self.downsampling,
                norm=self.norm,
            )
            for sizes, pooling in zip(
                pairwise([self.num_channels, *self.channels]), self.pooling, strict=True
            )
        ]
        size = self.channels[-1]
        return CNNEncoder(
            self.image_shape,
            stages,
            grid=self.grid,
            output_size=size,
            positions=build_grid_encoding(self.positional_encoding, size, self.grid),
            dropout=self.dropout,
        )
