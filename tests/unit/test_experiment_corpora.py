"""The data of a run: what models of text are shown, and that validation is always the same."""

import io
import json
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from rich.console import Console

from heedful.data.batch_stream import DataCursor
from heedful.errors import ConfigError, DataError
from heedful.experiment import build_prepared_dataset, load_data
from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.tokenization.vocabulary import EOS, PAD
from tests.commands import write_recipe
from tests.language_modeling import LINES, write_text_recipe

START = DataCursor(0, 0)


def corpora(folder, model, *overrides):
    recipe = load_recipe(str(write_text_recipe(folder, model)), overrides)
    return load_data(recipe, Run(folder / "run"), Console(quiet=True))


def same(one, other):
    return torch.equal(one.inputs, other.inputs) and torch.equal(one.targets, other.targets)


def test_the_end_of_the_text_is_held_out(tmp_path):
    found = corpora(tmp_path, "language-model")
    lines = found.tokenizers.target.encode_batch(LINES * 40)
    learned, held_out = lines[:114], lines[114:]
    assert found.train.tolist() == [EOS, *(token for line in learned for token in (*line, EOS))]
    assert found.dev.tolist() == [EOS, *(token for line in held_out for token in (*line, EOS))]


def test_each_token_is_asked_for_the_next(tmp_path):
    batch = next(iter(corpora(tmp_path, "language-model").train_batches(START)))
    assert batch.inputs.shape == (4, 16)
    assert torch.equal(batch.targets[:, :-1], batch.inputs[:, 1:])


def test_some_tokens_are_hidden_and_others_at_every_place_of_training(tmp_path):
    found = corpora(tmp_path, "masked-language-model")
    mask = len(found.tokenizers.target)
    first, second = islice(found.train_batches(START), 2)
    assert (first.inputs == mask).any()
    assert 0 < first.num_targets < first.num_tokens
    assert not torch.equal(first.targets != PAD, second.targets != PAD)
    assert same(next(iter(found.train_batches(DataCursor(0, 1)))), second)


@pytest.mark.parametrize("model", ["language-model", "masked-language-model"])
def test_validation_is_always_the_same(model, tmp_path):
    found = corpora(tmp_path, model)
    torch.rand(5)
    batches = list(found.validation_batches())
    assert batches
    assert all(map(same, batches, found.validation_batches()))


def test_without_a_text_it_is_said_how_to_give_one(tmp_path):
    with pytest.raises(ConfigError) as caught:
        corpora(tmp_path, "language-model", "data.train=null")
    assert str(caught.value) == (
        "data.train: the recipe does not say what to learn from\n  give a file: --text FILE"
    )


# --- data that does not fit into memory ----------------------------------------------------


def pairs(folder, *overrides, run="run", console=None):
    recipe = load_recipe(str(write_recipe(folder)), overrides)
    return load_data(recipe, Run(folder / run), console or Console(quiet=True))


def tensors(batch):
    return [*batch.sources, batch.decoder_inputs, batch.targets]


def assert_same_batches(one, other, count=40):
    streams = (islice(corpora.train_batches(START), count) for corpora in (one, other))
    for some, others in zip(*streams, strict=True):
        assert all(map(torch.equal, tensors(some), tensors(others)))
    for some, others in zip(one.validation_batches(), other.validation_batches(), strict=True):
        assert all(map(torch.equal, tensors(some), tensors(others)))


SEVERAL = "data.train={type: several, parts: [{weight: 1.5, source: %s}, {source: %s}]}"
BUILT_IN = "{type: built-in, name: reverse, size: 150, seed: %d}"


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["data.filtering.max_length=3", "data.filtering.duplicates=drop"],
        ["data.dev={type: synthetic, name: copy, num_examples: 9}"],
        [SEVERAL % (BUILT_IN % 1, BUILT_IN % 2), "data.filtering.duplicates=drop"],
    ],
    ids=["plain", "selected", "with other pairs to validate on", "several"],
)
def test_pairs_that_do_not_fit_into_memory_give_the_same_batches(tmp_path, overrides):
    max_in_memory_examples = pairs(tmp_path, *overrides)
    in_files = pairs(tmp_path, "data.max_in_memory_examples=299", *overrides, run="large")
    again = pairs(tmp_path, "data.max_in_memory_examples=299", *overrides, run="large")
    assert (tmp_path / "large" / "tokens" / "manifest.json").exists()
    assert not (tmp_path / "run" / "tokens").exists()
    assert_same_batches(max_in_memory_examples, in_files)
    assert max_in_memory_examples.dev_pairs == in_files.dev_pairs
    assert in_files.fingerprint == again.fingerprint != max_in_memory_examples.fingerprint


def test_it_is_said_where_tokens_are_kept_and_what_was_left_out(tmp_path):
    console = Console(file=io.StringIO(), width=1000)
    settings = ["data.max_in_memory_examples=599", "data.filtering.max_length=3"]
    pairs(tmp_path, *settings, console=console)
    said = console.file.getvalue().splitlines()
    assert f"more than 599 pairs: their tokens are kept in {tmp_path}/run/tokens" in said
    assert "training the tokenizers on 570 of 600 pairs" in said
    whole = Console(file=io.StringIO(), width=1000)
    pairs(tmp_path, settings[1], run="whole", console=whole)
    left_out = [line for line in said if line.startswith(("train:", "dev:"))]
    assert len(left_out) == 4
    assert set(left_out) <= set(whole.file.getvalue().splitlines())


@pytest.mark.parametrize("model", ["language-model", "masked-language-model"])
def test_a_text_that_does_not_fit_into_memory_gives_the_same_batches(model, tmp_path):
    max_in_memory_examples = corpora(tmp_path, model)
    recipe = load_recipe(
        str(write_text_recipe(tmp_path, model)), ["data.max_in_memory_examples=50"]
    )
    in_files = load_data(recipe, Run(tmp_path / "large"), Console(quiet=True))
    streams = (islice(each.train_batches(START), 60) for each in (max_in_memory_examples, in_files))
    assert all(map(same, *streams))
    assert all(
        map(same, max_in_memory_examples.validation_batches(), in_files.validation_batches())
    )


def test_a_run_begun_with_another_vocabulary_keeps_it(tmp_path):
    recipe = load_recipe(str(write_recipe(tmp_path)), ["data.max_in_memory_examples=100"])
    run = Run(tmp_path / "run")
    run.initialize(recipe, recipe.tokenizers.train(["a b"], ["a b c"]))
    found = load_data(recipe, run, Console(quiet=True))
    assert (len(found.tokenizers.source), len(found.tokenizers.target)) == (4 + 2, 4 + 3)


def prepared(folder, *overrides):
    recipe = load_recipe(str(write_recipe(folder)), overrides)
    build_prepared_dataset(recipe, folder / "tokens", Console(quiet=True), shard_size=100)
    return f"data.train={json.dumps({'type': 'prepared', 'path': str(folder / 'tokens')})}"


def test_tokens_made_before_give_the_same_batches(tmp_path):
    given = prepared(tmp_path)
    (max_in_memory_examples, in_files) = pairs(tmp_path), pairs(tmp_path, given, run="large")
    assert_same_batches(max_in_memory_examples, in_files)
    assert in_files.fingerprint == pairs(tmp_path, given, run="other").fingerprint
    unverified = given.replace('"}', '", "verify": false}')
    assert_same_batches(max_in_memory_examples, pairs(tmp_path, unverified, run="unverified"))


def message(action, kind):
    with pytest.raises(kind) as caught:
        action()
    return str(caught.value)


def test_tokens_cut_in_another_way_are_refused(tmp_path):
    given = prepared(tmp_path)
    assert message(
        lambda: pairs(tmp_path, given, "tokenizers.source.min_frequency=2"), ConfigError
    ) == (
        f"tokenizers.source.min_frequency: the tokens in {tmp_path}/tokens were made with 1, "
        "but now it is 2\n"
        "  give the settings they were made with, or prepare them again into another folder"
    )
    assert message(
        lambda: pairs(tmp_path, given, "data.filtering.max_length=9"), ConfigError
    ).startswith(
        f"data.filtering.max_length: the tokens in {tmp_path}/tokens were made with 256, but now "
        "it is 9\n"
    )


def test_tokens_of_pairs_are_no_running_text(tmp_path):
    given = prepared(tmp_path)
    assert message(lambda: corpora(tmp_path, "language-model", given), ConfigError) == (
        f"data.train.path: {tmp_path}/tokens contains pairs of texts, but a language-model trains on running text\n"
        "  name other tokens, or choose another model"
    )


def test_tokens_of_another_vocabulary_than_that_of_the_run_are_refused(tmp_path):
    given = prepared(tmp_path)
    recipe = load_recipe(str(write_recipe(tmp_path)), [given])
    Run(tmp_path / "run").initialize(recipe, recipe.tokenizers.train(["a b"], ["a b c"]))
    assert message(lambda: pairs(tmp_path, given), ConfigError) == (
        f"data.train: the tokens in {tmp_path}/tokens were cut by other tokenizers than "
        f"{tmp_path}/run has\n"
        "  name another folder with --run, or prepare the tokens with `--tokenizer-from RUN`"
    )


def test_tokens_without_anything_to_validate_on_need_it_given(tmp_path):
    dev = "data.dev={type: synthetic, name: copy, num_examples: 9}"
    given = prepared(tmp_path, dev)
    assert len(pairs(tmp_path, given, dev).dev_pairs) == 9
    assert message(lambda: pairs(tmp_path, given, run="other"), ConfigError) == (
        f"data.dev: {tmp_path}/tokens holds nothing to validate on, and the recipe names nothing\n"
        "  give what was given to `heedful prepare`, such as --dev-source FILE --dev-target FILE"
    )


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("missing", "no such folder; did you mean 'tokens'?"),
        ("empty", "not a folder of tokens"),
        ("other", "not a folder of tokens, or one of another version of heedful"),
    ],
)
def test_other_folders_are_no_tokens(tmp_path, spoil, said):
    from heedful.storage import write_manifest

    prepared(tmp_path)
    folder = tmp_path / "token"
    if spoil != "missing":
        folder = Path(tmp_path / "other")
        folder.mkdir()
    if spoil == "other":
        write_manifest(folder, [], {"format": 1})
    given = f"data.train={json.dumps({'type': 'prepared', 'path': str(folder)})}"
    assert message(lambda: pairs(tmp_path, given), DataError) == (
        f"{folder}: {said}\n  name a folder written by `heedful prepare`"
    )


def test_tokens_that_are_not_all_there_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("heedful.data.dataset_builder.write_shard", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        prepared(tmp_path)
    given = f"data.train={json.dumps({'type': 'prepared', 'path': str(tmp_path / 'tokens')})}"
    assert message(lambda: pairs(tmp_path, given), DataError) == (
        f"{tmp_path}/tokens: the tokens are not complete yet\n"
        "  wait for `heedful prepare`, or run the same command to resume it"
    )


def _interrupted(*given, **named):
    raise KeyboardInterrupt


def test_standard_input_cannot_be_gone_through_twice(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tb\n" * 20)))
    given = ["data.train={type: tsv, path: '-'}", "data.max_in_memory_examples=10"]
    assert message(lambda: pairs(tmp_path, *given), DataError) == (
        "standard input, columns 1 and 2: more than 10 pairs have to be gone through twice, and "
        "standard input can be read only once\n"
        "  write it to a file first, or raise data.max_in_memory_examples"
    )
