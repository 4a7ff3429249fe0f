"""Glimpse models learn digits that heedful draws, with REINFORCE and with a differentiable window.

A model that can only guess has 90 % errors.
"""

import re

import pytest

import heedful
from heedful.recipes import load_recipe
from tests.shape_checking import unchecked

pytestmark = pytest.mark.learning

RECIPES = ["ram-2014-small", "draw-window-small", "ram-2014-stopping-small"]


def scores_of(name, folder, **settings):
    with unchecked():
        heedful.train(name, folder, settings=settings, device="cpu")
        classifier = heedful.load(folder, device="cpu")
        scores = classifier.evaluate(load_recipe(name).data.test.read())
    return {score.name: score.value for score in scores}


@pytest.mark.parametrize("name", RECIPES)
def test_small_glimpse_model_reaches_its_expected_error(name, tmp_path):
    expected = re.match(r"([\d.]+) % error", load_recipe(name).info.expected)
    assert expected, f"{name} states no error"
    scores = scores_of(name, tmp_path / "run")
    assert scores["error rate"] <= float(expected[1]) + 3


def test_expensive_glimpses_are_taken_less_often(tmp_path):
    counts = []
    for cost in (0.0, 0.3):
        settings = {"model.stopping.cost": cost, "training.max_steps": 600}
        scores = scores_of("ram-2014-stopping-small", tmp_path / str(cost), **settings)
        counts.append(scores["glimpses per image"])
    assert counts[1] < counts[0] - 1
