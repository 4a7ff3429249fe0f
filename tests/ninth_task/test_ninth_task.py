"""A task of another package works in every command: nothing in heedful knows it."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.wide

HERE = Path(__file__).parent
ENTRY_POINT = "[heedful.tasks]\nrating = rating\n"
VALUES = {"awful": -2, "bad": -1, "good": 1, "great": 2}
COMMANDS = """
import json, sys, traceback
from typer.testing import CliRunner
from heedful.cli.main import app

answers = sys.stdout
for line in sys.stdin:
    ended = CliRunner().invoke(app, json.loads(line))
    trace = "".join(traceback.format_exception(ended.exception)) if ended.exception else ""
    print(json.dumps([ended.exit_code, ended.output + trace]), file=answers, flush=True)
"""
FROM_PYTHON = """
import heedful
from heedful.errors import ArgumentError
from heedful.tasks.registry import register

register("rating", "rating")
data = {"rated": "data/train.tsv"}
heedful.train("RECIPE", "from-python", data=data, steps=20, device="cpu")
rater = heedful.load("from-python", task="rating")
print(len(list(rater.predict(["a great film"]))))
print(heedful.evaluate("from-python", data="data/test.tsv")[0].name)
try:
    register("too-late", "rating")
except ArgumentError as error:
    print(error)
"""
RECIPE = str(HERE / "rating" / "rater.yaml")


def rated_lines(count, seed):
    chance = random.Random(seed)
    rows = [chance.choices([*VALUES, "the", "film"], k=chance.randint(2, 9)) for _ in range(count)]
    return [f"{sum(VALUES.get(word, 0) for word in row)}\t{' '.join(row)}" for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Rated texts, and a distribution whose entry point is the task."""
    folder = tmp_path_factory.mktemp("ninth")
    info = folder / "installed" / "rating-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rating\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINT)
    (folder / "data").mkdir()
    for seed, (split, count) in enumerate({"train": 400, "dev": 60, "test": 60}.items()):
        lines = rated_lines(count, seed)
        (folder / "data" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    (folder / "texts.txt").write_text("a great great film\nan awful awful film\n")
    return folder


@pytest.fixture(scope="module")
def start(folder):
    """Start a Python program that can import the task."""

    def start_program(program, *, search_path=()):
        paths = [*map(str, search_path), str(HERE), *filter(None, sys.path)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = [sys.executable, "-c", program]
        return subprocess.Popen(command, cwd=folder, env=environment, **pipes)

    return start_program


@pytest.fixture(scope="module")
def heedful(start, folder):
    """Run commands, all in one process that has the task installed; return what they print."""
    with start(COMMANDS, search_path=[folder / "installed"]) as process:

        def call(*words):
            process.stdin.write(json.dumps([*words]) + "\n")
            process.stdin.flush()
            exit_code, printed = json.loads(process.stdout.readline())
            assert exit_code == 0, printed
            return printed

        yield call
        process.stdin.close()


@pytest.fixture(scope="module")
def run(heedful):
    """A run that learned to rate."""
    words = "--rated", "data/train.tsv", "--dev-rated", "data/dev.tsv"
    printed = heedful("train", RECIPE, *words, "--run", "run", "--device", "cpu")
    assert "rate run FILE" in printed
    return "run"


def close_ratings(printed):
    return float(printed.split("close")[1].split()[0])


def test_help_lists_the_command_and_the_data(heedful):
    printed = heedful("--help")
    assert "Rate texts" in printed
    assert "rated texts" in printed
    assert "--rated FILE" in printed


def test_run_is_resumed(heedful, run):
    words = "--rated", "data/train.tsv", "--dev-rated", "data/dev.tsv", "--run", run
    printed = heedful("train", RECIPE, *words, "--steps", "65", "--device", "cpu")
    assert "resuming from step 60" in printed


def test_own_command_predicts(heedful, run):
    best, worst = map(float, heedful("rate", run, "texts.txt").splitlines())
    assert best > 1 > -1 > worst


def test_evaluate_has_intervals(heedful, run):
    printed = heedful("evaluate", run, "--rated", "data/test.tsv", "--confidence")
    assert close_ratings(printed) > 80
    assert "[" in printed.split("close")[1]


def test_evaluate_reads_the_file_named_first(heedful, run):
    printed = heedful("evaluate", run, "data/test.tsv", "--metrics", "close", "--json")
    assert json.loads(printed)[0]["name"] == "close"


def test_show_draws_the_layers(heedful, run):
    heedful("show", run, "a great film", "--layer", "all", "--html", "page.html")


def test_report_shows_the_metric(heedful, folder, run):
    heedful("report", run)
    assert "close" in (folder / run / "report.html").read_text()


def test_compare_scores_runs(heedful, run):
    printed = heedful("compare", run, "--rated", "data/test.tsv")
    assert "close" in printed


@pytest.mark.slow
def test_compare_trains_recipes_on_a_folder(heedful, folder):
    text = Path(RECIPE).read_text()
    (folder / "wide.yaml").write_text(text.replace("hidden_size: 16", "hidden_size: 24"))
    words = "--recipes", f"{RECIPE},wide.yaml", "--data", "data", "--steps", "20"
    printed = heedful("compare", *words, "--device", "cpu")
    assert [line.split()[0] for line in printed.splitlines() if line[:4] in ("rate", "wide")]
    assert (folder / "comparison" / "report.html").is_file()


def test_files_choose_the_default_recipe(heedful):
    printed = heedful("train", "--rated", "data/train.tsv", "--steps", "2", "--device", "cpu")
    assert "rater trains a rater" in printed


@pytest.mark.slow
def test_batch_size_is_found(heedful):
    words = "--run", "largest", "--steps", "2", "--device", "cpu"
    printed = heedful(
        "train", RECIPE, "--rated", "data/train.tsv", *words, "--auto-find-batch-size"
    )
    assert "auto batch size: training.batching.max_tokens=" in printed


def test_registered_task_is_used_from_python(start):
    printed, _ = start(FROM_PYTHON.replace("RECIPE", RECIPE)).communicate()
    assert printed.splitlines()[:2] == ["1", "close"]
    assert "too-late: rating is registered too late" in printed
