import json
import shutil

import pytest

from heedful.comparison.budget import read_training_cost
from heedful.inspection.run_report import read_json_lines


def write(folder, *entries, rest=""):
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / "metrics.jsonl").write_text(lines + rest)
    return read_training_cost(folder)


def training(step, **facts):
    return {"kind": "training", "step": step, "loss": 1.0, **facts}


def validation(step, **facts):
    return {"kind": "validation", "step": step, "loss": 2.0, **facts}


def test_a_real_run_has_told_everything(runs):
    training_costs = read_training_cost(runs / "small-0")
    entries = read_json_lines(runs / "small-0" / "metrics.jsonl")
    last = [entry for entry in entries if entry["kind"] == "training"][-1]
    assert training_costs.steps == last["step"] == 30
    assert training_costs.flops == last["operations"]
    assert training_costs.seconds == pytest.approx(last["seconds"], abs=0.1)
    assert training_costs.peak_memory == max(entry.get("memory", 0) for entry in entries)
    assert [point.step for point in training_costs.curve] == [15, 30]
    held_out = [entry for entry in entries if entry["kind"] == "validation"]
    for point, entry in zip(training_costs.curve, held_out, strict=True):
        assert point.scores == {"loss": entry["loss"], "accuracy": entry["accuracy"]}
        assert point.seconds == entry["seconds"]
    # Operations are told after 10 and 20 steps: 15 lie between.
    told = {each["step"]: each["operations"] for each in entries if "operations" in each}
    assert training_costs.curve[0].flops == pytest.approx((told[10] + told[20]) / 2)


def test_a_run_that_has_told_nothing_is_no_failure(tmp_path):
    assert read_training_cost(tmp_path) == (None, None, None, None, [])
    assert write(tmp_path, training(10)) == (10, None, None, None, [])


def test_a_checkpoint_knows_how_far_the_run_came(runs, tmp_path):
    copy = shutil.copytree(runs / "small-0", tmp_path / "run")
    newest = copy / "checkpoints" / "step-00000030" / "progress.json"
    progress = json.loads(newest.read_text())
    training_costs = write(copy, training(10, seconds=2.0, operations=1e9))
    assert training_costs[:3] == (30, progress["seconds"], progress["operations"])
    newest.write_text("half of i")
    assert write(copy, training(40, seconds=2.0, operations=1e9))[:3] == (40, 2.0, 1e9)
    shutil.rmtree(copy / "checkpoints")
    assert write(copy, training(10, seconds=2.0, operations=1e9))[:3] == (10, 2.0, 1e9)


def test_what_is_told_of_the_last_lines_is_carried_on_to_the_last_step(tmp_path):
    training_costs = write(
        tmp_path,
        training(10, seconds=2.0, operations=1e9, memory=300),
        training(20, seconds=5.0, operations=2e9, memory=200),
        validation(24, seconds=9.0, accuracy=0.5),
        rest='{"kind": "training", "ste',
    )
    assert training_costs[:4] == (24, 6.0, 2.4e9, 300)
    (point,) = training_costs.curve
    assert point == (24, 9.0, 2e9, {"loss": 2.0, "accuracy": 0.5})


def test_scores_that_are_no_numbers_are_left_out(tmp_path):
    training_costs = write(tmp_path, validation(5, accuracy=float("nan"), seconds=1.0))
    assert training_costs.curve == [(5, 1.0, None, {"loss": 2.0})]
