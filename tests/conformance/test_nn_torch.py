"""heedful.nn.MultiheadAttention and torch.nn's: equal outputs, weights, gradients, state dicts."""

import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from heedful.nn import MultiheadAttention

HEAD_DIM = 2
MASK_KINDS = ("none", "bool", "float")
options = st.fixed_dictionaries(
    {
        "num_heads": st.integers(1, 3),
        "bias": st.booleans(),
        "add_bias_kv": st.booleans(),
        "add_zero_attn": st.booleans(),
        "kdim": st.sampled_from([None, 5]),
        "vdim": st.sampled_from([None, 7]),
        "batch_first": st.booleans(),
    }
)
calls = st.fixed_dictionaries(
    {
        "is_batched": st.booleans(),
        "is_self": st.booleans(),
        "attn_mask": st.sampled_from(MASK_KINDS),
        "is_per_head": st.booleans(),
        "key_padding_mask": st.sampled_from(MASK_KINDS),
        "need_weights": st.booleans(),
        "average_attn_weights": st.booleans(),
        "is_training": st.booleans(),
    }
)


def both(num_heads, **settings):
    """Return torch's layer with random parameters, and ours with its state dict."""
    embed_dim = HEAD_DIM * num_heads
    theirs = nn.MultiheadAttention(embed_dim, num_heads, dtype=torch.double, **settings)
    for parameter in theirs.parameters():
        nn.init.normal_(parameter)  # biases would be zero
    ours = MultiheadAttention(embed_dim, num_heads, dtype=torch.double, **settings)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def random_mask(kind, *shape):
    """Return a mask of torch that leaves the first key to every query."""
    if kind == "none":
        return None
    hidden = torch.rand(*shape) < 0.4
    hidden[..., 0] = False
    if kind == "bool":
        return hidden
    return torch.randn(*shape).double().masked_fill(hidden, -torch.inf).requires_grad_()


def random_inputs(layer, call, batch=2, num_queries=3, num_keys=4):
    """Return the arguments of a call, with gradients."""

    def draw(length, size):
        shape = (batch, length, size) if layer.batch_first else (length, batch, size)
        shape = shape if call["is_batched"] else (length, size)
        return torch.randn(*shape).double().requires_grad_()

    rows = batch if call["is_batched"] else 1
    if call["is_self"] and layer.kdim == layer.vdim == layer.embed_dim:
        num_keys = num_queries
        query = key = value = draw(num_queries, layer.embed_dim)
    else:
        query = draw(num_queries, layer.embed_dim)
        key, value = draw(num_keys, layer.kdim), draw(num_keys, layer.vdim)
    leading = (rows * layer.num_heads,) if call["is_per_head"] else ()
    padding_shape = (rows, num_keys) if call["is_batched"] else (num_keys,)
    masks = {
        "attn_mask": random_mask(call["attn_mask"], *leading, num_queries, num_keys),
        "key_padding_mask": random_mask(call["key_padding_mask"], *padding_shape),
    }
    return (query, key, value), masks


def run(layer, inputs, arguments):
    """Return outputs, weights and the gradients of inputs, float masks and parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch: masks of two types are deprecated
        outputs, weights = layer(*inputs, **arguments)
    total = outputs.square().sum()
    if weights is not None:
        total = total + weights.square().sum()
    tensors = [item for item in (*inputs, *arguments.values()) if isinstance(item, torch.Tensor)]
    tensors = [item for item in tensors if item.requires_grad] + list(layer.parameters())
    return outputs, weights, torch.autograd.grad(total, tensors, allow_unused=True)


@given(settings=options, call=calls)
def test_multihead_attention_same_as_torch_over_all_options(settings, call):
    theirs, ours = both(**settings)
    inputs, masks = random_inputs(theirs, call)
    names = ("need_weights", "average_attn_weights")
    arguments = {**masks, **{name: call[name] for name in names}}
    for layer in (theirs, ours):
        layer.train(call["is_training"])
    torch.testing.assert_close(run(ours, inputs, arguments), run(theirs, inputs, arguments))


@given(settings=options, call=calls)
def test_multihead_attention_same_as_native_kernel_of_torch(settings, call):
    # torch runs another kernel in eval mode without gradients, with an even number of heads.
    theirs, ours = both(**{**settings, "batch_first": True, "num_heads": 2})
    inputs, masks = random_inputs(theirs, {**call, "is_batched": True, "is_self": True})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = theirs.eval()(*inputs, **masks, need_weights=call["need_weights"])
        actual = ours.eval()(*inputs, **masks, need_weights=call["need_weights"])
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("has_padding", [False, True])
def test_causal_hint_same_as_torch(need_weights, has_padding):
    theirs, ours = both(2, batch_first=True)
    states = torch.randn(2, 4, 4).double().requires_grad_()
    arguments = {
        "attn_mask": torch.ones(4, 4, dtype=torch.bool).triu(1),
        "is_causal": True,
        "need_weights": need_weights,
        "key_padding_mask": torch.tensor([[False] * 4, [False, False, True, True]])
        if has_padding
        else None,
    }
    expected = run(theirs, (states,) * 3, arguments)
    torch.testing.assert_close(run(ours, (states,) * 3, arguments), expected)


@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout_same_as_torch_with_the_same_seed(need_weights):
    theirs, ours = both(2, dropout=0.5, batch_first=True)
    states = torch.randn(2, 4, 4).double()
    outputs = []
    for layer in (theirs, ours):
        torch.manual_seed(5)
        outputs.append(layer(states, states, states, need_weights=need_weights)[0])
    torch.testing.assert_close(outputs[1], outputs[0])
    assert not torch.allclose(outputs[0], theirs.eval()(states, states, states)[0])


def test_dropout_is_set_in_the_attention_and_in_torch_in_the_layer():
    inputs = torch.randn(2, 3, 4)
    ours, theirs = MultiheadAttention(4, 2), nn.MultiheadAttention(4, 2)
    for layer, is_changed in ((ours, False), (theirs, True)):
        before, _ = layer(inputs, inputs, inputs)
        layer.dropout = 0.9
        assert torch.equal(layer(inputs, inputs, inputs)[0], before) != is_changed
    before, _ = ours(inputs, inputs, inputs)
    ours.attention.dropout.p = 0.9
    assert not torch.equal(ours(inputs, inputs, inputs)[0], before)


def test_weights_returned_before_dropout_and_in_torch_after_it():
    theirs, ours = both(2, dropout=0.5, batch_first=True)
    states = torch.randn(2, 4, 4).double()
    (_, expected), (_, actual) = theirs(states, states, states), ours(states, states, states)
    torch.testing.assert_close(actual.sum(dim=-1), torch.ones(2, 4).double())
    assert not torch.allclose(expected.sum(dim=-1), torch.ones(2, 4).double())


@pytest.mark.parametrize("separate", [{}, {"kdim": 5}, {"bias": False}, {"add_bias_kv": True}])
def test_state_dict_and_initialization_equal_those_of_torch(separate):
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(4, 2, **separate)
    torch.manual_seed(3)
    ours = MultiheadAttention(4, 2, **separate)
    torch.testing.assert_close(dict(ours.state_dict()), dict(theirs.state_dict()), rtol=0, atol=0)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())


def test_fully_masked_row_has_context_zero_and_is_nan_or_zero_in_torch():
    theirs, ours = both(2, batch_first=True)
    hidden = torch.tensor([[True] * 4, [False] * 4])
    for mask in (hidden, torch.zeros(2, 4).double().masked_fill(hidden, -torch.inf)):
        for need_weights in (False, True):
            states = torch.randn(2, 4, 4).double().requires_grad_()
            arguments = {"key_padding_mask": mask, "need_weights": need_weights}
            outputs, weights, gradients = run(ours, (states,) * 3, arguments)
            expected, _, _ = run(theirs, (states,) * 3, arguments)
            torch.testing.assert_close(outputs[0], ours.out_proj.bias.expand(4, 4))
            torch.testing.assert_close(outputs[1], expected[1])
            assert all(gradient.isfinite().all() for gradient in gradients)
            assert weights is None or (weights[0] == 0).all()
            assert expected[0].isnan().all() == need_weights
    with torch.no_grad():  # the native kernel
        expected, _ = theirs.eval()(states, states, states, hidden, need_weights=False)
    assert expected[0].isnan().all()


def test_causal_without_mask_is_reported_by_torch_and_works_here():
    theirs, ours = both(2, batch_first=True)
    states = torch.randn(2, 4, 4).double()
    with pytest.raises(RuntimeError, match="Need attn_mask"):
        theirs(states, states, states, is_causal=True)
    causal = torch.ones(4, 4, dtype=torch.bool).triu(1)
    expected = theirs(states, states, states, attn_mask=causal)
    torch.testing.assert_close(ours(states, states, states, is_causal=True), expected)
    outputs, _ = ours(states, states, states, is_causal=True, need_weights=False)
    torch.testing.assert_close(outputs, expected[0])


def test_causal_hint_hides_appended_positions_in_torch_only_without_weights():
    theirs, ours = both(2, batch_first=True, add_zero_attn=True)
    states = torch.randn(2, 4, 4).double()
    arguments = {"attn_mask": torch.ones(4, 4, dtype=torch.bool).triu(1), "is_causal": True}
    expected, _ = theirs(states, states, states, **arguments)
    fused, _ = theirs(states, states, states, **arguments, need_weights=False)
    assert not torch.allclose(fused, expected)
    for need_weights in (False, True):
        outputs, _ = ours(states, states, states, **arguments, need_weights=need_weights)
        torch.testing.assert_close(outputs, expected)


def test_causal_flag_and_other_mask_are_both_applied_and_in_torch_one_of_them():
    theirs, ours = both(2, batch_first=True)
    states = torch.randn(2, 4, 4).double()
    only_first = torch.ones(4, 4, dtype=torch.bool)
    only_first[:, 0] = False
    expected, _ = theirs(states, states, states, attn_mask=only_first)
    arguments = {"attn_mask": only_first, "is_causal": True, "need_weights": False}
    assert not torch.allclose(theirs(states, states, states, **arguments)[0], expected)
    torch.testing.assert_close(ours(states, states, states, **arguments)[0], expected)


def test_layer_in_torch_encoder_layer_runs_own_attention():
    encoder_layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True).double().eval()
    theirs = encoder_layer.self_attn
    ours = MultiheadAttention(4, 2, batch_first=True, dtype=torch.double).eval()
    ours.load_state_dict(theirs.state_dict())
    states = torch.randn(2, 5, 4).double()
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    with torch.no_grad():
        expected = encoder_layer(states, src_key_padding_mask=padding)
        encoder_layer.self_attn = ours
        outputs = encoder_layer(states, src_key_padding_mask=padding)
        torch.testing.assert_close(outputs[~padding], expected[~padding])
        hidden = torch.ones(2, 5, dtype=torch.bool)
        assert encoder_layer(states, src_key_padding_mask=hidden).isfinite().all()
        encoder_layer.self_attn = theirs
        assert encoder_layer(states, src_key_padding_mask=hidden).isnan().any()


def test_torch_decoder_layer_accepts_the_layer():
    theirs = nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0, batch_first=True).double()
    states, memory = torch.randn(2, 3, 4).double(), torch.randn(2, 5, 4).double()
    mask = nn.Transformer.generate_square_subsequent_mask(3, dtype=torch.double)
    expected = theirs(states, memory, tgt_mask=mask, tgt_is_causal=True)
    for name in ("self_attn", "multihead_attn"):
        ours = MultiheadAttention(4, 2, batch_first=True, dtype=torch.double)
        ours.load_state_dict(getattr(theirs, name).state_dict())
        setattr(theirs, name, ours)
    torch.testing.assert_close(theirs(states, memory, tgt_mask=mask, tgt_is_causal=True), expected)
