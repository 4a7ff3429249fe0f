"""Experiments with images: weights of a sentinel by word, glimpses of easy and hard images."""

import numpy as np
import pytest

from experiments import sentinel, stopping
from heedful.errors import RunError
from heedful.inspection.figures import CaptionAttention
from heedful.tasks.glimpse.predictor import GlimpsePrediction


def caption_of(words, gates):
    grid = np.full((len(words), 2, 2), 0.1)
    return CaptionAttention(None, words, grid, gates)


def test_words_listed_by_mean_sentinel_weight():
    captions = [caption_of(["a", "red", "a"], [0.2, 0.9, 0.4]), caption_of(["red"], [1.0])]
    (first, second) = sentinel.measure_words(captions)
    assert (first.word, first.count, second.word, second.count) == ("a", 2, "red", 2)
    assert first.sentinel_weight == pytest.approx(0.7)
    assert second.sentinel_weight == pytest.approx(0.05)
    assert sentinel.measure_words(captions, min_count=3) == []


def test_model_without_sentinel_raises():
    with pytest.raises(RunError) as error:
        sentinel.measure_words([caption_of(["a"], None)])
    assert str(error.value) == (
        "sentinel: this model has no sentinel\n"
        "  name a run of adaptive-attention-2017 or another with the wiring 'adaptive'"
    )


def prediction_of(target, *probabilities):
    """Return a prediction of two classes, with these probabilities of class 1 after glimpses."""
    steps = np.array([[1 - one, one] for one in probabilities])
    boxes = np.zeros((len(steps), 1, 4))
    return GlimpsePrediction(np.zeros((2, 2), np.uint8), steps[-1], steps, boxes, target)


def test_hard_images_are_those_less_certain_after_one_glimpse():
    predictions = [
        prediction_of(1, 0.9),
        prediction_of(0, 0.2, 0.1),
        prediction_of(1, 0.3, 0.4, 0.6, 0.8),
        prediction_of(0, 0.9, 0.6, 0.7),  # wrong
    ]
    result = stopping.measure_stopping(predictions)
    assert result == stopping.StoppingResult(2.5, 1.5, 3.5, 25.0)
