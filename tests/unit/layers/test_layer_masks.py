"""Masks of layers: none means that all positions are real; numbers and wrong sizes are refused."""

import pytest
import torch

from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import ScaledDotScore
from heedful.errors import ArgumentError
from heedful.layers.convolution import DilatedBlock, GatedConvLayer
from heedful.layers.mixture_of_experts import MoEFeedForwardConfig
from heedful.layers.pooling import AttentionPooling, MaxPooling, MeanPooling
from heedful.layers.self_attention import (
    BlockSelfAttention,
    CompressedSelfAttention,
    FullSelfAttention,
)

SIZE = 4


def attention():
    return SingleHeadAttention(ScaledDotScore(), SoftmaxAlignment(), WeightedSumReadout())


POOLINGS = [MeanPooling(), MaxPooling(), AttentionPooling(attention(), query_size=SIZE)]
LAYERS = [
    FullSelfAttention(attention()),
    BlockSelfAttention(attention(), block_size=2),
    CompressedSelfAttention(attention(), size=SIZE, stride=2),
    GatedConvLayer(SIZE, SIZE, kernel_size=3, dropout=0.0),
    DilatedBlock(SIZE // 2, kernel_size=3, dilation=1),
]
EXPERTS = MoEFeedForwardConfig(num_experts=2, num_experts_per_token=1).build(size=SIZE)
CALLS = {
    **{type(module).__name__: module for module in POOLINGS},
    **{type(module).__name__: module.forward_bidirectional for module in LAYERS},
    "MoEFeedForward": lambda inputs, mask=None: EXPERTS.eval()(inputs, mask).outputs,
}
all_layers = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@all_layers
def test_no_mask_means_that_all_positions_are_real(call):
    torch.manual_seed(0)
    inputs = torch.randn(2, 6, SIZE)
    torch.testing.assert_close(call(inputs), call(inputs, torch.ones(2, 6, dtype=torch.bool)))


@all_layers
@pytest.mark.parametrize("mask", [torch.ones(2, 6), torch.ones(2, 6, dtype=torch.long)])
def test_masks_of_numbers_raise(call, mask):
    with pytest.raises(ArgumentError, match=f"mask: has dtype {mask.dtype}"):
        call(torch.randn(2, 6, SIZE), mask)


@all_layers
def test_masks_of_other_lengths_raise_with_shape(call):
    with pytest.raises(ArgumentError, match=r"mask: has shape \(2, 5\), but .*\(2, 6\)"):
        call(torch.randn(2, 6, SIZE), torch.ones(2, 5, dtype=torch.bool))
