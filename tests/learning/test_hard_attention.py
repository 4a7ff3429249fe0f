"""Attention that looks at one place can be learned: within a number of steps, never of seconds."""

import json

import numpy as np
import pytest

import heedful
from tests.commands import write_recipe

pytestmark = pytest.mark.learning

WORDS = ["a b c", "h g f e d", "b b a c", "e", "d a d"]


def learn(folder, *settings, steps=1000):
    """Learn to copy letters with an alignment; give the run."""
    overrides = [f"model.decoder.attention.align.{setting}" for setting in settings]
    recipe = write_recipe(folder, steps=steps, every=steps // 5)
    heedful.train(str(recipe), folder / "run", overrides=overrides)
    return folder / "run"


def looks_at_each_in_turn(output):
    """Whether all attention goes to the first place, then all to the second, and so on."""
    return np.array_equal(output.weights, np.eye(*output.weights.shape))


@pytest.mark.parametrize(
    "settings",
    [
        ["kind=sampled"],
        ["kind=sampled", "credit=future"],
        ["kind=sampled", "baseline.kind=learned", "credit=future"],
        ["kind=straight-through"],
        ["kind=gumbel-softmax"],
        ["kind=gumbel-softmax", "straight_through=true"],
    ],
    ids=" ".join,
)
def test_hard_attention_learns_to_look_at_each_letter_it_copies_in_1000_steps(settings, tmp_path):
    run = learn(tmp_path, *settings)
    outputs = heedful.load(run).translate(WORDS)
    assert [each.text for each in outputs] == WORDS
    assert all(looks_at_each_in_turn(each) for each in outputs)


def test_scores_that_nothing_teaches_do_not_find_the_letters(tmp_path):
    """The state alone learns to copy most of these words; where it looks tells the difference."""
    run = learn(tmp_path, "kind=argmax")
    assert not all(map(looks_at_each_in_turn, heedful.load(run).translate(WORDS)))


def test_a_run_that_samples_tells_of_its_terms(tmp_path):
    run = learn(tmp_path, "kind=sampled", steps=20)
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    named = [line["penalties"].keys() for line in lines if line["kind"] == "training"]
    assert named == [{"reinforce", "entropy-bonus"}] * 3
