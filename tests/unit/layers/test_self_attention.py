"""Full self-attention: against torch's, step by step, and under dropout."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.config import AttentionConfig
from heedful.attention.masks import block_local_mask, causal_mask, padding_mask
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import ScaledDotScore
from heedful.layers.self_attention import BatchPositions, FullSelfAttention, KVCache, write_to_cache

ROWS, SIZE, LENGTH = 3, 6, 7
DISTANCES = (torch.arange(LENGTH)[None, :, None] - torch.arange(LENGTH)).abs()
MASKS = {
    "padding": padding_mask(torch.tensor([7, 3, 1]), LENGTH),
    "causal": causal_mask(LENGTH),
    "window": DISTANCES <= 1,
    "blocks": block_local_mask(LENGTH, 3),
    "prefix": padding_mask(torch.tensor([2, 7, 0]), LENGTH) | causal_mask(LENGTH),
}


def build(**settings):
    config = AttentionConfig.model_validate(
        {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}, **settings}
    )
    attention = config.build(query_size=SIZE, memory_size=SIZE)
    return FullSelfAttention(attention).double()


def vectors(*shape):
    return torch.randn(*shape, SIZE, dtype=torch.double)


def read(module, inputs, **options):
    lengths, first = torch.full((ROWS,), inputs.size(1)), torch.zeros(ROWS, dtype=torch.long)
    positions = BatchPositions.from_lengths(inputs, first, lengths)
    return module(inputs, module.initial_state(inputs), positions, **options)


def torchs(attention, inputs, mask):
    """Torch's attention between our projections."""

    def part(projected):
        return projected.unflatten(-1, (2, -1)).transpose(1, 2)

    actual = scaled_dot_product_attention(
        part(attention.query_projection(inputs)),
        part(attention.key_projection(inputs)),
        part(attention.value_projection(inputs)),
        attn_mask=mask,
    )
    return attention.output_projection(actual.transpose(1, 2).flatten(2))


def test_causal_position_attends_to_itself_and_earlier_ones():
    module, inputs = build(), vectors(ROWS, LENGTH)
    expected = torchs(module.attention, inputs, causal_mask(LENGTH))
    torch.testing.assert_close(read(module, inputs).outputs, expected)


def test_bidirectional_position_attends_to_all_real_positions():
    module, inputs = build(), vectors(ROWS, LENGTH)
    mask = padding_mask(torch.tensor([7, 3, 1]), LENGTH)
    expected = torchs(module.attention, inputs, mask.unsqueeze(1))
    torch.testing.assert_close(module.forward_bidirectional(inputs, mask.squeeze(1)), expected)


def test_write_to_cache_writes_each_row_at_own_positions():
    kept = KVCache(torch.zeros(2, 1, 2, 1), torch.zeros(2, 1, 2, 1))
    added = KVCache(torch.tensor([1.0, 2, 3, 4]).view(2, 1, 2, 1), torch.ones(2, 1, 2, 1))
    grown = write_to_cache(kept, added, torch.tensor([[2, 3], [0, 1]]))
    assert grown.values.flatten(1).tolist() == [[0, 0, 1, 2], [3, 4, 0, 0]]
    assert grown.keys.flatten(1).tolist() == [[0, 0, 1, 1], [1, 1, 0, 0]]


# Weights that are dropped: the sum over many draws comes near what is taken without dropping.

DRAWS, DROPOUT = 4000, 0.3


def dropping(need_weights, mask, dropout=DROPOUT):
    """The mean context of many draws, and that of none; one row of scores, drawn again."""
    torch.manual_seed(5)
    attention = SingleHeadAttention(
        ScaledDotScore(), SoftmaxAlignment(), WeightedSumReadout(), dropout=dropout
    ).double()
    inputs = vectors(1, LENGTH)
    many = inputs.expand(DRAWS, -1, -1)
    memory = attention.build_memory(many, mask[:1] if mask.dim() == 3 else mask)
    drawn = attention.train()(many, memory, need_weights=need_weights).context
    whole = attention.eval()(many, memory, need_weights=need_weights).context[:1]
    return drawn, whole


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("need_weights", [True, False], ids=["plain", "fused"])
def test_attention_dropout_keeps_the_mean(mask, need_weights):
    drawn, whole = dropping(need_weights, mask)
    assert not torch.allclose(drawn[:1], whole)
    error = drawn.std(dim=0) / DRAWS**0.5
    # Five standard errors, in one of 42 numbers: once in some 40,000 runs.
    assert ((drawn.mean(dim=0) - whole[0]).abs() <= 5 * error + 1e-12).all()


@pytest.mark.parametrize("need_weights", [True, False], ids=["plain", "fused"])
def test_attention_dropout_acts_only_in_training(need_weights):
    module, inputs = build(dropout=0.5).eval(), vectors(ROWS, LENGTH)
    with_dropout = read(module, inputs, need_weights=need_weights).outputs
    module.attention.inner.dropout.p = 0.0
    without = read(module.train(), inputs, need_weights=need_weights).outputs
    torch.testing.assert_close(with_dropout, without)


def test_returned_weights_are_those_before_dropout():
    module, inputs = build(dropout=0.5), vectors(ROWS, LENGTH)
    told = read(module.train(), inputs, need_weights=True).weights
    torch.testing.assert_close(told, read(module.eval(), inputs, need_weights=True).weights)
