"""Hard attention learns within a number of steps."""

import json
import random

import numpy as np
import pytest

import heedful
from tests.commands import LETTERS, write_recipe

pytestmark = pytest.mark.learning

RNG = random.Random(1)
WORDS = [" ".join(RNG.choices(LETTERS, k=RNG.randint(1, 5))) for _ in range(200)]


def train(output_dir, *settings, steps=1000):
    """Train on copying letters with an alignment; return the run folder."""
    overrides = [f"model.decoder.attention.alignment.{setting}" for setting in settings]
    recipe = write_recipe(output_dir, steps=steps, every=steps // 5)
    heedful.train(str(recipe), output_dir / "run", settings=overrides)
    return output_dir / "run"


def copied_and_attended(run):
    """The fraction of words copied, and of letters copied while attending to them."""
    outputs = heedful.load(run).translate(WORDS)
    copied = np.mean([each.text == each.source for each in outputs])
    return copied, np.mean(np.concatenate([np.diagonal(each.weights) for each in outputs]))


@pytest.mark.parametrize(
    "settings",
    [
        ["type=sampled"],
        ["type=sampled", "credit=future"],
        ["type=sampled", "baseline.type=learned", "credit=future"],
        ["type=straight-through"],
        ["type=gumbel-softmax"],
        ["type=gumbel-softmax", "straight_through=true"],
    ],
    ids=" ".join,
)
def test_hard_attention_learns_to_attend_to_copied_letters_in_1000_steps(settings, tmp_path):
    copied, attended = copied_and_attended(train(tmp_path, *settings))
    assert copied > 0.8
    assert attended > 0.8


def test_argmax_alignment_does_not_learn_to_attend(tmp_path):
    """The state alone learns to copy many of these words; the weights show the difference."""
    _, attended = copied_and_attended(train(tmp_path, "type=argmax"))
    assert attended < 0.5


def test_sampled_alignment_logs_losses(tmp_path):
    run = train(tmp_path, "type=sampled", steps=20)
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    loss_names = [line["auxiliary_losses"].keys() for line in lines if line["type"] == "training"]
    assert loss_names == [{"reinforce", "entropy-bonus"}] * 3
