"""Pretrained encoders against the models that they come from, and the scalar mix in numpy."""

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter

from heedful.data.text.batching import SourceBatch
from heedful.data.text.token_stream import LMBatch
from heedful.errors import ConfigError
from heedful.models.pretrained import (
    CausalEncoder,
    PretrainedEncoderConfig,
    PretrainedFeatures,
    ScalarMix,
    load_pretrained_weights,
)
from heedful.recipes.recipe import ModelConfig
from heedful.storage.state_dict import unique_weights
from heedful.tokenization.vocabulary import BOS, PAD
from tests.catalogue import BACKBONE, CONVOLUTIONAL, DILATED, LAYERS, SMALL

VOCABULARY = 11
TOKENS = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, PAD, PAD], [10, 3, PAD, PAD, PAD]])
LENGTHS = (TOKENS != PAD).sum(dim=1)
POSITIONS = {"type": "learned", "max_positions": 9}
INITIAL = {
    "recurrent LM": {
        "type": "language-model",
        "embedding_size": 6,
        "backbone": {"hidden_size": 6, "num_layers": 2, "dropout": 0.3},
        "tie_embeddings": True,
    },
    "Transformer LM": {
        "type": "language-model",
        "embedding_size": 8,
        "positional_encoding": POSITIONS,
        "backbone": {**BACKBONE, "norm_order": "pre"},
        "scale_embeddings": True,
    },
    "masked LM": {
        "type": "masked-language-model",
        "encoder": {"type": "transformer", **LAYERS, "positional_encoding": POSITIONS},
    },
    "masked LM with next sentence prediction": {
        "type": "masked-language-model",
        "encoder": {"type": "transformer", **LAYERS, "num_segments": 2},
        "next_sentence_prediction": True,
    },
    "recurrent masked LM": {
        "type": "masked-language-model",
        "encoder": {**SMALL, "embedding_size": 6, "num_layers": 2},
    },
    "translation, shared embeddings": {
        "encoder": {"type": "transformer", **LAYERS},
        "decoder": {"type": "transformer", **LAYERS},
        "embeddings": "shared",
    },
    "translation, convolutional": {"encoder": CONVOLUTIONAL, "decoder": SMALL},
    "translation, dilated": {"encoder": DILATED, "decoder": DILATED},
    "classifier": {"type": "text-classifier", "encoder": {**SMALL, "num_layers": 2}},
}
LAYERED = [name for name in INITIAL if not name.endswith(("convolutional", "dilated"))]


def build_pair(name, **settings):
    """Return a model of this name, and a pretrained encoder with its parameters, in eval mode."""
    torch.manual_seed(0)
    config = TypeAdapter(ModelConfig).validate_python(INITIAL[name])
    model = config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY).eval()
    encoder_config = PretrainedEncoderConfig(path="runs/a", **settings).with_model_of(config)
    # As from a run folder, where the configuration is text.
    restored = PretrainedEncoderConfig.model_validate_json(encoder_config.model_dump_json())
    encoder = restored.build(vocab_size=VOCABULARY)
    load_pretrained_weights(encoder, unique_weights(model), location="runs/a")
    return model, encoder.eval()


def own_states(model):
    """Return the states of a model by its own forward pass: the input of its head or decoder."""
    recorded = []

    def record(module, arguments, keywords, output):
        states = getattr(output, "outputs", None)
        recorded.append(output.states if states is None else states)

    model.requires_grad_(False)  # torch's GRU rounds by it, as in frozen features
    part = getattr(model, "backbone", None) or model.encoder
    handle = part.register_forward_hook(record, with_kwargs=True)
    if hasattr(model, "classify"):
        model.classify(SourceBatch(TOKENS, LENGTHS))
    elif hasattr(model, "initial_state") and hasattr(model, "decoder"):
        model.initial_state(SourceBatch(TOKENS, LENGTHS))
    else:
        model(LMBatch(TOKENS, TOKENS))
    handle.remove()
    return recorded[0][:, -TOKENS.size(1) :]


@pytest.mark.parametrize("name", INITIAL)
def test_features_equal_the_states_of_the_model(name):
    model, encoder = build_pair(name)
    states, mask = encoder(TOKENS, LENGTHS).states, TOKENS != PAD
    # Rounding depends on the processor.
    torch.testing.assert_close(states[mask], own_states(model)[mask], rtol=1e-6, atol=1e-7)
    assert (states[~mask] == 0).all()


@pytest.mark.parametrize("name", LAYERED)
def test_mix_of_only_the_last_layer_equals_the_states(name):
    model, encoder = build_pair(name, pool="scalar-mix")
    mix = encoder.features.mix
    with torch.no_grad():
        mix.weights[-1], mix.gamma[...] = 1e4, 1.0
    states, mask = encoder(TOKENS, LENGTHS).states, TOKENS != PAD
    torch.testing.assert_close(states[mask], own_states(model)[mask])
    assert (states[~mask] == 0).all()


@pytest.mark.parametrize("name", ["recurrent LM", "Transformer LM", "masked LM"])
def test_mix_begins_with_the_embeddings_and_has_every_layer(name):
    model, encoder = build_pair(name, pool="scalar-mix")
    assert len(encoder.features.mix.weights) == 3  # embeddings and two layers
    with torch.no_grad():
        encoder.features.mix.weights[0] = 1e4
    expected = getattr(model, "encoder", model).embedding(TOKENS)
    mask = TOKENS != PAD
    torch.testing.assert_close(encoder(TOKENS, LENGTHS).states[mask], expected[mask])


def test_embeddings_of_another_size_not_mixed():
    _, encoder = build_pair("classifier", pool="scalar-mix")  # embeddings 5, layers 6
    assert len(encoder.features.mix.weights) == 2


def test_scalar_mix_same_as_the_formula_in_numpy():
    rng = np.random.default_rng(0)
    layers, weights, gamma = rng.normal(size=(3, 2, 4, 5)), rng.normal(size=3), 0.7
    mix = ScalarMix(3).double()
    with torch.no_grad():
        mix.weights.copy_(torch.from_numpy(weights))
        mix.gamma.fill_(gamma)
    shares = np.exp(weights) / np.exp(weights).sum()
    expected = gamma * np.einsum("j,jbsd->bsd", shares, layers)
    mixed = mix(list(torch.from_numpy(layers)))
    np.testing.assert_allclose(mixed.detach().numpy(), expected, rtol=1e-12)


def test_new_scalar_mix_is_the_mean_of_the_layers():
    layers = torch.randn(4, 2, 3, 5).unbind()
    torch.testing.assert_close(ScalarMix(4)(layers), torch.stack(layers).mean(dim=0))


@pytest.mark.parametrize("settings", [{}, {"encoder": SMALL}, {"pool": "scalar-mix"}])
def test_frozen_features_have_no_dropout_and_no_gradient(settings):
    _, encoder = build_pair("recurrent LM", **settings)
    (features,) = (part for part in encoder.modules() if isinstance(part, PretrainedFeatures))
    before = features(TOKENS)
    encoder.train()
    assert torch.equal(features(TOKENS), before)
    assert not any(parameter.requires_grad for parameter in features.model.parameters())
    if len(list(encoder.parameters())) > len(list(features.model.parameters())):
        encoder(TOKENS, LENGTHS).states.sum().backward()
        trained = [name for name, tensor in encoder.named_parameters() if tensor.grad is not None]
        assert trained
        assert not any("features.model" in name for name in trained)


def test_fine_tuned_features_have_dropout_and_gradients():
    _, encoder = build_pair("recurrent LM", tune="all")
    before = encoder(TOKENS, LENGTHS).states
    after = encoder.train()(TOKENS, LENGTHS).states
    assert not torch.equal(after, before)
    after.sum().backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_dropout_of_features_zeroes_and_scales_them():
    _, encoder = build_pair("recurrent LM", dropout=0.5)
    plain, dropped = encoder(TOKENS, LENGTHS).states, encoder.train()(TOKENS, LENGTHS).states
    torch.testing.assert_close(dropped, torch.where(dropped == 0, 0.0, 2 * plain))
    assert 0 < (dropped[0] == 0).float().mean() < 1


@pytest.mark.parametrize("upper", [SMALL, {"type": "transformer", **LAYERS}, CONVOLUTIONAL])
def test_encoder_on_top_receives_projected_features_instead_of_embeddings(upper):
    _, encoder = build_pair("Transformer LM", encoder=upper)
    table = encoder.embedding.embedding
    vectors = torch.nn.functional.linear(
        table.features(TOKENS), table.projection.weight, table.projection.bias
    )
    encoded = encoder(TOKENS, LENGTHS)
    encoder.embedding.embedding = ConstantVectors(vectors)
    assert torch.equal(encoder(TOKENS, LENGTHS).states, encoded.states)


class ConstantVectors(torch.nn.Module):
    """Returns the same vectors whatever the tokens are."""

    def __init__(self, vectors):
        super().__init__()
        self.vectors = vectors

    def forward(self, tokens):
        return self.vectors


def test_states_of_a_language_model_do_not_depend_on_later_tokens():
    _, encoder = build_pair("Transformer LM", pool="scalar-mix")
    changed = TOKENS.clone()
    changed[:, 2:] = 4
    first, second = (encoder(tokens, torch.tensor([5] * 3)).states for tokens in (TOKENS, changed))
    torch.testing.assert_close(first[0, :2], second[0, :2])
    assert isinstance(encoder.features.model, CausalEncoder)


def test_bos_loads_first_where_the_model_was_trained_so():
    _, encoder = build_pair("masked LM with next sentence prediction")
    inner = encoder.features.model
    with_bos = torch.cat([torch.full((1, 1), BOS), TOKENS[:1]], dim=1)
    expected = inner(with_bos, LENGTHS[:1] + 1).states[:, 1:]
    assert torch.equal(encoder(TOKENS[:1], LENGTHS[:1]).states, expected)


def test_mix_of_an_encoder_without_layers_raises():
    with pytest.raises(ConfigError) as error:
        build_pair("translation, dilated", pool="scalar-mix")
    assert str(error.value) == (
        "model.encoder.pool: that model (type: dilated) has one layer to mix\n"
        "  use a recurrent or Transformer model with several layers, or set pool to 'last'"
    )


def test_run_without_an_encoder_raises():
    config = TypeAdapter(ModelConfig).validate_python({"type": "prefix-lm"})
    with pytest.raises(ConfigError) as error:
        PretrainedEncoderConfig(path="runs/a").with_model_of(config)
    assert str(error.value) == (
        "model.encoder.path=runs/a: that model (type: prefix-lm) has no encoder, so its states "
        "cannot be features\n"
        "  name a language model, or a model with an encoder trained from scratch"
    )


def test_pretrained_encoder_of_a_pretrained_run_raises():
    encoder = {"type": "pretrained", "path": "runs/b"}
    settings = {"type": "text-classifier", "encoder": encoder}
    config = TypeAdapter(ModelConfig).validate_python(settings)
    with pytest.raises(ConfigError, match="has an encoder of type 'pretrained'"):
        PretrainedEncoderConfig(path="runs/a").with_model_of(config)


def test_unknown_architecture_and_shared_embeddings_raise():
    config = PretrainedEncoderConfig(path="runs/a")
    with pytest.raises(ConfigError, match=r"model\.encoder\.model: not filled in"):
        config.build(vocab_size=VOCABULARY)
    settings = {"encoder": config.model_dump(), "decoder": SMALL, "embeddings": "shared"}
    with pytest.raises(ConfigError, match="a pretrained encoder keeps its own embeddings"):
        TypeAdapter(ModelConfig).validate_python(settings).build(
            source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY
        )


@pytest.mark.parametrize(
    ("name", "tune", "tuned"),
    [
        ("masked LM", "frozen", []),
        ("masked LM", "top-1", ["stack.layers.1"]),
        ("Transformer LM", "top-1", ["backbone.stack.layers.1", "backbone.stack.norm"]),
        ("masked LM", "all", [""]),
    ],
)
def test_tuned_parts_have_gradients_and_dropout(name, tune, tuned):
    _, encoder = build_pair(name, tune=tune)
    model = encoder.train().features.model
    for path, parameter in model.named_parameters():
        assert parameter.requires_grad == path.startswith(tuple(tuned)), path
    for path, module in model.named_modules():
        if not list(module.children()):
            assert module.training == path.startswith(tuple(tuned)), path


@pytest.mark.parametrize("name", ["masked LM", "Transformer LM", "recurrent LM"])
def test_kept_layers_are_those_at_the_bottom(name):
    model, encoder = build_pair(name, layers=1)
    whole, kept = unique_weights(model), unique_weights(encoder.features.model)
    prefix = "encoder." if "masked" in name else ""
    is_first = [path for path in kept if ".1." not in path and prefix + path in whole]
    assert sorted(is_first) == sorted(kept)
    rows = len(kept["embedding.embedding.weight"])
    for path, weight in kept.items():
        assert torch.equal(
            whole[prefix + path][:rows] if "embedding.e" in path else whole[prefix + path], weight
        )


def test_top_layers_need_a_transformer():
    with pytest.raises(ConfigError) as error:
        build_pair("recurrent LM", tune="top-1")
    assert str(error.value) == (
        "model.encoder.tune: 'top-1' counts the layers of a Transformer, and this model has none\n"
        "  set it to 'frozen' or 'all'"
    )
