import csv
import json
import re
import shutil

import pytest

from heedful.comparison.budget import Budget
from heedful.comparison.plan import plan_runs
from heedful.evaluation.registry import METRICS
from heedful.evaluation.score_table import score_outputs
from heedful.experiment import train
from heedful.recipes import load_recipe
from heedful.runs import Run, load_translator
from tests.commands import LETTERS, heedful, write_recipe
from tests.running_text import LINES, write_text_recipe
from tests.shape_checking import unchecked

FILES = ["comparison.json", "report.html", "table.csv", "table.md", "table.tex"]


@pytest.fixture
def call(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    return lambda *words: heedful(capsys, monkeypatch, "compare", *words, "--device", "cpu")


@pytest.fixture
def said(call):
    """What a refusal says, whole."""

    def refused(*words):
        ended = call(*words)
        assert (ended.code, ended.out) == (2, "")
        return ended.err.removeprefix("heedful: ").removesuffix("\n")

    return refused


@pytest.fixture
def test_set(tmp_path):
    """Letters to copy, and a mistake in what should come out."""
    (tmp_path / "src").write_text("a b\nc\nd e f g\n")
    (tmp_path / "tgt").write_text("a b\nc\nd e f h\n")
    return "--source", "src", "--target", "tgt"


@pytest.fixture
def other(trained, tmp_path):
    """The trained run again, under another name."""
    return shutil.copytree(trained, tmp_path / "other")


def test_runs_are_compared_in_one_table_and_in_files(call, trained, other, test_set, tmp_path):
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


def test_json_tells_what_evaluation_finds(call, trained, other, test_set, tmp_path):
    asked = "--metrics", "chrf,exact-match", "--beam", "1", "--output-dir", "there"
    told = json.loads(call(trained, other, *test_set, *asked, "--json").out)
    assert told == json.loads((tmp_path / "there" / "comparison.json").read_text())
    sources = ["a b", "c", "d e f g"]
    outputs = [each.text for each in load_translator(trained).translate(sources, beam_size=1)]
    references = [("a b",), ("c",), ("d e f h",)]
    for place, name in enumerate(("chrf", "exact-match")):
        wanted = score_outputs(METRICS[name], outputs, references, baseline=outputs)
        first, second = (system["max_eval_samples"][place] for system in told["systems"])
        assert first["metric_for_best_model"] == wanted.score._asdict()
        assert second["difference"] == wanted.difference._asdict() == {"value": 0.0, "p": 1.0}
    assert told["command"].startswith("heedful compare ")
    rows = list(csv.DictReader((tmp_path / "there" / "table.csv").open()))
    assert [float(row["chrF"]) for row in rows] == [
        system["max_eval_samples"][0]["over"]["mean"] for system in told["systems"]
    ]


def test_a_plan_that_is_trained_already_is_compared(call, tmp_path):
    """As the same command does when it is given again."""
    recipe = str(write_recipe(tmp_path / "data"))
    (tmp_path / "src").write_text("\n".join(LETTERS) + "\n")
    for _, planned, folder in plan_runs([recipe], recipe, seeds=2, folder=tmp_path / "comparison"):
        with unchecked():
            Budget.parse("2steps").train(planned, folder, train)
    ended = call(
        *("--data", recipe, "--recipes", recipe, "--budget", "2steps", "--num-seeds", "2"),
        *("--source", "src", "--target", "src"),
    )
    assert ended.code == 0
    assert "2 of 2 runs are trained already" in ended.err
    assert ended.out.splitlines()[2].startswith("letters ")
    assert "budget of each run: 2 steps" in ended.out
    assert "means and +- deviations of 2 runs" in ended.out


def test_nothing_to_compare(said):
    assert said() == (
        "RUN: there is nothing to compare\n"
        "  name runs, or what to train: --data D --recipes A,B --budget 2m"
    )


@pytest.mark.parametrize(
    ("words", "given"),
    [
        (["--num-seeds", "2"], "--num-seeds"),
        (["--recipes", "default"], "--recipes"),
        (["--set", "a=b"], "--set"),
    ],
)
def test_training_beside_runs(said, words, given):
    assert said("run", *words) == (
        f"{given}: given beside runs, which are trained already\n  leave out one of the two"
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
def test_half_a_plan(said, words, given, missing):
    assert said(*words) == (
        f"{given}: given without {missing}\n"
        "  to train: --data D --recipes A,B --budget 2m; to compare runs, name them"
    )


def test_runs_without_a_test_set(said, trained):
    assert said(trained) == (
        "run: its recipe names no test set\n  give --source FILE --target FILE"
    )


def test_runs_of_unlike_test_sets(said, trained, tmp_path):
    for name in ("one", "two"):
        run = Run(shutil.copytree(trained, tmp_path / name))
        settings = run.read_recipe()
        test = {"type": "tsv", "path": f"{name}.tsv"}
        data = type(settings.data).model_validate({**settings.data.model_dump(), "test": test})
        run.replace_recipe(settings.model_copy(update={"data": data}))
    assert said("one", "two") == (
        "two: it is tested on two.tsv, columns 1 and 2, but one on one.tsv, columns 1 and 2\n"
        "  give a test set for all: --source FILE --target FILE"
    )


def test_an_unknown_metric_or_baseline(said, trained, test_set):
    assert said(trained, *test_set, "--metrics", "blue").startswith(
        "--metrics: no metric is called 'blue'; did you mean 'bleu'?\n"
    )
    assert said(trained, *test_set, "--baseline", "rum") == (
        "--baseline: no system is called 'rum'; did you mean 'run'?\n  choose from: run"
    )


def test_one_side_of_a_test_set(said, trained):
    assert said(trained, "--source", "src") == (
        "--source, --target: only one of them is given\n  give both files, or neither"
    )


def test_text_for_systems_that_translate(said, trained):
    assert said(trained, "--text", "a") == (
        "--text: these translate, and one file does not say what should come out\n"
        "  give two: --source FILE --target FILE"
    )


class TestLanguageModels:
    """What is asked of them is one text."""

    WORDS = ("--data", "latin", "--recipes", "gpt-tiny", "--budget", "1steps")

    @pytest.mark.parametrize("option", ["--source", "--target", "--metrics", "--beam"])
    def test_options_of_pairs_are_refused(self, said, option):
        assert said(*self.WORDS, option, "1") == (
            f"{option}: these are language models, which are measured on one text\n"
            "  give --text FILE"
        )

    def test_they_are_compared_by_perplexity(self, call, tmp_path):
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
