"""Cell configs: bare names and sections, errors, and the cells they build."""

import pytest

from heedful.attention.scores import CosineScore, ProjectedDotScore
from heedful.config import BaseConfig, read_yaml, validate_settings
from heedful.config.base import type_of, types_in
from heedful.errors import ConfigError
from heedful.layers.rnn_cell_config import (
    CellConfig,
    GRUCellConfig,
    LSTMCellConfig,
    RecurrentDropout,
    RNNCellConfig,
    Zoneout,
)
from heedful.layers.rnn_cells import (
    CELL_CLASSES,
    GRUCell,
    LayerNormLSTMCell,
    LayerNormRNNCell,
    LSTMCell,
    ResetAfterGRUCell,
    ResetBeforeGRUCell,
    RNNCell,
)
from heedful.layers.self_attentive_cells import (
    DeepFusionLSTMNCell,
    LSTMNCell,
    LSTMNCellConfig,
    SelfAttentiveCell,
    SelfAttentiveLSTMCell,
)

CELL_TYPES = {
    **CELL_CLASSES,
    "self-attentive-rnn": SelfAttentiveCell,
    "self-attentive-lstm": SelfAttentiveLSTMCell,
    "lstmn": LSTMNCell,
}
SIZES = {"input_size": 3, "hidden_size": 4}


class Model(BaseConfig):
    cell: CellConfig = GRUCellConfig()


class Recipe(BaseConfig):
    model: Model = Model()


def load(text):
    return validate_settings(
        Recipe, read_yaml(f"model: {text}", location="a.yaml"), location="a.yaml"
    ).model.cell


def error_message(text):
    with pytest.raises(ConfigError) as caught:
        load(text)
    return str(caught.value)


def test_cell_union_lists_all_cells():
    assert {type_of(member) for member in types_in(CellConfig)} == set(CELL_TYPES)


@pytest.mark.parametrize("kind", CELL_TYPES)
def test_bare_name_is_cell_with_defaults(kind):
    assert load(f"{{cell: {kind}}}") == load(f"{{cell: {{type: {kind}}}}}")
    assert type(load(f"{{cell: {kind}}}").build(**SIZES)) is CELL_TYPES[kind]


@pytest.mark.parametrize("text", ["{cell: grru}", "{cell: {type: grru}}"])
def test_unknown_cell_raises_with_suggestion(text):
    assert error_message(text) == (
        "a.yaml: model.cell.type: no cell is called 'grru'; did you mean 'gru'?\n"
        "  choose from: gru, lstm, lstmn, rnn, self-attentive-lstm, self-attentive-rnn"
    )


def test_value_that_is_no_name_raises():
    assert error_message("{cell: 3}") == (
        "a.yaml: model.cell: expected a section with a `type`, got 3\n"
        "  choose from: {type: gru}, {type: lstmn}, {type: lstm}, {type: rnn}, "
        "{type: self-attentive-lstm}, {type: self-attentive-rnn}"
    )


def test_setting_of_another_cell_raises():
    assert error_message("{cell: {type: gru, memory_zoneout: 0.5}}") == (
        "a.yaml: model.cell.memory_zoneout: no setting is called 'memory_zoneout'; "
        "did you mean 'zoneout'?\n"
        "  choose from: layer_norm, recurrent_dropout, reset, type, zoneout"
    )


def test_schema_allows_bare_name_and_section():
    schema = Model.model_json_schema()
    name, *sections = schema["properties"]["cell"]["anyOf"]
    assert set(name["enum"]) == set(CELL_TYPES)
    kinds = [schema["$defs"][each["$ref"].split("/")[-1]] for each in sections]
    assert {each["properties"]["type"]["const"] for each in kinds} == set(CELL_TYPES)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (RNNCellConfig(), RNNCell),
        (RNNCellConfig(layer_norm=True), LayerNormRNNCell),
        (GRUCellConfig(), GRUCell),
        (GRUCellConfig(layer_norm=True), ResetAfterGRUCell),
        (GRUCellConfig(reset="before"), ResetBeforeGRUCell),
        (GRUCellConfig(reset="before", layer_norm=True), ResetBeforeGRUCell),
        (LSTMCellConfig(), LSTMCell),
        (LSTMCellConfig(layer_norm=True), LayerNormLSTMCell),
    ],
    ids=lambda value: value.type if isinstance(value, BaseConfig) else value.__name__,
)
def test_config_builds_cell_within_the_wrappers(config, expected):
    assert type(config.build(**SIZES)) is expected
    regularized = config.model_copy(update={"zoneout": 0.1, "recurrent_dropout": 0.2})
    outer = regularized.build(**SIZES)
    assert (type(outer), outer.rate) == (RecurrentDropout, 0.2)
    assert (type(outer.cell), outer.cell.rates[0]) == (Zoneout, 0.1)
    assert type(outer.cell.cell) is expected


def test_forget_bias_with_layer_norm_raises():
    with pytest.raises(ConfigError) as caught:
        LSTMCellConfig(forget_bias=1, layer_norm=True).build(**SIZES)
    assert str(caught.value) == (
        "cell.forget_bias: does not work with layer_norm\n  set it to 0, or layer_norm to false"
    )


def test_cell_zoneout_is_independent_of_zoneout():
    cell = LSTMCellConfig(cell_zoneout=0.5).build(**SIZES)
    assert cell.rates == (0.0, 0.5)


def score_of(text):
    """The score of the intra-attention, and whether its query uses the input."""
    past = load(text).build(**SIZES).intra_attention
    return past.attention.score, past.query_uses_input


@pytest.mark.parametrize("kind", ["self-attentive-rnn", "self-attentive-lstm"])
def test_intra_attention_config_sets_query_and_score(kind):
    score, uses_input = score_of(
        f"{{cell: {{type: {kind}, intra_attention: {{type: additive, hidden_size: 5}}}}}}"
    )
    assert (score.query_projection.weight.shape, uses_input) == ((5, 3 + 4), True)
    score, uses_input = score_of(f"{{cell: {{type: {kind}, intra_attention: similarity}}}}")
    assert (type(score), uses_input) == (ProjectedDotScore, False)
    form = "{type: similarity, score: {type: cosine}}"
    assert type(score_of(f"{{cell: {{type: {kind}, intra_attention: {form}}}}}")[0]) is CosineScore


def test_lstmn_score_size_applies_to_both_cells():
    config = LSTMNCellConfig(score_size=5)
    for cell, kind in (
        (config.build(**SIZES), LSTMNCell),
        (config.build(**SIZES, deep_fusion=True), DeepFusionLSTMNCell),
    ):
        assert type(cell) is kind
        assert cell.intra_attention.attention.score.query_projection.weight.shape == (5, 3 + 4)


def test_unknown_intra_attention_raises_with_suggestion():
    assert error_message("{cell: {type: self-attentive-rnn, intra_attention: additiv}}") == (
        "a.yaml: model.cell.intra_attention.type: no intra attention is called 'additiv'; did you "
        "mean 'additive'?\n"
        "  choose from: additive, similarity"
    )


def test_intra_attention_score_with_features_raises():
    score = "{type: additive, features: [{type: coverage}]}"
    form = f"{{type: similarity, score: {score}}}"
    assert error_message(f"{{cell: {{type: self-attentive-rnn, intra_attention: {form}}}}}") == (
        "a.yaml: model.cell.intra_attention: the score of intra-attention cannot have features; "
        "remove them\n  `heedful recipes --schema` lists every setting and its values"
    )


def test_self_attentive_cell_has_no_zoneout():
    assert error_message("{cell: {type: lstmn, zoneout: 0.1}}") == (
        "a.yaml: model.cell.zoneout: no setting is called 'zoneout'\n"
        "  choose from: score_size, type"
    )


def test_cell_state_must_be_larger_than_projected_output():
    with pytest.raises(ConfigError, match="must be larger than a direction's output, 4, but is 4"):
        LSTMCellConfig(cell_state_size=4).build(input_size=3, hidden_size=4)
