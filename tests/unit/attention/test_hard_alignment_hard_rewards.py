"""REINFORCE, against the exact gradient of the expectation it estimates.

A tiny decoder looks twice at three visible places and a hidden one. What it says second depends
on where it looked first, by its state and by where it then looks. All choices are gone through,
so there is nothing to draw: gradients, each weighed with the probability of its choices, must add
up to the gradient of the expected log-likelihood to the last digits.
"""

import copy
import math
from itertools import product

import pytest
import torch

from heedful.attention import DotScore, SingleHeadAttention, SoftmaxAlignment, WeightedSumReadout
from heedful.attention.auxiliary_losses import EntropyLoss
from heedful.attention.hard_alignment import (
    LearnedBaseline,
    MovingAverageBaseline,
    SampledAlignment,
    ZeroBaseline,
)
from heedful.attention.outputs import AlignmentLossInputs, AlignmentOutput, concat_alignments

VISIBLE = torch.tensor([True, True, False, True])
PLACES = [0, 1, 3]
TARGETS = (2, 0)


def moving():
    baseline = MovingAverageBaseline()
    baseline.running_mean.fill_(-1.7)
    return baseline


BASELINES = {"none": ZeroBaseline, "moving": moving, "learned": lambda: LearnedBaseline(2)}


class Tiny(torch.nn.Module):
    """Two steps: ask, look, say; the second asks with what the first one found."""

    def __init__(self):
        super().__init__()
        for name, shape in {"begin": (2,), "keys": (4, 2), "values": (4, 2), "out": (2, 3)}.items():
            weight = torch.randn(*shape, dtype=torch.double)
            self.register_parameter(name, torch.nn.Parameter(weight))

    def say(self, state, target):
        return (state @ self.output_projection).log_softmax(-1)[target]

    def scores(self, query):
        return self.keys @ query


def expected_log_likelihood(tiny):
    """Sum over all choices, each step written out."""
    total = 0.0
    first = tiny.scores(tiny.begin)[VISIBLE].softmax(-1)
    for chance, place in zip(first, PLACES, strict=True):
        found = tiny.values[place]
        total = total + chance * tiny.say(found, TARGETS[0])
        second = tiny.scores(found.tanh())[VISIBLE].softmax(-1)
        for again, other in zip(second, PLACES, strict=True):
            said = tiny.say(tiny.values[other] + found, TARGETS[1])
            total = total + chance * again * said
    return total


def outcome(tiny, align):
    """What the alignment makes of one pass: the log-likelihoods and where it looked."""
    query, state, parts, said = tiny.begin, 0.0, [], []
    for target in TARGETS:
        scores = tiny.scores(query).view(1, 1, 4)
        parts.append(align(scores, VISIBLE.view(1, 1, 4), query.view(1, 1, 2)))
        found = (parts[-1].weights[0] @ tiny.values)[0]
        state = found + state
        said.append(tiny.say(state, target))
        query = found.tanh()
    real = torch.ones(1, 2, dtype=torch.bool)
    return AlignmentLossInputs(
        concat_alignments(parts), torch.stack(said)[None], real, VISIBLE[None]
    )


def force(monkeypatch, places):
    queue = iter(places)
    monkeypatch.setattr(
        "heedful.attention.hard_alignment._sample", lambda shares: torch.tensor([[[next(queue)]]])
    )


@pytest.mark.parametrize("credit", ["sentence", "future"])
@pytest.mark.parametrize("baseline", BASELINES.values(), ids=BASELINES)
def test_gradients_over_all_choices_add_up_to_that_of_the_expectation(
    baseline, credit, monkeypatch
):
    tiny = Tiny()
    align = SampledAlignment(
        SoftmaxAlignment(),
        baseline().double(),
        soft_probability=0.0,
        reward_scale=1.0,
        entropy_bonus=0.0,
        credit=credit,
    )
    wanted = torch.autograd.grad(-expected_log_likelihood(tiny), list(tiny.parameters()))
    found = [torch.zeros_like(weight) for weight in tiny.parameters()]
    chances = []
    for places in product(PLACES, repeat=2):
        force(monkeypatch, places)
        fresh = copy.deepcopy(align)  # a moving baseline moves
        looked = outcome(tiny, fresh)
        loss = -looked.log_likelihoods.sum() + sum(fresh.compute_auxiliary_losses(looked).values())
        chance = looked.alignment.log_probs.sum().exp().item()
        chances.append(chance)
        for total, part in zip(
            found, torch.autograd.grad(loss, list(tiny.parameters())), strict=True
        ):
            total.add_(part, alpha=chance)
    assert math.fsum(chances) == pytest.approx(1)
    for ours, exact in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-10, atol=1e-10)


def test_without_the_reward_the_gradient_is_another(monkeypatch):
    """The test above can tell: what passes through the contexts alone is not enough."""
    tiny = Tiny()
    align = SampledAlignment(SoftmaxAlignment(), ZeroBaseline(), soft_probability=0.0)
    found = torch.zeros_like(tiny.begin)
    for places in product(PLACES, repeat=2):
        force(monkeypatch, places)
        looked = outcome(tiny, align)
        gradient = torch.autograd.grad(
            -looked.log_likelihoods.sum(), tiny.begin, allow_unused=True
        )[0]
        if gradient is not None:
            found += gradient * looked.alignment.log_probs.sum().exp()
    (wanted,) = torch.autograd.grad(-expected_log_likelihood(tiny), tiny.begin)
    assert not torch.allclose(found, wanted, atol=1e-3)


LOG_PROBS = torch.tensor([[-0.5, -1.0, -2.0], [-0.25, -0.75, -9.0]], requires_grad=True)
EXPECTED = torch.tensor([[-4.0, -4.0, -4.0], [-1.0, -1.0, -1.0]])
SAID = torch.tensor([[-1.0, -2.0, -3.0], [-4.0, -5.0, -99.0]])
REAL = torch.tensor([[True, True, True], [True, True, False]])
PROBABILITIES = torch.tensor([[[0.5, 0.5]] * 3, [[0.25, 0.75]] * 3])


def looked():
    aligned = AlignmentOutput(torch.zeros(2, 3, 2), PROBABILITIES, LOG_PROBS, EXPECTED)
    return AlignmentLossInputs(aligned, SAID, REAL, torch.ones(2, 2, dtype=torch.bool))


@pytest.mark.parametrize(
    ("credit", "rewards"),
    [("sentence", [[-6, -6, -6], [-9, -9]]), ("future", [[-6, -5, -3], [-9, -5]])],
)
def test_a_choice_is_credited_with_the_sentence_or_with_what_comes_after_it(credit, rewards):
    """By hand; the padding of the second sentence counts for nothing."""
    align = SampledAlignment(SoftmaxAlignment(), ZeroBaseline(), reward_scale=0.1, credit=credit)
    by_hand = sum(
        (reward - EXPECTED[row, step].item()) * LOG_PROBS[row, step].item()
        for row, rewarded in enumerate(rewards)
        for step, reward in enumerate(rewarded)
    )
    terms = align.compute_auxiliary_losses(looked())
    assert terms["reinforce"].item() == pytest.approx(-0.1 * by_hand)
    (gradient,) = torch.autograd.grad(terms["reinforce"], LOG_PROBS)
    assert gradient[1, 1].item() == pytest.approx(-0.1 * (rewards[1][1] + 1))
    assert gradient[1, 2] == 0


def test_the_bonus_is_the_entropy_of_the_real_targets():
    quarter = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    terms = SampledAlignment(
        SoftmaxAlignment(), ZeroBaseline(), entropy_bonus=0.01
    ).compute_auxiliary_losses(looked())
    assert terms["entropy-bonus"].item() == pytest.approx(-0.01 * (3 * math.log(2) + 2 * quarter))


def test_the_moving_baseline_takes_in_the_rewards_after_they_were_used():
    align = SampledAlignment(SoftmaxAlignment(), MovingAverageBaseline(0.9))
    aligned = align(torch.zeros(2, 3, 2), torch.ones(2, 1, 2, dtype=torch.bool))
    align.compute_auxiliary_losses(looked()._replace(alignment=aligned))
    assert (aligned.baselines == 0).all()
    assert align.baseline.running_mean.item() == pytest.approx(0.1 * (3 * -6 + 2 * -9) / 5)


def test_a_learned_baseline_adds_its_own_loss():
    align = SampledAlignment(SoftmaxAlignment(), LearnedBaseline(4))
    missed = [(-6 + 4) ** 2] * 3 + [(-9 + 1) ** 2] * 2
    terms = align.compute_auxiliary_losses(looked())
    assert set(terms) == {"reinforce", "entropy-bonus", "baseline"}
    assert terms["baseline"].item() == sum(missed) / 2


def test_nothing_is_added_where_nothing_was_drawn():
    align = SampledAlignment(SoftmaxAlignment(), MovingAverageBaseline()).eval()
    aligned = align(torch.randn(2, 3, 2), torch.ones(2, 1, 2, dtype=torch.bool))
    assert align.compute_auxiliary_losses(looked()._replace(alignment=aligned)) == {}
    assert align.baseline.running_mean == 0


def test_the_bonus_and_a_penalty_on_entropy_stand_side_by_side():
    align = SampledAlignment(SoftmaxAlignment(), ZeroBaseline())
    attention = SingleHeadAttention(
        DotScore(), align, WeightedSumReadout(), auxiliary_losses=[EntropyLoss(0.5)]
    )
    assert set(attention.compute_auxiliary_losses(looked())) == {
        "reinforce",
        "entropy-bonus",
        "entropy",
    }
