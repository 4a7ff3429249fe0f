import json

from heedful.recipes import Recipe, load_recipe
from heedful.recipes.recipe import DataConfig, recipe_groups
from heedful.training.config import TrainingConfig
from tests.commands import heedful


def test_recipes_listed_with_variants_and_summary(capsys, monkeypatch):
    listed = heedful(capsys, monkeypatch, "recipes").out.split("\n\n")[0].splitlines()
    assert [line.split()[0] for line in listed] == [name for name, _ in recipe_groups()]
    (line,) = (line for line in listed if line.startswith("deepatt-2016 "))
    assert line.split()[1:3] == ["multi30k,", "small"]
    assert line.endswith(load_recipe("deepatt-2016").info.summary)


def test_printed_recipe_loads_as_a_file(capsys, monkeypatch, tmp_path):
    shown = heedful(capsys, monkeypatch, "recipes", "latin-demo").out
    (tmp_path / "mine.yaml").write_text(shown)
    assert load_recipe(str(tmp_path / "mine.yaml")) == load_recipe("latin-demo")


def help_of(config_class, name):
    return config_class.model_fields[name].description


def test_printed_recipe_explains_settings(capsys, monkeypatch):
    lines = heedful(capsys, monkeypatch, "recipes", "latin-demo").out.splitlines()
    max_steps = load_recipe("latin-demo").training.max_steps
    assert f"  max_steps: {max_steps}  # {help_of(TrainingConfig, 'max_steps')}" in lines
    assert f"training:  # {help_of(Recipe, 'training')}" in lines
    above = lines[lines.index("  max_tokenizer_lines: 1000000") - 1]
    assert above == f"  # {help_of(DataConfig, 'max_tokenizer_lines')}"
    assert max(map(len, lines)) <= 100


def test_schema_names_every_section(capsys, monkeypatch):
    schema = json.loads(heedful(capsys, monkeypatch, "recipes", "--schema").out)
    assert set(schema["properties"]) == {"extends", *Recipe.model_fields}
    described = schema["$defs"]["RecurrentEncoderConfig"]["properties"]["num_layers"]
    assert described["description"] == "Number of layers."
