"""Captioning models: an image encoder and the decoder of any encoder-decoder model.

The encoder may have Transformer layers over patches of pixels or over the cells of another image
encoder, and a loss of its own: which words a caption has, in any order. Invariant: without
positions the states of cells move with them, so a permutation of the cells permutes the states.
"""

import math
from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, pad
from typing_extensions import override

from heedful.attention.positional_encoding import PositionalEncodingConfig, SinusoidalEncodingConfig
from heedful.config import BaseConfig
from heedful.config.base import with_default_type
from heedful.data.images.batching import ImageShape
from heedful.errors import check
from heedful.layers.embeddings import tie_weights
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.layers.transformer import TransformerConfigBase, TransformerStack
from heedful.models.base import EncoderOutput
from heedful.models.efficientnet import EfficientNetEncoderConfig
from heedful.models.encoder_decoder import DecoderConfig, EncoderDecoderModel
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
from heedful.models.recurrent.config import RecurrentDecoderConfig
from heedful.shapes import Lengths, Losses, Shaped, SourceInputs, SourceStates, TokenIds
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS


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
    FeatureEncoderConfig | CNNEncoderConfig | EfficientNetEncoderConfig, Field(discriminator="type")
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


class WordLoss(nn.Module):
    """-sum_w log p(w is in the caption, or is not), p = sigmoid(W max_i a_i + b), weighted.

    a_i are the cells of the image. It trains the encoder without the decoder, as the word detector
    of Fang et al. (2015, section 3) does, which has a noisy-or over cells in place of the maximum.
    At first every word has the probability 1 / N.
    """

    def __init__(self, cell_size: int, vocab_size: int, weight: float) -> None:
        super().__init__()
        self.projection = nn.Linear(cell_size, vocab_size)
        nn.init.constant_(self.projection.bias, -math.log(vocab_size))
        self.weight = weight

    def forward(self, encoded: EncoderOutput, targets: TokenIds) -> Losses:
        """Return the loss, summed over images; padding of the grid has no influence."""
        pooled = encoded.states.masked_fill(~encoded.mask.mT, -torch.inf).amax(dim=1)
        logits = self.projection(pooled)
        is_present = torch.zeros_like(logits).scatter_(1, targets, 1)
        is_present[:, :NUM_SPECIAL_TOKENS] = 0
        loss = binary_cross_entropy_with_logits(logits, is_present, reduction="sum")
        return {"words": self.weight * loss}


class CaptioningConfig(BaseConfig):
    """An image encoder and a decoder."""

    type: Literal["captioning"] = "captioning"
    encoder: ImageEncoderConfig
    """The encoder of the image."""
    decoder: DecoderConfig = RecurrentDecoderConfig()
    """The decoder of the caption."""
    embeddings: Literal["separate", "tied"] = "separate"
    """Tie the output head to the embeddings of words, or do not."""
    word_loss_weight: NonNegativeFloat = 0.0
    """Weight of a loss that predicts the set of words of a caption from the image alone, and trains
    an image encoder faster; 0 for none."""
    init: InitConfig = DefaultInitConfig()
    """Initial values of the parameters."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoderModel:
        del source_vocab_size  # images have no vocabulary
        head = "" if self.decoder.type == "dilated" else self.decoder.output_head.type
        message, hint = f"{head!r} copies tokens, and an image has none", "choose 'softmax'"
        is_valid = head not in ("pointer-generator", "copy", "copynet", "pointer")
        check(is_valid, "decoder.output_head.type", message, hint)
        encoder = self.encoder.build()
        decoder = self.decoder.build(
            vocab_size=target_vocab_size,
            memory_size=encoder.output_size,
            encoder_sizes=encoder.state_sizes,
        )
        decoder.check_encoder(encoder)
        word_loss = None
        if self.word_loss_weight:
            word_loss = WordLoss(encoder.output_size, target_vocab_size, self.word_loss_weight)
        model = EncoderDecoderModel(encoder, decoder, encoder_loss=word_loss)
        self.init.initialize(model)
        if self.embeddings == "tied":
            tie_weights(decoder.output_head.projection, decoder.embedding)
        return model
