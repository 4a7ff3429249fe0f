"""EfficientNet-Lite0 as an image encoder: fixed or trained, with or without published weights."""

import pytest
import torch

from heedful.models.efficientnet import EfficientNetEncoderConfig, EfficientNetLite0
from heedful.storage.state_dict import unique_weights

SMALL = {"image_size": [40, 64]}


def pixels(count=2):
    generator = torch.Generator().manual_seed(0)
    return torch.randint(256, (count, 3, 40, 64), generator=generator).byte()


def encode(encoder, images):
    lengths = torch.full((len(images),), encoder.grid[0] * encoder.grid[1])
    return encoder(images, lengths).states


@pytest.mark.parametrize(("layer", "grid"), [("block-10", (3, 4)), ("block-15", (2, 2))])
def test_grid_of_the_config_is_that_of_the_states(layer, grid):
    config = EfficientNetEncoderConfig(**SMALL, layer=layer)
    encoder = config.build().eval()
    assert config.grid == encoder.grid == grid
    maps = encoder.network(pixels())
    torch.testing.assert_close(encode(encoder, pixels()), maps.flatten(2).transpose(1, 2))


def test_fixed_network_is_not_changed_by_training():
    encoder = EfficientNetEncoderConfig(**SMALL).build().train()
    before = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    states = encode(encoder, pixels())
    assert not states.requires_grad
    assert not any(parameter.requires_grad for parameter in encoder.parameters())
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    torch.testing.assert_close(states, encode(encoder.eval(), pixels()))


def test_fine_tuned_network_gets_gradients_and_batch_statistics():
    encoder = EfficientNetEncoderConfig(**SMALL, fine_tune=True).build().train()
    before = {name: tensor.clone() for name, tensor in encoder.named_buffers()}
    encode(encoder, pixels()).sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())
    assert any(not torch.equal(before[name], value) for name, value in encoder.named_buffers())


def test_weights_of_a_file_loaded(tmp_path):
    from safetensors.torch import save_file

    torch.manual_seed(1)
    save_file(unique_weights(EfficientNetLite0("head")), tmp_path / "weights.safetensors")
    torch.manual_seed(1)
    expected = EfficientNetLite0("head").state_dict()
    path = str(tmp_path / "weights.safetensors")
    encoder = EfficientNetEncoderConfig(**SMALL, weights=path).build()
    encoder.load_weights()
    actual = encoder.network.state_dict()
    assert all(torch.equal(actual[name], expected[name]) for name in actual)
