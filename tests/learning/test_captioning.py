"""Small recipes of captioning reach the scores that they state, and attend to what they name."""

import re
from functools import cache

import numpy as np
import pytest

import heedful
from experiments.sentinel import measure_words
from heedful.data.synthetic.images import COLORS, FORMS
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
MIN_EXPECTED = 40  # a model that has learned sizes and relations, but no colors, has 0 %


@pytest.fixture(scope="module")
def trained_captioner(tmp_path_factory):
    """Return a function that trains a recipe, once, and returns its captioner."""

    @cache
    def train(name):
        folder = tmp_path_factory.mktemp(name) / "run"
        with unchecked():
            heedful.train(name, folder)
        return heedful.load(folder)

    return train


def read_test_examples(name):
    recipe = load_recipe(name)
    return recipe.task.data.read_examples(recipe.data.test)


@pytest.mark.parametrize("name", SMALL)
def test_small_recipe_reaches_expected_score(name, trained_captioner):
    examples = read_test_examples(name)
    with unchecked():
        outputs = trained_captioner(name).caption([item.source for item in examples])
    texts, references = [one.text for one in outputs], [item.references for item in examples]
    (score,) = compute_metrics(texts, references, ["exact-match"])
    expected = float(re.match(r"[\d.]+", load_recipe(name).info.expected)[0])
    assert expected >= MIN_EXPECTED
    assert score.value >= expected - MARGIN


def test_words_attend_to_the_side_of_their_shape(trained_captioner):
    name = "show-attend-tell-2015-soft-small"
    examples = read_test_examples(name)
    chosen = [item.source for item in examples if "left of" in item.references[0]][:50]
    with unchecked():
        captions = list(trained_captioner(name).predict(chosen, need_layers=True))
    centers = []
    for caption in captions:
        weights = caption.attention.weights  # (words, rows, columns)
        columns = weights.sum(axis=1) @ np.arange(weights.shape[2])
        if len(columns) == 10:
            centers.append((columns[2:4].mean(), columns[8:].mean()))
    first, second = np.mean(centers, axis=0)
    assert len(centers) >= 40
    assert first < second - 1


def test_words_that_need_no_image_attend_to_the_sentinel(trained_captioner):
    name = "adaptive-attention-2017-small"
    chosen = [item.source for item in read_test_examples(name)[:200]]
    with unchecked():
        captions = trained_captioner(name).predict(chosen, need_layers=True)
        uses = measure_words(caption.attention for caption in captions)
    weights = {use.word: use.sentinel_weight for use in uses}
    function_words = min(weights["a"], weights["of"])
    assert function_words > max(weights[form] for form in FORMS) + 0.1
    assert function_words > max(weights[color] for color in COLORS) + 0.5
