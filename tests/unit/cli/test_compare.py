import csv
import io
import json
import re
import shutil

import pytest
from rich.console import Console

from heedful.cli.compare import WIDTH, print_table
from heedful.comparison.budget import Budget
from heedful.comparison.results import Failure
from heedful.comparison.tables import make_columns
from heedful.comparison.training import plan_runs
from heedful.evaluation.registry import ALL_METRICS, METRICS
from heedful.evaluation.score_table import score_outputs
from heedful.experiment import train
from heedful.recipes import load_recipe
from heedful.runs import Run, load
from tests.commands import LETTERS, heedful, write_recipe
from tests.language_modeling import LINES, write_text_recipe
from tests.shape_checking import unchecked
from tests.unit.comparison.format_examples import comparison, cost, score, system

FILES = ["comparison.json", "report.html", "table.csv", "table.md", "table.tex"]


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words: heedful(capsys, monkeypatch, "compare", *words, "--device", "cpu")


@pytest.fixture
def message_of(call):
    """Return a function that runs a command that fails and returns its message."""

    def error_message(*words):
        ended = call(*words)
        assert (ended.code, ended.out) == (2, "")
        return ended.err.removeprefix("heedful: ").removesuffix("\n")

    return error_message


@pytest.fixture
def test_set(tmp_path):
    """Letters to copy, with an error in the references."""
    (tmp_path / "src").write_text("a b\nc\nd e f g\n")
    (tmp_path / "tgt").write_text("a b\nc\nd e f h\n")
    return "--source", "src", "--target", "tgt"


@pytest.fixture
def other(trained, tmp_path):
    """A copy of the trained run."""
    return shutil.copytree(trained, tmp_path / "other")


def test_compare_prints_a_table_and_writes_files(call, trained, other, test_set, tmp_path):
    ended = call(trained, other, *test_set)
    assert ended.code == 0
    lines = ended.out.splitlines()
    assert lines[0].split()[:4] == ["system", "BLEU", "chrF", "exact"]
    for line, name in zip(lines[2:4], ("run", "other"), strict=True):
        assert (line.split()[0], line.split()[3]) == (name, "66.67")
    assert "tested on 3 pairs of src and tgt" in lines
    assert max(map(len, lines)) <= 100
    assert sorted(path.name for path in (tmp_path / "comparison").iterdir()) == FILES
    assert ended.err.splitlines()[-1] == (
        "comparison: comparison.json, table.csv, table.md, table.tex, report.html"
    )


def test_json_scores_equal_those_of_evaluation(call, trained, other, test_set, tmp_path):
    options = "--metrics", "chrf,exact-match", "--beam", "1", "--output-dir", "there"
    report = json.loads(call(trained, other, *test_set, *options, "--json").out)
    assert report == json.loads((tmp_path / "there" / "comparison.json").read_text())
    sources = ["a b", "c", "d e f g"]
    outputs = [result.text for result in load(trained).translate(sources, beam_size=1)]
    references = [("a b",), ("c",), ("d e f h",)]
    for index, name in enumerate(("chrf", "exact-match")):
        expected = score_outputs(METRICS[name], outputs, references, baseline=outputs)
        first, second = (system["scores"][index] for system in report["systems"])
        assert first["score"] == expected.score._asdict()
        assert (
            second["difference"] == expected.difference._asdict() == {"value": 0.0, "p_value": 1.0}
        )
    assert report["command"].startswith("heedful compare ")
    rows = list(csv.DictReader((tmp_path / "there" / "table.csv").open()))
    assert [float(row["chrF"]) for row in rows] == [
        system["scores"][0]["stats"]["mean"] for system in report["systems"]
    ]


def test_compare_has_every_metric_of_evaluate(call, trained, other, tmp_path, capsys, monkeypatch):
    for name, text in {"src": "a b\nc\n", "tgt": "a b\nc\n", "gold": "0-0 1-1\n0-0\n"}.items():
        (tmp_path / name).write_text(text)
    options = "--source", "src", "--target", "tgt", "--gold-alignments", "gold", "--json"
    names = [name for name in ALL_METRICS if not name.startswith("span-")]  # texts are no tags
    options += "--metrics", ",".join(names)
    ended = call(trained, other, *options)
    assert ended.code == 0, ended.err
    report = json.loads(ended.out)
    command = "evaluate", trained, *options, "--device", "cpu"
    expected = json.loads(heedful(capsys, monkeypatch, *command).out)
    for row in report["systems"]:
        actual = [
            (entry["score"]["name"], entry["score"]["signature"], entry["stats"]["mean"])
            for entry in row["scores"]
        ]
        assert actual == [(entry["name"], entry["signature"], entry["value"]) for entry in expected]


@pytest.mark.wide
def test_trained_plan_is_compared_without_training(call, tmp_path):
    recipe = str(write_recipe(tmp_path / "data"))
    (tmp_path / "src").write_text("\n".join(LETTERS) + "\n")
    for _, planned, folder in plan_runs([recipe], recipe, seeds=2, folder=tmp_path / "comparison"):
        with unchecked():
            train(Budget.parse("2steps").applied_to(planned), folder)
    ended = call(
        *("--data", recipe, "--recipes", recipe, "--budget", "2steps", "--num-seeds", "2"),
        *("--source", "src", "--target", "src"),
    )
    assert ended.code == 0
    assert "already trained: 2 of 2 runs" in ended.err
    assert ended.out.splitlines()[2].startswith("letters ")
    assert "budget of each run: 2 steps" in ended.out
    assert "means +- standard deviations of 2 runs" in ended.out


def test_missing_runs_reported(message_of):
    assert message_of() == (
        "RUN: there is nothing to compare\n"
        "  name runs, or train them: --data D --recipes A,B --budget 2m"
    )


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["--num-seeds", "2"], "--num-seeds"),
        (["--recipes", "default"], "--recipes"),
        (["--set", "a=b"], "--set"),
    ],
)
def test_training_options_with_runs_are_an_error(message_of, words, given):
    assert message_of("run", *words) == (
        f"{given}: given together with trained runs\n  leave out the option or the runs"
    )


@pytest.mark.parametrize(
    ("words", "given", "missing"),
    [
        (["--recipes", "default"], "--recipes", "--data"),
        (["--data", "latin"], "--data", "--recipes"),
        (["--data", "latin", "--recipes", "default"], "--recipes", "--budget"),
        (["--num-seeds", "2"], "--num-seeds", "--recipes"),
    ],
)
def test_incomplete_training_options_reported(message_of, words, given, missing):
    assert message_of(*words) == (
        f"{given}: given without {missing}\n"
        "  to train: --data D --recipes A,B --budget 2m; to compare runs, name them"
    )


def test_missing_test_set_raises(message_of, trained):
    assert message_of(trained) == (
        "run: its recipe names no test set\n  give --source FILE --target FILE"
    )


def copy_with_data(trained, folder, **changes):
    """Copy a run, with other data in its recipe."""
    run = Run(shutil.copytree(trained, folder))
    settings = run.read_recipe()
    data = type(settings.data).model_validate({**settings.data.model_dump(), **changes})
    run.replace_recipe(settings.model_copy(update={"data": data}))


def test_additional_tests_are_columns(call, message_of, trained, tmp_path):
    for name, lines in {"main": "a b\ta b\nc\tc\n", "hard": "a\tb\nc\tc\n"}.items():
        (tmp_path / f"{name}.tsv").write_text(lines)
    test, hard = ({"type": "tsv", "path": f"{name}.tsv"} for name in ("main", "hard"))
    for name in ("one", "two"):
        copy_with_data(trained, tmp_path / name, test=test, additional_tests={"hard words": hard})
    ended = call("one", "two", "--metrics", "exact-match,chrf", "--json")
    report = json.loads(ended.out)
    assert report["test_set"] == "2 pairs of main.tsv; hard words: hard.tsv"
    for row in report["systems"]:
        scores = {score["score"]["name"]: score["stats"]["mean"] for score in row["scores"]}
        assert list(scores) == ["exact match", "chrF", "exact match, hard words"]
        assert (scores["exact match"], scores["exact match, hard words"]) == (100, 50)
    assert "hard words" not in call("one", "--source", "hard.tsv", "--target", "hard.tsv").out
    copy_with_data(trained, tmp_path / "other", test=test)
    assert message_of("one", "other") == (
        "other: its additional tests differ from those of one\n"
        "  give one test set for all: --source FILE --target FILE"
    )


def test_different_test_sets_reported(message_of, trained, tmp_path):
    for name in ("one", "two"):
        copy_with_data(trained, tmp_path / name, test={"type": "tsv", "path": f"{name}.tsv"})
    assert message_of("one", "two") == (
        "two: its test set is two.tsv, but that of one is one.tsv\n"
        "  give one test set for all: --source FILE --target FILE"
    )


def test_unknown_metric_or_baseline_raises(message_of, trained, test_set):
    assert message_of(trained, *test_set, "--metrics", "blue").startswith(
        "--metrics: no metric is called 'blue'; did you mean 'bleu'?\n"
    )
    assert message_of(trained, *test_set, "--baseline", "rum") == (
        "--baseline: no system is called 'rum'; did you mean 'run'?\n  choose from: run"
    )


def test_source_without_target_raises(message_of, trained):
    assert message_of(trained, "--source", "src") == (
        "--source: given without --target\n  add --target FILE with one line per line of --source"
    )


def test_text_for_translation_systems_raises(message_of, trained):
    assert message_of(trained, "--text", "a") == (
        "--text: run translates\n  give --source FILE --target FILE"
    )


class TestLanguageModels:
    """Language models are compared on one text."""

    WORDS = ("--data", "latin", "--recipes", "gpt-tiny", "--budget", "1steps")

    @pytest.mark.parametrize("option", ["--source", "--target"])
    def test_parallel_files_raise(self, message_of, option):
        assert message_of(*self.WORDS, option, "1") == (
            f"{option}: gpt-tiny is a language model: it continues a text\n  give --text FILE"
        )

    @pytest.mark.parametrize("option", ["--metrics", "--beam"])
    def test_options_without_effect_raise(self, message_of, option):
        assert message_of(*self.WORDS, option, "1") == (
            f"{option}: has no effect: gpt-tiny is a language model: it continues a text\n"
            "  leave it out"
        )

    def test_language_models_compared_by_perplexity(self, call, tmp_path):
        recipe = write_text_recipe(tmp_path / "text", steps=2)
        (tmp_path / "test.txt").write_text("\n".join(LINES) + "\n")
        with unchecked():
            train(load_recipe(str(recipe)), tmp_path / "letters")
        ended = call("letters", "--text", "test.txt")
        assert ended.code == 0
        header, _, row, *_ = ended.out.splitlines()
        assert re.split(r"\s{2,}", header)[1:3] == ["perplexity per word", "bits per character"]
        assert row.startswith("letters ")
        assert "tested on 3 lines of test.txt" in ended.out


def test_minutes_and_steps_are_budgets(capsys, monkeypatch, tmp_path):
    words = ["compare", "--data", "latin", "--recipes", "latin-demo", "-o", tmp_path]
    both = heedful(capsys, monkeypatch, *words, "--budget", "2m", "--steps", 3)
    assert both.err == (
        "heedful: --steps: given together with --budget\n  leave out one of the two\n"
    )
    negative = heedful(capsys, monkeypatch, *words, "--minutes", -1)
    assert negative.code == 2
    assert negative.err == heedful(capsys, monkeypatch, *words, "--budget=-1m").err


def shown(compared, *, width=WIDTH, terminal=False):
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=terminal, _environ={"TERM": "xterm"})
    print_table(compared, console, width=width)
    return text.getvalue()


def five(num_metrics):
    names = ["seq2seq-2014-small", "luong-2015-dot-small", "bahdanau-2015-small", "rnn", "convs2s"]
    metrics = ["exact match", "BLEU", "chrF", "TER"][:num_metrics]
    return comparison(
        *(
            system(
                name,
                *(score(20.5 + place, name=each, deviation=1.25, p=0.01) for each in metrics),
                num_runs=3,
            )
            for place, name in enumerate(names)
        )
    )


@pytest.mark.parametrize("num_metrics", [1, 2, 3, 4])
@pytest.mark.parametrize("width", [60, WIDTH, 140])
def test_every_column_is_printed_once_within_the_width(num_metrics, width):
    compared = five(num_metrics)
    tables = shown(compared, width=width).partition("tested on")[0]
    assert max(map(len, tables.splitlines())) <= width
    for column in make_columns(compared):
        assert tables.count(f" {column.name}") == 1
    parts = tables.count("system")
    for each in compared.systems:
        assert tables.count(each.name) == parts


def test_narrow_comparison_is_one_table():
    compared = comparison(system("one", score(20.0)), system("two", score(21.0)))
    assert shown(compared).count("system") == 1


def test_best_score_is_bold_and_marked():
    compared = comparison(system("one", score(20.0)), system("two", score(21.0, p=0.01)))
    text = shown(compared, terminal=True)
    assert "\x1b[1m21.00*\x1b[0m" in text
    assert "\x1b[1m20.00" not in text


def test_names_are_not_markup():
    compared = comparison(
        system("[red]one[/red]", score(20.0), training_costs=cost(flops=None)),
        failures=[Failure("[b]two", "runs/two", "[/b] is no number")],
    )
    text = shown(compared)
    assert "[red]one[/red]" in text
    assert "failed: [b]two (runs/two): [/b] is no number" in text
