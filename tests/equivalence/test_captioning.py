"""Captioning models: alone and in a batch, step by step and at once, accelerated and plain."""

import copy

import pytest
import torch

from heedful.acceleration import tuning
from heedful.acceleration.cuda import captured_models
from heedful.acceleration.cuda.captured_models import CapturedEncoderDecoderModel
from heedful.acceleration.registry import accelerate_for_inference
from heedful.models.ensembles import Ensemble
from heedful.search import LengthPenalty
from heedful.tasks.captioning.task import TASK
from heedful.tokenization.vocabulary import PAD
from tests.captioning import CAPTIONERS, build_captioner, caption_batch, select

each_captioner = pytest.mark.parametrize("name", CAPTIONERS)


def search(model, sources, beam_size=2, max_length=5):
    limits = torch.full_like(sources.lengths, max_length)
    penalty = LengthPenalty(0.6)
    return model.search(sources, beam_size=beam_size, max_lengths=limits, length_penalty=penalty)


def assert_same(actual, expected):
    for hypotheses, others in zip(actual, expected, strict=True):
        assert [item.tokens for item in hypotheses] == [item.tokens for item in others]
        for hypothesis, other in zip(hypotheses, others, strict=True):
            assert hypothesis.score == pytest.approx(other.score, rel=1e-6)
            weights, expected_weights = map(torch.from_numpy, (hypothesis.weights, other.weights))
            torch.testing.assert_close(weights, expected_weights)


@each_captioner
@torch.no_grad()
def test_caption_score_is_independent_of_the_batch(name):
    model, batch = build_captioner(name), caption_batch(name)
    together = model(batch, need_weights=True)
    for row in range(len(batch.targets)):
        alone = model(select(batch, [row]), need_weights=True)
        torch.testing.assert_close(alone.log_probs[0], together.log_probs[row])
        torch.testing.assert_close(alone.weights[0], together.weights[row])


@each_captioner
@torch.no_grad()
def test_stepwise_decoding_same_as_known_captions_at_once(name):
    model, batch = build_captioner(name), caption_batch(name)
    expected = model(batch, need_weights=True)
    state = model.initial_state(batch.sources)
    for position, tokens in enumerate(batch.decoder_inputs.unbind(1)):
        output = model.step(tokens, state)
        state = output.state
        torch.testing.assert_close(output.log_probs, expected.log_probs[:, position])
        torch.testing.assert_close(output.weights, expected.weights[:, position])


@each_captioner
def test_batched_captions_match_one_at_a_time(name):
    model, batch = build_captioner(name), caption_batch(name)
    together = search(model, batch.sources)
    alone = [search(model, select(batch, [row]).sources)[0] for row in range(len(batch.targets))]
    assert_same(alone, together)


@each_captioner
def test_accelerated_captions_equal_plain_ones(name):
    model, batch = build_captioner(name), caption_batch(name)
    accelerated = accelerate_for_inference(copy.deepcopy(model), "cpu")
    assert type(accelerated) is not type(model)
    for beam_size in (1, 3):
        actual = search(accelerated, batch.sources, beam_size)
        assert_same(actual, search(model, batch.sources, beam_size))


@each_captioner
@pytest.mark.parametrize("beam_size", [1, 2])
def test_captured_captions_equal_plain_ones(name, beam_size, monkeypatch):
    monkeypatch.setattr(captured_models, "GRAPH_DEVICE_TYPE", "cpu")
    monkeypatch.setattr(tuning, "NUM_PLAIN_BATCHES", 0)
    model, batch = build_captioner(name), caption_batch(name)
    captured = copy.copy(model)
    captured.__class__ = CapturedEncoderDecoderModel
    for rows in ([0, 1, 2, 3, 4], [4, 2, 0]):
        sources = select(batch, rows).sources
        assert_same(search(captured, sources, beam_size), search(model, sources, beam_size))
    assert captured._chain_cache._chains


def test_ensemble_of_equal_models_captions_as_one():
    model, batch = build_captioner("features, soft"), caption_batch("features, soft")
    ensemble = Ensemble([model, copy.deepcopy(model)], "log-probabilities")
    assert_same(search(ensemble, batch.sources), search(model, batch.sources))


@pytest.mark.parametrize("name", ["features, soft", "cnn, soft", "features, transformer"])
def test_padded_batch_has_the_same_loss_and_few_shapes(name):
    model, batch = build_captioner(name), caption_batch(name)
    config = _Config(max_tokens=9 * (2 + batch.targets.size(1)))
    padded = TASK.data.pad_batch(config, batch)
    assert len(padded.targets) == 9
    assert all(len(part) == 9 for part in (*padded.sources, padded.decoder_inputs))
    assert (padded.targets[5:] == PAD).all()
    sums = [TASK.evaluation.batch_sums(model, rows) for rows in (batch, padded)]
    torch.testing.assert_close(sums[1], sums[0])
    assert TASK.data.pad_batch(_Config(max_tokens=8), batch).targets.shape == batch.targets.shape


class _Config:
    """The setting that padding depends on."""

    def __init__(self, max_tokens):
        self.training = self
        self.batching = self
        self.max_tokens = max_tokens
