import pytest

import heedful
from heedful.comparison.budget import BUDGET_SETTINGS, Budget, read_training_cost
from heedful.errors import ConfigError
from heedful.experiment import train
from heedful.recipes import load_recipe
from heedful.storage.json_files import read_json_lines
from tests.commands import write_recipe
from tests.shape_checking import unchecked


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


def test_time_budget_ends_by_time_and_validates_ten_times(tmp_path, recipe):
    with unchecked():
        result = train(Budget.parse("2s").applied_to(recipe), tmp_path / "run")
    assert result.seconds >= 2
    lines = read_json_lines(tmp_path / "run" / "metrics.jsonl")
    assert 1 < len([line for line in lines if line["type"] == "validation"]) <= 10


def _flops(run):
    return read_training_cost(run).flops
