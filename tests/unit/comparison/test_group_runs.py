import shutil

import pytest

from heedful.comparison.systems import group_runs, system_fingerprint
from heedful.errors import ConfigError, RunError
from heedful.recipes import load_recipe
from tests.commands import write_recipe


def folders_by_name(system_runs):
    return {system.name: [folder.name for folder in system.folders] for system in system_runs}


def test_runs_with_different_seeds_are_one_system(runs):
    systems = group_runs([runs / "small-0", runs / "large", runs / "small-1"])
    assert folders_by_name(systems) == {"small": ["small-0", "small-1"], "large": ["large"]}
    assert [system.recipe.training.max_steps for system in systems] == [30, 40]


def test_single_run_is_named_after_its_folder(runs):
    assert folders_by_name(group_runs([runs / "small-1"])) == {"small-1": ["small-1"]}


def test_runs_with_the_same_seed_are_different_systems(runs, tmp_path):
    again = shutil.copytree(runs / "small-0", tmp_path / "again")
    systems = group_runs([runs / "small-0", again, runs / "small-1"])
    assert folders_by_name(systems) == {"small": ["small-0", "small-1"], "again": ["again"]}


def test_systems_with_equal_names_named_by_path(runs, tmp_path):
    again = shutil.copytree(runs / "large", tmp_path / "large")
    systems = group_runs([runs / "large", again])
    assert [system.name for system in systems] == [str(runs / "large"), str(tmp_path / "large")]


def test_system_without_common_prefix_has_the_first_name(runs, tmp_path):
    other = shutil.copytree(runs / "small-1", tmp_path / "other")
    assert [system.name for system in group_runs([runs / "small-0", other])] == ["small-0"]


def test_repeated_run_raises(runs):
    with pytest.raises(ConfigError) as caught:
        group_runs([runs / "large", runs / "small-0" / ".." / "large"])
    assert str(caught.value) == (f"{runs}/small-0/../large: given twice\n  name each run once")


def test_folder_without_run_raises(tmp_path):
    with pytest.raises(RunError):
        group_runs([tmp_path])


@pytest.mark.parametrize(
    ("change", "is_different"),
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
def test_fingerprint_ignores_settings_of_logging(tmp_path, change, is_different):
    recipe = str(write_recipe(tmp_path))
    before, after = load_recipe(recipe), load_recipe(recipe, [change])
    assert (system_fingerprint(before) != system_fingerprint(after)) == is_different
