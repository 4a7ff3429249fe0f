"""heedful.nn and the attention layers of Keras on torch: equal outputs, weights and gradients.

Keras computes some matrix products on torch in single precision, whatever the dtype of a layer is,
which bounds the precision of the comparison.
"""

import inspect
import os
import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful import nn
from tests.documents.markdown import ROOT

BATCH, SIZE = 2, 4


@pytest.fixture(scope="module")
def layers():
    """The layers of Keras, imported late because that takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "torch")
        patch.setenv("KERAS_HOME", os.path.join(os.devnull, "keras"))  # or it writes to ~/.keras
        keras = pytest.importorskip("keras", reason="compares with Keras: pip install keras")
    assert keras.backend.backend() == "torch"
    return keras.layers


def set_equal(theirs, ours):
    """Give both layers the same random parameters."""
    weights = [np.asarray(np.random.normal(0, 0.5, array.shape)) for array in ours.get_weights()]
    ours.set_weights(weights)
    theirs.set_weights(weights)


def draw(*shape, dtype=torch.double):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def build_many_heads(layers, query, value, key=None, **options):
    """Return multi-head attention of Keras and ours with the same parameters."""
    theirs = layers.MultiHeadAttention(2, 3, **options, dtype="float64")
    ours = nn.MultiHeadAttention(2, 3, **options, dtype=torch.double)
    for layer in (theirs, ours):
        layer.build(query.shape, value.shape, None if key is None else key.shape)
    set_equal(theirs, ours)
    return theirs, ours


def draw_mask(is_used, *shape):
    """Return a mask whose first position is True, or None."""
    if not is_used:
        return None
    mask = torch.rand(*shape) < 0.6
    mask[..., 0] = True
    return mask


def parameters_of(layer):
    is_ours = isinstance(layer, nn.Attention | nn.AdditiveAttention | nn.MultiHeadAttention)
    return list(layer.parameters()) if is_ours else [item.value for item in layer.weights]


def assert_equal_layers(theirs, ours, call, inputs):
    """Compare outputs, weights and gradients of a call with weights and of one without."""
    for has_weights in (True, False):
        results = []
        for layer in (theirs, ours):
            result = call(layer, return_attention_scores=has_weights)
            parts = result if has_weights else [result]
            total = sum(part.square().sum() for part in parts)
            tensors = [*inputs, *parameters_of(layer)]
            gradients = torch.autograd.grad(total, tensors, allow_unused=True)
            results.append([*parts, *gradients])
        torch.testing.assert_close(results[1], results[0], atol=1e-4, rtol=1e-4)


calls = st.fixed_dictionaries(
    {
        "has_key": st.booleans(),
        "has_query_mask": st.booleans(),
        "has_value_mask": st.booleans(),
        "use_causal_mask": st.booleans(),
        "training": st.sampled_from([None, False, True]),
    }
)


def compare_single_head(theirs, ours, call):
    shapes = [(BATCH, 3, SIZE), (BATCH, 5, SIZE), (BATCH, 5, SIZE)]
    inputs = [draw(*shape, dtype=torch.float) for shape in shapes][: 3 if call["has_key"] else 2]
    theirs.build([item.shape for item in inputs])
    ours.build([item.shape for item in inputs])
    set_equal(theirs, ours)
    masks = [
        draw_mask(call["has_query_mask"], BATCH, 3),
        draw_mask(call["has_value_mask"], BATCH, 5),
    ]
    arguments = {
        "mask": None if masks == [None, None] else masks,
        "use_causal_mask": call["use_causal_mask"],
        "training": call["training"],
    }
    assert_equal_layers(
        theirs,
        ours,
        lambda layer, **others: layer(inputs, **arguments, **others),
        inputs,
    )


@given(use_scale=st.booleans(), score_mode=st.sampled_from(["dot", "concat"]), call=calls)
def test_attention_same_as_keras_over_all_options(layers, use_scale, score_mode, call):
    options = {"use_scale": use_scale, "score_mode": score_mode}
    compare_single_head(layers.Attention(**options), nn.Attention(**options), call)


@given(use_scale=st.booleans(), call=calls)
def test_additive_attention_same_as_keras_over_all_options(layers, use_scale, call):
    theirs, ours = layers.AdditiveAttention(use_scale), nn.AdditiveAttention(use_scale)
    compare_single_head(theirs, ours, call)


options = st.fixed_dictionaries(
    {
        "value_dim": st.sampled_from([None, 2]),
        "use_bias": st.booleans(),
        "use_gate": st.booleans(),
        "output_shape": st.sampled_from([None, 3, (2, 3)]),
        "sliding_window": st.sampled_from([None, 1, 2]),
    }
)
attention_masks = st.sampled_from([None, (3, 5), (BATCH, 3, 5), (BATCH, 2, 3, 5)])


@given(settings=options, call=calls, mask_shape=attention_masks, has_key_mask=st.booleans())
def test_multi_head_attention_same_as_keras_over_all_options(
    layers, settings, call, mask_shape, has_key_mask
):
    query, value, key = draw(BATCH, 3, SIZE), draw(BATCH, 5, 6), draw(BATCH, 5, 7)
    key = key if call["has_key"] else None
    theirs, ours = build_many_heads(layers, query, value, key, **settings)
    is_per_head = mask_shape is not None and len(mask_shape) == 4  # see the test of this below
    arguments = {
        "key": key,
        "value_mask": draw_mask(call["has_value_mask"] and not is_per_head, BATCH, 5),
        "key_mask": draw_mask(has_key_mask and key is not None and not is_per_head, BATCH, 5),
        "attention_mask": draw_mask(mask_shape is not None, *(mask_shape or ())),
        "use_causal_mask": call["use_causal_mask"],
        "training": call["training"],
    }
    if settings["sliding_window"] is not None:  # the window may hide the first key
        for name in ("value_mask", "key_mask", "attention_mask"):
            arguments[name] = None if arguments[name] is None else arguments[name] | True
    inputs = [query, value] if key is None else [query, value, key]
    assert_equal_layers(
        theirs, ours, lambda layer, **others: layer(query, value, **arguments, **others), inputs
    )


@pytest.mark.parametrize("axes", [None, 1, 2, (1, 2), (2, 1), -2, (2, 3), (1, 3)])
@pytest.mark.parametrize("has_mask", [False, True])
def test_attention_axes_match_keras(layers, axes, has_mask):
    attended = (1, 2, 3) if axes is None else np.atleast_1d(axes) % 5
    query_shape, value_shape = [BATCH, 2, 3, 2, SIZE], [BATCH, 2, 3, 2, SIZE]
    for axis in attended:
        value_shape[axis] += 1
    query, value = draw(*query_shape), draw(*value_shape)
    theirs, ours = build_many_heads(layers, query, value, attention_axes=axes)
    pairs = [query_shape[axis] for axis in attended] + [value_shape[axis] for axis in attended]
    mask = torch.rand(BATCH, *(1 for _ in range(3 - len(attended))), *pairs) < 0.7
    mask[(..., *(0 for _ in attended))] = True
    mask = mask if has_mask else None
    assert_equal_layers(
        theirs,
        ours,
        lambda layer, **others: layer(query, value, attention_mask=mask, **others),
        [query, value],
    )


def test_initial_parameters_have_the_ranges_of_keras(layers):
    shapes = (BATCH, 3, 64), (BATCH, 5, 32)
    theirs, ours = (
        layers.MultiHeadAttention(3, 7, value_dim=5),
        nn.MultiHeadAttention(3, 7, value_dim=5),
    )
    theirs.build(*shapes)
    ours.build(*shapes)
    additive = layers.AdditiveAttention(), nn.AdditiveAttention(query_size=1000)
    additive[0].build([(BATCH, 3, 1000)] * 2)
    pairs = [*zip(theirs.get_weights(), ours.get_weights(), strict=True)]
    pairs += zip(additive[0].get_weights(), additive[1].get_weights(), strict=True)
    for expected, actual in pairs:
        assert expected.shape == actual.shape
        assert np.abs(actual).max() == pytest.approx(np.abs(expected).max(), rel=0.03)
        assert actual.mean() == pytest.approx(0, abs=0.02)


def dropped(weights, context, rate):
    """Return which weights were dropped, from contexts of the values (1, 0, 0), (0, 1, 0), ..."""
    torch.testing.assert_close(context[context > 0], (weights / (1 - rate))[context > 0])
    return (context == 0).float().mean()


def test_dropout_scales_what_it_keeps_as_in_keras(layers):
    query, key = torch.randn(4, 30, SIZE), torch.randn(4, 30, SIZE)
    value = torch.eye(30).expand(4, 30, 30)
    for layer in (layers.Attention(dropout=0.25), nn.Attention(dropout=0.25)):
        _, weights = layer([query, value, key], return_attention_scores=True, training=False)
        context = layer([query, value, key], training=True)
        assert dropped(weights, context, 0.25) == pytest.approx(0.25, abs=0.03)
        torch.testing.assert_close(layer([query, value, key], training=False), weights)


def test_weights_returned_before_dropout_and_by_keras_attention_after_it(layers):
    states = torch.randn(2, 9, SIZE)
    ones = torch.ones(2, 9)
    arguments = {"training": True, "return_attention_scores": True}
    _, ours = nn.Attention(dropout=0.5)([states, states], **arguments)
    _, theirs = layers.Attention(dropout=0.5)([states, states], **arguments)
    torch.testing.assert_close(ours.sum(dim=-1), ones)
    assert not torch.allclose(theirs.sum(dim=-1), ones)
    for layer in (
        nn.MultiHeadAttention(1, 3, dropout=0.5),
        layers.MultiHeadAttention(1, 3, dropout=0.5),
    ):
        _, weights = layer(states, states, **arguments)
        torch.testing.assert_close(weights[:, 0].sum(dim=-1), ones)


def test_fully_masked_row_is_zero_here_and_attends_to_padding_in_keras(layers):
    query, value = torch.randn(1, 3, SIZE), torch.randn(1, 5, SIZE)
    nothing = torch.zeros(1, 5, dtype=torch.bool)
    for theirs, ours in (
        (layers.Attention(), nn.Attention()),
        (layers.AdditiveAttention(use_scale=False), nn.AdditiveAttention(use_scale=False)),
    ):
        mean = theirs([query, value], mask=[None, nothing])
        torch.testing.assert_close(mean, value.mean(dim=1, keepdim=True).expand(1, 3, SIZE))
        for has_weights in (False, True):
            result = ours([query, value], [None, nothing], return_attention_scores=has_weights)
            assert all((part == 0).all() for part in (result if has_weights else [result]))


def test_fully_masked_row_of_many_heads_depends_in_keras_on_returned_weights(layers):
    query, value = draw(1, 3, SIZE), draw(1, 5, SIZE)
    nothing = torch.zeros(1, 3, 5, dtype=torch.bool)
    theirs, ours = build_many_heads(layers, query, value)
    arguments = {"attention_mask": nothing}
    with_weights, weights = theirs(query, value, **arguments, return_attention_scores=True)
    without_weights = theirs(query, value, **arguments)
    output_bias = ours.attention_output_bias.expand(1, 3, SIZE)
    assert (weights == 0).all()
    torch.testing.assert_close(with_weights, output_bias)
    assert not torch.allclose(without_weights, output_bias)  # the mean of padding
    outputs, weights = ours(query, value, **arguments, return_attention_scores=True)
    assert (weights == 0).all()
    for result in (outputs, ours(query, value, **arguments)):
        torch.testing.assert_close(result, output_bias)
        gradients = torch.autograd.grad(result.sum(), [query, value], allow_unused=True)
        assert all(item is None or (item == 0).all() for item in gradients)


def test_query_mask_of_many_heads_is_ignored_by_keras_only(layers):
    query, value = torch.randn(1, 3, SIZE), torch.randn(1, 5, SIZE)
    query_mask = torch.tensor([[True, False, True]])
    arguments = {"query_mask": query_mask, "return_attention_scores": True}
    _, theirs = layers.MultiHeadAttention(2, 3)(query, value, **arguments)
    _, ours = nn.MultiHeadAttention(2, 3)(query, value, **arguments)
    torch.testing.assert_close(theirs.sum(dim=-1), torch.ones(1, 2, 3))
    torch.testing.assert_close(ours.sum(dim=-1), query_mask.float().expand(1, 2, 3))


def test_mask_attached_to_a_tensor_is_used_by_keras_only(layers):
    query, value = torch.randn(1, 3, SIZE), torch.randn(1, 5, SIZE)
    query_mask = torch.tensor([[True, False, True]])
    sums = []
    for package in (layers, nn):
        query._keras_mask = query_mask  # as keras.layers.Embedding does; Keras removes it
        layer = package.MultiHeadAttention(2, 3)
        _, weights = layer(query, value, return_attention_scores=True)
        sums.append(weights.sum(dim=-1))
    torch.testing.assert_close(sums[0], query_mask.float().expand(1, 2, 3))
    torch.testing.assert_close(sums[1], torch.ones(1, 2, 3))


def test_mask_of_heads_and_value_mask_confused_by_keras_only(layers):
    # Keras lines up the rows (B, 1, S) of the value mask with heads: two of each, as here.
    query, value = draw(2, 3, SIZE), draw(2, 5, SIZE)
    theirs, ours = build_many_heads(layers, query, value)
    value_mask = draw_mask(True, 2, 5)
    visible = torch.ones(2, 2, 3, 5, dtype=torch.bool)
    masks = {"attention_mask": visible, "value_mask": value_mask}
    expected = theirs(query, value, value_mask=value_mask)
    torch.testing.assert_close(ours(query, value, **masks), expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(theirs(query, value, **masks), expected, atol=1e-3)


def test_causal_mask_follows_attention_axis_and_in_keras_always_axis_one(layers):
    states = torch.randn(1, 3, 3, SIZE)
    weights = []
    for package in (layers, nn):
        layer = package.MultiHeadAttention(1, 3, attention_axes=2)
        _, result = layer(states, states, use_causal_mask=True, return_attention_scores=True)
        weights.append(result[0, :, 0])
    for result in weights:  # equal lengths: Keras is right by chance
        assert (result.triu(1) == 0).all()
    states = torch.randn(1, 2, 3, SIZE)
    layer = layers.MultiHeadAttention(1, 3, attention_axes=2)
    with pytest.raises(Exception, match=r"broadcast|match|size"):
        layer(states, states, use_causal_mask=True, return_attention_scores=True)
    layer = nn.MultiHeadAttention(1, 3, attention_axes=2)
    _, result = layer(states, states, use_causal_mask=True, return_attention_scores=True)
    assert (result[0, :, 0].triu(1) == 0).all()


def test_float64_is_kept_here_and_cast_in_keras(layers):
    states = torch.randn(1, 3, SIZE).double()
    assert nn.Attention()([states, states]).dtype == torch.double
    assert layers.Attention(dtype="float64")([states, states]).dtype == torch.float


def test_every_option_of_keras_is_on_the_page(layers):
    words = set(re.findall(r"\w+", (ROOT / "docs" / "from-keras.md").read_text(encoding="utf-8")))
    for name in ("Attention", "AdditiveAttention", "MultiHeadAttention"):
        for function in (getattr(layers, name).__init__, getattr(layers, name).call):
            parameters = inspect.signature(function).parameters
            assert set(parameters) - {"self", "kwargs", "inputs"} <= words
