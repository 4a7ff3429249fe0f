import json
import math
import shutil

import pytest

import heedful
from heedful.comparison.budget import BUDGET_SETTINGS, Budget, read_training_cost
from heedful.comparison.results import RunStatistics
from heedful.errors import ConfigError
from heedful.experiment import train
from heedful.recipes import load_recipe
from heedful.storage.json_files import read_json_lines
from tests.commands import write_recipe
from tests.shape_checking import unchecked

pytestmark = pytest.mark.wide


@pytest.mark.parametrize(
    ("text", "words", "limit", "max_value"),
    [
        ("90s", "90 seconds", "max_minutes", 1.5),
        ("2m", "2 minutes", "max_minutes", 2.0),
        (" 1H ", "1 hour", "max_minutes", 60.0),
        ("0.5m", "0.5 minutes", "max_minutes", 0.5),
        ("500 steps", "500 steps", "max_steps", 500),
        ("1steps", "1 step", "max_steps", 1),
        ("1e15flops", "1e+15 FLOPs", "max_flops", 1e15),
    ],
)
def test_budget_is_parsed(text, words, limit, max_value):
    assert Budget.parse(text) == (words, limit, pytest.approx(max_value))


@pytest.mark.parametrize("text", ["", "2", "m", "-2m", "0s", "1.5steps", "2 weeks", "1e999flops"])
def test_invalid_budget_raises(text):
    with pytest.raises(ConfigError) as caught:
        Budget.parse(text)
    assert str(caught.value) == (
        f"--budget {text}: not an amount of training\n"
        "  write it as 90s, 2m, 1h, 500steps or 1e15flops"
    )


def test_only_a_time_budget_has_seconds():
    assert Budget.parse("2m").seconds == 120
    assert Budget.parse("2steps").seconds is None


@pytest.fixture
def recipe(tmp_path):
    changes = ["training.max_epochs=1", "training.patience=1", "training.max_minutes=0.001"]
    return load_recipe(str(write_recipe(tmp_path)), changes)


@pytest.mark.parametrize("text", ["25steps", "2m", "1e12flops"])
def test_budget_replaces_all_limits_of_the_recipe(recipe, text):
    budget = Budget.parse(text)
    training = budget.applied_to(recipe).training
    assert getattr(training, budget.limit) == budget.max_value
    others = {"max_epochs", "max_minutes", "max_flops", "patience", "validate_every"}
    assert {getattr(training, name) for name in others - {budget.limit}} == {None}
    assert budget.limit == "max_steps" or training.max_steps >= 10**9
    same = {*type(training).model_fields} - {*BUDGET_SETTINGS}
    assert all(getattr(training, name) == getattr(recipe.training, name) for name in same)


@pytest.mark.wide
def test_learning_rate_falls_to_zero_at_the_end_of_a_flops_budget(tmp_path, recipe):
    """FLOPs do not depend on the machine."""
    with unchecked():
        train(Budget.parse("20steps").applied_to(recipe), tmp_path / "probe")
        step_flops = _flops(tmp_path / "probe") / 20
        budget = Budget.parse(f"{40 * step_flops}flops")
        result = train(budget.applied_to(recipe), tmp_path / "run")
    assert 0.7 * 40 <= result.step <= 1.3 * 40
    lines = read_json_lines(tmp_path / "run" / "metrics.jsonl")
    rates = [line["learning_rate"] for line in lines if line["type"] == "training"]
    assert rates[-1] < 0.1 * max(rates)
    assert len([line for line in lines if line["type"] == "validation"]) == 10
    assert heedful.load(tmp_path / "run")


@pytest.mark.wide
def test_time_budget_ends_by_time_and_validates_ten_times(tmp_path, recipe):
    with unchecked():
        result = train(Budget.parse("2s").applied_to(recipe), tmp_path / "run")
    assert result.seconds >= 2
    lines = read_json_lines(tmp_path / "run" / "metrics.jsonl")
    assert 1 < len([line for line in lines if line["type"] == "validation"]) <= 10


def _flops(run):
    return read_training_cost(run).flops


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


def test_statistics_of_several_runs():
    # (1 + 2 + 6) / 3; squares 4, 1, 9 over one less than three.
    assert RunStatistics.from_values([1.0, 2.0, 6.0]) == (3.0, pytest.approx(math.sqrt(7)))


def test_single_run_has_no_standard_deviation():
    assert RunStatistics.from_values([5.0]) == (5.0, None)


def test_infinite_score_has_no_standard_deviation():
    assert RunStatistics.from_values([math.inf, 1.0]) == (math.inf, None)
