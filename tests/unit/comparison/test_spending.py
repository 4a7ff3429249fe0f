import json
import shutil

import pytest

from heedful.comparison.spending import read_spending
from heedful.inspection.run_page import read_lines


def write(folder, *entries, rest=""):
    lines = "".join(json.dumps(entry) + "\n" for entry in entries)
    (folder / "metrics.jsonl").write_text(lines + rest)
    return read_spending(folder)


def training(step, **facts):
    return {"kind": "training", "step": step, "loss": 1.0, **facts}


def validation(step, **facts):
    return {"kind": "validation", "step": step, "loss": 2.0, **facts}


def test_a_real_run_has_told_everything(runs):
    spent = read_spending(runs / "small-0")
    entries = read_lines(runs / "small-0" / "metrics.jsonl")
    last = [entry for entry in entries if entry["kind"] == "training"][-1]
    assert spent.steps == last["step"] == 30
    assert spent.operations == last["operations"]
    assert spent.seconds == pytest.approx(last["seconds"], abs=0.1)
    assert spent.memory == max(entry.get("memory", 0) for entry in entries)
    assert [point.step for point in spent.curve] == [15, 30]
    held_out = [entry for entry in entries if entry["kind"] == "validation"]
    for point, entry in zip(spent.curve, held_out, strict=True):
        assert point.scores == {"loss": entry["loss"], "accuracy": entry["accuracy"]}
        assert point.seconds == entry["seconds"]
    # Operations are told after 10 and 20 steps: 15 lie between.
    told = {each["step"]: each["operations"] for each in entries if "operations" in each}
    assert spent.curve[0].operations == pytest.approx((told[10] + told[20]) / 2)


def test_a_run_that_has_told_nothing_is_no_failure(tmp_path):
    assert read_spending(tmp_path) == (None, None, None, None, [])
    assert write(tmp_path, training(10)) == (10, None, None, None, [])


def test_a_checkpoint_knows_how_far_the_run_came(runs, tmp_path):
    copy = shutil.copytree(runs / "small-0", tmp_path / "run")
    newest = copy / "checkpoints" / "step-00000030" / "progress.json"
    progress = json.loads(newest.read_text())
    spent = write(copy, training(10, seconds=2.0, operations=1e9))
    assert spent[:3] == (30, progress["seconds"], progress["operations"])
    newest.write_text("half of i")
    assert write(copy, training(40, seconds=2.0, operations=1e9))[:3] == (40, 2.0, 1e9)
    shutil.rmtree(copy / "checkpoints")
    assert write(copy, training(10, seconds=2.0, operations=1e9))[:3] == (10, 2.0, 1e9)


def test_what_is_told_of_the_last_lines_is_carried_on_to_the_last_step(tmp_path):
    spent = write(
        tmp_path,
        training(10, seconds=2.0, operations=1e9, memory=300),
        training(20, seconds=5.0, operations=2e9, memory=200),
        validation(24, seconds=9.0, accuracy=0.5),
        rest='{"kind": "training", "ste',
    )
    assert spent[:4] == (24, 6.0, 2.4e9, 300)
    (point,) = spent.curve
    assert point == (24, 9.0, 2e9, {"loss": 2.0, "accuracy": 0.5})


def test_scores_that_are_no_numbers_are_left_out(tmp_path):
    spent = write(tmp_path, validation(5, accuracy=float("nan"), seconds=1.0))
    assert spent.curve == [(5, 1.0, None, {"loss": 2.0})]
