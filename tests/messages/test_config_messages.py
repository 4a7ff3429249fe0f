"""The full text of every complaint about settings."""

from typing import Annotated, Literal

import pytest
from pydantic import Field, PositiveInt, model_validator

from heedful.config import BaseConfig, parse_override, read_settings, read_yaml, validate_settings
from heedful.errors import ConfigError

SCHEMA = "`heedful recipes --schema` lists every setting and what it takes"
QUOTES = "YAML reads yes, no, on and off as true and false: put a name in quotes"


class Additive(BaseConfig):
    type: Literal["additive"] = "additive"
    hidden_size: PositiveInt = 256
    additive: int = 1  # a setting with the name of its own kind


class ScatterPoint(BaseConfig):
    type: Literal["dot"] = "dot"
    scale: float = 1.0


ScoreFunction = Annotated[Additive | ScatterPoint, Field(discriminator="type")]


class Seq2SeqModel(BaseConfig):
    score: ScoreFunction = Additive()
    layers: tuple[ScoreFunction, ...] = ()


class Recipe(BaseConfig):
    name: str = "nobody"
    rate: float = 0.1
    max_steps: int | None = None
    shuffle: bool = True
    direction: Literal["up", "down"] = "up"
    model: Seq2SeqModel = Seq2SeqModel()

    @model_validator(mode="after")
    def _is_quick_enough(self):
        if self.rate > 100:
            raise ValueError("The rate must be at most 100")
        return self


def load(text, changes, choice):
    overrides = [parse_override(change) for change in changes]
    settings = read_yaml(text, location="recipe.yaml")
    return validate_settings(choice, settings, location="recipe.yaml", overrides=overrides)


def complaint(text="", *changes, choice=Recipe):
    with pytest.raises(ConfigError) as caught:
        load(text, changes, choice)
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
            "direction: 'upp' is not a choice; did you mean 'up'?\n  choose from: down, up",
        ),
        ("direction: 3", "direction: 3 is not a choice\n  choose from: down, up"),
        # yes and no, which YAML takes for true and false
        ("name: no", f"name: a name is wanted, found no or off (false)\n  {QUOTES}"),
        ("direction: off", f"direction: no or off (false) is not a choice\n  {QUOTES}"),
        (
            "model: {score: {type: yes}}",
            f"model.score.type: a name is wanted, found yes or on (true)\n  {QUOTES}",
        ),
        ("max_steps: yes", f"max_steps: a number is wanted, found yes or on (true)\n  {SCHEMA}"),
        (
            "model: {layers: [{type: dot, scale: no}]}",
            f"model.layers.0.scale: a number is wanted, found no or off (false)\n  {SCHEMA}",
        ),
        # values of the wrong type
        ("name: 3", "name: a name is wanted, found 3\n  put it in quotes"),
        ("name:", f"name: a name is wanted, found nothing\n  {SCHEMA}"),
        ("rate: fast", f"rate: a number is wanted, found 'fast'\n  {SCHEMA}"),
        ("rate: {a: 1}", f"rate: a number is wanted, found a section\n  {SCHEMA}"),
        ("max_steps: 1.5", f"max_steps: a whole number is wanted, found 1.5\n  {SCHEMA}"),
        ("max_steps: [1]", f"max_steps: a whole number is wanted, found [1]\n  {SCHEMA}"),
        ("shuffle: often", f"shuffle: true or false is wanted, found 'often'\n  {SCHEMA}"),
        ("model: {layers: 3}", f"model.layers: a list is wanted, found 3\n  {SCHEMA}"),
        # sections
        ("model: big", "model: a section is wanted, found 'big'\n  choose from: layers, score"),
        ("model:", "model: a section is wanted, found nothing\n  choose from: layers, score"),
        (
            "model: {score: dot}",
            "model.score: a section with a `kind` is wanted, found 'dot'\n"
            "  choose from: {type: additive}, {type: dot}",
        ),
        (
            "model: {score: {scale: 3}}",
            "model.score.type: it is not said which kind\n  choose from: additive, dot",
        ),
        # values out of range
        ("rate: .inf", f"rate: should be a finite number, found inf\n  {SCHEMA}"),
        (
            "model: {score: {type: additive, hidden_size: 0}}",
            f"model.score.hidden_size: should be greater than 0, found 0\n  {SCHEMA}",
        ),
        (
            "model: {score: {type: additive, additive: one}}",
            f"model.score.additive: a whole number is wanted, found 'one'\n  {SCHEMA}",
        ),
    ],
)
def test_invalid_setting(text, message):
    assert complaint(text) == f"recipe.yaml: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate: 101", f"the rate must be at most 100\n  {SCHEMA}"),
        ("1: 3", "a name is wanted, found 1\n  put it in quotes"),
        ("on: 3", f"a name is wanted, found yes or on (true)\n  {QUOTES}"),
        (
            "- rate",
            "expected settings of the form `key: value`, found ['rate']\n"
            "  write each setting on a line of its own",
        ),
        ("a: !!bool x", "not YAML: a tag does not fit its value\n  remove what begins with !!"),
        ("a: !!int x", "not YAML: a tag does not fit its value\n  remove what begins with !!"),
    ],
)
def test_invalid_file(text, message):
    assert complaint(text) == f"recipe.yaml: {message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rate: 1\nrate: 2", "2: not YAML: the key 'rate' stands twice\n  correct the line"),
        ("a:\n  x: 1\n  x: 2", "3: not YAML: the key 'x' stands twice\n  correct the line"),
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
    assert complaint(text) == f"recipe.yaml:{message}"


def test_missing_required_setting():
    class Job(BaseConfig):
        source: str

    expected = "recipe.yaml: source: this setting has no default\n  give it a value"
    assert complaint(choice=Job) == expected


@pytest.mark.parametrize("change", ["max_steps", "=3", ".=3", "a..b=3", ""])
def test_malformed_override(change):
    assert complaint("", change) == (
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
        ("max_steps=no", f"max_steps: a number is wanted, found no or off (false)\n  {SCHEMA}"),
    ],
)
def test_invalid_override(change, message):
    assert complaint("", change) == f"--set {message}"


def test_error_in_file_is_located_in_file():
    assert complaint("rat: 3", "max_steps=2").startswith("recipe.yaml: rat: ")


def test_error_beside_type_override_is_located_in_override():
    text = "model: {score: {type: additive, scale: fast}}"
    assert complaint(text, "model.score.type=dot") == (
        f"--set model.score.scale: a number is wanted, found 'fast'\n  {SCHEMA}"
    )


def file_complaint(path):
    with pytest.raises(ConfigError) as caught:
        read_settings(path)
    return str(caught.value)


def test_missing_settings_file(tmp_path):
    path = tmp_path / "recipe.yaml"
    assert file_complaint(path) == f"{path}: no such file\n  check the path"


def test_folder_given_as_settings_file(tmp_path):
    assert file_complaint(tmp_path) == (
        f"{tmp_path}: the file cannot be read: Is a directory\n  check the path and its permissions"
    )


def test_settings_file_in_other_encoding(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_bytes("name: caf\u00e9".encode("latin-1"))
    assert file_complaint(path) == f"{path}: the file is not UTF-8\n  save it as UTF-8"
