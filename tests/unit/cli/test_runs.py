"""`heedful runs`: what it lists, from the files that training writes."""

import json
import re
import shutil

import pytest

from heedful.storage.atomic import lock_folder
from tests.commands import heedful


@pytest.fixture
def listed(capsys, monkeypatch):
    """Return a function that runs the command and returns its rows by run."""

    def call(folder):
        ended = heedful(capsys, monkeypatch, "runs", folder, "--json")
        assert ended.code == 0, ended.err
        return {row["run"]: row for row in json.loads(ended.out)}

    return call


def test_finished_run_has_recipe_step_score_state_and_date(listed, capsys, monkeypatch, copied):
    (row,) = listed(copied.parent).values()
    lines = map(json.loads, (copied / "metrics.jsonl").read_text().splitlines())
    losses = [line["loss"] for line in lines if line["type"] == "validation"]
    assert row["run"] == str(copied)
    assert (row["recipe"], row["step"]) == ("letters", 250)
    assert (row["metric"], row["best_score"]) == ("loss", min(losses))
    assert row["state"] == "reached max_steps=250"
    header, line = heedful(capsys, monkeypatch, "runs", copied.parent).out.splitlines()
    assert re.split(" {2,}", header) == [
        *("run", "recipe", "trained", "best dev score", "state", "last change")
    ]
    assert line.startswith(f"{copied}  letters  250 steps  loss {min(losses):.4g}")
    assert line.endswith(row["date"])


def test_states_of_runs(listed, copied):
    folder = copied.parent
    paths = {name: folder / "more" / name for name in ("interrupted", "started", "damaged")}
    for path in paths.values():
        shutil.copytree(copied, path)
    for progress in paths["interrupted"].glob("checkpoints/*/progress.json"):
        progress.write_text(json.dumps({**json.loads(progress.read_text()), "stop_reason": ""}))
    for name in ("checkpoints", "manifest.json", "metrics.jsonl"):
        path = paths["started"] / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (paths["damaged"] / "config.yaml").write_text("{")
    rows = listed(folder)
    assert rows.keys() == {str(copied), *map(str, paths.values())}
    assert rows[str(paths["interrupted"])]["state"] == "interrupted"
    started = rows[str(paths["started"])]
    assert (started["state"], started["step"], started["best_score"]) == ("no checkpoint", 0, None)
    assert rows[str(paths["damaged"])]["recipe"] == ""
    with lock_folder(copied):
        assert listed(folder)[str(copied)]["state"] == "training"
    assert listed(copied)[str(copied)]["state"] == "reached max_steps=250"


@pytest.mark.parametrize(
    ("metric", "best", "shown"),
    [("bleu", 6, "bleu 6"), ("macro-f1", 0.6, "macro-f1 60.0%"), ("mase", 0.1, "mase 0.1")],
)
def test_best_score_has_the_direction_and_unit_of_the_metric(
    listed, capsys, monkeypatch, copied, metric, best, shown
):
    """Metrics of every task, not of texts only."""
    config = copied / "config.yaml"
    previous, new = (f"metric_for_best_model: {name}" for name in ("loss", metric))
    config.write_text(config.read_text().replace(previous, new))
    scores = [step * 3 % 7 if metric == "bleu" else step * 3 % 7 / 10 for step in range(1, 7)]
    entries = [
        {"type": "validation", "step": step, metric: score} for step, score in enumerate(scores, 1)
    ]
    (copied / "metrics.jsonl").write_text("".join(f"{json.dumps(entry)}\n" for entry in entries))
    row = listed(copied)[str(copied)]
    assert (row["metric"], row["best_score"]) == (metric, best)
    assert f"  {shown}  " in heedful(capsys, monkeypatch, "runs", copied).out


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_folder_without_runs_raises(capsys, monkeypatch, tmp_path, name):
    (tmp_path / "empty").mkdir()
    ended = heedful(capsys, monkeypatch, "runs", tmp_path / name)
    assert ended.code == 2
    what = "no such folder" if name == "missing" else "there are no runs here"
    assert ended.err.startswith(f"heedful: {tmp_path / name}: {what}\n  name a folder")
