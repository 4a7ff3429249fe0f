"""Feed-forward sublayers as a configuration names them."""

import pytest
import torch

from heedful.config import BaseConfig, read_yaml, validate_settings
from heedful.errors import ConfigError
from heedful.layers.mixture_of_experts import MoEFeedForward
from heedful.layers.sublayers import FeedForwardConfig
from heedful.layers.transformer import PositionwiseLayerConfig


class LayerConfig(BaseConfig):
    feed_forward: PositionwiseLayerConfig = FeedForwardConfig()


def read(text):
    return validate_settings(
        LayerConfig, read_yaml(text, location="layer"), location="layer"
    ).feed_forward


def test_type_defaults_to_plain():
    assert read("feed_forward: {intermediate_size: 12}") == FeedForwardConfig(intermediate_size=12)
    assert read("{}") == FeedForwardConfig()


def test_settings_of_feed_forward_used():
    text = "feed_forward: {activation: swish, gated: true, dropout: 0.2, bias: false}"
    built = read(text).build(size=8)
    assert isinstance(built.activation, torch.nn.SiLU)
    assert built.gate.bias is built.input_projection.bias is built.output_projection.bias is None
    assert built.dropout.p == 0.2


def test_settings_of_experts_used():
    text = """
    feed_forward:
      {type: moe, num_experts: 5, num_experts_per_token: 3, intermediate_size: 7,
       capacity_factor: 1.5,
       importance_weight: 0.2, load_weight: 0.3, activation: gelu, bias: true}
    """
    built = read(text).build(size=8)
    assert isinstance(built, MoEFeedForward)
    experts = built.experts
    assert (len(experts.experts), experts.gate.num_experts_per_token) == (5, 3)
    assert (experts.importance_weight, experts.load_weight) == (0.2, 0.3)
    assert experts.capacity_factor == 1.5
    input_projection, activation, output_projection = experts.experts[0]
    assert input_projection.weight.shape == (7, 8)
    assert isinstance(activation, torch.nn.GELU)
    assert output_projection.bias is not None


def test_more_experts_per_token_than_experts_raises():
    with pytest.raises(ConfigError, match="num_experts_per_token is 4, but num_experts is 3"):
        read("feed_forward: {type: moe, num_experts: 3, num_experts_per_token: 4}")


@pytest.mark.parametrize("factor", ["0", "-1.0"])
def test_capacity_factor_must_be_positive(factor):
    with pytest.raises(ConfigError, match="capacity_factor"):
        read(f"feed_forward: {{type: moe, capacity_factor: {factor}}}")
