"""The data of a run, in memory and in files."""

import io
import json
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from rich.console import Console

from heedful.data.shuffling import DataCursor
from heedful.errors import ConfigError, DataError
from heedful.experiment import build_prepared_dataset, load_data
from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.tokenization.vocabulary import EOS, PAD
from tests.commands import write_recipe
from tests.language_modeling import LINES, write_text_recipe

START = DataCursor(0, 0)


def text_data(folder, model, *overrides):
    recipe = load_recipe(str(write_text_recipe(folder, model)), overrides)
    return load_data(recipe, Run(folder / "run"), Console(quiet=True))


def same(one, other):
    return torch.equal(one.inputs, other.inputs) and torch.equal(one.targets, other.targets)


def test_dev_text_is_the_end_of_the_text(tmp_path):
    data = text_data(tmp_path, "language-model")
    lines = data.tokenizers.target.encode_batch(LINES * 40)
    train, dev = lines[:114], lines[114:]
    assert data.train.tolist() == [EOS, *(token for line in train for token in (*line, EOS))]
    assert data.dev.tolist() == [EOS, *(token for line in dev for token in (*line, EOS))]


def test_targets_are_the_next_tokens(tmp_path):
    batch = next(iter(text_data(tmp_path, "language-model").train_batches(START)))
    assert batch.inputs.shape == (4, 16)
    assert torch.equal(batch.targets[:, :-1], batch.inputs[:, 1:])


def test_mask_depends_on_the_position_of_the_batch(tmp_path):
    data = text_data(tmp_path, "masked-language-model")
    mask = len(data.tokenizers.target)
    first, second = islice(data.train_batches(START), 2)
    assert (first.inputs == mask).any()
    assert 0 < first.num_targets < first.num_tokens
    assert not torch.equal(first.targets != PAD, second.targets != PAD)
    assert same(next(iter(data.train_batches(DataCursor(0, 1)))), second)


def test_sentence_pairs_depend_on_the_position_of_the_batch(tmp_path):
    data = text_data(tmp_path, "next-sentence")
    first, second = islice(data.train_batches(START), 2)
    assert first.segments.shape == first.inputs.shape
    assert 0 < first.num_targets < first.num_tokens
    again = next(iter(data.train_batches(DataCursor(0, 1))))
    assert all(map(torch.equal, again, second))
    assert not torch.equal(first.segments, second.segments)


@pytest.mark.parametrize("model", ["language-model", "masked-language-model", "next-sentence"])
def test_validation_batches_are_always_the_same(model, tmp_path):
    data = text_data(tmp_path, model)
    torch.rand(5)
    batches = list(data.validation_batches())
    assert batches
    assert all(map(same, batches, data.validation_batches()))


def test_missing_training_text_raises(tmp_path):
    with pytest.raises(ConfigError) as caught:
        text_data(tmp_path, "language-model", "data.train=null")
    assert str(caught.value) == (
        "data.train: the recipe names no training data\n  give --text FILE"
    )


# --- data that does not fit into memory ----------------------------------------------------


def pairs(folder, *overrides, run="run", console=None):
    recipe = load_recipe(str(write_recipe(folder)), overrides)
    return load_data(recipe, Run(folder / run), console or Console(quiet=True))


def tensors(batch):
    return [*batch.sources, batch.decoder_inputs, batch.targets]


def assert_same_batches(one, other, count=40):
    streams = (islice(data.train_batches(START), count) for data in (one, other))
    for some, others in zip(*streams, strict=True):
        assert all(map(torch.equal, tensors(some), tensors(others)))
    for some, others in zip(one.validation_batches(), other.validation_batches(), strict=True):
        assert all(map(torch.equal, tensors(some), tensors(others)))


MIXTURE = "data.train={type: mixture, corpora: [{weight: 1.5, source: %s}, {source: %s}]}"
SYNTHETIC = "{type: synthetic, name: reverse, num_examples: 150, seed: %d}"


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["data.filtering.max_length=3", "data.filtering.duplicates=drop"],
        ["data.dev={type: synthetic, name: copy, num_examples: 9}"],
        [MIXTURE % (SYNTHETIC % 1, SYNTHETIC % 2), "data.filtering.duplicates=drop"],
    ],
    ids=["plain", "filtered", "with dev data", "mixture"],
)
def test_pairs_in_files_return_the_same_batches_as_in_memory(tmp_path, overrides):
    in_memory = pairs(tmp_path, *overrides)
    in_files = pairs(tmp_path, "data.max_in_memory_examples=299", *overrides, run="large")
    again = pairs(tmp_path, "data.max_in_memory_examples=299", *overrides, run="large")
    assert (tmp_path / "large" / "tokens" / "manifest.json").exists()
    assert not (tmp_path / "run" / "tokens").exists()
    assert_same_batches(in_memory, in_files)
    assert in_memory.dev_examples == in_files.dev_examples
    assert in_files.fingerprint == again.fingerprint != in_memory.fingerprint


def test_token_folder_and_filtered_pairs_logged(tmp_path):
    console = Console(file=io.StringIO(), width=1000)
    settings = ["data.max_in_memory_examples=599", "data.filtering.max_length=3"]
    pairs(tmp_path, *settings, console=console)
    lines = console.file.getvalue().splitlines()
    assert f"more than 599 pairs: saving their tokens in {tmp_path}/run/tokens" in lines
    assert "training the tokenizers on 570 of 600 pairs" in lines
    whole = Console(file=io.StringIO(), width=1000)
    pairs(tmp_path, settings[1], run="whole", console=whole)
    reports = [line for line in lines if line.startswith(("train:", "dev:"))]
    assert len(reports) == 5
    assert set(reports) <= set(whole.file.getvalue().splitlines())


@pytest.mark.parametrize("max_examples", [1000, 50])
def test_line_numbers_in_reports_are_those_of_the_file(tmp_path, max_examples):
    recipe = str(write_recipe(tmp_path))
    lines = (tmp_path / "source.txt").read_text().splitlines()
    (tmp_path / "source.txt").write_bytes(b"".join(f"{x}\r\n".encode() for x in lines[:-1]))
    (tmp_path / "target.txt").write_text("".join(f"{x}\n" for x in [*lines[:-2], ""]))
    console = Console(file=io.StringIO(), width=1000)
    loaded = load_recipe(recipe, [f"data.max_in_memory_examples={max_examples}"])
    data = load_data(loaded, Run(tmp_path / "run"), console)
    files = f"{tmp_path}/source.txt and {tmp_path}/target.txt"
    empty = f"train: 1 dropped: an empty side (first: {files}, line {len(lines) - 1})"
    printed = console.file.getvalue().splitlines()
    assert empty in printed
    first = next(row for row, line in enumerate(lines) if line in lines[:row])
    assert any(f"(first: {files}, line {first + 1})" in line for line in printed)
    assert not any("\r" in token for token in data.tokenizers.source.ids_to_tokens(range(4, 12)))


@pytest.mark.parametrize("model", ["language-model", "masked-language-model"])
def test_text_in_files_returns_the_same_batches_as_in_memory(model, tmp_path):
    in_memory = text_data(tmp_path, model)
    recipe = load_recipe(
        str(write_text_recipe(tmp_path, model)), ["data.max_in_memory_examples=50"]
    )
    in_files = load_data(recipe, Run(tmp_path / "large"), Console(quiet=True))
    streams = (islice(data.train_batches(START), 60) for data in (in_memory, in_files))
    assert all(map(same, *streams))
    assert all(map(same, in_memory.validation_batches(), in_files.validation_batches()))


def test_started_run_keeps_tokenizers(tmp_path):
    recipe = load_recipe(str(write_recipe(tmp_path)), ["data.max_in_memory_examples=100"])
    run = Run(tmp_path / "run")
    run.initialize(recipe, recipe.tokenizers.train(["a b"], ["a b c"]))
    data = load_data(recipe, run, Console(quiet=True))
    assert (len(data.tokenizers.source), len(data.tokenizers.target)) == (4 + 2, 4 + 3)


def prepared(folder, *overrides):
    recipe = load_recipe(str(write_recipe(folder)), overrides)
    build_prepared_dataset(recipe, folder / "tokens", Console(quiet=True), shard_size=100)
    return f"data.train={json.dumps({'type': 'prepared', 'path': str(folder / 'tokens')})}"


def test_prepared_tokens_return_the_same_batches(tmp_path):
    setting = prepared(tmp_path)
    (in_memory, in_files) = pairs(tmp_path), pairs(tmp_path, setting, run="large")
    assert_same_batches(in_memory, in_files)
    assert in_files.fingerprint == pairs(tmp_path, setting, run="other").fingerprint
    unverified = setting.replace('"}', '", "verify": false}')
    assert_same_batches(in_memory, pairs(tmp_path, unverified, run="unverified"))


def message(action, kind):
    with pytest.raises(kind) as caught:
        action()
    return str(caught.value)


def test_tokens_with_other_settings_reported(tmp_path):
    setting = prepared(tmp_path)
    assert message(
        lambda: pairs(tmp_path, setting, "tokenizers.source.min_frequency=2"), ConfigError
    ) == (
        f"tokenizers.source.min_frequency: the tokens in {tmp_path}/tokens were made with 1, "
        "but now it is 2\n"
        "  give the settings they were made with, or prepare again into another folder"
    )
    assert message(
        lambda: pairs(tmp_path, setting, "data.filtering.max_length=9"), ConfigError
    ).startswith(
        f"data.filtering.max_length: the tokens in {tmp_path}/tokens were made with 256, but now "
        "it is 9\n"
    )


def test_tokens_of_pairs_raise_by_language_models(tmp_path):
    setting = prepared(tmp_path)
    assert message(lambda: text_data(tmp_path, "language-model", setting), ConfigError) == (
        f"data.train.path: {tmp_path}/tokens contains pairs of texts, "
        "but a language-model trains on running text\n"
        "  name other tokens, or choose another model"
    )


def test_tokens_of_other_tokenizers_reported(tmp_path):
    setting = prepared(tmp_path)
    recipe = load_recipe(str(write_recipe(tmp_path)), [setting])
    Run(tmp_path / "run").initialize(recipe, recipe.tokenizers.train(["a b"], ["a b c"]))
    assert message(lambda: pairs(tmp_path, setting), ConfigError) == (
        f"data.train: the tokens in {tmp_path}/tokens were made with other tokenizers than "
        f"{tmp_path}/run has\n"
        "  name another folder with --run, or prepare the tokens with `--tokenizer-from RUN`"
    )


def test_tokens_without_dev_data_reported(tmp_path):
    dev = "data.dev={type: synthetic, name: copy, num_examples: 9}"
    setting = prepared(tmp_path, dev)
    assert len(pairs(tmp_path, setting, dev).dev_examples) == 9
    assert message(lambda: pairs(tmp_path, setting, run="other"), ConfigError) == (
        f"data.dev: {tmp_path}/tokens has no dev data, and the recipe names none\n"
        "  give what was given to `heedful prepare`, such as --dev-source FILE --dev-target FILE"
    )


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("missing", "no such folder; did you mean 'tokens'?"),
        ("empty", "not a folder of tokens"),
        ("other", "not a folder of tokens, or one of another version of heedful"),
    ],
)
def test_other_folders_reported(tmp_path, damage, problem):
    from heedful.storage.manifest import write_manifest

    prepared(tmp_path)
    folder = tmp_path / "token"
    if damage != "missing":
        folder = Path(tmp_path / "other")
        folder.mkdir()
    if damage == "other":
        write_manifest(folder, [], {"format": 1})
    setting = f"data.train={json.dumps({'type': 'prepared', 'path': str(folder)})}"
    assert message(lambda: pairs(tmp_path, setting), DataError) == (
        f"{folder}: {problem}\n  name a folder written by `heedful prepare`"
    )


def test_incomplete_tokens_reported(tmp_path, monkeypatch):
    monkeypatch.setattr("heedful.data.text.dataset_builder.write_shard", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepared(tmp_path)
    setting = f"data.train={json.dumps({'type': 'prepared', 'path': str(tmp_path / 'tokens')})}"
    assert message(lambda: pairs(tmp_path, setting), DataError) == (
        f"{tmp_path}/tokens: the tokens are not complete yet\n"
        "  wait for `heedful prepare`, or run the same command to resume it"
    )


def _interrupted(*args, **kwargs):
    raise KeyboardInterrupt


def test_large_standard_input_raises(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\n" * 20)))
    setting = ["data.train={type: tsv, path: '-'}", "data.max_in_memory_examples=10"]
    assert message(lambda: pairs(tmp_path, *setting), DataError) == (
        "standard input: more than 10 pairs are read twice, but standard "
        "input can be read only once\n"
        "  write it to a file first, or raise data.max_in_memory_examples"
    )
