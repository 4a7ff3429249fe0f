"""Runs of every task that earlier versions wrote load, predict, evaluate and resume as then."""

import json
import re
import shutil
from itertools import zip_longest
from pathlib import Path

import pytest

from heedful.runs import Run
from heedful.tasks.registry import all_tasks, task_of_model
from tests.commands import heedful

GOLDEN = Path(__file__).parent
RUNS = sorted(path.with_suffix("") for path in GOLDEN.glob("*/*.json"))
NUMBER = re.compile(r"(-?\d+\.\d+(?:e[-+]?\d+)?)")
each_run = pytest.mark.parametrize("golden", RUNS, ids=lambda run: str(run.relative_to(GOLDEN)))


def assert_same_text(text, expected):
    """Compare texts, numbers within a tolerance: processors round differently."""
    versions = re.compile(r"\|version:[\d.]+")
    pieces = [NUMBER.split(versions.sub("", each)) for each in (text, expected)]
    for piece, expected_piece in zip_longest(*pieces, fillvalue=""):
        if NUMBER.fullmatch(expected_piece):
            assert float(piece) == pytest.approx(float(expected_piece), rel=1e-3, abs=2e-4)
        else:
            assert piece == expected_piece


@pytest.fixture
def run(golden, tmp_path, monkeypatch):
    """Return a copy of a golden run."""
    monkeypatch.chdir(GOLDEN / "inputs")
    return shutil.copytree(golden, tmp_path / golden.name)


def test_golden_runs_cover_every_task():
    tasks = {task_of_model(Run(run).read_recipe().model).name for run in RUNS}
    assert tasks == {task.name for task in all_tasks()}


@each_run
def test_golden_run_predicts_and_evaluates_as_when_written(golden, run, capsys, monkeypatch):
    results = json.loads(golden.with_suffix(".json").read_text())
    for result in results["commands"]:
        command = [word.format(run=run) for word in result["command"]]
        ended = heedful(capsys, monkeypatch, *command)
        assert ended.code == 0, ended.err
        assert_same_text(ended.out.replace(str(run), "{run}"), result["output"])


@each_run
@pytest.mark.wide
def test_golden_run_resumes_to_the_same_loss(golden, run, capsys, monkeypatch):
    resumed = json.loads(golden.with_suffix(".json").read_text())["resumed"]
    limit = f"training.max_steps={resumed['max_steps']}"
    ended = heedful(
        capsys, monkeypatch, "train", run / "config.yaml", "--run", run, "--set", limit, "--quiet"
    )
    assert ended.code == 0, ended.err
    log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    losses = [line["loss"] for line in log if line["type"] == "validation"]
    assert losses[-1] == pytest.approx(resumed["loss"], rel=1e-4)
    assert [line["step"] for line in log if line["type"] == "environment"] == [0, 4]
