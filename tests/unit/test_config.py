"""Configuration: what is read is what was written, and what is changed is what was named."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, PositiveInt, ValidationError

from heedful.config import (
    BaseConfig,
    Override,
    parse_override,
    read_settings,
    read_yaml,
    to_yaml,
    validate_settings,
)
from heedful.errors import ConfigError


class Additive(BaseConfig):
    type: Literal["additive"] = "additive"
    hidden_size: PositiveInt = 256
    dropout: float = 0.0


class ScatterPoint(BaseConfig):
    type: Literal["dot"] = "dot"
    dropout: float = 0.5
    scale: float | None = None


class LocalAlignment(BaseConfig):
    type: Literal["local"] = "local"
    inner: Annotated[Additive | ScatterPoint, Field(discriminator="type")] = ScatterPoint(scale=2.0)


ScoreFunction = Annotated[Additive | ScatterPoint | LocalAlignment, Field(discriminator="type")]


class Seq2SeqModel(BaseConfig):
    score: ScoreFunction = Additive(hidden_size=128)
    layers: tuple[ScoreFunction, ...] = ()
    extra: ScoreFunction | None = None


class Recipe(BaseConfig):
    name: str = "nobody"
    rate: float = 0.1
    max_steps: int = 100
    shuffle: bool = True
    files: tuple[Path, ...] = ()
    model: Seq2SeqModel = Seq2SeqModel()


def resolved(text: str = "", *changes: str) -> Recipe:
    overrides = [parse_override(change) for change in changes]
    settings = read_yaml(text, location="recipe.yaml")
    return validate_settings(Recipe, settings, location="recipe.yaml", overrides=overrides)


# --- reading -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1e-3", "1.0e-3", "0.001", ".1e-2", "+1E-3", "10e-4"])
def test_every_way_of_writing_a_number_is_a_number(text):
    assert read_yaml(f"rate: {text}", location="a") == {"rate": 0.001}


@pytest.mark.parametrize("text", ["'1e-3'", "1e", "e3", "1e-3x", "2015-01-01", "2015-99-99"])
def test_what_is_no_number_stays_text(text):
    assert read_yaml(f"name: {text}", location="a") == {"name": text.strip("'")}


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "\ufeff"])
def test_an_empty_file_says_nothing(text):
    assert read_yaml(text, location="a") == {}


def test_the_same_key_may_stand_in_two_sections():
    assert read_yaml("a: {x: 1}\nb: {x: 2}", location="a") == {"a": {"x": 1}, "b": {"x": 2}}


def test_a_key_may_replace_one_that_is_merged_in():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}"
    assert read_yaml(text, location="a")["b"] == {"x": 3, "y": 2}


@given(st.text())
def test_any_text_is_read_or_refused_with_a_remedy(text):
    try:
        settings = read_yaml(text, location="a.yaml")
    except ConfigError:
        return
    assert isinstance(settings, dict)


def test_a_file_is_read_as_utf8(tmp_path):
    (tmp_path / "recipe.yaml").write_bytes("name: \u0100\n".encode())
    assert read_settings(tmp_path / "recipe.yaml") == {"name": "\u0100"}


# --- writing -------------------------------------------------------------------------------

numbers = st.floats(allow_nan=False, allow_infinity=False)
# What UTF-8 and YAML can hold: no lone surrogates.
names = st.text(st.characters(exclude_categories=["Cs"])) | st.from_regex(
    r"[-+]?[0-9.]*e[-+]?[0-9]+|yes|no|null|~|[0-9]{4}-[0-9]{2}-[0-9]{2}|0x[0-9]+", fullmatch=True
)
flat = st.builds(Additive, hidden_size=st.integers(1, 9), dropout=numbers) | st.builds(
    ScatterPoint, dropout=numbers, scale=st.none() | numbers
)
scores = flat | st.builds(LocalAlignment, inner=flat)
models = st.builds(
    Seq2SeqModel,
    score=scores,
    layers=st.lists(scores, max_size=3).map(tuple),
    extra=st.none() | scores,
)
recipes = st.builds(
    Recipe, name=names, rate=numbers, max_steps=st.integers(), shuffle=st.booleans(), model=models
)


@given(recipes)
def test_what_is_written_reads_back_equal(recipe):
    assert resolved(to_yaml(recipe)) == recipe


def test_everything_is_written_also_what_was_left_to_its_default():
    assert to_yaml(ScatterPoint()) == "type: dot\ndropout: 0.5\nscale: null\n"


def test_paths_are_written_as_text():
    recipe = Recipe(files=(Path("a/b.txt"),))
    assert "files:\n- a/b.txt\n" in to_yaml(recipe)
    assert resolved(to_yaml(recipe)) == recipe


# --- checking ------------------------------------------------------------------------------


def test_what_is_left_out_has_its_default():
    assert resolved() == Recipe()


def test_a_whole_number_may_be_written_with_an_exponent():
    assert resolved("max_steps: 1e5").max_steps == 100_000


def test_a_switch_may_be_yes_or_no():
    assert resolved("shuffle: no").shuffle is False


def test_kinds_are_found_inside_kinds_and_in_lists():
    text = "model: {score: {type: local, inner: {type: additive}}, layers: [{type: dot}]}"
    assert resolved(text).model == Seq2SeqModel(
        score=LocalAlignment(inner=Additive()), layers=(ScatterPoint(),)
    )


def test_a_choice_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        ScatterPoint().dropout = 0.1


# --- overrides -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a.b=3", 3),
        ("a.b=1e-3", 0.001),
        ("a.b=", None),
        ("a.b=x=y", "x=y"),
        (" a . b = [1, 2]", [1, 2]),
        ("a.b={type: dot}", {"type": "dot"}),
    ],
)
def test_the_value_of_an_override_is_yaml(text, value):
    assert parse_override(text) == Override(("a", "b"), value)


def test_an_override_wins_over_the_file():
    assert resolved("max_steps: 5", "max_steps=7").max_steps == 7


def test_the_last_override_wins():
    assert resolved("", "max_steps=7", "max_steps=8").max_steps == 8


def test_the_settings_given_are_left_as_they_were():
    settings = {"model": {"score": {"type": "dot"}}}
    changes = [parse_override("model.score.scale=3")]
    validate_settings(Recipe, settings, location="a", overrides=changes)
    assert settings == {"model": {"score": {"type": "dot"}}}


def test_an_override_inside_a_default_keeps_the_rest_of_that_default():
    score = resolved("", "model.score.dropout=0.3").model.score
    assert score == Additive(hidden_size=128, dropout=0.3)


def test_an_override_inside_a_default_inside_a_default_keeps_both():
    score = resolved("model: {score: {type: local}}", "model.score.inner.dropout=0").model.score
    assert score == LocalAlignment(inner=ScatterPoint(scale=2.0, dropout=0.0))


def test_an_override_may_give_what_the_file_left_out():
    class Job(BaseConfig):
        source: Path

    changes = [parse_override("source=a.txt")]
    assert validate_settings(Job, {}, location="a", overrides=changes) == Job(source=Path("a.txt"))


def test_an_override_may_mend_what_is_wrong_in_the_file():
    assert resolved("max_steps: many", "max_steps=7").max_steps == 7


def test_a_whole_section_may_be_given():
    assert resolved("", "model.score={type: dot, scale: 3}").model.score == ScatterPoint(scale=3.0)


def test_a_section_without_a_default_may_be_built_up():
    score = resolved("", "model.extra.kind=dot", "model.extra.scale=3").model.extra
    assert score == ScatterPoint(scale=3.0)


def test_a_new_kind_brings_its_own_defaults():
    assert resolved("", "model.score.type=dot").model.score == ScatterPoint()


def test_a_new_kind_keeps_what_both_know_and_drops_what_only_the_old_knew():
    text = "model: {score: {type: additive, hidden_size: 8, dropout: 0.3}}"
    assert resolved(text, "model.score.type=dot").model.score == ScatterPoint(dropout=0.3)


def test_naming_the_kind_it_already_has_changes_nothing():
    text = "model: {score: {type: additive, hidden_size: 8}}"
    assert resolved(text, "model.score.type=additive") == resolved(text)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_kind_and_its_settings_may_be_given_in_either_order(reverse):
    changes = ["model.score.type=dot", "model.score.scale=3"]
    score = resolved("", *(reversed(changes) if reverse else changes)).model.score
    assert score == ScatterPoint(scale=3.0)
