"""Statistics of initial values, and the parameters that initialization leaves alone."""

import math

import pytest
import torch
from pydantic import TypeAdapter
from torch import nn

from heedful.attention.additive_scores import AdditiveScore, ConcatScore
from heedful.attention.scores import CosineScore, ScoreFunction
from heedful.config.base import type_of, types_in
from heedful.layers.expert_gates import NoisyTopKGate
from heedful.layers.initialization import (
    BahdanauInitConfig,
    DefaultInitConfig,
    NormalInitConfig,
    UniformInitConfig,
    XavierInitConfig,
    recurrent_matrices,
)
from heedful.layers.rnn_cell_config import CellConfig
from heedful.layers.rnn_cells import RecurrentCell
from heedful.models.recurrent.config import RecurrentDecoderConfig
from heedful.tokenization.vocabulary import PAD

SIZE, MEMORY, VOCABULARY = 64, 48, 50
ALL = [UniformInitConfig(), BahdanauInitConfig(), XavierInitConfig(), NormalInitConfig()]


def build(**settings):
    sizes = {"embedding_size": SIZE, "hidden_size": SIZE}
    config = RecurrentDecoderConfig.model_validate({**sizes, **settings})
    return config.build(vocab_size=VOCABULARY, memory_size=MEMORY)


def assert_drawn_around_zero(weight, *, std):
    """Mean and spread, within five standard errors of those of a normal distribution."""
    assert abs(weight.mean().item()) < 5 * std / math.sqrt(weight.numel())
    assert abs(weight.std().item() / std - 1) < 5 / math.sqrt(2 * weight.numel())


def test_default_init_changes_nothing():
    model = build()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    DefaultInitConfig().initialize(model)
    torch.testing.assert_close(dict(model.named_parameters()), before, rtol=0, atol=0)


@pytest.mark.parametrize("limit", [0.1, 0.08, 0.04])
def test_uniform_init_draws_from_whole_range(limit):
    model = build(cell="lstm")
    UniformInitConfig(bound=limit).initialize(model)
    for name, weight in model.named_parameters():
        assert weight.abs().max() <= limit, name
    weights = torch.cat([each.flatten() for each in model.wiring.parameters()]).detach()
    assert abs(weights.mean().item()) < 5 * limit / math.sqrt(3 * weights.numel())
    assert weights.var().item() == pytest.approx(limit**2 / 3, rel=0.02)
    assert weights.abs().max() > 0.999 * limit
    assert model.output_head.projection.bias.detach().abs().sum() > 0


@pytest.mark.parametrize("init", ALL, ids=str)
def test_init_keeps_padding_zero_and_learned_settings(init):
    score = {"type": "cosine", "scale": 3.0, "learned": True}
    model = build(hidden_size=MEMORY, attention={"score": score})
    assert isinstance(model.wiring.attention.score, CosineScore)
    init.initialize(model)
    assert (model.embedding.embedding.weight[PAD] == 0).all()
    assert model.wiring.attention.score.scale.item() == pytest.approx(3.0)


@pytest.mark.parametrize("init", ALL, ids=str)
def test_init_keeps_gains_of_norms(init):
    model = build(cell={"type": "gru", "layer_norm": True})
    init.initialize(model)
    gains = [each.weight for each in model.modules() if isinstance(each, nn.LayerNorm)]
    assert gains
    assert all((gain == 1).all() for gain in gains)


@pytest.mark.parametrize("init", ALL, ids=str)
def test_init_is_determined_by_seed(init):
    models: list[nn.Module] = []
    for _ in range(2):
        torch.manual_seed(3)
        models.append(build())
        init.initialize(models[-1])
    one, other = models
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_normal_init_has_std_and_zero_biases():
    model = build(cell="lstm")
    NormalInitConfig(std=0.02).initialize(model)
    for name, weight in model.named_parameters():
        if "bias" in name:
            assert (weight == 0).all(), name
    assert_drawn_around_zero(model.output_head.projection.weight.detach(), std=0.02)
    assert_drawn_around_zero(model.embedding.embedding.weight[PAD + 1 :].detach(), std=0.02)


def test_xavier_init_keeps_variance_and_embeddings():
    """A variance of 2 / (fan_in + fan_out) lies between what keeps either (Glorot & Bengio)."""
    model = build()
    words = model.embedding.embedding.weight.clone()
    XavierInitConfig().initialize(model)
    weight = model.output_head.projection.weight.detach()  # (VOCABULARY, SIZE)
    assert weight.var().item() == pytest.approx(2 / sum(weight.shape), rel=0.1)
    assert weight.abs().max() <= math.sqrt(6 / sum(weight.shape))
    assert (model.output_head.projection.bias == 0).all()
    assert torch.equal(model.embedding.embedding.weight, words)


@pytest.mark.parametrize("init", ALL, ids=str)
def test_init_keeps_gates_of_experts_at_zero(init):
    gate = nn.ModuleList([NoisyTopKGate(4, 3, 1), nn.Linear(2, 2)])
    init.initialize(gate)
    assert (gate[0].score.weight == 0).all()
    assert (gate[0].noise.weight == 0).all()
    assert (gate[1].weight != 0).any()


def test_bahdanau_init_has_small_weights_and_zero_biases():
    model = build(pre_output={"type": "maxout"})
    BahdanauInitConfig().initialize(model)
    assert_drawn_around_zero(model.embedding.embedding.weight[1:].detach(), std=0.01)
    assert_drawn_around_zero(model.output_head.projection.weight.detach(), std=0.01)
    assert_drawn_around_zero(model.wiring.pre_output.projection.weight.detach(), std=0.01)
    assert_drawn_around_zero(model.wiring.cells.cells[0].layer.weight_ih_l0.detach(), std=0.01)
    biases = [weight for name, weight in model.named_parameters() if "bias" in name]
    assert biases
    assert all((bias == 0).all() for bias in biases)


@pytest.mark.parametrize("kind", ["additive", "concat"])
def test_bahdanau_init_of_scores_is_smaller_with_zero_score_vector(kind):
    model = build(attention={"score": {"type": kind}})
    BahdanauInitConfig().initialize(model)
    score = model.wiring.attention.score
    assert isinstance(score, AdditiveScore | ConcatScore)
    for name, weight in score.named_parameters():
        if not name.startswith("score_vector"):
            assert_drawn_around_zero(weight.detach(), std=0.001)
    assert (score.score_vector.weight == 0).all()


CELLS = [
    *("rnn", "gru", "lstm"),
    *({"type": kind, "layer_norm": True} for kind in ("rnn", "gru", "lstm")),
    {"type": "gru", "reset": "before"},
    {"type": "lstm", "zoneout": 0.1, "recurrent_dropout": 0.1},
]
PROJECTED_LSTM = {"type": "lstm", "cell_state_size": 12}
SELF_ATTENTIVE_CELLS = ["self-attentive-rnn", "self-attentive-lstm", "lstmn"]


@pytest.mark.parametrize("settings", CELLS, ids=str)
def test_recurrent_matrices_are_orthogonal_per_gate(settings):
    cell = TypeAdapter(CellConfig).validate_python(settings).build(input_size=5, hidden_size=8)
    BahdanauInitConfig().initialize(cell)
    squares = [
        gate
        for weight in cell.parameters()
        if weight.dim() == 2 and weight.size(1) == 8  # no input is as wide as the state
        for gate in weight.split(8)
    ]
    gates = {"rnn": 1, "gru": 3, "lstm": 4}
    kind = settings if isinstance(settings, str) else settings["type"]
    assert len(squares) == gates[kind]
    for square in squares:
        torch.testing.assert_close(square @ square.T, torch.eye(8), rtol=0, atol=1e-5)


def test_self_attentive_cell_has_orthogonal_matrices_and_uniform_attention():
    cell = TypeAdapter(CellConfig).validate_python("lstmn").build(input_size=5, hidden_size=8)
    BahdanauInitConfig().initialize(cell)
    squares = cell.context_to_hidden.weight.split(8)
    assert len(squares) == 4
    for square in squares:
        torch.testing.assert_close(square @ square.T, torch.eye(8), rtol=0, atol=1e-5)
    assert (cell.intra_attention.attention.score.score_vector.weight == 0).all()


def test_recurrent_matrices_of_projected_lstm_are_orthogonal_per_gate():
    config = TypeAdapter(CellConfig).validate_python(PROJECTED_LSTM)
    cell = config.build(input_size=5, hidden_size=8)
    BahdanauInitConfig().initialize(cell)
    for gate in cell.weights[1].split(12):
        torch.testing.assert_close(gate.T @ gate, torch.eye(8), rtol=0, atol=1e-5)


@pytest.mark.parametrize("settings", [*CELLS, PROJECTED_LSTM, *SELF_ATTENTIVE_CELLS], ids=str)
def test_recurrent_matrices_include_every_parameter_that_multiplies_a_state(settings):
    cell = TypeAdapter(CellConfig).validate_python(settings).build(input_size=5, hidden_size=8)
    expected = {
        name
        for name, parameter in cell.named_parameters()
        if parameter.dim() == 2 and parameter.size(1) == 8 and "intra_attention" not in name
    }
    names = {id(parameter): name for name, parameter in cell.named_parameters()}
    assert {names[id(matrix._base)] for matrix in recurrent_matrices(cell)} == expected != set()


def test_recurrent_matrices_tested_for_every_cell_type():
    cells = [*CELLS, *SELF_ATTENTIVE_CELLS]
    tested = {cell if isinstance(cell, str) else cell["type"] for cell in cells}
    assert tested == {type_of(config) for config in types_in(CellConfig)}


def test_bahdanau_init_reaches_all_scores_and_cells_of_a_model():
    model = nn.ModuleDict({"one": build(), "two": build(cell="rnn")})
    BahdanauInitConfig().initialize(model)
    modules = [
        module for module in model.modules() if isinstance(module, ScoreFunction | RecurrentCell)
    ]
    assert len(modules) == 4
    for score in (module for module in modules if isinstance(module, ScoreFunction)):
        assert (score.score_vector.weight == 0).all()


@pytest.mark.parametrize("config", [DefaultInitConfig(), *ALL], ids=lambda config: config.type)
@pytest.mark.parametrize("size", [None, 2 * SIZE], ids=["plain", "projected"])
def test_forget_bias_is_added_to_what_is_drawn(config, size):
    biases = []
    for forget_bias in (0.0, 1.5):
        torch.manual_seed(0)
        cell = {"type": "lstm", "cell_state_size": size, "forget_bias": forget_bias}
        model = build(cell=cell)
        config.initialize(model)
        weights = model.wiring.cells.cells[0].weights
        biases.append(weights[2] + weights[3])
    added = torch.zeros(4, size or SIZE)
    added[1] = 1.5  # torch's order of gates: input, forget, candidate, output
    torch.testing.assert_close(biases[1] - biases[0], added.flatten())
