"""REINFORCE against the exact gradient of the expected log-likelihood.

A tiny decoder attends twice to three visible positions and a masked one; its second output depends
on the first position through state and query. All samples are enumerated: gradients weighted by the
probability of their samples must add up to the exact gradient.
"""

import copy
import math
from itertools import product

import pytest
import torch

from heedful.attention.alignments import (
    AlignmentLossInputs,
    AlignmentOutput,
    SoftmaxAlignment,
    concat_alignments,
)
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.auxiliary_losses import EntropyLoss
from heedful.attention.hard_alignment import (
    Baseline,
    LearnedBaseline,
    MovingAverageBaseline,
    SampledAlignment,
)
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import DotScore

VISIBLE = torch.tensor([True, True, False, True])
NUM_KEYS = [0, 1, 3]
TARGETS = (2, 0)


def moving_average():
    baseline = MovingAverageBaseline()
    baseline.running_mean.fill_(-1.7)
    return baseline


BASELINES = {"none": Baseline, "moving": moving_average, "learned": lambda: LearnedBaseline(2)}


class TinyDecoder(torch.nn.Module):
    """Two decoding steps; the second query is computed from the first context."""

    def __init__(self):
        super().__init__()
        shapes = {"first_query": (2,), "keys": (4, 2), "values": (4, 2), "output_weight": (2, 3)}
        for name, shape in shapes.items():
            weight = torch.randn(*shape, dtype=torch.double)
            self.register_parameter(name, torch.nn.Parameter(weight))

    def log_prob(self, state, target):
        return (state @ self.output_weight).log_softmax(-1)[target]

    def scores(self, query):
        return self.keys @ query


def expected_log_likelihood(decoder):
    """Return the expectation as a sum over all positions."""
    total = 0.0
    first = decoder.scores(decoder.first_query)[VISIBLE].softmax(-1)
    for probability, position in zip(first, NUM_KEYS, strict=True):
        actual = decoder.values[position]
        total = total + probability * decoder.log_prob(actual, TARGETS[0])
        second = decoder.scores(actual.tanh())[VISIBLE].softmax(-1)
        for second_probability, other in zip(second, NUM_KEYS, strict=True):
            log_probs = decoder.log_prob(decoder.values[other] + actual, TARGETS[1])
            total = total + probability * second_probability * log_probs
    return total


def run_decoder(decoder, alignment):
    """Return the loss inputs of one forward pass."""
    query, state, parts, log_probs = decoder.first_query, 0.0, [], []
    for target in TARGETS:
        scores = decoder.scores(query).view(1, 1, 4)
        parts.append(alignment(scores, VISIBLE.view(1, 1, 4), query.view(1, 1, 2)))
        actual = (parts[-1].weights[0] @ decoder.values)[0]
        state = actual + state
        log_probs.append(decoder.log_prob(state, target))
        query = actual.tanh()
    real = torch.ones(1, 2, dtype=torch.bool)
    return AlignmentLossInputs(
        concat_alignments(parts), torch.stack(log_probs)[None], real, VISIBLE[None]
    )


def force_samples(monkeypatch, positions):
    queue = iter(positions)
    monkeypatch.setattr(
        "heedful.attention.hard_alignment._sample", lambda shares: torch.tensor([[[next(queue)]]])
    )


@pytest.mark.parametrize("credit", ["sentence", "future"])
@pytest.mark.parametrize("baseline", BASELINES.values(), ids=BASELINES)
def test_expected_reinforce_gradient_is_exact(baseline, credit, monkeypatch):
    decoder = TinyDecoder()
    alignment = SampledAlignment(
        SoftmaxAlignment(),
        baseline().double(),
        soft_probability=0.0,
        reward_scale=1.0,
        entropy_bonus=0.0,
        credit=credit,
    )
    expected = torch.autograd.grad(-expected_log_likelihood(decoder), list(decoder.parameters()))
    actual = [torch.zeros_like(weight) for weight in decoder.parameters()]
    probabilities = []
    for positions in product(NUM_KEYS, repeat=2):
        force_samples(monkeypatch, positions)
        fresh = copy.deepcopy(alignment)  # the moving average changes
        loss_inputs = run_decoder(decoder, fresh)
        loss = -loss_inputs.log_likelihoods.sum() + sum(
            fresh.compute_auxiliary_losses(loss_inputs).values()
        )
        probability = loss_inputs.alignment.log_probs.sum().exp().item()
        probabilities.append(probability)
        for total, part in zip(
            actual, torch.autograd.grad(loss, list(decoder.parameters())), strict=True
        ):
            total.add_(part, alpha=probability)
    assert math.fsum(probabilities) == pytest.approx(1)
    for ours, exact in zip(actual, expected, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-10, atol=1e-10)


LOG_PROBS = torch.tensor([[-0.5, -1.0, -2.0], [-0.25, -0.75, -9.0]], requires_grad=True)
BASELINES_OUT = torch.tensor([[-4.0, -4.0, -4.0], [-1.0, -1.0, -1.0]])
LOG_LIKELIHOODS = torch.tensor([[-1.0, -2.0, -3.0], [-4.0, -5.0, -99.0]])
REAL = torch.tensor([[True, True, True], [True, True, False]])
PROBABILITIES = torch.tensor([[[0.5, 0.5]] * 3, [[0.25, 0.75]] * 3])


def loss_inputs():
    output = AlignmentOutput(torch.zeros(2, 3, 2), PROBABILITIES, LOG_PROBS, BASELINES_OUT)
    return AlignmentLossInputs(output, LOG_LIKELIHOODS, REAL, torch.ones(2, 2, dtype=torch.bool))


@pytest.mark.parametrize(
    ("credit", "rewards"),
    [("sentence", [[-6, -6, -6], [-9, -9]]), ("future", [[-6, -5, -3], [-9, -5]])],
)
def test_credit_is_whole_sentence_or_future_targets(credit, rewards):
    """Padding of the second sentence has no effect."""
    alignment = SampledAlignment(SoftmaxAlignment(), Baseline(), reward_scale=0.1, credit=credit)
    by_hand = sum(
        (reward - BASELINES_OUT[row, step].item()) * LOG_PROBS[row, step].item()
        for row, rewarded in enumerate(rewards)
        for step, reward in enumerate(rewarded)
    )
    terms = alignment.compute_auxiliary_losses(loss_inputs())
    assert terms["reinforce"].item() == pytest.approx(-0.1 * by_hand)
    (gradient,) = torch.autograd.grad(terms["reinforce"], LOG_PROBS)
    assert gradient[1, 1].item() == pytest.approx(-0.1 * (rewards[1][1] + 1))
    assert gradient[1, 2] == 0


def test_entropy_bonus_sums_over_real_targets():
    quarter = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    terms = SampledAlignment(
        SoftmaxAlignment(), Baseline(), entropy_bonus=0.01
    ).compute_auxiliary_losses(loss_inputs())
    assert terms["entropy-bonus"].item() == pytest.approx(-0.01 * (3 * math.log(2) + 2 * quarter))


def test_moving_average_is_updated_after_use():
    alignment = SampledAlignment(SoftmaxAlignment(), MovingAverageBaseline(0.9))
    output = alignment(torch.zeros(2, 3, 2), torch.ones(2, 1, 2, dtype=torch.bool))
    alignment.compute_auxiliary_losses(loss_inputs()._replace(alignment=output))
    assert (output.baselines == 0).all()
    assert alignment.baseline.running_mean.item() == pytest.approx(0.1 * (3 * -6 + 2 * -9) / 5)


def test_learned_baseline_adds_loss():
    alignment = SampledAlignment(SoftmaxAlignment(), LearnedBaseline(4))
    squared_errors = [(-6 + 4) ** 2] * 3 + [(-9 + 1) ** 2] * 2
    terms = alignment.compute_auxiliary_losses(loss_inputs())
    assert set(terms) == {"reinforce", "entropy-bonus", "baseline"}
    assert terms["baseline"].item() == sum(squared_errors) / 2


def test_no_reinforce_loss_without_samples():
    alignment = SampledAlignment(SoftmaxAlignment(), MovingAverageBaseline()).eval()
    output = alignment(torch.randn(2, 3, 2), torch.ones(2, 1, 2, dtype=torch.bool))
    assert alignment.compute_auxiliary_losses(loss_inputs()._replace(alignment=output)) == {}
    assert alignment.baseline.running_mean == 0


def test_entropy_bonus_and_entropy_loss_have_separate_names():
    alignment = SampledAlignment(SoftmaxAlignment(), Baseline())
    attention = SingleHeadAttention(
        DotScore(), alignment, WeightedSumReadout(), auxiliary_losses=[EntropyLoss(0.5)]
    )
    assert set(attention.compute_auxiliary_losses(loss_inputs())) == {
        "reinforce",
        "entropy-bonus",
        "entropy",
    }
