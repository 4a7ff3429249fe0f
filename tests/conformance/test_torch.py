"""PyTorch's attention and projected LSTM: equal values, weights and gradients."""

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.masks import causal_mask
from heedful.attention.memory import Memory
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import DotScore, ScaledDotScore
from heedful.layers.rnn import RecurrentLayer
from heedful.layers.rnn_cell_config import LSTMCellConfig
from tests.conformance.inputs import attend, sentences, visible

WIDTH, NUM_HEADS = 6, 3

SCORES = {"dot": (DotScore(), 1.0), "scaled dot": (ScaledDotScore(), None)}
all_scores = pytest.mark.parametrize(("score", "scale"), SCORES.values(), ids=SCORES)


def masks(padded):
    size = padded.size(-1)
    window = (torch.arange(size)[:, None] - torch.arange(size)).abs() <= 1
    return {
        "padding": padded,
        "padding and causal": padded & causal_mask(size),
        "padding and window": padded & window,
    }


@all_scores
@pytest.mark.parametrize("name", masks(torch.ones(1, 1, 5, dtype=torch.bool)))
def test_dot_scores_with_softmax_match_torch_sdpa(score, scale, name):
    queries, values, padded = sentences(queries=5)
    mask = masks(padded)[name]
    # Fully masked rows have a separate test.
    mask = mask | ~mask.any(dim=-1, keepdim=True)
    ours = [queries.clone().requires_grad_(), values.clone().requires_grad_()]
    theirs = [queries.clone().requires_grad_(), values.clone().requires_grad_()]
    context = attend(score, *ours, mask).context
    expected = scaled_dot_product_attention(
        theirs[0], theirs[1], theirs[1], attn_mask=mask, scale=scale
    )
    torch.testing.assert_close(context, expected)
    context.square().sum().backward()
    expected.square().sum().backward()
    for mine, their in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, their.grad)


def test_separate_keys_and_head_dimension_match_torch_sdpa():
    queries = torch.randn(2, 3, 4, 6)
    keys, values = torch.randn(2, 3, 5, 6), torch.randn(2, 3, 5, 7)
    attention = SingleHeadAttention(ScaledDotScore(), SoftmaxAlignment(), WeightedSumReadout())
    memory = Memory(values, attention.score.prepare_keys(keys), torch.ones(2, 3, 1, 5) > 0)
    expected = scaled_dot_product_attention(queries, keys, values)
    torch.testing.assert_close(attention(queries, memory).context, expected)


def test_fully_masked_row_returns_zeros_as_in_torch_sdpa():
    queries, values, _ = sentences()
    nothing = torch.zeros(2, 1, 5, dtype=torch.bool)
    expected = scaled_dot_product_attention(
        queries, values, values, attn_mask=nothing.expand(2, 3, 5)
    )
    context = attend(ScaledDotScore(), queries, values, nothing).context
    assert (context == 0).all()
    torch.testing.assert_close(context, expected)


def test_nan_in_padding_reaches_context_of_torch_only():
    queries, values, mask = sentences()
    values[1, 4] = torch.nan
    theirs = scaled_dot_product_attention(queries, values, values, attn_mask=mask, scale=1.0)
    assert theirs[1].isnan().all()
    weights = attend(DotScore(), queries, values, mask).weights
    assert weights.isfinite().all()
    torch.testing.assert_close(weights[1, :, 3:], torch.zeros(3, 2).double())


def beside_torchs(reference, *, bias):
    """Build multi-head attention with the parameters of torch's."""
    inner = SingleHeadAttention(ScaledDotScore(), SoftmaxAlignment(), WeightedSumReadout())
    sizes = {"query_size": WIDTH, "memory_size": WIDTH, "head_dim": WIDTH // NUM_HEADS}
    ours = MultiHeadAttention(inner, num_heads=NUM_HEADS, bias=bias, **sizes).double()
    parts = ["query_projection", "key_projection", "value_projection"]
    settings = dict(
        zip([f"{part}.weight" for part in parts], reference.in_proj_weight.chunk(3), strict=True)
    )
    settings["output_projection.weight"] = reference.out_proj.weight
    if bias:
        named = zip(parts, reference.in_proj_bias.chunk(3), strict=True)
        settings |= {f"{part}.bias": item for part, item in named}
        settings["output_projection.bias"] = reference.out_proj.bias
    ours.load_state_dict(settings)
    return ours


@pytest.mark.parametrize("bias", [False, True], ids=["no bias", "bias"])
def test_multi_head_same_as_torch(bias):
    reference = nn.MultiheadAttention(WIDTH, NUM_HEADS, bias=bias, batch_first=True).double()
    if bias:  # torch starts them at zero
        nn.init.normal_(reference.in_proj_bias)
        nn.init.normal_(reference.out_proj.bias)
    ours = beside_torchs(reference, bias=bias)
    queries, values, mask = sentences(width=WIDTH)
    expected, weights = reference(queries, values, values, key_padding_mask=~mask[:, 0])
    actual = ours(queries, ours.build_memory(values, mask))
    torch.testing.assert_close(actual.context, expected)
    torch.testing.assert_close(actual.weights, weights)


def test_weights_of_each_head_match_torch():
    reference = nn.MultiheadAttention(WIDTH, NUM_HEADS, bias=False, batch_first=True).double()
    ours = beside_torchs(reference, bias=False)
    _, values, _ = sentences(width=WIDTH)
    _, weights = reference(
        values, values, values, attn_mask=~causal_mask(5)[0], average_attn_weights=False
    )
    memory = ours.build_memory(values, visible(values) & causal_mask(5))
    torch.testing.assert_close(ours(values, memory).alignment.weights, weights)


def test_fully_masked_row_is_nan_in_torch_multi_head_only():
    reference = nn.MultiheadAttention(WIDTH, NUM_HEADS, bias=False, batch_first=True).double()
    ours = beside_torchs(reference, bias=False)
    queries, values, _ = sentences(width=WIDTH)
    hidden = torch.ones(2, 5, dtype=torch.bool)
    theirs, _ = reference(queries, values, values, key_padding_mask=hidden)
    assert theirs.isnan().all()
    actual = ours(queries, ours.build_memory(values, ~hidden[:, None]))
    assert (actual.context == 0).all()
    assert (actual.weights == 0).all()


def test_lstm_with_cell_state_size_same_as_torch_lstm_with_proj_size():
    theirs = nn.LSTM(3, 7, proj_size=4, batch_first=True, bidirectional=True).double()
    cells = [LSTMCellConfig(cell_state_size=7).build(input_size=3, hidden_size=4) for _ in range(2)]
    ours = RecurrentLayer(forward_cell=cells[0], backward_cell=cells[1]).double()
    with torch.no_grad():
        for mine, their in zip(ours.parameters(), theirs.parameters(), strict=True):
            mine.copy_(their)
    inputs = torch.randn(2, 5, 3, dtype=torch.double, requires_grad=True)
    outputs, final_states = ours.forward_with_states(inputs, torch.tensor([5, 5]))
    expected, (hidden, cell_states) = theirs(inputs)
    torch.testing.assert_close(outputs, expected)
    torch.testing.assert_close(final_states, tuple(zip(hidden, cell_states, strict=True)))
    for mine, their in zip(
        torch.autograd.grad(outputs.square().sum(), [inputs, *ours.parameters()]),
        torch.autograd.grad(expected.square().sum(), [inputs, *theirs.parameters()]),
        strict=True,
    ):
        torch.testing.assert_close(mine, their)
