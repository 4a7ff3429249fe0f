import pytest

import heedful
from heedful.comparison.budget import BUDGET_SETTINGS, Budget, read_training_cost
from heedful.errors import ConfigError
from heedful.experiment import TrainingResult, train
from heedful.recipes import load_recipe
from heedful.runs import Run
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
def test_invalid_budget_is_reported(text):
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


def test_step_budget_overrides_the_limits_of_the_recipe(tmp_path, recipe):
    budget = Budget.parse("25steps")
    with unchecked():
        result = budget.train(recipe, tmp_path / "run", train)
    assert (result.step, result.stop_reason) == (25, "reached max_steps=25")
    trained = Run(tmp_path / "run").read_recipe()
    assert trained.training.validate_every == 3  # ten times in 25 steps, rounded up
    assert budget.matches_final_segment(trained)
    assert budget.matches_either_segment(trained)
    assert not Budget.parse("26steps").matches_either_segment(trained)
    assert not Budget.parse("1m").matches_either_segment(trained)
    same = {*type(trained.training).model_fields} - {*BUDGET_SETTINGS}
    assert all(getattr(trained.training, name) == getattr(recipe.training, name) for name in same)


def test_first_segment_determines_the_number_of_steps(tmp_path, recipe):
    """With FLOPs, which do not depend on the machine."""
    with unchecked():
        Budget.parse("20steps").train(recipe, tmp_path / "probe", train)
        step_flops = _flops(tmp_path / "probe") / 20
        budget = Budget.parse(f"{30 * step_flops}flops")
        segments = []

        def watched(limited, folder):
            result = train(limited, folder)
            segments.append((limited.training.max_steps, result.step))
            return result

        result = budget.train(recipe, tmp_path / "run", watched)
    (_, first), (steps, last) = segments
    assert steps == 10 * first
    assert last == result.step <= steps
    assert 0.7 * 30 <= last <= 1.3 * 30
    trained = Run(tmp_path / "run").read_recipe()
    assert budget.matches_final_segment(trained)
    assert budget.matches_either_segment(trained)
    assert trained.training.max_flops == budget.max_value
    # The learning rate falls linearly to zero at the last step.
    assert trained.training.lr_scheduler.lr_factor(last, steps) <= 0.4
    assert budget.train(recipe, tmp_path / "run", train) == result, "it was over"
    assert heedful.load(tmp_path / "run")


def test_time_budget_ends_by_time_or_estimated_steps(tmp_path, recipe):
    with unchecked():
        result = Budget.parse("1s").train(recipe, tmp_path / "run", train)
    training = Run(tmp_path / "run").read_recipe().training
    assert training.max_minutes == pytest.approx(1 / 60)
    assert result.seconds >= 1 or result.step == training.max_steps


def test_interrupted_first_segment_is_resumed(tmp_path, recipe):
    budget, limits = Budget.parse("1e12flops"), []

    def interrupted(limited, folder):
        limits.append(limited.training.max_flops)
        Run(folder).initialize(limited, recipe.tokenizers.train(["a b"], ["a b"]))
        return TrainingResult(step=3, stop_reason="", best_score=1.0, seconds=1.0)

    for _ in range(2):
        assert not budget.train(recipe, tmp_path / "run", interrupted).stop_reason
    assert limits == [pytest.approx(1e11)] * 2
    assert budget.matches_either_segment(Run(tmp_path / "run").read_recipe())
    assert not budget.matches_final_segment(Run(tmp_path / "run").read_recipe())


def _flops(run):
    return read_training_cost(run).flops
