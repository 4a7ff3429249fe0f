"""Self-critical training of captioners: references of an image, log, resuming."""

import json

import numpy as np
import pytest

import heedful
from heedful.data.text.example_formats import ExampleSource
from heedful.recipes import load_recipe
from heedful.tasks.captioning.task import TASK
from heedful.training.rollouts import CiderDReward, Rollout
from tests.captioning import caption_recipe, write_images
from tests.unit.evaluation.slow_cider_d import slow_cider_d


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    return {"type": "captions", "path": str(write_images(folder))}


def recipe(images, *, max_steps=4, **training):
    settings = {"max_steps": max_steps, "validate_every": 2, "batching": {"max_tokens": 60}}
    return caption_recipe(images, training={**settings, **training})


def test_reward_of_a_caption_is_that_against_all_captions_of_the_image(images):
    config = load_recipe(recipe(images))
    examples = ExampleSource(config.data.train.read(), config.data.train.locate)
    tokenizers = config.tokenizers.train(
        *TASK.data.example_format.tokenizer_texts(examples.examples)
    )
    tokenized = TASK.data.tokenize_train(config, tokenizers, [examples])
    module = TASK.data.build_data_module(config, tokenizers, tokenized, examples)
    reward = CiderDReward(module.build_reference_table())
    encode = tokenizers.target.encode
    references = [[[*encode(text), 3] for text in image.captions] for image in examples.examples]
    output = Rollout(tuple(encode("a blue image")))
    batch = next(iter(module.validation_batches()))
    rewards = reward(batch, [[output]] * len(batch.targets))
    expected = [
        slow_cider_d(references, [*output.tokens, 3], int(image)) for image in batch.reference_ids
    ]
    assert np.ravel(rewards) == pytest.approx(expected)
    assert max(expected) > 1
    assert min(expected) < 0.5


@pytest.fixture(scope="module")
def first_run(images, tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "first"
    heedful.train(recipe(images), run)
    return run


def self_critical(images, first_run, max_steps):
    return recipe(
        images,
        max_steps=max_steps,
        init_from=str(first_run),
        objective={"type": "self-critical", "num_samples": 2},
        metric_for_best_model="cider-d",
    )


def test_log_has_the_references_and_validations_have_the_reward(images, first_run, tmp_path):
    run = tmp_path / "second"
    heedful.train(self_critical(images, first_run, 4), run)
    log = (run / "train.log").read_text()
    assert "reward cider-d: document frequencies of " in log
    assert " n-grams in 24 references of 12 sources" in log
    assert "; the loss has 1 - reward" in log
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    validations = [line for line in lines if line["type"] == "validation"]
    assert [line["step"] for line in validations] == [2, 4]
    assert all("cider-d" in line for line in validations)


@pytest.mark.wide
def test_resumed_training_equals_uninterrupted_training(images, first_run, tmp_path):
    heedful.train(self_critical(images, first_run, 4), tmp_path / "whole")
    heedful.train(self_critical(images, first_run, 2), tmp_path / "parts")
    heedful.train(self_critical(images, first_run, 4), tmp_path / "parts")
    whole, parts = (
        (tmp_path / name / "checkpoints" / "step-00000004" / "model.safetensors").read_bytes()
        for name in ("whole", "parts")
    )
    assert whole == parts
