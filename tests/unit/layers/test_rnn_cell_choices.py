"""Cells as a configuration names them: in short or in full, built as they are named."""

import pytest

from heedful.attention import CosineScore, ProjectedDotScore
from heedful.config import BaseConfig, read_yaml, to_yaml, validate_settings
from heedful.config.base import type_of, types_in
from heedful.errors import ConfigError
from heedful.layers.rnn import CellConfig
from heedful.layers.rnn_cells import (
    CELL_CLASSES,
    GRUCell,
    GRUCellConfig,
    LayerNormLSTMCell,
    LayerNormRNNCell,
    LSTMCell,
    LSTMCellConfig,
    RecurrentDropout,
    ResetAfterGRUCell,
    ResetBeforeGRUCell,
    RNNCell,
    RNNCellConfig,
    Zoneout,
)
from heedful.layers.self_attentive_cells import (
    DeepFusionLSTMNCell,
    LSTMNCell,
    LSTMNCellConfig,
    SelfAttentiveCell,
    SelfAttentiveLSTMCell,
)

NAMED = {
    **CELL_CLASSES,
    "self-attentive-rnn": SelfAttentiveCell,
    "self-attentive-lstm": SelfAttentiveLSTMCell,
    "lstmn": LSTMNCell,
}
SIZES = {"input_size": 3, "hidden_size": 4}


class Seq2SeqModel(BaseConfig):
    cell: CellConfig = GRUCellConfig()


class Recipe(BaseConfig):
    model: Seq2SeqModel = Seq2SeqModel()


def load(text):
    return validate_settings(
        Recipe, read_yaml(f"model: {text}", location="a.yaml"), location="a.yaml"
    ).model.cell


def complaint(text):
    with pytest.raises(ConfigError) as caught:
        load(text)
    return str(caught.value)


def test_the_kinds_of_cells_are_those_with_kernels_and_those_with_tapes():
    assert {type_of(member) for member in types_in(CellConfig)} == set(NAMED)


@pytest.mark.parametrize("kind", NAMED)
def test_a_name_alone_is_the_cell_with_its_defaults(kind):
    assert load(f"{{cell: {kind}}}") == load(f"{{cell: {{type: {kind}}}}}")
    assert type(load(f"{{cell: {kind}}}").build(**SIZES)) is NAMED[kind]


def test_a_cell_is_written_in_full_and_reads_back_equal():
    recipe = Recipe(model=Seq2SeqModel(cell=LSTMCellConfig(zoneout=0.05, cell_zoneout=0.5)))
    written = to_yaml(recipe)
    assert "    type: lstm\n    layer_norm: false\n" in written
    assert validate_settings(Recipe, read_yaml(written, location="a"), location="a") == recipe


@pytest.mark.parametrize("text", ["{cell: grru}", "{cell: {type: grru}}"])
def test_a_wrong_name_says_where_which_is_near_and_what_there_is(text):
    assert complaint(text) == (
        "a.yaml: model.cell.type: no cell is called 'grru'; did you mean 'gru'?\n"
        "  choose from: gru, lstm, lstmn, rnn, self-attentive-lstm, self-attentive-rnn"
    )


def test_what_is_no_name_is_refused_with_the_choices():
    assert complaint("{cell: 3}") == (
        "a.yaml: model.cell: a section with a `kind` is wanted, found 3\n"
        "  choose from: {type: gru}, {type: lstmn}, {type: lstm}, {type: rnn}, "
        "{type: self-attentive-lstm}, {type: self-attentive-rnn}"
    )


def test_a_setting_of_another_cell_is_refused():
    assert complaint("{cell: {type: gru, memory_zoneout: 0.5}}") == (
        "a.yaml: model.cell.memory_zoneout: no setting is called 'memory_zoneout'; "
        "did you mean 'zoneout'?\n"
        "  choose from: kind, normalised, recurrent_dropout, reset, zoneout"
    )


def test_the_schema_allows_a_name_and_a_section():
    schema = Seq2SeqModel.model_json_schema()
    name, *sections = schema["properties"]["cell"]["anyOf"]
    assert set(name["enum"]) == set(NAMED)
    kinds = [schema["$defs"][each["$ref"].split("/")[-1]] for each in sections]
    assert {each["properties"]["kind"]["const"] for each in kinds} == set(NAMED)


@pytest.mark.parametrize(
    ("config", "wanted"),
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
def test_a_cell_is_built_as_it_is_named_within_what_is_wrapped_round_it(config, wanted):
    assert type(config.build(**SIZES)) is wanted
    regularised = config.model_copy(update={"zoneout": 0.1, "recurrent_dropout": 0.2})
    outer = regularised.build(**SIZES)
    assert (type(outer), outer.rate) == (RecurrentDropout, 0.2)
    assert (type(outer.cell), outer.cell.rates[0]) == (Zoneout, 0.1)
    assert type(outer.cell.cell) is wanted


def test_the_memory_of_an_lstm_may_stay_where_what_it_shows_does_not():
    cell = LSTMCellConfig(cell_zoneout=0.5).build(**SIZES)
    assert cell.rates == (0.0, 0.5)


def score_of(text):
    """The score by which a cell asks its past, and whether the input asks."""
    past = load(text).build(**SIZES).intra_attention
    return past.attention.score, past.query_uses_input


@pytest.mark.parametrize("kind", ["self-attentive-rnn", "self-attentive-lstm"])
def test_a_form_says_what_asks_and_how_it_is_compared(kind):
    score, input_asks = score_of(
        f"{{cell: {{type: {kind}, intra_attention: {{type: additive, hidden_size: 5}}}}}}"
    )
    assert (score.query_projection.weight.shape, input_asks) == ((5, 3 + 4), True)
    score, input_asks = score_of(f"{{cell: {{type: {kind}, intra_attention: similarity}}}}")
    assert (type(score), input_asks) == (ProjectedDotScore, False)
    form = "{type: similarity, score: {type: cosine}}"
    assert type(score_of(f"{{cell: {{type: {kind}, intra_attention: {form}}}}}")[0]) is CosineScore


def test_the_score_of_an_lstmn_is_as_wide_as_is_said_in_both_of_its_forms():
    config = LSTMNCellConfig(score_size=5)
    for cell, kind in (
        (config.build(**SIZES), LSTMNCell),
        (config.build_deep_fusion(**SIZES), DeepFusionLSTMNCell),
    ):
        assert type(cell) is kind
        assert cell.intra_attention.attention.score.query_projection.weight.shape == (5, 3 + 4)


def test_a_wrong_form_says_what_there_is():
    assert complaint("{cell: {type: self-attentive-rnn, intra_attention: additiv}}") == (
        "a.yaml: model.cell.form.type: no form is called 'additiv'; did you mean 'additive'?\n"
        "  choose from: additive, similarity"
    )


def test_a_score_of_the_own_past_takes_no_features():
    score = "{type: additive, features: [{type: coverage}]}"
    form = f"{{type: similarity, score: {score}}}"
    assert complaint(f"{{cell: {{type: self-attentive-rnn, intra_attention: {form}}}}}") == (
        "a.yaml: model.cell.form: the score of a cell's own past takes no features; leave them "
        "out\n  `heedful recipes --schema` lists every setting and what it takes"
    )


def test_a_cell_with_a_tape_has_no_zoneout():
    assert complaint("{cell: {type: lstmn, zoneout: 0.1}}") == (
        "a.yaml: model.cell.zoneout: no setting is called 'zoneout'\n"
        "  choose from: kind, score_size"
    )
