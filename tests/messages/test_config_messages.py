"""The full text of every error in settings."""

from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveInt, model_validator

from heedful.config import BaseConfig, parse_override, read_settings, read_yaml, validate_settings
from heedful.errors import ConfigError

SCHEMA = "`heedful recipes --schema` lists every setting and its values"
QUOTES = "YAML reads yes, no, on and off as true and false: put a name in quotes"


class AdditiveConfig(BaseConfig):
    type: Literal["additive"] = "additive"
    hidden_size: PositiveInt = 256
    additive: int = 1  # a setting with the name of its type


class DotConfig(BaseConfig):
    type: Literal["dot"] = "dot"
    scale: float = 1.0


ScoreConfig = Annotated[AdditiveConfig | DotConfig, Field(discriminator="type")]


class ModelConfig(BaseConfig):
    score: ScoreConfig = AdditiveConfig()
    layers: tuple[ScoreConfig, ...] = ()


class Recipe(BaseConfig):
    name: str = "nobody"
    rate: float = 0.1
    max_steps: int | None = None
    shuffle: bool = True
    direction: Literal["up", "down"] = "up"
    model: ModelConfig = ModelConfig()

    @model_validator(mode="after")
    def _check_rate(self):
        if self.rate > 100:
            raise ValueError("The rate must be at most 100")
        return self


def load(text, changes, config_class):
    overrides = [parse_override(change) for change in changes]
    settings = read_yaml(text, location="recipe.yaml")
    return validate_settings(config_class, settings, location="recipe.yaml", overrides=overrides)


def error_text(text="", *changes, config_class=Recipe):
    with pytest.raises(ConfigError) as caught:
        load(text, changes, config_class)
    return str(caught.value)


NAMES = "choose from: direction, max_steps, model, name, rate, shuffle"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        # unknown names
        ("rat: 3", f"rat: no setting is called 'rat'; did you mean 'rate'?\n  {NAMES}"),
        ("colour: 3", f"colour: no setting is called 'colour'\n  {NAMES}"),
        (
            "model: {score: {type: additive, hiden_size: 3}}",
            "model.score.hiden_size: no setting is called 'hiden_size'; "
            "did you mean 'hidden_size'?\n  choose from: additive, hidden_size, type",
        ),
        (
            "model: {score: {type: aditive}}",
            "model.score.type: no score is called 'aditive'; did you mean 'additive'?\n"
            "  choose from: additive, dot",
        ),
        (
            "model: {layers: [{type: dot}, {type: dto}]}",
            "model.layers.1.type: no layers is called 'dto'; did you mean 'dot'?\n"
            "  choose from: additive, dot",
        ),
        (
            "model: {layers: [{type: dot, scael: 1}]}",
            "model.layers.0.scael: no setting is called 'scael'; did you mean 'scale'?\n"
            "  choose from: scale, type",
        ),
        (
            "direction: upp",
            "direction: 'upp' is not allowed; did you mean 'up'?\n  choose from: down, up",
        ),
        ("direction: 3", "direction: 3 is not allowed\n  choose from: down, up"),
        # yes and no, which YAML takes for true and false
        ("name: no", f"name: expected a name, got no or off (false)\n  {QUOTES}"),
        ("direction: off", f"direction: no or off (false) is not allowed\n  {QUOTES}"),
        (
            "model: {score: {type: yes}}",
            f"model.score.type: expected a name, got yes or on (true)\n  {QUOTES}",
        ),
        ("max_steps: yes", f"max_steps: expected a number, got yes or on (true)\n  {SCHEMA}"),
        (
            "model: {layers: [{type: dot, scale: no}]}",
            f"model.layers.0.scale: expected a number, got no or off (false)\n  {SCHEMA}",
        ),
        # values of the wrong type
        ("name: 3", "name: expected a name, got 3\n  put it in quotes"),
        ("name:", f"name: expected a name, got nothing\n  {SCHEMA}"),
        ("rate: fast", f"rate: expected a number, got 'fast'\n  {SCHEMA}"),
        ("rate: {a: 1}", f"rate: expected a number, got a section\n  {SCHEMA}"),
        ("max_steps: 1.5", f"max_steps: expected a whole number, got 1.5\n  {SCHEMA}"),
        ("max_steps: [1]", f"max_steps: expected a whole number, got [1]\n  {SCHEMA}"),
        ("shuffle: often", f"shuffle: expected true or false, got 'often'\n  {SCHEMA}"),
        ("model: {layers: 3}", f"model.layers: expected a list, got 3\n  {SCHEMA}"),
        # sections
        ("model: big", "model: expected a section, got 'big'\n  choose from: layers, score"),
        ("model:", "model: expected a section, got nothing\n  choose from: layers, score"),
        (
            "model: {score: dot}",
            "model.score: expected a section with a `type`, got 'dot'\n"
            "  choose from: {type: additive}, {type: dot}",
        ),
        (
            "model: {score: {scale: 3}}",
            "model.score.type: the type is missing\n  choose from: additive, dot",
        ),
        # values out of range
        ("rate: .inf", f"rate: should be a finite number, got inf\n  {SCHEMA}"),
        (
            "model: {score: {type: additive, hidden_size: 0}}",
            f"model.score.hidden_size: should be greater than 0, got 0\n  {SCHEMA}",
        ),
        (
            "model: {score: {type: additive, additive: one}}",
            f"model.score.additive: expected a whole number, got 'one'\n  {SCHEMA}",
        ),
    ],
)
def test_invalid_setting(text, message):
    assert error_text(text) == f"recipe.yaml: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate: 101", f"the rate must be at most 100\n  {SCHEMA}"),
        ("1: 3", "expected a name, got 1\n  put it in quotes"),
        ("on: 3", f"expected a name, got yes or on (true)\n  {QUOTES}"),
        (
            "- rate",
            "expected settings of the form `key: value`, got ['rate']\n"
            "  write each setting on a separate line",
        ),
        (
            "a: !!bool x",
            "not YAML: a tag does not fit its value\n  remove the tag that starts with !!",
        ),
        (
            "a: !!int x",
            "not YAML: a tag does not fit its value\n  remove the tag that starts with !!",
        ),
    ],
)
def test_invalid_file(text, message):
    assert error_text(text) == f"recipe.yaml: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate: 1\nrate: 2", "2: not YAML: duplicate key 'rate'\n  correct the line"),
        ("a:\n  x: 1\n  x: 2", "3: not YAML: duplicate key 'x'\n  correct the line"),
        ("a: b: c", "1: not YAML: mapping values are not allowed here\n  correct the line"),
        ("a: 1\n[b]: 2", "2: not YAML: found unhashable key\n  correct the line"),
        (
            "a: 1\nb: \x00",
            "2: not YAML: the character '\\x00' is not allowed\n  remove the character",
        ),
        (
            "a: !!python/name:os.system",
            "1: not YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/name:os.system'\n  correct the line",
        ),
    ],
)
def test_invalid_line(text, message):
    assert error_text(text) == f"recipe.yaml:{message}"


def test_missing_required_setting():
    class Job(BaseConfig):
        source: str

    expected = "recipe.yaml: source: this setting is required\n  give it a value"
    assert error_text(config_class=Job) == expected


def test_misspelled_required_setting():
    class Job(BaseConfig):
        source: str
        target: str = ""

    expected = "recipe.yaml: sorce: no setting is called 'sorce'; did you mean 'source'?"
    assert error_text("sorce: a.txt\n", config_class=Job).splitlines()[0] == expected
    expected = "recipe.yaml: source: this setting is required"
    assert error_text("target: a.txt\n", config_class=Job).splitlines()[0] == expected


@pytest.mark.parametrize("change", ["max_steps", "=3", ".=3", "a..b=3", ""])
def test_malformed_override(change):
    assert error_text("", change) == (
        f"--set {change}: expected a setting and its value\n"
        "  write it as --set training.max_steps=500"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            "rate=[1",
            "rate=[1: not YAML: expected ',' or ']', but got '<stream end>'\n  correct the value",
        ),
        ("rat=1", f"rat: no setting is called 'rat'; did you mean 'rate'?\n  {NAMES}"),
        (
            "modle.score.type=dot",
            f"modle: no setting is called 'modle'; did you mean 'model'?\n  {NAMES}",
        ),
        (
            "model.score.type=dto",
            "model.score.type: no score is called 'dto'; did you mean 'dot'?\n"
            "  choose from: additive, dot",
        ),
        (
            "model.score.scale=2",
            "model.score.scale: no setting is called 'scale'\n"
            "  choose from: additive, hidden_size, type",
        ),
        (
            "rate.first=1",
            "rate.first: rate is a single value, not a section\n  write --set rate=VALUE",
        ),
        (
            "model.layers.0=1",
            "model.layers.0: model.layers is a list, not a section\n"
            "  write --set model.layers=VALUE",
        ),
        ("max_steps=no", f"max_steps: expected a number, got no or off (false)\n  {SCHEMA}"),
    ],
)
def test_invalid_override(change, message):
    assert error_text("", change) == f"--set {message}"


def test_error_in_file_is_located_in_file():
    assert error_text("rat: 3", "max_steps=2").startswith("recipe.yaml: rat: ")


def test_error_next_to_type_override_is_located_in_override():
    text = "model: {score: {type: additive, scale: fast}}"
    assert error_text(text, "model.score.type=dot") == (
        f"--set model.score.scale: expected a number, got 'fast'\n  {SCHEMA}"
    )


def file_error_text(path):
    with pytest.raises(ConfigError) as caught:
        read_settings(path)
    return str(caught.value)


def test_missing_settings_file(tmp_path):
    path = tmp_path / "recipe.yaml"
    assert file_error_text(path) == f"{path}: no such file\n  check the path"


def test_folder_given_as_settings_file(tmp_path):
    assert file_error_text(tmp_path) == (
        f"{tmp_path}: the file cannot be read: Is a directory\n  check the path and its permissions"
    )


def test_settings_file_in_other_encoding(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_bytes("name: caf\u00e9".encode("latin-1"))
    assert file_error_text(path) == f"{path}: the file is not UTF-8\n  save it as UTF-8"
