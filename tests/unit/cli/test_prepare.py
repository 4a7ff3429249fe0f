"""`heedful prepare`: tokenized once, then trained on."""

import json
import os
import shlex

import pytest

from heedful.runs import Run
from heedful.storage.atomic import lock_folder
from tests.commands import heedful, write_recipe
from tests.language_modeling import write_text_recipe

pytestmark = pytest.mark.wide


@pytest.fixture
def command(capsys, monkeypatch):
    return lambda *words: heedful(capsys, monkeypatch, *words)


def test_prepared_tokens_are_built_once_and_trained_on(command, tmp_path):
    recipe = write_recipe(tmp_path, steps=3, every=3)
    words = ["prepare", recipe, "--output-dir", tmp_path / "tokens", "--shard-size", "250"]
    made = command(*words)
    setting = json.dumps({"type": "prepared", "path": f"{tmp_path}/tokens"})
    assert (made.code, made.out) == (
        0,
        f"{tmp_path}/tokens: 3 shards; try: heedful train {recipe} --set 'data.train={setting}'\n",
    )
    assert "training the tokenizers on 570 of 600 pairs" in made.err
    again = command(*words)
    assert (again.code, again.out, again.err) == (0, made.out, "")
    run = tmp_path / "run"
    trained = command("train", recipe, "--set", f"data.train={setting}", "--run", run)
    assert trained.code == 0, trained.err
    assert "train: 570 of 570 pairs kept" in trained.err
    assert command("translate", run, tmp_path / "source.txt").code == 0


def test_files_replace_the_data_of_the_recipe(command, tmp_path):
    write_recipe(tmp_path)
    files = ["--source", tmp_path / "source.txt", "--target", tmp_path / "target.txt"]
    sizes = ["tokenizers.source.vocab_size=300", "tokenizers.target.vocab_size=300"]
    settings = [word for size in sizes for word in ("--set", size)]
    made = command("prepare", *files, "--output-dir", tmp_path / "tokens", *settings)
    assert made.code == 0, made.err
    assert f"{tmp_path}/tokens: 1 shard; try: heedful train default" in made.out


def test_suggested_command_can_be_run(command, tmp_path, monkeypatch):
    """Also for a recipe that brings data and tokenizers of its own, and with dev files."""
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path)
    (tmp_path / "dev set").write_text("a b\nc d\n")
    files = ["--source", "source.txt", "--target", "target.txt"]
    dev = ["--dev-source", "dev set", "--dev-target", "dev set"]
    settings = ["--set", "tokenizers.source.min_frequency=2", "--set", "training.max_steps=1"]
    for name, more in (("held-out", []), ("with-dev", dev)):
        words = ["prepare", "reverse-tiny", *files, *more, "--output-dir", f"the {name}"]
        made = command(*words, *settings)
        assert made.code == 0, made.err
        program, *advice = shlex.split(made.out.split("; try: ")[1])
        assert program == "heedful"
        trained = command(*advice, "--run", name)
        assert trained.code == 0, trained.err
        assert ("dev: 2 of 2 pairs kept" in trained.err) == bool(more)
        data = Run(name).read_recipe().data
        assert (data.train.type, data.train.path) == ("prepared", f"the {name}")
        assert data.test is None


def test_running_text_is_prepared(command, tmp_path):
    recipe = write_text_recipe(tmp_path, steps=3, every=3)
    assert command("prepare", recipe, "--output-dir", tmp_path / "tokens").code == 0
    setting = json.dumps({"type": "prepared", "path": f"{tmp_path}/tokens"})
    trained = command("train", recipe, "--set", f"data.train={setting}", "--run", tmp_path / "run")
    assert trained.code == 0, trained.err
    assert "train: 114 lines, " in trained.err


def test_tokenizers_of_a_run_reused(command, trained, tmp_path):
    recipe = write_recipe(tmp_path, "xyz")
    made = command(
        "prepare", recipe, "--output-dir", tmp_path / "tokens", "--tokenizer-from", trained
    )
    assert made.code == 0
    assert "learning" not in made.err
    for side in ("source", "target"):
        name = f"tokenizers/{side}/vocabulary.json"
        assert (tmp_path / "tokens" / name).read_text() == (trained / name).read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["default"],
            "data.train: the recipe names no training data\n  give --source FILE --target FILE; "
            "`heedful --help` lists the options for other data",
        ),
        (
            ["default", "--set", "data.train={type: prepared, path: a}"],
            "data.train.type: this data is already tokenized\n"
            "  name the texts that the tokens were made from",
        ),
        (
            ["reverse-tiny", "--tokenizer-from", "nowhere"],
            "--tokenizer-from: there are no tokenizers in nowhere\n"
            "  name a run, or a folder of tokens",
        ),
        (
            ["default", "--source", "a"],
            "--source: given without --target\n"
            "  add --target FILE with one line per line of --source",
        ),
    ],
)
def test_prepare_errors(command, tmp_path, words, message):
    result = command("prepare", *words, "--output-dir", tmp_path / "tokens")
    assert (result.code, result.err) == (2, f"heedful: {message}\n")


def test_locked_folder_raises(command, tmp_path):
    with lock_folder(tmp_path / "tokens"):
        result = command("prepare", write_recipe(tmp_path), "--output-dir", tmp_path / "tokens")
    assert result.code == 2
    assert str(os.getpid()) in result.err
    assert not (tmp_path / "tokens" / "manifest.json").exists()
