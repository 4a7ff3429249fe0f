"""Glimpse models learn digits that heedful draws, with REINFORCE and with a differentiable window.

A model that can only guess has 90 % errors.
"""

import re
from itertools import islice

import numpy as np
import pytest
import torch

import heedful
from heedful.data.images.labeled_images import (
    LabeledImageBatchingConfig,
    LabeledImageBatchStream,
    stack_images,
)
from heedful.data.shuffling import DataCursor
from heedful.data.synthetic.digits import BuiltInDigitsConfig
from heedful.recipes import load_recipe
from heedful.tasks.glimpse.model import RecurrentAttentionConfig
from heedful.tasks.glimpse.task import GlimpseObjective
from tests.shape_checking import unchecked

pytestmark = pytest.mark.learning

RECIPES = ["ram-2014-small", "ram-2014-stopping-small", "draw-window-small"]


def scores_of(name, folder, **settings):
    with unchecked():
        heedful.train(name, folder, settings=settings, device="cpu")
        classifier = heedful.load(folder, device="cpu")
        scores = classifier.evaluate(load_recipe(name).data.test.read())
    return {score.name: score.value for score in scores}


@pytest.mark.parametrize("name", RECIPES)
def test_small_glimpse_model_reaches_the_expected_error(name, tmp_path):
    expected = re.match(r"([\d.]+) % error", load_recipe(name).info.expected)
    assert expected, f"{name} states no error"
    scores = scores_of(name, tmp_path / "run")
    assert scores["error rate"] <= float(expected[1]) + 3


def mean_glimpses(cost, steps=100):
    """Train on images that one glimpse sees whole; return how many the model takes."""
    examples = BuiltInDigitsConfig(num_examples=400, size=12).read()
    batching = LabeledImageBatchingConfig(batch_size=64)
    data = stack_images(examples, 12, batching, location="digits")
    torch.manual_seed(0)
    sizes = {"part_size": 32, "glimpse_hidden_size": 32, "hidden_size": 32}
    model = RecurrentAttentionConfig(
        image_size=12, glimpse_size=12, num_glimpses=4, stopping={"cost": cost}, **sizes
    ).build()
    optimizer, objective = torch.optim.Adam(model.parameters(), lr=5e-3), GlimpseObjective()
    for batch in islice(
        LabeledImageBatchStream(data, data.batching.batch_size, 0, DataCursor(0, 0)), steps
    ):
        terms = objective(model, batch, 1, model)
        optimizer.zero_grad()
        (sum(terms.auxiliary_losses.values(), terms.main_loss) / batch.num_targets).backward()
        optimizer.step()
    uniform = torch.rand(400, 4, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        output = model.classify(data.collate(np.arange(400)).render(12), uniform)
    return output.num_glimpses.float().mean().item()


def test_expensive_glimpses_are_not_taken():
    assert mean_glimpses(cost=0.3) < 1.2
    assert mean_glimpses(cost=0.0) > 1.8
