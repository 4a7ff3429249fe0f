"""Which settings of a run may change when it goes on."""

import pytest
from rich.console import Console

from heedful.errors import RunError
from heedful.experiment import train
from heedful.experiment.train import RESUMABLE_SETTINGS, check_resume_compatible
from heedful.recipes import Recipe, load_recipe
from heedful.runs import Run
from tests.commands import write_recipe


@pytest.fixture
def run(tmp_path):
    recipe = load_recipe(str(write_recipe(tmp_path, steps=2, every=1)))
    train(recipe, tmp_path / "run", console=Console(quiet=True))
    return Run(tmp_path / "run")


def test_every_setting_that_may_change_exists():
    for path in RESUMABLE_SETTINGS:
        fields = Recipe.model_fields
        *folders, name = path.split(".")
        for folder in folders:
            fields = fields[folder].annotation.model_fields
        assert name in fields, path


def test_a_change_of_what_is_kept_is_told_and_written(run):
    recipe = load_recipe(str(run.folder / "config.yaml"), ["training.checkpoints.keep_last=5"])
    said = []
    check_resume_compatible(run, recipe, said.append)
    assert said == [f"{run.folder}: training.checkpoints.keep_last was 2 and is now 5"]
    assert run.read_recipe() == recipe
    run.verify()


def test_a_change_of_what_is_learned_is_refused_and_nothing_is_written(run):
    overrides = ["training.max_steps=9", "training.optimizer.learning_rate=0.5"]
    recipe = load_recipe(str(run.folder / "config.yaml"), overrides)
    before = (run.folder / "config.yaml").read_bytes()
    with pytest.raises(
        RunError, match=r"training\.optimizer\.learning_rate=0\.01, but now it is 0\.5"
    ):
        check_resume_compatible(run, recipe, lambda line: None)
    assert (run.folder / "config.yaml").read_bytes() == before


def test_the_same_recipe_says_nothing(run):
    said = []
    check_resume_compatible(run, run.read_recipe(), said.append)
    assert said == []
