"""What a transducer says of known targets, and what it finds wrong with where it looked."""

import copy

import pytest
import torch

from heedful.attention import Softmax
from heedful.attention.baselines import MovingBaseline
from heedful.attention.hard import Sampled
from heedful.attention.penalties import CoverageLoss, DoublyStochastic
from heedful.text.vocabulary import PAD
from tests.catalogue import batch, build, store


def system():
    return copy.deepcopy(build("gru, attend-then-step"))


def test_without_penalties_there_are_none():
    assert system()(batch(store(), [0, 1, 2])).penalties == {}


def test_penalties_are_those_of_real_targets_and_places():
    """By a loop over the sentences, each without its padding."""
    model = system()
    attention = model.decoder.wiring.attention
    attention.penalties.extend([DoublyStochastic(1.0), CoverageLoss(1.0)])
    examples = batch(store(), list(range(7)), extra=2)
    found = model(examples)
    missing = overlap = 0.0
    for row, weights in enumerate(found.weights):
        length = int(examples.sources.lengths[row])
        seen = weights[examples.targets[row] != PAD][:, :length]
        missing += (1 - seen.sum(0)).square().sum()
        for step in range(1, len(seen)):
            overlap += torch.minimum(seen[step], seen[:step].sum(0)).sum()
    assert found.penalties["doubly-stochastic"].item() == pytest.approx(missing.item())
    assert found.penalties["coverage"].item() == pytest.approx(overlap.item())


def test_rewards_are_the_log_likelihoods_of_the_real_targets():
    model = system().train()
    align = Sampled(Softmax(), MovingBaseline(0.0), credit="future").double()
    model.decoder.wiring.attention.align = align
    examples = batch(store(), [0, 3, 4], extra=1)
    found = model(examples)
    assert set(found.penalties) == {"reinforce", "entropy-bonus"}
    rewards = []
    for log_probs, targets in zip(found.log_probs, examples.targets.tolist(), strict=True):
        real = [token for token in targets if token != PAD]
        said = [log_probs[step, token].item() for step, token in enumerate(real)]
        rewards += [sum(said[step:]) for step in range(len(real))]
    assert align.baseline.value.item() == pytest.approx(sum(rewards) / len(rewards))


def test_a_model_in_use_draws_nothing_and_is_penalised_for_nothing():
    model = system()
    model.decoder.wiring.attention.align = Sampled(Softmax(), MovingBaseline()).eval()
    examples = batch(store(), [0, 1, 2])
    first, second = model(examples), model(examples)
    assert first.penalties == {}
    torch.testing.assert_close(first.log_probs, second.log_probs)
