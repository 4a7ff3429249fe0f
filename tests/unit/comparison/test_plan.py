import shutil

import pytest

from heedful.comparison.budget import Budget
from heedful.comparison.training import PlannedRun, check_unchanged, plan_runs
from heedful.errors import ConfigError, RunError
from heedful.recipes import load_recipe
from heedful.runs import Run

SMALL = ["luong-2015-dot-small", "bahdanau-2015-small"]
BUDGET = Budget.parse("30steps")


def test_plan_has_all_recipes_for_each_seed(tmp_path):
    plans = plan_runs(SMALL, "latin", seeds=2, folder=tmp_path)
    assert [plan.folder.relative_to(tmp_path).as_posix() for plan in plans] == [
        "runs/luong-2015-dot-small-0",
        "runs/bahdanau-2015-small-0",
        "runs/luong-2015-dot-small-1",
        "runs/bahdanau-2015-small-1",
    ]
    assert [plan.recipe.training.seed for plan in plans] == [0, 0, 1, 1]
    assert {plan.recipe.data.test.num_examples for plan in plans} == {1000}


def test_seeds_count_from_that_of_the_recipe(tmp_path):
    plans = plan_runs(SMALL[:1], "latin", seeds=2, folder=tmp_path, overrides=["training.seed=7"])
    assert [plan.recipe.training.seed for plan in plans] == [7, 8]


def error_of(recipes, data="latin", **options):
    with pytest.raises(ConfigError) as caught:
        plan_runs(recipes, data, seeds=1, folder=None, **options)
    return str(caught.value)


def test_recipes_of_the_same_name_reported():
    assert error_of([*SMALL, "other/bahdanau-2015-small.yaml"]) == (
        "--recipes: two recipes are called 'bahdanau-2015-small'\n  rename one of them"
    )


def test_recipes_of_different_tasks_reported():
    assert error_of([SMALL[0], "gpt-tiny"]) == (
        "gpt-tiny: its task is language-modeling, but that of luong-2015-dot-small is translation\n"
        "  compare systems of one task"
    )


def test_recipe_that_does_not_fit_the_data_raises(tmp_path):
    data = tmp_path / "text.yaml"
    data.write_text(
        "data: {train: {type: text, path: a}}\nmodel: {type: language-model}\n"
        "tokenizers: {type: shared}"
    )
    assert error_of(SMALL[:1], str(data)).startswith(
        "--recipes luong-2015-dot-small: data.train.type: the model (type: encoder-decoder) "
        "learns from pairs of texts, not from 'text'\n"
    )


@pytest.fixture
def planned(runs, tmp_path):
    """A trained run, as it would be planned."""
    folder = shutil.copytree(runs / "small-0", tmp_path / "small-0")
    recipe = Run(folder).read_recipe()
    Run(folder).replace_recipe(BUDGET.applied_to(recipe))
    return PlannedRun("small", recipe, folder)


def test_unchanged_run_is_accepted(planned, tmp_path):
    before = (planned.folder / "config.yaml").read_bytes()
    check_unchanged(planned, BUDGET)
    check_unchanged(planned._replace(folder=tmp_path / "new"), BUDGET)
    assert (planned.folder / "config.yaml").read_bytes() == before
    assert not (tmp_path / "new").exists()


def test_folder_without_a_checkpoint_is_accepted(planned, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "config.yaml").write_text("model: [")
    check_unchanged(planned._replace(folder=tmp_path / "new"), BUDGET)
    assert not Run(tmp_path / "new").is_saved


def test_changed_recipe_raises(planned):
    recipe = planned.recipe.model_copy(update={"decoding": load_recipe("default").decoding})
    with pytest.raises(RunError) as caught:
        check_unchanged(planned._replace(recipe=recipe), BUDGET)
    assert str(caught.value) == (
        f"{planned.folder}: the folder has a run with decoding.max_source_length=40, "
        "but now it is 1000\n"
        "  run the command it was started with, remove the folder, or choose another --output-dir"
    )


def test_changed_budget_raises(planned):
    with pytest.raises(RunError) as caught:
        check_unchanged(planned, Budget.parse("40steps"))
    assert str(caught.value) == (
        f"{planned.folder}: the folder has a run with another budget\n"
        "  run the command it was started with, remove the folder, or choose another --output-dir"
    )
