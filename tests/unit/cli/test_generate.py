"""From a file of text to a model that goes on from it, on the command line."""

import json
import shutil

import pytest

from tests.commands import heedful
from tests.language_modeling import write_text_recipe


@pytest.fixture
def call(capsys, monkeypatch):
    def run(*words, stdin=""):
        return heedful(capsys, monkeypatch, *words, stdin=stdin)

    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each kind of model of text, barely trained."""
    import heedful as library

    made = {}
    for kind in ("language-model", "masked-language-model"):
        folder = tmp_path_factory.mktemp(kind)
        library.train(str(write_text_recipe(folder, kind, steps=4, every=2)), folder / "run")
        made[kind] = folder / "run"
    return made


@pytest.fixture
def run(runs):
    return runs["language-model"]


def test_a_text_begins_as_it_is_told_and_is_as_long_as_is_said(call, run):
    ended = call("generate", run, "abcd", "--max-new-tokens", 50)
    assert ended.code == 0
    assert ended.out.startswith("abcd")
    assert len(ended.out) == 4 + 50 + 1


def test_without_a_beginning_it_begins_on_a_new_line(call, run):
    assert len(call("generate", run, "--max-new-tokens", 9).out) == 10


def test_the_same_seed_gives_the_same_text_and_another_another(call, run):
    one, again = (call("generate", run, "ab", "--seed", 1).out for _ in range(2))
    assert one == again
    assert call("generate", run, "ab", "--seed", 2).out != one


def test_several_texts_are_parted_by_a_line(call, run):
    one = call("generate", run, "ab", "--max-new-tokens", 20).out
    several = call("generate", run, "ab", "--max-new-tokens", 20, "--num-samples", 3).out
    texts = several.removesuffix("\n").split("\n----\n")
    assert len(texts) == 3
    assert texts[0] + "\n" == one


def test_texts_go_to_a_file(call, run, tmp_path):
    path = tmp_path / "out.txt"
    ended = call("generate", run, "ab", "--num-samples", 2, "-o", path)
    assert (ended.out, ended.err) == ("", f"wrote {path}\n")
    assert path.read_text() == call("generate", run, "ab", "--num-samples", 2).out


@pytest.mark.parametrize("safest", [("--temperature", 0), ("--top-k", 1), ("--top-p", 1e-9)])
def test_the_likeliest_token_can_be_had_in_three_ways(call, run, safest):
    likeliest = call("generate", run, "ab", "--temperature", 0).out
    assert call("generate", run, "ab", *safest, "--seed", 5).out == likeliest


def test_a_share_that_is_none_is_refused(call, run):
    ended = call("generate", run, "--top-p", 0)
    assert (ended.code, ended.err) == (
        2,
        "heedful: top_p: cannot be 0.0\n"
        "  give more than 0 and at most 1, which keeps every token\n",
    )


def test_training_on_a_file_says_how_to_go_on(call, tmp_path):
    recipe = write_text_recipe(tmp_path, steps=2, every=2)
    shutil.move(tmp_path / "text.txt", tmp_path / "other.txt")
    (tmp_path / "dev.txt").write_text("abcd\n")
    files = "--text", tmp_path / "other.txt", "--dev-text", tmp_path / "dev.txt"
    ended = call("train", recipe, *files, "--run", tmp_path / "run")
    assert ended.out == (
        f"{tmp_path}/run: all 2 steps taken; try: heedful generate {tmp_path}/run\n"
    )
    assert f"reading {tmp_path}/other.txt\n" in ended.err
    assert "vocabulary: 17 tokens\ntrain: 120 lines, 1200 tokens\n" in ended.err
    assert "dev: 1 lines, 5 tokens\n" in ended.err


def test_unknown_tokens_are_counted(call, tmp_path):
    recipe = write_text_recipe(tmp_path, steps=2, every=2)
    (tmp_path / "dev.txt").write_text("abxy\n")
    ended = call("train", recipe, "--dev-text", tmp_path / "dev.txt", "--run", tmp_path / "run")
    assert "dev: 1 lines, 5 tokens, 2 of them unknown\n" in ended.err


def test_a_text_is_measured(call, run, tmp_path):
    (tmp_path / "test.txt").write_text("abcd efgh\nijkl\n")
    ended = call("evaluate", run, tmp_path / "test.txt")
    assert ended.code == 0
    title, *lines = ended.out.splitlines()
    assert title == f"2 lines of {tmp_path}/test.txt"
    assert [line[:24].strip() for line in lines] == [
        "nats per token",
        "perplexity per token",
        "perplexity per word",
        "perplexity per character",
        "bits per character",
    ]
    assert all(line.endswith("   context:16|stride:half|unknown:0") for line in lines)
    plain = json.loads(call("evaluate", run, tmp_path / "test.txt", "--json").out)
    assert [metric["name"] for metric in plain] == [line[:24].strip() for line in lines]


def test_a_masked_model_is_measured(call, runs, tmp_path):
    (tmp_path / "test.txt").write_text("abcd efgh\nijkl\n")
    ended = call("evaluate", runs["masked-language-model"], tmp_path / "test.txt")
    assert [line[:20].strip() for line in ended.out.splitlines()[1:]] == [
        "nats per token",
        "perplexity per token",
        "token accuracy",
    ]


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (["generate"], "pairs", "this run was trained on pairs of texts: it translates"),
        (
            ["translate"],
            "language-model",
            "this run is a language model: it goes on from a beginning",
        ),
        (
            ["show", "ab"],
            "language-model",
            "this run is a language model: it goes on from a beginning",
        ),
        (
            ["generate"],
            "masked-language-model",
            "this run is a masked language model: it fills gaps",
        ),
    ],
)
def test_a_run_of_another_kind_is_refused(call, runs, trained, words, kind, message):
    uses = {"pairs": "translate", "language-model": "generate", "masked-language-model": "evaluate"}
    folder = {**runs, "pairs": trained}[kind]
    ended = call(words[0], folder, *words[1:])
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == f"heedful: {folder}: {message}\n  use `heedful {uses[kind]} {folder}`\n"


def test_files_of_another_kind_are_refused(call, run, trained):
    ended = call("evaluate", run, "--source", "a", "--target", "b")
    assert (ended.code, ended.err) == (
        2,
        "heedful: --source, --target: this run is a language model, which is measured on one text\n"
        "  give the file alone: heedful evaluate RUN FILE\n",
    )
    ended = call("evaluate", trained, "a")
    assert (ended.code, ended.err) == (
        2,
        "heedful: FILE: this run translates, and one file does not say what should come out\n"
        "  give two files: --source FILE --target FILE\n",
    )
    ended = call("evaluate", run)
    assert (ended.code, ended.err) == (
        2,
        "heedful: data.test: the run's recipe names no test set\n"
        "  give a file: heedful evaluate RUN FILE\n",
    )
