"""Sublayer connections against their formulas, stacks of layers, and their settings."""

import math

import pytest
import torch
from torch import nn

from heedful.layers.self_attention import BatchPositions
from heedful.layers.sublayers import SublayerConnection
from heedful.layers.transformer import EmbeddedTransformerConfigBase, TransformerConfigBase

BATCH_SIZE, LENGTH, SIZE = 2, 5, 8
EPS = 1e-5
HEADS = {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}}

each_norm = pytest.mark.parametrize("norm_type", ["layer", "rms"])


def randn(*shape):
    return torch.randn(*shape, dtype=torch.double)


def layer_norm(vectors, gains, biases):
    """(x - mean) / sqrt(variance + eps) * gain + bias  (Ba et al. 2016)."""
    centered = vectors - vectors.mean(dim=-1, keepdim=True)
    variances = centered.square().mean(dim=-1, keepdim=True)
    return centered / (variances + EPS).sqrt() * gains + biases


def rms_norm(vectors, gains):
    """x / sqrt(mean of squares + eps) * gain  (Zhang & Sennrich 2019)."""
    return vectors / (vectors.square().mean(dim=-1, keepdim=True) + EPS).sqrt() * gains


def build_norm(norm_type):
    config = TransformerConfigBase(hidden_size=4, norm=norm_type, norm_eps=EPS, attention=HEADS)
    norm = config._build_norm().double()
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    return norm


def norm_by_formula(norm, inputs):
    parameters = list(norm.parameters())
    formula = layer_norm if len(parameters) == 2 else rms_norm
    return formula(inputs, *parameters)


def connection(norm=None, **options):
    settings = {"norm_order": "pre", "dropout": 0.0} | options
    return SublayerConnection(nn.Identity() if norm is None else norm, **settings)


@each_norm
def test_pre_norm_normalizes_only_the_sublayer_input(norm_type):
    residual, inputs = connection(build_norm(norm_type)), randn(2, 3, 4)
    normalized = residual.sublayer_input(inputs)
    torch.testing.assert_close(normalized, norm_by_formula(residual.norm, inputs))
    outputs = residual.add_residual(inputs, normalized.sin())
    torch.testing.assert_close(outputs, inputs + normalized.sin())


@each_norm
def test_post_norm_normalizes_the_sum(norm_type):
    residual, inputs = connection(build_norm(norm_type), norm_order="post"), randn(2, 3, 4)
    assert residual.sublayer_input(inputs) is inputs
    outputs = residual.add_residual(inputs, inputs.sin())
    torch.testing.assert_close(outputs, norm_by_formula(residual.norm, inputs + inputs.sin()))


def test_dropout_acts_only_on_the_sublayer_output():
    residual = connection(dropout=0.5)
    inputs, update = randn(2, 30, 4), torch.ones(2, 30, 4, dtype=torch.double)
    added = residual.train().add_residual(inputs, update) - inputs
    assert set(added.round(decimals=6).flatten().tolist()) == {0.0, 2.0}
    torch.testing.assert_close(residual.eval().add_residual(inputs, update), inputs + update)


def test_drop_path_skips_whole_rows_and_keeps_the_mean():
    residual = connection(drop_path=0.3)
    inputs, update = torch.zeros(40_000, 2, 3), torch.randn(1, 2, 3)
    outputs = residual.train().add_residual(inputs, update.expand(40_000, 2, 3))
    is_kept = (outputs == update / 0.7).all(dim=(1, 2))
    assert (outputs[~is_kept] == 0).all()
    # Four standard deviations of the mean of so many samples.
    assert is_kept.float().mean().item() == pytest.approx(0.7, abs=4 * math.sqrt(0.21 / 40_000))
    torch.testing.assert_close(outputs.mean(dim=0, keepdim=True), update, rtol=0.02, atol=0)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
def test_sublayer_connection_keeps_half_precision(dtype):
    norm = build_norm("rms").to(dtype)
    residual = connection(norm, norm_order="post", dropout=0.1, drop_path=0.2).train()
    inputs = torch.randn(8, 3, 4).to(dtype)
    outputs = residual.add_residual(inputs, residual.sublayer_input(inputs))
    assert outputs.dtype == dtype
    assert outputs.isfinite().all()


def build_stack(num_layers=2, **settings):
    torch.manual_seed(3)
    config = TransformerConfigBase.model_validate(
        {
            "hidden_size": SIZE,
            "num_layers": num_layers,
            "attention": HEADS,
            "feed_forward": [{"intermediate_size": 12}],
            **settings,
        }
    )
    return config.build_stack(config_path="backbone").double().eval()


def read(stack, inputs, **options):
    lengths = torch.tensor([LENGTH] * BATCH_SIZE)
    return stack(inputs, lengths, stack.initial_state(inputs), **options)


def test_last_position_of_one_layer_is_the_same_bidirectionally_and_causally():
    inputs, lengths = randn(BATCH_SIZE, LENGTH, SIZE), torch.tensor([LENGTH] * BATCH_SIZE)
    one = build_stack(num_layers=1)
    bidirectional, _ = one.forward_bidirectional(inputs, lengths)
    torch.testing.assert_close(bidirectional[:, -1], read(one, inputs).outputs[:, -1])
    # The keys of a second layer differ.
    two = build_stack(num_layers=2)
    bidirectional, _ = two.forward_bidirectional(inputs, lengths)
    assert not torch.allclose(bidirectional[:, -1], read(two, inputs).outputs[:, -1])


def test_weights_without_a_source_are_those_of_the_top_self_attention():
    stack, inputs = build_stack(), randn(BATCH_SIZE, LENGTH, SIZE)
    output = read(stack, inputs, need_weights=True)
    bottom, top = build_stack(num_layers=1), stack.layers[1]
    bottom.load_state_dict(stack.state_dict(), strict=False)
    hidden, lengths = read(bottom, inputs).outputs, torch.tensor([LENGTH] * BATCH_SIZE)
    attended = top.self_attention(
        hidden,
        top.self_attention.initial_state(hidden),
        BatchPositions.from_lengths(hidden, torch.zeros_like(lengths), lengths),
        need_weights=True,
    )
    torch.testing.assert_close(output.weights, attended.weights)
    assert read(stack, inputs).weights is None
    assert output.attention_records == ()


@pytest.mark.parametrize("norm_order", ["pre", "post"])
def test_drop_path_skips_a_layer_for_some_rows(norm_order):
    stack = build_stack(num_layers=1, drop_path=0.5, dropout=0.0, norm_order=norm_order).train()
    stack.norm = None
    inputs = randn(1, LENGTH, SIZE).expand(64, -1, -1)
    outputs, _ = stack.forward_bidirectional(inputs, torch.tensor([LENGTH] * 64))
    layer, unchanged = stack.layers[0], inputs
    if norm_order == "post":
        unchanged = layer.feed_forward_residual.norm(layer.self_attention_residual.norm(inputs))
    is_unchanged = torch.isclose(outputs, unchanged).flatten(1).all(dim=1)
    assert 4 < is_unchanged.sum() < 32  # a quarter: both sublayers are skipped


def config(**settings):
    small = {"hidden_size": 16, "num_layers": 4, "attention": HEADS}
    small["feed_forward"] = [{"intermediate_size": 12}]
    return EmbeddedTransformerConfigBase.model_validate(small | settings)


@pytest.mark.parametrize(("norm_order", "has_norm"), [("pre", True), ("post", False)])
def test_stack_ends_in_a_norm_only_with_pre_norm(norm_order, has_norm):
    stack = config(norm_order=norm_order).build_stack(config_path="encoder")
    assert (stack.norm is not None) == has_norm


def test_drop_path_grows_with_the_layer():
    stack = config(drop_path=0.4).build_stack(config_path="encoder")
    for name in ("self_attention_residual", "feed_forward_residual"):
        probabilities = [getattr(layer, name).drop_path for layer in stack.layers]
        assert probabilities == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_feed_forward_settings_repeat_over_the_layers():
    sublayers = [{"intermediate_size": 3}, {"intermediate_size": 5}]
    stack = config(feed_forward=sublayers).build_stack(config_path="encoder")
    sizes = [layer.feed_forward.input_projection.out_features for layer in stack.layers]
    assert sizes == [3, 5, 3, 5]


@pytest.mark.parametrize(("scale_embeddings", "factor"), [(True, 4.0), (False, 1.0)])
def test_embeddings_scaled_by_the_root_of_size(scale_embeddings, factor):
    settings = {"positional_encoding": None, "dropout": 0.0, "scale_embeddings": scale_embeddings}
    embedding = config(**settings).build_embedding(9)
    tokens = torch.tensor([[4, 8]])
    torch.testing.assert_close(embedding(tokens), factor * embedding.embedding.weight[tokens])


def test_embedding_norm_normalizes_embeddings():
    embedding = config(embedding_norm=True, dropout=0.0).build_embedding(9)
    embedded = embedding(torch.tensor([[4, 8, 5]]))
    torch.testing.assert_close(embedded.mean(dim=-1), torch.zeros(1, 3), atol=1e-6, rtol=0)
    assert config().build_embedding(9).norm is None
