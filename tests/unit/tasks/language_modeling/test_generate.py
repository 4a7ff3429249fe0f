"""`heedful generate`, and training and evaluation of language models on the command line."""

import json
import shutil

import pytest

import heedful as library
from tests.commands import heedful
from tests.language_modeling import write_text_recipe


@pytest.fixture
def call(capsys, monkeypatch):
    def run(*arguments, stdin=""):
        return heedful(capsys, monkeypatch, *arguments, stdin=stdin)

    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A barely trained run of each type of language model."""
    folders = {}
    for model_type in ("language-model", "masked-language-model"):
        folder = tmp_path_factory.mktemp(model_type)
        recipe = write_text_recipe(folder, model_type, steps=4, every=2)
        library.train(str(recipe), folder / "run")
        folders[model_type] = folder / "run"
    return folders


@pytest.fixture
def run(runs):
    return runs["language-model"]


def test_text_starts_with_the_prompt_and_has_max_new_tokens(call, run):
    result = call("generate", run, "abcd", "--max-new-tokens", 50)
    assert result.code == 0
    assert result.out.startswith("abcd")
    assert len(result.out) == 4 + 50 + 1


def test_text_without_prompt_starts_on_a_new_line(call, run):
    assert len(call("generate", run, "--max-new-tokens", 9).out) == 10


def test_text_depends_on_the_seed(call, run):
    first, second = (call("generate", run, "ab", "--seed", 1).out for _ in range(2))
    assert first == second
    assert call("generate", run, "ab", "--seed", 2).out != first


def test_samples_separated_by_a_line(call, run):
    single = call("generate", run, "ab", "--max-new-tokens", 20).out
    several = call("generate", run, "ab", "--max-new-tokens", 20, "--num-samples", 3).out
    texts = several.removesuffix("\n").split("\n----\n")
    assert len(texts) == 3
    assert texts[0] + "\n" == single


def test_samples_written_to_a_file(call, run, tmp_path):
    path = tmp_path / "out.txt"
    result = call("generate", run, "ab", "--num-samples", 2, "-o", path)
    assert (result.out, result.err) == ("", f"wrote {path}\n")
    assert path.read_text() == call("generate", run, "ab", "--num-samples", 2).out


@pytest.mark.parametrize("greedy", [("--temperature", 0), ("--top-k", 1), ("--top-p", 1e-9)])
def test_most_likely_token_is_taken_with_extreme_options(call, run, greedy):
    expected = call("generate", run, "ab", "--temperature", 0).out
    assert call("generate", run, "ab", *greedy, "--seed", 5).out == expected


def test_invalid_top_p_raises(call, run):
    result = call("generate", run, "--top-p", 0)
    assert (result.code, result.err) == (
        2,
        "heedful: top_p: must be above 0 and at most 1, but is 0.0\n  change top_p\n",
    )


def test_training_on_a_file_suggests_generate(call, tmp_path):
    recipe = write_text_recipe(tmp_path, steps=2, every=2)
    shutil.move(tmp_path / "text.txt", tmp_path / "other.txt")
    (tmp_path / "dev.txt").write_text("abcd\n")
    files = "--text", tmp_path / "other.txt", "--dev-text", tmp_path / "dev.txt"
    result = call("train", recipe, *files, "--run", tmp_path / "run")
    assert result.out == (
        f"{tmp_path}/run: reached max_steps=2; try: heedful generate {tmp_path}/run\n"
    )
    assert f"reading {tmp_path}/other.txt\n" in result.err
    assert "vocabulary: 17 tokens\ntrain: 120 lines, 1,200 tokens\n" in result.err
    assert "dev: 1 line, 5 tokens\n" in result.err


def test_unknown_tokens_counted(call, tmp_path):
    recipe = write_text_recipe(tmp_path, steps=2, every=2)
    (tmp_path / "dev.txt").write_text("abxy\n")
    result = call("train", recipe, "--dev-text", tmp_path / "dev.txt", "--run", tmp_path / "run")
    assert "dev: 1 line, 5 tokens, 2 of them unknown\n" in result.err


def test_language_model_is_evaluated_on_a_text(call, run, tmp_path):
    (tmp_path / "test.txt").write_text("abcd efgh\nijkl\n")
    result = call("evaluate", run, tmp_path / "test.txt")
    assert result.code == 0
    title, *lines = result.out.splitlines()
    assert title == f"2 lines of {tmp_path}/test.txt"
    assert [line[:24].strip() for line in lines] == [
        "nats per token",
        "perplexity per token",
        "perplexity per word",
        "perplexity per character",
        "bits per character",
    ]
    assert all(line.endswith("   context:16|stride:half|unknown:0") for line in lines)
    scores = json.loads(call("evaluate", run, tmp_path / "test.txt", "--json").out)
    assert [score["name"] for score in scores] == [line[:24].strip() for line in lines]


def test_masked_language_model_is_evaluated_on_a_text(call, runs, tmp_path):
    (tmp_path / "test.txt").write_text("abcd efgh\nijkl\n")
    result = call("evaluate", runs["masked-language-model"], tmp_path / "test.txt")
    assert [line[:20].strip() for line in result.out.splitlines()[1:]] == [
        "nats per token",
        "perplexity per token",
        "token accuracy",
    ]


USE_GENERATE = "this run is a language model: it continues a text\n  use `heedful generate {run}`"


@pytest.mark.parametrize(
    ("arguments", "task", "message"),
    [
        (["generate"], "pairs", "this run translates\n  use `heedful translate {run} FILE`"),
        (["translate"], "language-model", USE_GENERATE),
        (["show", "--search-tree", "ab"], "language-model", USE_GENERATE),
        (
            ["show", "ab"],
            "language-model",
            "this model has no attention to draw\n  name a run of a model with attention",
        ),
        (
            ["generate"],
            "masked-language-model",
            "this run is a masked language model: it fills masks\n"
            "  use `heedful evaluate {run} FILE`",
        ),
    ],
)
def test_run_of_another_task_raises(call, runs, trained, arguments, task, message):
    run = {**runs, "pairs": trained}[task]
    result = call(arguments[0], run, *arguments[1:])
    assert (result.code, result.out) == (2, "")
    assert result.err == f"heedful: {run}: {message.format(run=run)}\n"


def test_evaluation_files_of_another_task_reported(call, run, trained):
    result = call("evaluate", run, "--source", "a", "--target", "b")
    assert (result.code, result.err) == (
        2,
        "heedful: --source: this run is a language model: it continues a text\n"
        "  give --text FILE\n",
    )
    result = call("evaluate", trained, "a.txt", "--source", "b")
    assert (result.code, result.err) == (
        2,
        "heedful: --source: given together with --pairs\n"
        "  leave out --pairs, or give nothing else\n",
    )
    result = call("evaluate", run)
    assert (result.code, result.err) == (
        2,
        "heedful: data.test: the recipe of the run names no test set\n  give --text FILE\n",
    )
