import pytest

from heedful.comparison.budget import METRICS_FILE, Budget
from heedful.comparison.test_sets import ParallelEvaluationSet
from heedful.comparison.training import (
    NothingTrainedError,
    RunResult,
    group_plans,
    plan_runs,
    run_comparison,
    train_in_process,
)
from heedful.errors import ConfigError, RunError
from heedful.evaluation.registry import get_metrics
from tests.commands import write_recipe
from tests.shape_checking import unchecked

pytestmark = pytest.mark.wide

EVALUATION_SET = ParallelEvaluationSet(
    "letters", ["a b", "c"], [("a b",), ("c",)], get_metrics(["exact-match"])
)
BUDGET = Budget.parse("2steps")


@pytest.fixture
def recipes(tmp_path):
    """Recipes of two systems, and of one that cannot be built."""
    text = write_recipe(tmp_path / "data").read_text()
    texts = {
        "one": text,
        "two": text.replace("bilinear", "additive"),
        "bad": text.replace("bilinear", "dot").replace("hidden_size: 32", "hidden_size: 16", 1),
    }
    for name, each in texts.items():
        (tmp_path / f"{name}.yaml").write_text(each)
    return lambda *names: [str(tmp_path / f"{name}.yaml") for name in names]


@pytest.fixture
def run(recipes, tmp_path):
    data = str(tmp_path / "data" / "letters.yaml")

    def call(*names, seeds=1, budget=BUDGET, **options):
        plans = plan_runs(recipes(*names), data, seeds=seeds, folder=tmp_path / "out")
        with unchecked():
            return run_comparison(
                plans,
                budget,
                EVALUATION_SET,
                command="again",
                log_message=lambda line: None,
                train_run=train_in_process,
                device="cpu",
                **options,
            )

    return call


@pytest.mark.wide
def test_recipes_trained_and_compared(run):
    comparison = run("one", "two", seeds=2, baseline="two")
    assert [system.name for system in comparison.systems] == ["one", "two"]
    assert [len(system.runs) for system in comparison.systems] == [2, 2]
    assert {system.cost.steps for system in comparison.systems} == {(2, 0)}
    assert (comparison.budget, comparison.baseline, comparison.failures) == ("2 steps", "two", [])


def test_failed_run_is_listed_and_the_others_compared(run, tmp_path):
    comparison = run("bad", "one", baseline="bad")
    assert [system.name for system in comparison.systems] == ["one"]
    assert comparison.baseline == "one"
    assert [(each.name, each.run) for each in comparison.failures] == [
        ("bad", str(tmp_path / "out" / "runs" / "bad-0"))
    ]


def test_same_command_trains_missing_runs_only(run, tmp_path):
    run("one")
    before = (tmp_path / "out" / "runs" / "one-0" / METRICS_FILE).read_bytes()
    comparison = run("one", "two", seeds=1)
    assert [system.name for system in comparison.systems] == ["one", "two"]
    assert (tmp_path / "out" / "runs" / "one-0" / METRICS_FILE).read_bytes() == before


def test_changed_recipe_raises_before_training(run, tmp_path):
    run("one")
    changed = tmp_path / "one.yaml"
    changed.write_text(changed.read_text().replace("bilinear", "additive"))
    with pytest.raises(RunError) as caught:
        run("two", "one")
    assert caught.value.location == str(tmp_path / "out" / "runs" / "one-0")
    assert "model.decoder.attention.score.type=bilinear, but now it is additive" in str(
        caught.value
    )
    assert not (tmp_path / "out" / "runs" / "two-0").exists()


def test_changed_budget_raises_before_training(run):
    run("one")
    with pytest.raises(RunError, match="another budget"):
        run("one", budget=Budget.parse("3steps"))


def test_comparison_without_trained_run_raises(run, tmp_path):
    with pytest.raises(NothingTrainedError) as caught:
        run("bad")
    assert caught.value.exit_code == 1
    assert str(caught.value) == (
        f"{tmp_path}/out/runs/bad-0: every training failed; bad: score.type: 'dot' "
        "needs equal sizes, but queries have 32 and keys 16\n  fix the error, and try again"
    )


def test_unknown_baseline_raises_before_training(run, tmp_path):
    with pytest.raises(ConfigError, match="no system is called 'three'"):
        run("one", baseline="three")
    assert not (tmp_path / "out").exists()


def test_interrupted_comparison_is_none(recipes, tmp_path):
    plans = plan_runs(recipes("one"), str(tmp_path / "one.yaml"), seeds=1, folder=tmp_path / "out")
    comparison = run_comparison(
        plans,
        BUDGET,
        EVALUATION_SET,
        command="again",
        log_message=lambda line: None,
        train_run=lambda planned, budget, device: RunResult(False),
    )
    assert comparison is None


def test_seeds_of_a_recipe_form_one_system(recipes, tmp_path):
    plans = plan_runs(recipes("one", "two"), str(tmp_path / "one.yaml"), seeds=2, folder=tmp_path)
    assert [
        (name, [run.name for run in folders]) for name, _, folders, _ in group_plans(plans)
    ] == [
        ("one", ["one-0", "one-1"]),
        ("two", ["two-0", "two-1"]),
    ]
