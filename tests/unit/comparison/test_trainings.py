import io
import json
import sys

import pytest

from heedful.comparison.budgets import Budget
from heedful.comparison.plans import Planned
from heedful.comparison.spending import METRICS
from heedful.comparison.trainings import Ended, serve, train_all, train_apart, train_here
from heedful.recipes import load_recipe
from tests.commands import write_recipe
from tests.shape_checking import unchecked

BUDGET = Budget.parse("2steps")


@pytest.fixture
def plans(tmp_path):
    """A recipe that can be trained, and one that cannot: a dot product of unlike sizes."""
    recipe = str(write_recipe(tmp_path))
    unfit = ["model.decoder.attention.score.kind=dot", "model.decoder.hidden_size=7"]
    return [
        Planned(name, load_recipe(recipe, changes), tmp_path / "runs" / f"{name}-0")
        for name, changes in {"bad": unfit, "good": []}.items()
    ]


def test_one_that_fails_does_not_stop_the_others(plans):
    told = []
    with unchecked():
        trained = train_all(plans, BUDGET, tell=told.append, train_one=train_here)
    assert trained.is_over
    ((name, run, problem),) = trained.failures
    assert (name, run) == ("bad", str(plans[0].folder))
    assert problem == (
        "score.kind: a dot product needs equal sizes, but queries have 7 and keys 32"
    )
    assert told[0] == "run 1 of 2: bad, seed 0, for 2 steps"
    assert told[1] == f"{run}: failed: {problem}"
    assert told[2].startswith("run 2 of 2: good, seed 0, for 2 steps; about ")
    assert told[2].endswith(" left")


def test_what_is_over_is_not_trained_again(plans):
    with unchecked():
        train_all(plans[1:], BUDGET, tell=lambda line: None, train_one=train_here)
    before = (plans[1].folder / METRICS).read_bytes()
    told, asked = [], []

    def train_one(planned, budget, device):
        asked.append(planned.name)
        return Ended(True)

    assert train_all(plans, BUDGET, tell=told.append, train_one=train_one) == (True, [])
    assert asked == ["bad"]
    assert told[0] == "1 of 2 runs are trained already"
    assert (plans[1].folder / METRICS).read_bytes() == before


def test_an_interruption_leaves_the_rest_for_another_time(plans):
    asked = []

    def train_one(planned, budget, device):
        asked.append(planned.name)
        return Ended(False)

    assert not train_all(plans, BUDGET, tell=asked.append, train_one=train_one).is_over
    assert asked == ["run 1 of 2: bad, seed 0, for 2 steps", "bad"]


def test_time_that_is_left_follows_from_a_budget_of_time(plans):
    told = []
    train_all(
        plans,
        Budget.parse("2m"),
        tell=told.append,
        train_one=lambda planned, budget, device: Ended(True),
    )
    assert told[0] == "run 1 of 2: bad, seed 0, for 2 minutes; about 4 min left"


@pytest.mark.faults
def test_a_process_of_its_own_says_what_went_wrong(plans):
    ended = train_apart(plans[0], BUDGET, "cpu")
    assert ended == (
        False,
        "score.kind: a dot product needs equal sizes, but queries have 7 and keys 32",
    )


def test_whatever_goes_wrong_is_told(plans, monkeypatch, capsys):
    name, recipe, folder = plans[1]
    asked = [name, recipe.model_dump(mode="json"), str(folder), ["", "max_steps", "two"], "cpu"]
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(asked)))
    serve()
    is_over, problem = json.loads(capsys.readouterr().out)
    assert not is_over
    assert problem.startswith("TypeError: ")
