"""A text classifier learns within a number of steps."""

import json

import pytest

import heedful
from tests.labeled_texts import labeled_lines, write_labeled_recipe

pytestmark = pytest.mark.learning


@pytest.mark.parametrize("pooling", ["attention", "mean", "max"])
def test_classifier_finds_the_word_that_decides_in_100_steps(pooling, tmp_path):
    recipe, labeled = write_labeled_recipe(tmp_path, pooling=pooling)
    setting = {"type": "tsv", "path": str(labeled), "source_column": 2, "target_column": 1}
    heedful.train(str(recipe), tmp_path / "run", settings=[f"data.train={json.dumps(setting)}"])
    rows = [line.split("\t") for line in labeled_lines(200, seed=1)]
    results = heedful.load(tmp_path / "run").classify([text for _, text in rows])
    assert [result.text for result in results] == [label for label, _ in rows]
