import shutil

import pytest

from heedful.comparison.budget import read_training_cost
from heedful.comparison.systems import (
    check_same_task,
    compare_runs,
    find_baseline,
    group_runs,
    system_fingerprint,
)
from heedful.comparison.test_sets import ParallelEvaluationSet
from heedful.errors import ConfigError, RunError
from heedful.evaluation.registry import get_metrics
from heedful.recipes import load_recipe
from tests.commands import write_recipe


def compared(folders, **options):
    evaluation_set = ParallelEvaluationSet(
        "letters", ["a b", "c d e"], [("a b",), ("c d e",)], get_metrics(["exact-match"])
    )
    return compare_runs(
        group_runs(folders), evaluation_set, command="again", budget="2 steps", **options
    )


@pytest.fixture(scope="module")
def comparison(runs):
    return compared([runs / "small-0", runs / "large", runs / "small-1"], device="cpu")


def test_cost_of_a_system_is_the_mean_of_the_runs(runs, comparison):
    small, large = comparison.systems
    costs = [read_training_cost(runs / f"small-{seed}") for seed in (0, 1)]
    assert small.cost.steps == (30, 0)
    assert large.cost.steps == (40, None)
    assert small.cost.training_flops.mean == (costs[0].flops + costs[1].flops) / 2
    assert small.cost.training_seconds.mean == pytest.approx(
        (costs[0].seconds + costs[1].seconds) / 2
    )
    assert small.cost.peak_memory.mean > 0
    assert small.cost.num_parameters < large.cost.num_parameters
    assert list(small.curves) == [each.curve for each in costs]


def test_comparison_has_title_test_set_command_and_environment(runs, comparison):
    assert comparison.title == "2 systems compared"
    assert (comparison.test_set, comparison.num_sentences) == ("letters", 2)
    assert (comparison.command, comparison.budget) == ("again", "2 steps")
    assert comparison.baseline == "small"
    assert [system.name for system in comparison.systems] == ["small", "large"]
    assert comparison.systems[0].runs == [str(runs / "small-0"), str(runs / "small-1")]
    assert comparison.systems[0].summary == "letters"
    assert "command" not in comparison.environment
    assert comparison.environment["device"].startswith("cpu")


def test_runs_without_logs_compared(runs, tmp_path):
    old = shutil.copytree(runs / "small-1", tmp_path / "old")
    (old / "metrics.jsonl").unlink()
    shutil.rmtree(old / "checkpoints")
    comparison = compared([runs / "small-0", old])
    (system,) = comparison.systems
    assert (system.cost.training_seconds, system.cost.training_flops, system.cost.peak_memory) == (
        None,
        None,
        None,
    )
    assert system.cost.steps.mean == 30  # of the weights that were kept
    assert system.curves[1] == []


def test_identical_runs_do_not_differ(runs, tmp_path):
    again = shutil.copytree(runs / "large", tmp_path / "again")
    _, other = compared([runs / "large", again]).systems
    assert [each.difference for each in other.scores] == [(0.0, 1.0)]


def test_baseline_is_found_by_name_or_run(runs):
    system_runs = group_runs([runs / "large", runs / "small-0", runs / "small-1"])
    assert find_baseline(system_runs, "small") == 1
    assert find_baseline(system_runs, str(runs / "small-1")) == 1
    assert compared([runs / "large", runs / "small-0"], baseline="small-0").baseline == "small-0"


def test_unknown_baseline_raises(runs):
    with pytest.raises(ConfigError) as caught:
        find_baseline(group_runs([runs / "large", runs / "small-0"]), "larg")
    assert str(caught.value) == (
        "--baseline: no system is called 'larg'; did you mean 'large'?\n"
        "  choose from: large, small-0"
    )


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (
            "gpt-tiny",
            "reverse-tiny",
            "its task is translation, but that of gpt-tiny is language-modeling",
        ),
        (
            "gpt-tiny",
            "bert-small",
            "its task is masked-language-modeling, but that of gpt-tiny is language-modeling",
        ),
    ],
)
def test_systems_of_different_tasks_reported(one, other, message):
    with pytest.raises(ConfigError) as caught:
        check_same_task([(name, load_recipe(name)) for name in (one, one, other)])
    assert caught.value.location == other
    assert caught.value.message == message


def folders_by_name(system_runs):
    return {system.name: [folder.name for folder in system.folders] for system in system_runs}


def test_runs_with_different_seeds_are_one_system(runs):
    systems = group_runs([runs / "small-0", runs / "large", runs / "small-1"])
    assert folders_by_name(systems) == {"small": ["small-0", "small-1"], "large": ["large"]}
    assert [system.recipe.training.max_steps for system in systems] == [30, 40]


def test_single_run_is_named_after_the_folder(runs):
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
