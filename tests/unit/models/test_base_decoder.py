"""Scheduled sampling with and without auxiliary losses."""

import pytest
import torch

from heedful.errors import ConfigError
from heedful.models.base import EncoderOutput
from heedful.models.scheduled_sampling import InputSampler
from heedful.models.transformer import TransformerDecoderConfig

LAYERS = {"hidden_size": 8, "num_layers": 1, "feed_forward": [{"intermediate_size": 6}]}
HEADS = {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}}


def sample_inputs(cross_attention):
    settings = {**LAYERS, "attention": HEADS, "cross_attention": cross_attention}
    config = TransformerDecoderConfig.model_validate(settings)
    decoder = config.build(vocab_size=7, memory_size=8)
    encoded = EncoderOutput(torch.randn(2, 4, 8), torch.tensor([4, 2]), torch.randn(2, 8))
    tokens = torch.randint(4, 7, (2, 3))
    return decoder.forward_scheduled_sampling(tokens, encoded, InputSampler(0.5, "sample"))


def test_scheduled_sampling_with_auxiliary_losses_raises():
    with pytest.raises(ConfigError, match="has auxiliary losses, which need teacher forcing"):
        sample_inputs({**HEADS, "alignment": {"type": "sampled"}})
    with pytest.raises(ConfigError, match="teacher-forcing"):
        sample_inputs({**HEADS, "auxiliary_losses": [{"type": "coverage"}]})


def test_scheduled_sampling_works_without_auxiliary_losses():
    output = sample_inputs(HEADS)
    assert output.log_probs.shape == (2, 3, 7)
    assert output.weights.shape == (2, 3, 4)
