"""Self-critical training of captions raises the reward of samples; greedy captions stay right."""

import json

import pytest

import heedful
from tests.captioning import caption_recipe, write_images
from tests.shape_checking import unchecked

pytestmark = pytest.mark.learning


def test_reward_increases_within_60_steps(tmp_path):
    images = {"type": "captions", "path": str(write_images(tmp_path / "images"))}

    def train(name, steps, learning_rate, **training):
        settings = {
            "max_steps": steps,
            "validate_every": steps,
            "metric_for_best_model": "cider-d",
            "batching": {"max_tokens": 240},
            "optimizer": {"learning_rate": learning_rate},
            "lr_scheduler": {"type": "constant"},
            **training,
        }
        recipe = caption_recipe(images, training=settings)
        recipe["model"]["decoder"] = {"cell": "gru", "embedding_size": 16, "hidden_size": 32}
        with unchecked():
            heedful.train(recipe, tmp_path / name)
        lines = (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        steps = [json.loads(line) for line in lines]
        losses = [step["loss"] for step in steps if step["type"] == "training"]
        return losses, steps[-1]["cider-d"]

    _, before = train("first", 15, 0.01)
    objective = {"type": "self-critical", "num_samples": 5}
    losses, after = train(
        "second", 60, 0.003, init_from=str(tmp_path / "first"), objective=objective
    )
    # Without cross-entropy the loss is 1 - mean reward.
    assert losses[-1] < losses[0] - 1
    assert after >= before - 1
