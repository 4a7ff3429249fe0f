"""Every small recipe reaches the score that it states, within its steps.

Scores were measured when a recipe was written. Another machine sums in another order, so there is
a margin; models without attention vary most between runs.
"""

import re

import pytest

import heedful
from heedful.evaluation.registry import compute_metrics
from heedful.recipes import load_recipe, recipe_names
from tests.shape_checking import unchecked

pytestmark = pytest.mark.learning

BUILT_IN = [
    name
    for name in recipe_names()
    if name.endswith(("-small", "-tiny"))
    and load_recipe(name).data.test is not None
    # tests/learning/test_forecasting.py, test_captioning.py and test_glimpses.py
    and load_recipe(name).task.name not in {"forecasting", "captioning", "glimpses"}
]
MONOLINGUAL = [name for name in BUILT_IN if load_recipe(name).task.name != "translation"]
PAIRS = [name for name in BUILT_IN if name not in MONOLINGUAL and name != "reverse-tiny"]
BASES = {"gnmt-2016-rl-small": "gnmt-2016-small"}  # fine-tuned recipes and what they start from
WITHOUT_ATTENTION = {
    *("seq2seq-2014-small", "rnn-encdec-2014-small", "lm-seq2seq-small", "bytenet-2016-small"),
}


def expected_score(name: str) -> float:
    """The score that a recipe states for its test set: percent, or nats."""
    match = re.match(r"([\d.]+) (%|nats)", load_recipe(name).info.expected)
    assert match, f"{name} states no score"
    return float(match[1])


@pytest.mark.parametrize("name", PAIRS)
def test_small_recipe_reaches_expected_score(name, tmp_path):
    pairs = load_recipe(name).data.test.read()
    with unchecked():
        settings = []
        if name in BASES:
            heedful.train(BASES[name], tmp_path / "base")
            settings = [f"training.init_from={tmp_path / 'base'}"]
        heedful.train(name, tmp_path / "run", settings=settings)
        outputs = heedful.load(tmp_path / "run").translate([pair.source for pair in pairs])
    score = compute_metrics(
        [each.text for each in outputs], [pair.target for pair in pairs], ["exact-match"]
    )[0].value
    margin = 15 if name in WITHOUT_ATTENTION else 6
    assert score >= expected_score(name) - margin


@pytest.mark.parametrize("name", MONOLINGUAL)
def test_small_language_model_recipe_reaches_expected_score(name, tmp_path):
    lines = load_recipe(name).data.test.read()
    with unchecked():
        heedful.train(name, tmp_path / "run")
        metrics = {each.name: each.value for each in heedful.load(tmp_path / "run").evaluate(lines)}
    if "token accuracy" in metrics:
        assert metrics["token accuracy"] >= expected_score(name) - 6
    else:
        assert metrics["nats per token"] <= expected_score(name) * 1.05


def test_recipes_with_attention_expect_high_scores():
    assert {name for name in PAIRS if expected_score(name) < 90} <= WITHOUT_ATTENTION
