"""Reading, writing, validating and overriding settings."""

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
    yaml_files,
)
from heedful.errors import ConfigError


class AdditiveConfig(BaseConfig):
    type: Literal["additive"] = "additive"
    hidden_size: PositiveInt = 256
    dropout: float = 0.0


class DotConfig(BaseConfig):
    type: Literal["dot"] = "dot"
    dropout: float = 0.5
    scale: float | None = None


class LocalConfig(BaseConfig):
    type: Literal["local"] = "local"
    inner: Annotated[AdditiveConfig | DotConfig, Field(discriminator="type")] = DotConfig(scale=2.0)


ScoreConfig = Annotated[AdditiveConfig | DotConfig | LocalConfig, Field(discriminator="type")]


class ModelConfig(BaseConfig):
    score: ScoreConfig = AdditiveConfig(hidden_size=128)
    layers: tuple[ScoreConfig, ...] = ()
    extra: ScoreConfig | None = None


class Recipe(BaseConfig):
    name: str = "nobody"
    rate: float = 0.1
    max_steps: int = 100
    shuffle: bool = True
    files: tuple[Path, ...] = ()
    model: ModelConfig = ModelConfig()


def validated(text: str = "", *changes: str) -> Recipe:
    overrides = [parse_override(change) for change in changes]
    settings = read_yaml(text, location="recipe.yaml")
    return validate_settings(Recipe, settings, location="recipe.yaml", overrides=overrides)


# --- reading -------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1e-3", "1.0e-3", "0.001", ".1e-2", "+1E-3", "10e-4"])
def test_yaml_numbers(text):
    assert read_yaml(f"rate: {text}", location="a") == {"rate": 0.001}


@pytest.mark.parametrize("text", ["'1e-3'", "1e", "e3", "1e-3x", "2015-01-01", "2015-99-99"])
def test_yaml_strings_that_resemble_numbers(text):
    assert read_yaml(f"name: {text}", location="a") == {"name": text.strip("'")}


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "---\n", "\ufeff"])
def test_empty_file_returns_empty_dict(text):
    assert read_yaml(text, location="a") == {}


def test_same_key_is_allowed_in_two_sections():
    assert read_yaml("a: {x: 1}\nb: {x: 2}", location="a") == {"a": {"x": 1}, "b": {"x": 2}}


def test_key_overrides_merged_key():
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}"
    assert read_yaml(text, location="a")["b"] == {"x": 3, "y": 2}


@given(st.text())
def test_any_text_is_parsed_or_rejected_with_hint(text):
    try:
        settings = read_yaml(text, location="a.yaml")
    except ConfigError:
        return
    assert isinstance(settings, dict)


DEPTH = 100_000
BILLION = "a0: &a0 [0, 0]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)


@pytest.mark.parametrize(
    "value",
    [
        "[" * DEPTH,
        "{a: " * DEPTH,
        "[" * 60 + "]" * 60,
        "&a [*a]",
        "&a {b: {c: *a}}",
        "&a {<<: *a}",
        "!!map [a]",
        "!!set [a]",
        "!!omap [[a]]",
        "!!pairs [[a]]",
        "[" + "1, " * 1001 + "]",
        "x" * 1000001,
        "!!python/name:os.system",
    ],
    ids=lambda value: value[:20],
)
def test_unusual_yaml_raises_that_fits_on_a_screen(value, monkeypatch):
    monkeypatch.setattr(yaml_files, "MAX_VALUES", 1000)
    with pytest.raises(ConfigError) as caught:
        parse_override(f"model={value}")
    assert len(str(caught.value)) < 1920  # 24 lines of 80 columns
    with pytest.raises(ConfigError):
        read_yaml(f"model: {value}", location="a")


def test_aliases_count_as_expansion():
    with pytest.raises(ConfigError, match="more than 50 levels and 100000 values"):
        read_yaml(BILLION, location="a")
    assert read_yaml("a: &a [1, 2]\nb: [*a, *a]", location="a")["b"] == [[1, 2], [1, 2]]


@given(st.text(max_size=5), st.integers(1, 100_000))
def test_message_length_is_limited_for_any_input(text, count):
    with pytest.raises(ConfigError) as caught:
        validated("", f"x{text * count}=1")
    lines = str(caught.value).split("\n")
    assert sum(1 + len(line) // 80 for line in lines) <= 24


def test_settings_load_as_utf8(tmp_path):
    (tmp_path / "recipe.yaml").write_bytes("name: \u0100\n".encode())
    assert read_settings(tmp_path / "recipe.yaml") == {"name": "\u0100"}


# --- writing -------------------------------------------------------------------------------

numbers = st.floats(allow_nan=False, allow_infinity=False)
# What UTF-8 and YAML can hold: no lone surrogates.
names = st.text(st.characters(exclude_categories=["Cs"])) | st.from_regex(
    r"[-+]?[0-9.]*e[-+]?[0-9]+|yes|no|null|~|[0-9]{4}-[0-9]{2}-[0-9]{2}|0x[0-9]+", fullmatch=True
)
flat = st.builds(AdditiveConfig, hidden_size=st.integers(1, 9), dropout=numbers) | st.builds(
    DotConfig, dropout=numbers, scale=st.none() | numbers
)
scores = flat | st.builds(LocalConfig, inner=flat)
models = st.builds(
    ModelConfig,
    score=scores,
    layers=st.lists(scores, max_size=3).map(tuple),
    extra=st.none() | scores,
)
integers = st.integers(1 - 2**63, 2**63 - 1)  # what YAML may contain
recipes = st.builds(
    Recipe, name=names, rate=numbers, max_steps=integers, shuffle=st.booleans(), model=models
)


@given(recipes)
def test_to_yaml_round_trips(recipe):
    assert validated(to_yaml(recipe)) == recipe


def test_to_yaml_includes_defaults():
    assert to_yaml(DotConfig()) == "type: dot\ndropout: 0.5\nscale: null\n"


def test_to_yaml_writes_paths_as_strings():
    recipe = Recipe(files=(Path("a/b.txt"),))
    assert "files:\n- a/b.txt\n" in to_yaml(recipe)
    assert validated(to_yaml(recipe)) == recipe


# --- checking ------------------------------------------------------------------------------


def test_omitted_fields_get_defaults():
    assert validated() == Recipe()


def test_integer_with_exponent_is_accepted():
    assert validated("max_steps: 1e5").max_steps == 100_000


def test_boolean_accepts_yes_and_no():
    assert validated("shuffle: no").shuffle is False


def test_types_resolved_in_nested_sections_and_lists():
    text = "model: {score: {type: local, inner: {type: additive}}, layers: [{type: dot}]}"
    assert validated(text).model == ModelConfig(
        score=LocalConfig(inner=AdditiveConfig()), layers=(DotConfig(),)
    )


def test_configs_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        DotConfig().dropout = 0.1


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
def test_override_value_is_yaml(text, value):
    assert parse_override(text) == Override(("a", "b"), value)


def test_override_takes_precedence_over_file():
    assert validated("max_steps: 5", "max_steps=7").max_steps == 7


def test_last_override_takes_precedence():
    assert validated("", "max_steps=7", "max_steps=8").max_steps == 8


def test_overrides_do_not_modify_config():
    settings = {"model": {"score": {"type": "dot"}}}
    overrides = [parse_override("model.score.scale=3")]
    validate_settings(Recipe, settings, location="a", overrides=overrides)
    assert settings == {"model": {"score": {"type": "dot"}}}


def test_override_inside_default_keeps_other_settings():
    score = validated("", "model.score.dropout=0.3").model.score
    assert score == AdditiveConfig(hidden_size=128, dropout=0.3)


def test_override_inside_nested_default_keeps_both():
    score = validated("model: {score: {type: local}}", "model.score.inner.dropout=0").model.score
    assert score == LocalConfig(inner=DotConfig(scale=2.0, dropout=0.0))


def test_override_may_set_required_setting():
    class Job(BaseConfig):
        source: Path

    overrides = [parse_override("source=a.txt")]
    assert validate_settings(Job, {}, location="a", overrides=overrides) == Job(
        source=Path("a.txt")
    )


def test_override_may_fix_invalid_setting():
    assert validated("max_steps: many", "max_steps=7").max_steps == 7


def test_override_may_set_section():
    assert validated("", "model.score={type: dot, scale: 3}").model.score == DotConfig(scale=3.0)


def test_overrides_may_build_section_without_default():
    score = validated("", "model.extra.type=dot", "model.extra.scale=3").model.extra
    assert score == DotConfig(scale=3.0)


def test_type_override_uses_defaults_of_new_type():
    assert validated("", "model.score.type=dot").model.score == DotConfig()


def test_type_override_keeps_shared_settings_only():
    text = "model: {score: {type: additive, hidden_size: 8, dropout: 0.3}}"
    assert validated(text, "model.score.type=dot").model.score == DotConfig(dropout=0.3)


def test_override_with_same_type_changes_nothing():
    text = "model: {score: {type: additive, hidden_size: 8}}"
    assert validated(text, "model.score.type=additive") == validated(text)


@pytest.mark.parametrize("reverse", [False, True])
def test_type_and_settings_overrides_commute(reverse):
    overrides = ["model.score.type=dot", "model.score.scale=3"]
    score = validated("", *(reversed(overrides) if reverse else overrides)).model.score
    assert score == DotConfig(scale=3.0)
