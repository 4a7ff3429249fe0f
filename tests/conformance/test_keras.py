"""Keras on torch: where its layers match the papers."""

import math
import os

import pytest
import torch

from heedful.attention.additive_scores import AdditiveScore, ConcatScore
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.masks import causal_mask
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import DotScore, ScaledDotScore
from tests.conformance.inputs import attend, row, sentences, visible

WIDTH, HEAD_SIZE, NUM_HEADS = 4, 3, 4


@pytest.fixture(scope="module")
def layers():
    """The layers of Keras, imported late because that takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "torch")
        patch.setenv("KERAS_HOME", os.path.join(os.devnull, "keras"))  # or it writes to ~/.keras
        keras = pytest.importorskip("keras", reason="compares with Keras: pip install keras")
    assert keras.backend.backend() == "torch"
    return keras.layers


def run_keras(layer, queries, values, mask):
    """Return context and weights of a Keras layer; its mask has no query dimension."""
    context, weights = layer(
        [queries, values], mask=[None, mask[:, 0]], return_attention_scores=True
    )
    return context.detach(), weights.detach()


def assert_close_to_keras(ours, theirs):
    """Check to single precision, which Keras uses for matrix products on torch."""
    torch.testing.assert_close(ours, theirs.double(), atol=1e-5, rtol=1e-5)


def one_query_and_two_keys():
    """One query and two keys, for hand calculations."""
    queries = torch.tensor([[[1.0, 0.0]]], dtype=torch.double)
    keys = torch.tensor([[[0.0, 1.0], [1.0, -1.0]]], dtype=torch.double)
    return queries, keys


def test_keras_attention_same_as_dot_score(layers):
    queries, values, mask = sentences()
    context, weights = run_keras(layers.Attention(dtype="float64"), queries, values, mask)
    ours = attend(DotScore(), queries, values, mask)
    assert_close_to_keras(ours.context, context)
    assert_close_to_keras(ours.weights, weights)


def test_keras_causal_attention_matches(layers):
    _, values, mask = sentences()
    layer = layers.Attention(dtype="float64")
    context = layer([values, values], mask=[None, mask[:, 0]], use_causal_mask=True)
    ours = attend(DotScore(), values, values, mask & causal_mask(5))
    assert_close_to_keras(ours.context, context.detach())


def test_keras_attention_with_scale_same_as_scaled_dot_score(layers):
    queries, values, mask = sentences()
    layer = layers.Attention(use_scale=True, dtype="float64")
    layer.build([queries.shape, values.shape])
    layer.scale.assign(1 / math.sqrt(WIDTH))
    context, _ = run_keras(layer, queries, values, mask)
    assert_close_to_keras(attend(ScaledDotScore(), queries, values, mask).context, context)


def test_fully_masked_row_attends_to_padding_in_keras_and_is_zero_here(layers):
    # Keras subtracts 1e9 from masked scores: a fully masked row is not masked at all.
    queries, values, _ = sentences()
    nothing = torch.zeros(2, 1, 5, dtype=torch.bool)
    _, weights = run_keras(layers.Attention(dtype="float64"), queries, values, nothing)
    assert_close_to_keras(torch.ones(2, 3).double(), weights.sum(dim=-1))
    assert (attend(DotScore(), queries, values, nothing).weights == 0).all()


def test_keras_additive_attention_has_no_matrices(layers):
    queries, values, _ = sentences()
    for use_scale, shapes in [(False, []), (True, [(WIDTH,)])]:
        layer = layers.AdditiveAttention(use_scale=use_scale, dtype="float64")
        layer.build([queries.shape, values.shape])
        assert [tuple(variable.shape) for variable in layer.weights] == shapes
    ours = AdditiveScore(WIDTH, WIDTH, hidden_size=7)
    assert [tuple(variable.shape) for variable in ours.parameters()] == [
        (7, WIDTH),
        (7, WIDTH),
        (1, 7),
    ]


@pytest.mark.parametrize("use_scale", [False, True], ids=["no scale", "scale"])
def test_keras_additive_attention_same_as_with_identity_matrices(layers, use_scale):
    queries, values, mask = sentences()
    layer = layers.AdditiveAttention(use_scale=use_scale, dtype="float64")
    context, weights = run_keras(layer, queries, values, mask)
    identity = torch.eye(WIDTH, dtype=torch.double)
    reduction = layer.scale.value.detach() if use_scale else torch.ones(WIDTH).double()
    ours = AdditiveScore(WIDTH, WIDTH, hidden_size=WIDTH).double()
    ours.load_state_dict(
        {
            "query_projection.weight": identity,
            "key_projection.weight": identity,
            "score_vector.weight": reduction[None],
        }
    )
    output = attend(ours, queries, values, mask)
    assert_close_to_keras(output.context, context)
    assert_close_to_keras(output.weights, weights)


def test_keras_additive_attention_cannot_express_bahdanau_score(layers):
    # W = diag(2, 1), U = 1, v = (1, -1), q = (1, 0); keys (0, 1) and (1, -1).
    # Bahdanau: v . tanh(W q + U k) with W q = (2, 0); Keras adds q = (1, 0) itself.
    queries, keys = one_query_and_two_keys()
    score = AdditiveScore(2, 2, hidden_size=2).double()
    score.load_state_dict(
        {
            "query_projection.weight": torch.tensor([[2.0, 0.0], [0.0, 1.0]]),
            "key_projection.weight": torch.eye(2),
            "score_vector.weight": row(1, -1),
        }
    )
    layer = layers.AdditiveAttention(use_scale=True, dtype="float64")
    layer.build([queries.shape, keys.shape])
    layer.scale.assign([1.0, -1.0])
    bahdanau = row(math.tanh(2) - math.tanh(1), math.tanh(3) + math.tanh(1))
    keras_scores = row(math.tanh(1) - math.tanh(1), math.tanh(2) + math.tanh(1))
    torch.testing.assert_close(score(queries, score.prepare_keys(keys)).detach()[0], bahdanau)
    _, weights = run_keras(layer, queries, keys, visible(keys))
    torch.testing.assert_close(weights[0], keras_scores.softmax(dim=-1))
    assert not torch.allclose(bahdanau.softmax(dim=-1), keras_scores.softmax(dim=-1))


def test_keras_concat_adds_and_has_no_score_vector(layers):
    # W = (1, 0 | 0, 2), that is [q; k] -> q_1 + 2 k_2, and v = 3, on the same query and keys:
    # Luong: 3 tanh(1 + 2), 3 tanh(1 - 2); Keras: w (tanh(q_1 + k_1) + tanh(q_2 + k_2)).
    queries, keys = one_query_and_two_keys()
    score = ConcatScore(2, 2, hidden_size=1).double()
    score.load_state_dict({"projection.weight": row(1, 0, 0, 2), "score_vector.weight": row(3)})
    layer = layers.Attention(score_mode="concat", dtype="float64")
    layer.build([queries.shape, keys.shape])
    assert [tuple(variable.shape) for variable in layer.weights] == [()]
    layer.concat_score_weight.assign(3.0)
    luong = row(3 * math.tanh(3), 3 * math.tanh(-1))
    keras = row(3 * (math.tanh(1) + math.tanh(1)), 3 * (math.tanh(2) + math.tanh(-1)))
    torch.testing.assert_close(score(queries, score.prepare_keys(keys)).detach()[0], luong)
    _, weights = run_keras(layer, queries, keys, visible(keys))
    torch.testing.assert_close(weights[0], keras.softmax(dim=-1))
    assert not torch.allclose(luong.softmax(dim=-1), keras.softmax(dim=-1))


def test_keras_concat_same_as_with_identity_matrices_and_scalar_v(layers):
    queries, values, mask = sentences()
    layer = layers.Attention(score_mode="concat", dtype="float64")
    layer.build([queries.shape, values.shape])
    layer.concat_score_weight.assign(0.7)
    identity = torch.eye(WIDTH, dtype=torch.double)
    score = ConcatScore(WIDTH, WIDTH, hidden_size=WIDTH).double()
    score.load_state_dict(
        {
            "projection.weight": torch.cat([identity, identity], dim=1),
            "score_vector.weight": torch.full((1, WIDTH), 0.7),
        }
    )
    context, _ = run_keras(layer, queries, values, mask)
    assert_close_to_keras(attend(score, queries, values, mask).context, context)


def with_parameters_of(layer, num_kv_heads):
    """Build multi-head attention with the parameters of a Keras layer."""
    inner = SingleHeadAttention(ScaledDotScore(), SoftmaxAlignment(), WeightedSumReadout())
    sizes = {"query_size": WIDTH, "memory_size": WIDTH, "head_dim": HEAD_SIZE}
    heads = {"num_heads": NUM_HEADS, "num_kv_heads": num_kv_heads}
    ours = MultiHeadAttention(inner, bias=True, **sizes, **heads).double()
    named = {variable.path.split("/", 1)[1]: variable.value.detach() for variable in layer.weights}
    settings = {
        "output_projection.weight": named["attention_output/kernel"].flatten(0, 1).T,
        "output_projection.bias": named["attention_output/bias"],
    }
    for name in ("query", "key", "value"):
        settings[f"{name}_projection.weight"] = named[f"{name}/kernel"].flatten(1, 2).T
        settings[f"{name}_projection.bias"] = named[f"{name}/bias"].flatten()
    ours.load_state_dict(settings)
    return ours


def check_agreement(layer, num_kv_heads):
    queries, values, mask = sentences()
    layer.build(queries.shape, values.shape)
    for variable in layer.weights:
        variable.assign(torch.randn(tuple(variable.shape)))  # biases would be zero
    context, weights = layer(
        queries, values, attention_mask=mask.expand(-1, 3, -1), return_attention_scores=True
    )
    ours = with_parameters_of(layer, num_kv_heads)
    output = ours(queries, ours.build_memory(values, mask))
    assert_close_to_keras(output.context, context.detach())
    assert_close_to_keras(output.alignment.weights, weights.detach())


def test_keras_multi_head_attention_matches(layers):
    check_agreement(layers.MultiHeadAttention(NUM_HEADS, HEAD_SIZE, dtype="float64"), NUM_HEADS)


@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_keras_grouped_query_attention_matches(layers, num_kv_heads):
    check_agreement(
        layers.GroupQueryAttention(HEAD_SIZE, NUM_HEADS, num_kv_heads, dtype="float64"),
        num_kv_heads,
    )
