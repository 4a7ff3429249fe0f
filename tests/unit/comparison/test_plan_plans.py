import shutil

import pytest

from heedful.comparison.budget import Budget
from heedful.comparison.plan import PlannedRun, check_unchanged, plan_runs
from heedful.errors import ConfigError, RunError
from heedful.recipes import load_recipe
from heedful.runs import Run

SMALL = ["luong-2015-dot-small", "bahdanau-2015-small"]
BUDGET = Budget.parse("30steps")


def test_all_recipes_take_turns_with_every_seed(tmp_path):
    found = plan_runs(SMALL, "latin", seeds=2, folder=tmp_path)
    assert [each.folder.relative_to(tmp_path).as_posix() for each in found] == [
        "runs/luong-2015-dot-small-0",
        "runs/bahdanau-2015-small-0",
        "runs/luong-2015-dot-small-1",
        "runs/bahdanau-2015-small-1",
    ]
    assert [each.recipe.training.seed for each in found] == [0, 0, 1, 1]
    assert {each.recipe.data.test.num_examples for each in found} == {1000}


def test_seeds_count_from_the_recipes_own(tmp_path):
    found = plan_runs(SMALL[:1], "latin", seeds=2, folder=tmp_path, overrides=["training.seed=7"])
    assert [each.recipe.training.seed for each in found] == [7, 8]


def refused(recipes, data="latin", **options):
    with pytest.raises(ConfigError) as caught:
        plan_runs(recipes, data, seeds=1, folder=None, **options)
    return str(caught.value)


def test_two_recipes_of_one_name_are_refused():
    assert refused([*SMALL, "other/bahdanau-2015-small.yaml"]) == (
        "--recipes: two of them are called 'bahdanau-2015-small'\n  give one of them another name"
    )


def test_unlike_kinds_are_refused():
    assert refused([SMALL[0], "gpt-tiny"]) == (
        "gpt-tiny: this is a language model, and luong-2015-dot-small translates: they cannot be "
        "asked the same\n  compare systems of one kind"
    )


def test_a_recipe_that_does_not_fit_the_data_is_named(tmp_path):
    data = tmp_path / "text.yaml"
    data.write_text(
        "data: {train: {type: text, path: a}}\nmodel: {type: language-model}\ntokenizers: {type: shared}"
    )
    assert refused(SMALL[:1], str(data)).startswith(
        "--recipes luong-2015-dot-small: data.train.type: the model (kind: encoder-decoder) "
        "learns from pairs of texts, not from 'text'\n"
    )


@pytest.fixture
def planned(runs, tmp_path):
    """A run that is there already, as it would be planned."""
    folder = shutil.copytree(runs / "small-0", tmp_path / "small-0")
    recipe = Run(folder).read_recipe()
    training = recipe.training.model_copy(
        update={"max_epochs": None, "patience": None, "validate_every": 3}
    )
    Run(folder).replace_recipe(recipe.model_copy(update={"training": training}))
    return PlannedRun("small", recipe, folder)


def test_what_was_begun_by_the_same_command_goes_on(planned, tmp_path):
    check_unchanged(planned, BUDGET)
    check_unchanged(planned._replace(folder=tmp_path / "new"), BUDGET)


def test_a_changed_recipe_is_refused_by_name(planned):
    recipe = planned.recipe.model_copy(update={"decoding": load_recipe("default").decoding})
    with pytest.raises(RunError) as caught:
        check_unchanged(planned._replace(recipe=recipe), BUDGET)
    assert str(caught.value) == (
        f"{planned.folder}: the folder holds a run with decoding.max_source_length=40, "
        "but now it is 1000\n"
        "  give the command it was begun with, remove the folder, or name another with --output"
    )


def test_another_budget_is_refused(planned):
    with pytest.raises(RunError) as caught:
        check_unchanged(planned, Budget.parse("40steps"))
    assert str(caught.value) == (
        f"{planned.folder}: the folder holds a run that was trained under another budget\n"
        "  give the command it was begun with, remove the folder, or name another with --output"
    )
