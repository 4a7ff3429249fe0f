"""`heedful compare` knows every task: runs, ensembles, and recipes with a folder of data."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from heedful.comparison.budget import Budget
from heedful.comparison.training import plan_runs, train_in_process
from heedful.data.images.labeled_images import write_idx
from heedful.data.synthetic.digits import BuiltInDigitsConfig
from heedful.tasks.registry import TASKS
from tests import captioning, commands, forecasting
from tests.labeled_texts import write_labeled_recipe
from tests.language_modeling import write_text_recipe
from tests.shape_checking import unchecked
from tests.tagged_words import write_tagging_recipe

STEPS = Budget.parse("2steps")
UNCOMPARED = re.compile("coverage|seasonal naive")  # neither high nor low is better; of no system
WITHOUT_ENSEMBLES = {"language-modeling", "masked-language-modeling"}


def write_translation(folder):
    return commands.write_recipe(folder), {"source.txt": "source", "target.txt": "target"}


def write_text(folder, model="language-model"):
    return write_text_recipe(folder, model), {"text.txt": "txt"}


def write_captions(folder):
    path = captioning.write_images(folder)
    recipe = captioning.caption_recipe({"type": "captions", "path": str(path)})
    return captioning.write_recipe(folder / "recipe.yaml", recipe), {"captions.tsv": "tsv"}


def write_digits(folder):
    folder.mkdir()
    digits = BuiltInDigitsConfig(num_examples=20).read()
    write_idx(folder / "some-images-idx3-ubyte", np.stack([digit.pixels for digit in digits]))
    labels = np.array([digit.label for digit in digits], dtype=np.uint8)
    write_idx(folder / "some-labels-idx1-ubyte", labels)
    model = {"type": "recurrent-attention", "num_glimpses": 2, "hidden_size": 8, "part_size": 8}
    recipe = {"data": {"labeled_images": {"batch_size": 8}}, "tokenizers": {"type": "none"}}
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({**recipe, "model": {**model, "glimpse_hidden_size": 8}}))
    return path, {f"some-{end}-ubyte": f"-{end}-ubyte" for end in ("images-idx3", "labels-idx1")}


WRITERS = {
    "translation": write_translation,
    "language-modeling": write_text,
    "masked-language-modeling": lambda folder: write_text(folder, "masked-language-model"),
    "classification": lambda folder: (write_labeled_recipe(folder)[0], {"labeled.tsv": "tsv"}),
    "tagging": lambda folder: (write_tagging_recipe(folder)[0], {"train.conll": "conll"}),
    "forecasting": lambda folder: (forecasting.write_series_recipe(folder), {"series.csv": "csv"}),
    "captioning": write_captions,
    "glimpses": write_digits,
}
"""By task: writes data and a recipe; returns the recipe, and the suffixes of a folder of data."""


def test_every_task_is_compared_here():
    assert list(WRITERS) == list(TASKS)


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_systems_of_a_task_compared(task, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe, suffixes = WRITERS[task](tmp_path / "data")
    for name, suffix in suffixes.items():
        for split in ("train", "test"):
            separator = "" if suffix.startswith("-") else "."
            path = tmp_path / "data" / f"{split}{separator}{suffix}"
            if path.name != name:
                shutil.copy(tmp_path / "data" / name, path)
    settings = yaml.safe_load(Path(recipe).read_text())
    for name, rate in {"one": 1e-2, "two": 1e-3}.items():
        changed = {**settings.get("training", {}), "optimizer": {"learning_rate": rate}}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({**settings, "training": changed}))

    def compare(*words):
        ended = commands.heedful(capsys, monkeypatch, "compare", *words, "--device", "cpu")
        assert ended.code == 0, ended.err
        return json.loads(ended.out)["systems"] if "--json" in words else ended.out

    folder = tmp_path / "comparison"
    with unchecked():
        plans = plan_runs(["one.yaml", "two.yaml"], "data", seeds=1, folder=folder)
        results = [train_in_process(planned, STEPS, "cpu") for planned in plans]
    assert results == [(True, "")] * 2
    trained = "--data", "data", "--recipes", "one.yaml,two.yaml", "--steps", 2, "-o", folder
    systems = compare(*trained, "--json")
    assert [system["name"] for system in systems] == ["one", "two"]
    one, two = (str(planned.folder) for planned in plans)
    evaluated = commands.heedful(capsys, monkeypatch, "evaluate", one, "--json", "--device", "cpu")
    expected = {score["name"]: score["value"] for score in json.loads(evaluated.out)}
    actual = {score["score"]["name"]: score["stats"]["mean"] for score in systems[0]["scores"]}
    without_direction = {name for name in expected if UNCOMPARED.search(name)}
    assert {*expected} - {*actual} == without_direction
    assert actual == pytest.approx({name: expected[name] for name in actual}, nan_ok=True)

    if task in WITHOUT_ENSEMBLES:
        words = "compare", f"{one}+{two}", "--device", "cpu"
        assert "cannot be combined" in commands.heedful(capsys, monkeypatch, *words).err
        return
    alone, ensemble = compare(one, f"{one}+{two}", "--json")
    assert (alone["name"], ensemble["name"]) == ("one-0", "one-0+two-0")
    assert ensemble["cost"]["num_parameters"] == 2 * alone["cost"]["num_parameters"]
    assert ensemble["cost"]["steps"]["mean"] == 4
