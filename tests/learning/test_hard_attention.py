"""Attention that looks at one place can be learned: within a number of steps, never of seconds."""

import json
import random

import numpy as np
import pytest

import heedful
from tests.commands import LETTERS, write_recipe

pytestmark = pytest.mark.learning

CHANCE = random.Random(1)
WORDS = [" ".join(CHANCE.choices(LETTERS, k=CHANCE.randint(1, 5))) for _ in range(200)]


def learn(folder, *settings, steps=1000):
    """Learn to copy letters with an alignment; give the run."""
    overrides = [f"model.decoder.attention.align.{setting}" for setting in settings]
    recipe = write_recipe(folder, steps=steps, every=steps // 5)
    heedful.train(str(recipe), folder / "run", overrides=overrides)
    return folder / "run"


def copied_and_found(run):
    """The share of words that are copied, and of letters written while looking at their place."""
    outputs = heedful.load(run).translate(WORDS)
    copied = np.mean([each.text == each.source for each in outputs])
    return copied, np.mean(np.concatenate([np.diagonal(each.weights) for each in outputs]))


@pytest.mark.parametrize(
    "settings",
    [
        ["kind=sampled"],
        ["kind=sampled", "credit=future"],
        ["kind=sampled", "baseline.type=learned", "credit=future"],
        ["kind=straight-through"],
        ["kind=gumbel-softmax"],
        ["kind=gumbel-softmax", "straight_through=true"],
    ],
    ids=" ".join,
)
def test_hard_attention_learns_to_look_at_each_letter_it_copies_in_1000_steps(settings, tmp_path):
    copied, found = copied_and_found(learn(tmp_path, *settings))
    assert copied > 0.8
    assert found > 0.8


def test_scores_that_nothing_teaches_do_not_find_the_letters(tmp_path):
    """The state alone learns to copy many of these words; where it looks tells the difference."""
    _, found = copied_and_found(learn(tmp_path, "kind=argmax"))
    assert found < 0.5


def test_a_run_that_samples_tells_of_its_terms(tmp_path):
    run = learn(tmp_path, "kind=sampled", steps=20)
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    named = [line["penalties"].keys() for line in lines if line["kind"] == "training"]
    assert named == [{"reinforce", "entropy-bonus"}] * 3
