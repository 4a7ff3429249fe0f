"""Small recipes of captioning reach the scores that they state, and attend to what they name."""

import re

import numpy as np
import pytest

import heedful
from heedful.evaluation.registry import compute_metrics
from heedful.recipes import load_recipe, recipe_names
from tests.shape_checking import unchecked

pytestmark = pytest.mark.learning
SMALL = [
    name
    for name in recipe_names()
    if name.startswith(("show-", "caption-", "adaptive-")) and name.endswith("-small")
]
MARGIN = 10


@pytest.mark.parametrize("name", SMALL)
def test_small_recipe_reaches_expected_score(name, tmp_path):
    recipe = load_recipe(name)
    examples = recipe.task.read_examples(recipe.data.test)
    with unchecked():
        heedful.train(name, tmp_path / "run")
        outputs = heedful.load(tmp_path / "run").caption([item.source for item in examples])
    texts, references = [one.text for one in outputs], [item.references for item in examples]
    (score,) = compute_metrics(texts, references, ["exact-match"])
    expected = re.match(r"[\d.]+", recipe.info.expected)
    assert score.value >= float(expected[0]) - MARGIN


def test_words_attend_to_the_side_of_their_shape(tmp_path):
    name = "show-attend-tell-2015-soft-small"
    recipe = load_recipe(name)
    examples = recipe.task.read_examples(recipe.data.test)
    chosen = [item.source for item in examples if "left of" in item.references[0]][:50]
    with unchecked():
        heedful.train(name, tmp_path / "run")
        captioner = heedful.load(tmp_path / "run")
        captions = list(captioner.predict_with_attention(chosen))
    centers = []
    for caption in captions:
        weights = caption.attention.weights  # (words, rows, columns)
        columns = weights.sum(axis=1) @ np.arange(weights.shape[2])
        if len(columns) == 10:
            centers.append((columns[2:4].mean(), columns[8:].mean()))
    first, second = np.mean(centers, axis=0)
    assert len(centers) >= 40
    assert first < second - 1
