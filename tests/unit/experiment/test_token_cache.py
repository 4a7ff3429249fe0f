"""Tokens of small data, kept in the run folder for resuming."""

import io
from itertools import islice

import pytest
import torch
from rich.console import Console

from heedful.conversion.page_models import read_dev_examples
from heedful.data.shuffling import DataCursor
from heedful.data.sources import ParallelFilesConfig
from heedful.experiment import load_data
from heedful.pytree import tensors_of
from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.tasks.prediction import LoadedRun
from tests.commands import write_recipe
from tests.language_modeling import write_text_recipe

CORPUS = "{type: synthetic, name: reverse, num_examples: 150, seed: %d}"
MIXTURE = "{type: mixture, corpora: [{weight: 1.5, source: %s}, {source: %s}]}"
CASES = {
    "pairs": (write_recipe, ["data.filtering.max_length=3"]),
    "with dev data": (write_recipe, ["data.dev={type: synthetic, name: copy, num_examples: 9}"]),
    "mixture": (write_recipe, [f"data.train={MIXTURE % (CORPUS % 1, CORPUS % 2)}"]),
    "text": (write_text_recipe, []),
}


def load(recipe, folder):
    console = Console(file=io.StringIO())
    data_module = load_data(recipe, Run(folder / "run"), console)
    return data_module, console.file.getvalue()


def write_pairs(folder, *overrides):
    return load_recipe(str(write_recipe(folder)), overrides)


def assert_same(one, other):
    assert one.fingerprint == other.fingerprint
    streams = [islice(data.train_batches(DataCursor(0, 0)), 20) for data in (one, other)]
    dev = [data.validation_batches() for data in (one, other)]
    for batches in (streams, dev):
        for some, others in zip(*batches, strict=True):
            assert all(map(torch.equal, tensors_of(some), tensors_of(others)))


@pytest.mark.parametrize("case", CASES)
def test_resumed_run_does_not_read_or_tokenize_the_training_data(case, tmp_path, monkeypatch):
    write, overrides = CASES[case]
    recipe = load_recipe(str(write(tmp_path)), overrides)
    first, shown = load(recipe, tmp_path)
    monkeypatch.setattr(type(recipe.task.data), "tokenize_train", None)
    monkeypatch.setattr("heedful.experiment.data_modules._read_if_small", None)
    again, shown_again = load(recipe, tmp_path)
    assert_same(first, again)
    assert f"using the tokens in {tmp_path}/run/token-cache: the files are unchanged" in shown_again
    reports = [line for line in shown.splitlines() if line.startswith(("train:", "dev:"))]
    assert set(reports) <= set(shown_again.splitlines())


def test_held_out_examples_are_read_from_the_run(tmp_path):
    recipe = write_pairs(tmp_path)
    dev = load(recipe, tmp_path)[0].dev_examples
    run = LoadedRun(str(tmp_path / "run"), recipe, None, None)
    assert read_dev_examples(run, 3) == dev[:3]
    assert not read_dev_examples(run._replace(folder=str(tmp_path)), 3)


def test_changed_files_load_again(tmp_path):
    recipe = write_pairs(tmp_path)
    first, _ = load(recipe, tmp_path)
    for name in ("source.txt", "target.txt"):
        with (tmp_path / name).open("a") as file:
            file.write("a b c\n")
    changed, shown = load(recipe, tmp_path)
    assert "reading" in shown
    assert changed.fingerprint != first.fingerprint


def test_corrupt_token_cache_is_rebuilt(tmp_path):
    recipe = write_pairs(tmp_path)
    first, _ = load(recipe, tmp_path)
    path = tmp_path / "run" / "token-cache" / "tokens.safetensors"
    contents = bytearray(path.read_bytes())
    contents[-1] ^= 1
    path.write_bytes(contents)
    again, shown = load(recipe, tmp_path)
    assert "reading" in shown
    assert_same(first, again)
    assert "using the tokens" in load(recipe, tmp_path)[1]


def test_tokens_of_standard_input_not_kept(tmp_path, monkeypatch):
    recipe = write_pairs(tmp_path)
    monkeypatch.setattr(ParallelFilesConfig, "is_single_pass", True)
    load(recipe, tmp_path)
    assert not (tmp_path / "run" / "token-cache").exists()


def test_full_disk_costs_only_the_tokens(tmp_path, monkeypatch):
    recipe = write_pairs(tmp_path)
    monkeypatch.setattr("heedful.storage.atomic._SPACE_MARGIN", 1e15)
    _, shown = load(recipe, tmp_path)
    assert "a resumed run will tokenize the data again\n" in shown
    assert not (tmp_path / "run" / "token-cache").exists()


def test_reading_shows_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("heedful.training.progress._PLAIN_EVERY_SECONDS", 0.0)
    monkeypatch.setattr("heedful.experiment.data_modules.CHUNK_SIZE", 250)
    _, shown = load(write_pairs(tmp_path), tmp_path)
    lines = shown.splitlines()
    assert lines[1:4] == ["reading: 250", "reading: 500", "reading: 600"]
    assert lines[4] == "read 570 pairs to train on, 30 more held out for validation"
    assert "train: 570 of 570 pairs kept" in lines
