"""Hard alignments: samples, their frequencies and gradients."""

import math

import pytest
import torch
from pydantic import TypeAdapter

from heedful.attention.alignments import SoftmaxAlignment, SparsemaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.hard_alignment import (
    ArgmaxAlignment,
    Baseline,
    GumbelSoftmaxAlignment,
    HardAlignmentConfig,
    LearnedBaseline,
    MovingAverageBaseline,
    SampledAlignment,
    StraightThroughAlignment,
)
from heedful.attention.memory import AttentionState
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import DotScore

BUILDERS = {
    "argmax": ArgmaxAlignment,
    "sampled": lambda inner: SampledAlignment(inner, Baseline(), soft_probability=0.0),
    "half soft": lambda inner: SampledAlignment(inner, MovingAverageBaseline()),
    "straight-through": StraightThroughAlignment,
    "straight-through, likeliest": lambda inner: StraightThroughAlignment(
        inner, sample_in_training=False
    ),
    "gumbel-softmax": lambda inner: GumbelSoftmaxAlignment(inner, temperature=0.1),
    "gumbel-softmax, straight": lambda inner: GumbelSoftmaxAlignment(inner, straight_through=True),
}
both_modes = pytest.mark.parametrize("mode", ["train", "eval"])
SAMPLING = ["sampled", "straight-through", "gumbel-softmax", "gumbel-softmax, straight"]

# P(chi-square > 31) is less than 1e-6 for three degrees of freedom.
CHI_SQUARE_OF_FOUR_PLACES = 31.0


def visible(scores):
    return torch.ones_like(scores, dtype=torch.bool)


def state_with_sample(samples):
    """A state before the first query with this uniform sample for each source."""
    zeros = torch.zeros(len(samples), 1)
    return AttentionState(zeros[:, 0].long(), zeros, zeros, zeros, torch.tensor(samples))


@pytest.mark.parametrize("name", BUILDERS)
@pytest.mark.parametrize("inner", [SoftmaxAlignment(), SparsemaxAlignment()], ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_stays_half_and_finite_in_training(name, inner, dtype):
    alignment = BUILDERS[name](inner)
    scores = (10 * torch.randn(2, 3, 50)).to(dtype).requires_grad_()
    output = alignment(scores, visible(scores))
    assert {part.dtype for part in output if part is not None} == {dtype}
    (output.weights + output.probabilities).square().sum().backward()
    assert output.weights.isfinite().all()
    assert scores.grad.isfinite().all()


def chi_square(counts, probabilities):
    expected = probabilities * counts.sum()
    return ((counts - expected).square() / expected).sum().item()


@pytest.mark.parametrize("name", SAMPLING)
@pytest.mark.parametrize("dtype", [torch.double, torch.float32, torch.bfloat16], ids=str)
def test_samples_follow_probabilities(name, dtype):
    alignment = BUILDERS[name](SoftmaxAlignment())
    logits = torch.tensor([0.5, 9.0, 0.3, 0.15, 0.05]).log().to(dtype)
    mask = torch.tensor([True, False, True, True, True])
    scores = logits.expand(1, 20_000, 5)
    output = alignment(scores, mask.expand(1, 1, 5))
    counts = output.weights[0].argmax(-1).bincount(minlength=5).double()
    likely = output.probabilities[0, 0].double()
    assert counts[1] == 0
    assert chi_square(counts[mask], likely[mask] / likely.sum()) < CHI_SQUARE_OF_FOUR_PLACES


def test_position_with_zero_probability_is_never_sampled():
    alignment = SampledAlignment(SparsemaxAlignment(), Baseline(), soft_probability=0.0)
    scores = torch.tensor([1.0, 0.9, -1.0, -5.0]).expand(1, 5000, 4)
    weights = alignment(scores, visible(scores)).weights
    assert (weights.sum(1)[0] > 0).tolist() == [True, True, False, False]


def test_log_prob_is_that_of_sample_and_zero_without_sample():
    alignment = SampledAlignment(SoftmaxAlignment(), Baseline())
    scores = torch.randn(2, 3, 4, dtype=torch.double, requires_grad=True)
    mask = visible(scores).clone()
    mask[0, 1] = False
    output = alignment(scores, mask, state=state_with_sample([0.9, 0.1]))
    drawn = (output.weights[0] * output.probabilities[0]).sum(-1).tolist()
    assert output.log_probs[0, 0].item() == pytest.approx(math.log(drawn[0]))
    assert output.log_probs[0, 1] == 0
    assert output.log_probs[0, 2].item() == pytest.approx(math.log(drawn[2]))
    assert (output.log_probs[1] == 0).all()
    output.log_probs.sum().backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[0, 1] == 0).all()
    assert (scores.grad[1] == 0).all()


def test_source_is_soft_or_sampled_for_all_queries():
    scores = torch.randn(3, 4, 5, requires_grad=True)
    alignment = SampledAlignment(SoftmaxAlignment(), Baseline(), soft_probability=0.5)
    output = alignment(scores, visible(scores), state=state_with_sample([0.49, 0.5, 0.999]))
    torch.testing.assert_close(output.weights[0], output.probabilities[0])
    assert ((output.weights[1:] == 0) | (output.weights[1:] == 1)).all()
    output.weights.square().sum().backward()
    assert scores.grad[0].abs().sum() > 0
    assert (scores.grad[1:] == 0).all()


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_fraction_of_soft_sources_is_soft_probability(share):
    """Within five standard deviations of a binomial, with and without a state."""
    count = 4000
    attention = SingleHeadAttention(
        DotScore(),
        SampledAlignment(SoftmaxAlignment(), Baseline(), soft_probability=share),
        WeightedSumReadout(),
    )
    memory = attention.build_memory(torch.randn(count, 3, 2), torch.ones(1, 1, 3, dtype=torch.bool))
    queries = torch.randn(count, 1, 2)
    for state in (attention.initial_state(memory), None):
        weights = attention(queries, memory, state).weights
        soft = ((weights > 0) & (weights < 1)).any(-1).sum().item()
        assert abs(soft - share * count) <= 5 * math.sqrt(share * (1 - share) * count)


def test_soft_or_sampled_is_fixed_over_steps():
    attention = SingleHeadAttention(
        DotScore(), SampledAlignment(SoftmaxAlignment(), Baseline()), WeightedSumReadout()
    )
    memory = attention.build_memory(torch.randn(50, 3, 2), torch.ones(1, 1, 3, dtype=torch.bool))
    state, is_soft = attention.initial_state(memory), []
    for _ in range(6):
        output = attention(torch.randn(50, 1, 2), memory, state)
        state = output.state
        is_soft.append((output.weights < 1).all(-1))
    is_soft_at_step = torch.cat(is_soft, dim=1)
    assert (is_soft_at_step.all(-1) | ~is_soft_at_step.any(-1)).all()
    assert 0 < is_soft_at_step[:, 0].sum() < 50


@pytest.mark.parametrize("drawn", [True, False])
@both_modes
def test_straight_through_gradient_is_that_of_probabilities(drawn, mode):
    alignment = StraightThroughAlignment(SoftmaxAlignment(), sample_in_training=drawn)
    getattr(alignment, mode)()
    scores = torch.randn(2, 3, 5, dtype=torch.double, requires_grad=True)
    mask = torch.rand(2, 3, 5) < 0.7
    grad_outputs = torch.randn(2, 3, 5, dtype=torch.double)
    weights = alignment(scores, mask).weights
    assert ((weights == 0) | (weights == 1)).all()
    (through,) = torch.autograd.grad((weights * grad_outputs).sum(), scores)
    (soft,) = torch.autograd.grad(
        (SoftmaxAlignment().normalize(scores, mask) * grad_outputs).sum(), scores
    )
    torch.testing.assert_close(through, soft)


def test_argmax_and_sampled_weights_have_no_gradient():
    scores = torch.randn(2, 3, 5, requires_grad=True)
    for alignment in (
        ArgmaxAlignment(SoftmaxAlignment()),
        SampledAlignment(SoftmaxAlignment(), Baseline()).eval(),
    ):
        assert not alignment(scores, visible(scores)).weights.requires_grad


def test_gumbel_softmax_divides_by_temperature():
    """With the same noise, temperature times the log of the weights differs by a constant."""
    scores = torch.randn(1, 4, 5, dtype=torch.double)
    scaled = []
    for temperature in (0.5, 1.0, 4.0):
        torch.manual_seed(7)
        weights = GumbelSoftmaxAlignment(SoftmaxAlignment(), temperature=temperature)(
            scores, visible(scores)
        ).weights
        scaled.append(temperature * weights.log())
    for scores in scaled[1:]:
        difference = scores - scaled[0]
        torch.testing.assert_close(difference, difference[..., :1].expand_as(difference))


def test_gumbel_softmax_gradients_match_finite_differences():
    scores = torch.randn(1, 2, 4, dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[[True, True, False, True], [True] * 4]])

    def weights(scores, alignment):
        torch.manual_seed(3)
        return alignment(scores, mask).weights

    relaxed = GumbelSoftmaxAlignment(SoftmaxAlignment(), temperature=0.7)
    assert torch.autograd.gradcheck(lambda scores: weights(scores, relaxed), scores)
    straight = GumbelSoftmaxAlignment(SoftmaxAlignment(), temperature=0.7, straight_through=True)
    grad_outputs = torch.randn(1, 2, 4, dtype=torch.double)
    gradients = [
        torch.autograd.grad((weights(scores, alignment) * grad_outputs).sum(), scores)[0]
        for alignment in (relaxed, straight)
    ]
    torch.testing.assert_close(*gradients)
    assert ((weights(scores, straight) % 1) == 0).all()


def build(settings):
    return TypeAdapter(HardAlignmentConfig).validate_python(settings).build(query_size=6)


def test_config_passes_settings_to_alignment():
    sparse = build({"type": "argmax", "inner": {"type": "sparsemax"}})
    assert isinstance(sparse.inner, SparsemaxAlignment)
    assert not build({"type": "straight-through", "sample_in_training": False}).sample_in_training
    gumbel = build({"type": "gumbel-softmax", "temperature": 0.5, "straight_through": True})
    assert (gumbel.temperature, gumbel.straight_through) == (0.5, True)


def test_expected_inference_keeps_probabilities():
    scores, mask = torch.randn(4, 3, 6), torch.rand(4, 3, 6) < 0.7
    alignment = build({"type": "sampled", "inference": "expected"}).eval()
    output = alignment(scores, mask)
    expected = SoftmaxAlignment()(scores, mask).weights
    torch.testing.assert_close(output.weights, expected)
    torch.testing.assert_close(output.probabilities, expected)
    assert output.log_probs is None


def test_sampled_alignment_defaults_are_those_of_xu_2015():
    alignment = build({"type": "sampled"})
    constants = (
        alignment.soft_probability,
        alignment.reward_scale,
        alignment.entropy_bonus,
        alignment.credit,
        alignment.inference,
    )
    assert constants == (0.5, 0.1, 0.002, "sentence", "hard")
    assert isinstance(alignment.baseline, MovingAverageBaseline)
    assert alignment.baseline.momentum == 0.9
    learned = build({"type": "sampled", "baseline": {"type": "learned"}, "credit": "future"})
    assert learned.credit == "future"
    assert isinstance(learned.baseline, LearnedBaseline)
    zero = build({"type": "sampled", "baseline": {"type": "zero"}})
    assert type(zero.baseline) is Baseline
