"""Keras on torch: where its layers are the papers', and where they are not."""

import math
import os

import pytest
import torch

from heedful.attention import (
    AdditiveScore,
    ConcatScore,
    DotScore,
    ScaledDotScore,
    SingleHeadAttention,
    SoftmaxAlignment,
    WeightedSumReadout,
    causal_mask,
)
from heedful.attention.multi_head import MultiHeadAttention
from tests.conformance.asking import attend, row, sentences, visible

WIDTH, HEAD_SIZE, NUM_HEADS = 4, 3, 4


@pytest.fixture(scope="module")
def layers():
    """Keras's layers; it takes seconds to import, so only those who run these tests wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "torch")
        patch.setenv("KERAS_HOME", os.path.join(os.devnull, "keras"))  # or it writes to ~/.keras
        keras = pytest.importorskip("keras", reason="compares with Keras: pip install keras")
    assert keras.backend.backend() == "torch"
    return keras.layers


def told(layer, queries, values, mask):
    """What a layer of Keras takes and where it looks; its mask has no place for queries."""
    context, weights = layer(
        [queries, values], mask=[None, mask[:, 0]], return_attention_scores=True
    )
    return context.detach(), weights.detach()


def close(ours, theirs):
    """Agree to the digits of single precision: Keras multiplies matrices in no other on torch."""
    torch.testing.assert_close(ours, theirs.double(), atol=1e-5, rtol=1e-5)


def single():
    """One query and two keys, for scores worked out by hand."""
    queries = torch.tensor([[[1.0, 0.0]]], dtype=torch.double)
    keys = torch.tensor([[[0.0, 1.0], [1.0, -1.0]]], dtype=torch.double)
    return queries, keys


def test_keras_attention_is_the_dot_score(layers):
    queries, values, mask = sentences()
    context, weights = told(layers.SingleHeadAttention(dtype="float64"), queries, values, mask)
    ours = attend(DotScore(), queries, values, mask)
    close(ours.context, context)
    close(ours.weights, weights)


def test_keras_attention_hides_the_future_as_ours_does(layers):
    _, values, mask = sentences()
    layer = layers.SingleHeadAttention(dtype="float64")
    context = layer([values, values], mask=[None, mask[:, 0]], use_causal_mask=True)
    ours = attend(DotScore(), values, values, mask & causal_mask(5))
    close(ours.context, context.detach())


def test_a_scale_of_one_over_the_root_of_the_width_makes_keras_the_scaled_dot_score(layers):
    queries, values, mask = sentences()
    layer = layers.SingleHeadAttention(use_scale=True, dtype="float64")
    layer.build([queries.shape, values.shape])
    layer.scale.assign(1 / math.sqrt(WIDTH))
    context, _ = told(layer, queries, values, mask)
    close(attend(ScaledDotScore(), queries, values, mask).context, context)


def test_a_row_that_sees_nothing_takes_padding_in_keras_and_zeros_in_ours(layers):
    # Keras lowers hidden scores by 1e9, all alike: where all are hidden nothing is.
    queries, values, _ = sentences()
    nothing = torch.zeros(2, 1, 5, dtype=torch.bool)
    _, weights = told(layers.SingleHeadAttention(dtype="float64"), queries, values, nothing)
    close(torch.ones(2, 3).double(), weights.sum(dim=-1))
    assert (attend(DotScore(), queries, values, nothing).weights == 0).all()


def test_keras_additive_attention_has_no_matrices(layers):
    queries, values, _ = sentences()
    for use_scale, shapes in [(False, []), (True, [(WIDTH,)])]:
        layer = layers.AdditiveAttention(use_scale=use_scale, dtype="float64")
        layer.build([queries.shape, values.shape])
        assert [tuple(each.shape) for each in layer.weights] == shapes
    ours = AdditiveScore(WIDTH, WIDTH, hidden_size=7)
    assert [tuple(each.shape) for each in ours.parameters()] == [(7, WIDTH), (7, WIDTH), (1, 7)]


@pytest.mark.parametrize("use_scale", [False, True], ids=["no scale", "scale"])
def test_keras_additive_attention_is_ours_with_both_matrices_one(layers, use_scale):
    queries, values, mask = sentences()
    layer = layers.AdditiveAttention(use_scale=use_scale, dtype="float64")
    context, weights = told(layer, queries, values, mask)
    one = torch.eye(WIDTH, dtype=torch.double)
    reduction = layer.scale.value.detach() if use_scale else torch.ones(WIDTH).double()
    ours = AdditiveScore(WIDTH, WIDTH, hidden_size=WIDTH).double()
    ours.load_state_dict(
        {
            "query_projection.weight": one,
            "key_projection.weight": one,
            "reduction.weight": reduction[None],
        }
    )
    found = attend(ours, queries, values, mask)
    close(found.context, context)
    close(found.weights, weights)


def test_keras_additive_attention_cannot_do_what_bahdanaus_does(layers):
    # W = diag(2, 1), U = 1, v = (1, -1), q = (1, 0); keys (0, 1) and (1, -1).
    # Bahdanau: v . tanh(W q + U k) with W q = (2, 0); Keras adds q = (1, 0) itself.
    queries, keys = single()
    score = AdditiveScore(2, 2, hidden_size=2).double()
    score.load_state_dict(
        {
            "query_projection.weight": torch.tensor([[2.0, 0.0], [0.0, 1.0]]),
            "key_projection.weight": torch.eye(2),
            "reduction.weight": row(1, -1),
        }
    )
    layer = layers.AdditiveAttention(use_scale=True, dtype="float64")
    layer.build([queries.shape, keys.shape])
    layer.scale.assign([1.0, -1.0])
    bahdanau = row(math.tanh(2) - math.tanh(1), math.tanh(3) + math.tanh(1))
    without = row(math.tanh(1) - math.tanh(1), math.tanh(2) + math.tanh(1))
    torch.testing.assert_close(score(queries, score.prepare_keys(keys)).detach()[0], bahdanau)
    _, weights = told(layer, queries, keys, visible(keys))
    torch.testing.assert_close(weights[0], without.softmax(dim=-1))
    assert not torch.allclose(bahdanau.softmax(dim=-1), without.softmax(dim=-1))


def test_keras_concat_neither_concatenates_nor_has_a_vector(layers):
    # W = (1, 0 | 0, 2), that is [q; k] -> q_1 + 2 k_2, and v = 3, on the same query and keys:
    # Luong: 3 tanh(1 + 2), 3 tanh(1 - 2); Keras: w (tanh(q_1 + k_1) + tanh(q_2 + k_2)).
    queries, keys = single()
    score = ConcatScore(2, 2, hidden_size=1).double()
    score.load_state_dict({"projection.weight": row(1, 0, 0, 2), "reduction.weight": row(3)})
    layer = layers.SingleHeadAttention(score_mode="concat", dtype="float64")
    layer.build([queries.shape, keys.shape])
    assert [tuple(each.shape) for each in layer.weights] == [()]
    layer.concat_score_weight.assign(3.0)
    luong = row(3 * math.tanh(3), 3 * math.tanh(-1))
    keras = row(3 * (math.tanh(1) + math.tanh(1)), 3 * (math.tanh(2) + math.tanh(-1)))
    torch.testing.assert_close(score(queries, score.prepare_keys(keys)).detach()[0], luong)
    _, weights = told(layer, queries, keys, visible(keys))
    torch.testing.assert_close(weights[0], keras.softmax(dim=-1))
    assert not torch.allclose(luong.softmax(dim=-1), keras.softmax(dim=-1))


def test_keras_concat_is_ours_where_w_adds_and_v_is_one_number(layers):
    queries, values, mask = sentences()
    layer = layers.SingleHeadAttention(score_mode="concat", dtype="float64")
    layer.build([queries.shape, values.shape])
    layer.concat_score_weight.assign(0.7)
    one = torch.eye(WIDTH, dtype=torch.double)
    score = ConcatScore(WIDTH, WIDTH, hidden_size=WIDTH).double()
    score.load_state_dict(
        {
            "projection.weight": torch.cat([one, one], dim=1),
            "reduction.weight": torch.full((1, WIDTH), 0.7),
        }
    )
    context, _ = told(layer, queries, values, mask)
    close(attend(score, queries, values, mask).context, context)


def with_the_parameters_of(layer, num_kv_heads):
    """Many heads of ours with the parameters of Keras's, which have an axis for the heads."""
    inner = SingleHeadAttention(ScaledDotScore(), SoftmaxAlignment(), WeightedSumReadout())
    sizes = {"query_size": WIDTH, "memory_size": WIDTH, "head_dim": HEAD_SIZE}
    groups = {"num_heads": NUM_HEADS, "num_kv_heads": num_kv_heads}
    ours = MultiHeadAttention(inner, bias=True, **sizes, **groups).double()
    named = {each.path.split("/", 1)[1]: each.value.detach() for each in layer.weights}
    settings = {
        "output_projection.weight": named["attention_output/kernel"].flatten(0, 1).T,
        "output_projection.bias": named["attention_output/bias"],
    }
    for name in ("query", "key", "value"):
        settings[f"{name}_projection.weight"] = named[f"{name}/kernel"].flatten(1, 2).T
        settings[f"{name}_projection.bias"] = named[f"{name}/bias"].flatten()
    ours.load_state_dict(settings)
    return ours


def agree(layer, num_kv_heads):
    queries, values, mask = sentences()
    layer.build(queries.shape, values.shape)
    for each in layer.weights:
        each.assign(torch.randn(tuple(each.shape)))  # biases would be zero
    context, weights = layer(
        queries, values, attention_mask=mask.expand(-1, 3, -1), return_attention_scores=True
    )
    ours = with_the_parameters_of(layer, num_kv_heads)
    found = ours(queries, ours.build_memory(values, mask))
    close(found.context, context.detach())
    close(found.alignment.weights, weights.detach())


def test_many_heads_are_keras_many_heads(layers):
    agree(layers.MultiHeadAttention(NUM_HEADS, HEAD_SIZE, dtype="float64"), NUM_HEADS)


@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_heads_in_groups_are_keras_grouped_queries(layers, num_kv_heads):
    agree(
        layers.GroupQueryAttention(HEAD_SIZE, NUM_HEADS, num_kv_heads, dtype="float64"),
        num_kv_heads,
    )
