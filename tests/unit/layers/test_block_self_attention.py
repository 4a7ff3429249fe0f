"""Blocks against full attention under a mask of blocks."""

import pytest
import torch

from heedful.attention.config import AttentionConfig
from heedful.attention.masks import block_local_mask, causal_mask, padding_mask
from heedful.layers.self_attention import BatchPositions, BlockSelfAttention

ROWS, SIZE = 2, 6
LOOKING = {
    "heads": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}},
    "rotary": {"score": {"type": "rotary"}, "multi_head": {"num_heads": 3}},
    "additive": {"score": {"type": "additive", "hidden_size": 5}},
}
each_case = pytest.mark.parametrize(
    ("looking", "block", "length"),
    [(name, *sizes) for name in LOOKING for sizes in [(1, 4), (3, 3), (3, 6), (4, 11), (20, 7)]],
)


def build(looking, block):
    config = AttentionConfig.model_validate(LOOKING[looking])
    attention = config.build(query_size=SIZE, memory_size=SIZE)
    return BlockSelfAttention(attention, block_size=block).double()


def under(attention, inputs, mask):
    """Full attention under a mask, with weights."""
    return attention(inputs, attention.build_memory(inputs, mask)).context


def agree(module, inputs, actual, expected, real):
    """Whether values and gradients agree where there are words."""
    grad_outputs = torch.randn_like(expected) * real.unsqueeze(-1)
    learned = [inputs, *module.parameters()]
    torch.testing.assert_close(actual[real], expected[real])
    torch.testing.assert_close(
        torch.autograd.grad(actual, learned, grad_outputs),
        torch.autograd.grad(expected, learned, grad_outputs),
    )


@each_case
def test_causal_blocks_equal_full_attention_under_a_block_mask(looking, block, length):
    module = build(looking, block)
    inputs = torch.randn(ROWS, length, SIZE, dtype=torch.double, requires_grad=True)
    lengths, first = torch.full((ROWS,), length), torch.zeros(ROWS, dtype=torch.long)
    positions = BatchPositions.from_lengths(inputs, first, lengths)
    actual = module(inputs, module.initial_state(inputs), positions).outputs
    mask = block_local_mask(length, block) & causal_mask(length)
    real = torch.ones(ROWS, length, dtype=torch.bool)
    agree(module, inputs, actual, under(module.attention, inputs, mask), real)


@each_case
def test_bidirectional_blocks_equal_full_attention_under_a_block_mask(looking, block, length):
    module = build(looking, block)
    inputs = torch.randn(ROWS, length, SIZE, dtype=torch.double, requires_grad=True)
    lengths = torch.tensor([length, length - 2])
    padded = padding_mask(lengths, length)
    actual = module.forward_bidirectional(inputs, padded.squeeze(1))
    expected = under(module.attention, inputs, block_local_mask(length, block) & padded)
    agree(module, inputs, actual, expected, padded.squeeze(1))


def test_other_blocks_have_no_influence():
    module = build("heads", 3)
    inputs = torch.randn(1, 8, SIZE, dtype=torch.double)
    changed = inputs.clone()
    changed[:, 2] += 1
    mask = torch.ones(1, 8, dtype=torch.bool)
    before, after = (module.forward_bidirectional(each, mask) for each in (inputs, changed))
    assert (before != after).any(dim=-1).flatten().tolist() == [True] * 3 + [False] * 5
