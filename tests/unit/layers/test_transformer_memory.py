"""Memory per token of long inputs is constant: with full attention, which needs no mask, too.

`python -m benchmarks.long_inputs` measures the same up to 16,384 tokens.
"""

import pytest
import torch

from benchmarks.memory_use import PeakMemory
from heedful.acceleration import tuning
from heedful.acceleration.registry import accelerate_for_training
from heedful.models.language_model import TransformerBackboneConfig

SIZE, SHORT, LONG = 64, 512, 2048
BLOCK, COMPRESSED = {"type": "block", "block_size": 256}, {"type": "compressed", "stride": 3}


def bytes_per_token(attention_types, length):
    """Peak bytes of tensors in forward and backward."""
    torch.manual_seed(0)
    config = TransformerBackboneConfig.model_validate(
        {
            "hidden_size": SIZE,
            "num_layers": len(attention_types),
            "attention": {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}},
            "feed_forward": [{"intermediate_size": SIZE}],
            "attention_types": attention_types,
        }
    )
    backbone = accelerate_for_training(config.build(input_size=SIZE), "cpu")
    inputs = torch.randn(1, length, SIZE, requires_grad=True)
    with PeakMemory() as memory:
        output = backbone(inputs, torch.tensor([length]), backbone.initial_state(inputs))
        output.outputs.square().sum().backward()
    return memory.peak / length


def growth(attention_types):
    return bytes_per_token(attention_types, LONG) / bytes_per_token(attention_types, SHORT)


@pytest.mark.parametrize(
    "attention_types",
    [[{"type": "full"}], [BLOCK], [COMPRESSED], [BLOCK, COMPRESSED]],
    ids=["full", "block", "compressed", "both"],
)
def test_memory_per_token_does_not_grow_with_the_input(attention_types, monkeypatch):
    monkeypatch.setattr(tuning, "QUERY_CHUNK_SIZE", 256)  # short chunks for short inputs
    assert growth(attention_types) < 1.1


def test_memory_per_token_grows_without_chunks(monkeypatch):
    monkeypatch.setattr(tuning, "QUERY_CHUNK_SIZE", LONG)
    assert growth([COMPRESSED]) > 1.2
