import json
import shutil

import pytest

from heedful.comparison.budget import read_training_cost
from heedful.storage.json_files import read_json_lines


def write(folder, *entries, rest=""):
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / "metrics.jsonl").write_text(lines + rest)
    return read_training_cost(folder)


def training(step, **facts):
    return {"type": "training", "step": step, "loss": 1.0, **facts}


def validation(step, **facts):
    return {"type": "validation", "step": step, "loss": 2.0, **facts}


def test_cost_of_a_trained_run(runs):
    cost = read_training_cost(runs / "small-0")
    entries = read_json_lines(runs / "small-0" / "metrics.jsonl")
    last = [entry for entry in entries if entry["type"] == "training"][-1]
    assert cost.steps == last["step"] == 30
    assert cost.flops == last["flops"]
    assert cost.seconds == pytest.approx(last["seconds"], abs=0.1)
    assert cost.peak_memory == max(entry.get("peak_memory", 0) for entry in entries)
    assert [point.step for point in cost.curve] == [15, 30]
    held_out = [entry for entry in entries if entry["type"] == "validation"]
    for point, entry in zip(cost.curve, held_out, strict=True):
        names = {"loss", "accuracy", "bleu", "chrf"}
        assert point.scores == {name: entry[name] for name in names & entry.keys()}
        assert point.seconds == entry["seconds"]
    # FLOPs are logged after 10 and 20 steps: those of 15 are interpolated.
    logged = {entry["step"]: entry["flops"] for entry in entries if "flops" in entry}
    assert cost.curve[0].flops == pytest.approx((logged[10] + logged[20]) / 2)


def test_run_without_logs_has_unknown_cost(tmp_path):
    assert read_training_cost(tmp_path) == (None, None, None, None, [])
    assert write(tmp_path, training(10)) == (10, None, None, None, [])


def test_newest_checkpoint_returns_time_and_flops(runs, tmp_path):
    copy = shutil.copytree(runs / "small-0", tmp_path / "run")
    newest = copy / "checkpoints" / "step-00000030" / "progress.json"
    progress = json.loads(newest.read_text())
    cost = write(copy, training(10, seconds=2.0, flops=1e9))
    assert cost[:3] == (30, progress["seconds"], progress["flops"])
    newest.write_text("half of i")
    assert write(copy, training(40, seconds=2.0, flops=1e9))[:3] == (40, 2.0, 1e9)
    shutil.rmtree(copy / "checkpoints")
    assert write(copy, training(10, seconds=2.0, flops=1e9))[:3] == (10, 2.0, 1e9)


def test_last_logged_values_scaled_to_the_last_step(tmp_path):
    cost = write(
        tmp_path,
        training(10, seconds=2.0, flops=1e9, peak_memory=300),
        training(20, seconds=5.0, flops=2e9, peak_memory=200),
        validation(24, seconds=9.0, accuracy=0.5),
        rest='{"type": "training", "ste',
    )
    assert cost[:4] == (24, 6.0, 2.4e9, 300)
    (point,) = cost.curve
    assert point == (24, 9.0, 2e9, {"loss": 2.0, "accuracy": 0.5})


def test_nonfinite_scores_skipped(tmp_path):
    cost = write(tmp_path, validation(5, accuracy=float("nan"), seconds=1.0))
    assert cost.curve == [(5, 1.0, None, {"loss": 2.0})]
