import shutil

import pytest

from heedful.comparison.systems import group_runs, system_fingerprint
from heedful.errors import ConfigError, RunError
from heedful.recipes import load_recipe
from tests.commands import write_recipe


def named(system_runs):
    return {entrant.name: [folder.name for folder in entrant.folders] for entrant in system_runs}


def test_runs_of_other_seeds_are_one_system(runs):
    found = group_runs([runs / "small-0", runs / "large", runs / "small-1"])
    assert named(found) == {"small": ["small-0", "small-1"], "large": ["large"]}
    assert [entrant.recipe.training.max_steps for entrant in found] == [30, 40]


def test_a_run_alone_has_the_name_of_its_folder(runs):
    assert named(group_runs([runs / "small-1"])) == {"small-1": ["small-1"]}


def test_runs_that_share_their_seed_are_systems_apart(runs, tmp_path):
    again = shutil.copytree(runs / "small-0", tmp_path / "again")
    found = group_runs([runs / "small-0", again, runs / "small-1"])
    assert named(found) == {"small": ["small-0", "small-1"], "again": ["again"]}


def test_systems_of_one_name_are_told_apart_by_their_paths(runs, tmp_path):
    again = shutil.copytree(runs / "large", tmp_path / "large")
    found = group_runs([runs / "large", again])
    assert [entrant.name for entrant in found] == [str(runs / "large"), str(tmp_path / "large")]


def test_names_that_share_nothing_give_the_first(runs, tmp_path):
    other = shutil.copytree(runs / "small-1", tmp_path / "other")
    assert [entrant.name for entrant in group_runs([runs / "small-0", other])] == ["small-0"]


def test_a_run_is_not_compared_with_itself(runs):
    with pytest.raises(ConfigError) as caught:
        group_runs([runs / "large", runs / "small-0" / ".." / "large"])
    assert str(caught.value) == (
        f"{runs}/small-0/../large: this run is named twice\n  name each run once"
    )


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunError):
        group_runs([tmp_path])


@pytest.mark.parametrize(
    ("change", "is_another"),
    [
        ("training.seed=7", False),
        ("info.summary=other", False),
        ("training.validate_every=7", False),
        ("training.max_steps=7", True),
        ("training.patience=7", True),
        ("decoding.beam_size=1", True),
        ("model.decoder.hidden_size=7", True),
    ],
)
def test_only_what_changes_results_makes_another_system(tmp_path, change, is_another):
    recipe = str(write_recipe(tmp_path))
    before, after = load_recipe(recipe), load_recipe(recipe, [change])
    assert (system_fingerprint(before) != system_fingerprint(after)) == is_another


def test_steps_that_were_found_under_a_budget_of_time_make_no_other_system(tmp_path):
    recipe = str(write_recipe(tmp_path))
    timed = [
        load_recipe(recipe, ["training.max_minutes=2", f"training.max_steps={steps}"])
        for steps in (100, 110)
    ]
    assert system_fingerprint(timed[0]) == system_fingerprint(timed[1])
