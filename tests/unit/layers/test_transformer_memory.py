"""Memory of long inputs: blocks and compressed memory grow as the input does, full faster.

The same is measured to 16,384 tokens by `python -m benchmarks.long_inputs`.
"""

import pytest
import torch

from benchmarks.additive import PeakMemory
from heedful.models.backbones import TransformerBackboneConfig

WIDTH, DEFAULT_CLIPPER, LONG = 64, 512, 2048
BLOCKS, COMPRESSED = {"type": "block", "block_size": 256}, {"type": "compressed", "stride": 3}


def bytes_for_a_token(spans, length, *, chunk=256):
    """The most bytes of tensors at once, forward and backward; short chunks for short texts."""
    torch.manual_seed(0)
    config = TransformerBackboneConfig.model_validate(
        {
            "hidden_size": WIDTH,
            "num_layers": len(spans),
            "attention": {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}},
            "feed_forward": [{"intermediate_size": WIDTH}],
            "attention_types": spans,
        }
    )
    reader = config.build(input_size=WIDTH)
    for layer in reader.stack.layers:
        layer.self_attention.chunk_size = chunk
    inputs = torch.randn(1, length, WIDTH, requires_grad=True)
    with PeakMemory() as memory:
        read = reader(inputs, torch.tensor([length]), reader.initial_state(inputs))
        read.outputs.square().sum().backward()
    return memory.peak / length


def growth(spans, **options):
    short, long = (
        bytes_for_a_token(spans, length, **options) for length in (DEFAULT_CLIPPER, LONG)
    )
    return long / short


@pytest.mark.parametrize(
    "spans", [[BLOCKS], [COMPRESSED], [BLOCKS, COMPRESSED]], ids=["blocks", "compressed", "both"]
)
def test_a_token_costs_the_same_in_a_long_input(spans):
    assert growth(spans) < 1.1


def test_a_token_costs_more_in_a_long_input_that_is_seen_whole():
    assert growth([{"type": "full"}]) > 1.5
    assert growth([COMPRESSED], chunk=LONG) > 1.2
