"""Hard alignments: what is chosen, how often, and what gradient comes back."""

import math

import pytest
import torch
from pydantic import TypeAdapter

from heedful.attention import (
    AttentionState,
    DotScore,
    SingleHeadAttention,
    SoftmaxAlignment,
    SparsemaxAlignment,
    WeightedSumReadout,
)
from heedful.attention.hard_alignment import (
    ArgmaxAlignment,
    GumbelSoftmaxAlignment,
    HardAlignmentConfig,
    LearnedBaseline,
    MovingAverageBaseline,
    SampledAlignment,
    StraightThroughAlignment,
    ZeroBaseline,
)

MAKERS = {
    "argmax": ArgmaxAlignment,
    "sampled": lambda inner: SampledAlignment(inner, ZeroBaseline(), soft_probability=0.0),
    "half soft": lambda inner: SampledAlignment(inner, MovingAverageBaseline()),
    "straight-through": StraightThroughAlignment,
    "straight-through, likeliest": lambda inner: StraightThroughAlignment(
        inner, sample_in_training=False
    ),
    "gumbel-softmax": lambda inner: GumbelSoftmaxAlignment(inner, temperature=0.1),
    "gumbel-softmax, straight": lambda inner: GumbelSoftmaxAlignment(inner, straight_through=True),
}
CHOOSING = {
    f"{name} of {type(inner).__name__.lower()}": make(inner)
    for name, make in MAKERS.items()
    for inner in (SoftmaxAlignment(), SparsemaxAlignment())
}
each_alignment = pytest.mark.parametrize("align", CHOOSING.values(), ids=CHOOSING)
each_mode = pytest.mark.parametrize("mode", ["train", "eval"])
DRAWING = ["sampled", "straight-through", "gumbel-softmax", "gumbel-softmax, straight"]

# P(chi-square > 31) is less than 1e-6 for three degrees of freedom.
CHI_SQUARE_OF_FOUR_PLACES = 31.0


def visible(scores):
    return torch.ones_like(scores, dtype=torch.bool)


def past(chance):
    """Nothing was asked, and this was drawn for each source."""
    nothing = torch.zeros(len(chance), 1)
    return AttentionState(nothing[:, 0].long(), nothing, nothing, nothing, torch.tensor(chance))


@each_alignment
def test_in_use_the_best_visible_place_gets_all(align):
    align.eval()
    scores = torch.tensor([[[1.0, 3.0, 2.0], [1.0, 3.0, 2.0], [1.0, 3.0, 2.0]]])
    mask = torch.tensor([[[True] * 3, [True, False, True], [False] * 3]])
    weights = align(scores, mask).weights
    assert weights.tolist() == [[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]]


@each_alignment
@each_mode
def test_one_unit_goes_to_visible_places_and_nothing_where_none_is(align, mode):
    getattr(align, mode)()
    scores, mask = torch.randn(40, 3, 6), torch.rand(40, 3, 6) < 0.5
    weights = align(scores, mask).weights
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).float())


@each_alignment
@each_mode
@pytest.mark.parametrize("hidden", [float("nan"), float("inf"), 1e30], ids=str)
def test_whatever_stands_at_a_hidden_place_is_not_read(align, mode, hidden):
    getattr(align, mode)()
    scores, mask = torch.randn(1, 2, 4), torch.tensor([[[True, False, True, True], [False] * 4]])
    found = []
    for each in (scores, scores.masked_fill(~mask, hidden)):
        torch.manual_seed(5)
        each.requires_grad_()
        aligned = align(each, mask)
        (aligned.weights + aligned.probabilities).square().sum().backward()
        found.append((aligned.weights, each.grad))
    for clean, spoiled in zip(*found, strict=True):
        torch.testing.assert_close(clean, spoiled)
    assert (found[1][1][~mask] == 0).all()


@each_alignment
@each_mode
def test_nan_stays_visible_in_its_row_alone(align, mode):
    getattr(align, mode)()
    scores = torch.tensor([[[0.0, float("nan"), 1.0], [0.0, 1.0, 2.0]]])
    weights = align(scores, visible(scores)).weights
    assert weights[0, 0].isnan().any()
    assert weights[0, 1].isfinite().all()


@each_alignment
@each_mode
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_stays_half_and_finite(align, mode, dtype):
    getattr(align, mode)()
    scores = (10 * torch.randn(2, 3, 50)).to(dtype).requires_grad_()
    aligned = align(scores, visible(scores))
    assert {part.dtype for part in aligned if part is not None} == {dtype}
    (aligned.weights + aligned.probabilities).square().sum().backward()
    assert aligned.weights.isfinite().all()
    assert scores.grad.isfinite().all()


def chi_square(counts, probabilities):
    expected = probabilities * counts.sum()
    return ((counts - expected).square() / expected).sum().item()


@pytest.mark.parametrize("name", DRAWING)
@pytest.mark.parametrize("dtype", [torch.double, torch.float32, torch.bfloat16], ids=str)
def test_places_are_drawn_as_often_as_they_are_likely(name, dtype):
    align = MAKERS[name](SoftmaxAlignment())
    logits = torch.tensor([0.5, 9.0, 0.3, 0.15, 0.05]).log().to(dtype)
    mask = torch.tensor([True, False, True, True, True])
    scores = logits.expand(1, 20_000, 5)
    aligned = align(scores, mask.expand(1, 1, 5))
    counts = aligned.weights[0].argmax(-1).bincount(minlength=5).double()
    likely = aligned.probabilities[0, 0].double()
    assert counts[1] == 0
    assert chi_square(counts[mask], likely[mask] / likely.sum()) < CHI_SQUARE_OF_FOUR_PLACES


def test_a_place_without_any_probability_is_never_drawn():
    align = SampledAlignment(SparsemaxAlignment(), ZeroBaseline(), soft_probability=0.0)
    scores = torch.tensor([1.0, 0.9, -1.0, -5.0]).expand(1, 5000, 4)
    weights = align(scores, visible(scores)).weights
    assert (weights.sum(1)[0] > 0).tolist() == [True, True, False, False]


def test_the_log_probability_is_that_of_the_place_drawn_and_zero_where_none_was():
    align = SampledAlignment(SoftmaxAlignment(), ZeroBaseline())
    scores = torch.randn(2, 3, 4, dtype=torch.double, requires_grad=True)
    mask = visible(scores).clone()
    mask[0, 1] = False
    aligned = align(scores, mask, state=past([0.9, 0.1]))
    drawn = (aligned.weights[0] * aligned.probabilities[0]).sum(-1).tolist()
    assert aligned.log_probs[0, 0].item() == pytest.approx(math.log(drawn[0]))
    assert aligned.log_probs[0, 1] == 0
    assert aligned.log_probs[0, 2].item() == pytest.approx(math.log(drawn[2]))
    assert (aligned.log_probs[1] == 0).all()
    aligned.log_probs.sum().backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[0, 1] == 0).all()
    assert (scores.grad[1] == 0).all()


def test_a_source_is_soft_or_drawn_for_all_its_queries():
    scores = torch.randn(3, 4, 5, requires_grad=True)
    align = SampledAlignment(SoftmaxAlignment(), ZeroBaseline(), soft_probability=0.5)
    aligned = align(scores, visible(scores), state=past([0.49, 0.5, 0.999]))
    torch.testing.assert_close(aligned.weights[0], aligned.probabilities[0])
    assert ((aligned.weights[1:] == 0) | (aligned.weights[1:] == 1)).all()
    aligned.weights.square().sum().backward()
    assert scores.grad[0].abs().sum() > 0
    assert (scores.grad[1:] == 0).all()


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 1.0])
def test_as_many_sources_are_soft_as_was_asked_for(share):
    """Within five standard deviations of a binomial, with a past and without one."""
    count = 4000
    attention = SingleHeadAttention(
        DotScore(),
        SampledAlignment(SoftmaxAlignment(), ZeroBaseline(), soft_probability=share),
        WeightedSumReadout(),
    )
    memory = attention.build_memory(torch.randn(count, 3, 2), torch.ones(1, 1, 3, dtype=torch.bool))
    queries = torch.randn(count, 1, 2)
    for carried in (attention.initial_state(memory), None):
        weights = attention(queries, memory, carried).weights
        soft = ((weights > 0) & (weights < 1)).any(-1).sum().item()
        assert abs(soft - share * count) <= 5 * math.sqrt(share * (1 - share) * count)


def test_what_was_decided_for_a_source_holds_step_after_step():
    attention = SingleHeadAttention(
        DotScore(), SampledAlignment(SoftmaxAlignment(), ZeroBaseline()), WeightedSumReadout()
    )
    memory = attention.build_memory(torch.randn(50, 3, 2), torch.ones(1, 1, 3, dtype=torch.bool))
    carried, seen = attention.initial_state(memory), []
    for _ in range(6):
        attended = attention(torch.randn(50, 1, 2), memory, carried)
        carried = attended.state
        seen.append((attended.weights < 1).all(-1))
    decided = torch.cat(seen, dim=1)
    assert (decided.all(-1) | ~decided.any(-1)).all()
    assert 0 < decided[:, 0].sum() < 50


@pytest.mark.parametrize("drawn", [True, False])
@each_mode
def test_the_straight_through_gradient_is_that_of_the_probabilities(drawn, mode):
    align = StraightThroughAlignment(SoftmaxAlignment(), sample_in_training=drawn)
    getattr(align, mode)()
    scores = torch.randn(2, 3, 5, dtype=torch.double, requires_grad=True)
    mask = torch.rand(2, 3, 5) < 0.7
    prices = torch.randn(2, 3, 5, dtype=torch.double)
    weights = align(scores, mask).weights
    assert ((weights == 0) | (weights == 1)).all()
    (through,) = torch.autograd.grad((weights * prices).sum(), scores)
    (soft,) = torch.autograd.grad(
        (SoftmaxAlignment().normalize(scores, mask) * prices).sum(), scores
    )
    torch.testing.assert_close(through, soft)


def test_argmax_and_drawn_places_give_no_gradient():
    scores = torch.randn(2, 3, 5, requires_grad=True)
    for align in (
        ArgmaxAlignment(SoftmaxAlignment()),
        SampledAlignment(SoftmaxAlignment(), ZeroBaseline()).eval(),
    ):
        assert not align(scores, visible(scores)).weights.requires_grad


def test_gumbel_softmax_divides_by_its_temperature():
    """With the same noise, temperature times the log of the weights differs by a constant."""
    scores = torch.randn(1, 4, 5, dtype=torch.double)
    scaled = []
    for temperature in (0.5, 1.0, 4.0):
        torch.manual_seed(7)
        weights = GumbelSoftmaxAlignment(SoftmaxAlignment(), temperature=temperature)(
            scores, visible(scores)
        ).weights
        scaled.append(temperature * weights.log())
    for each in scaled[1:]:
        difference = each - scaled[0]
        torch.testing.assert_close(difference, difference[..., :1].expand_as(difference))


def test_gumbel_noise_has_the_mean_and_variance_of_its_distribution():
    """Of log w_1 - log w_2: the difference of two Gumbels is logistic, with variance pi^2 / 3."""
    scores = torch.tensor([0.7, 0.0], dtype=torch.double).expand(1, 40_000, 2)
    weights = GumbelSoftmaxAlignment(SoftmaxAlignment())(scores, visible(scores)).weights[0]
    differences = weights[:, 0].log() - weights[:, 1].log()
    deviation = math.pi / math.sqrt(3)
    assert differences.mean().item() == pytest.approx(0.7, abs=5 * deviation / 200)
    # The kurtosis of the logistic is 4.2, so the variance of a square is 3.2 deviation^4.
    spread = 5 * math.sqrt(3.2) * deviation**2 / 200
    assert differences.var().item() == pytest.approx(deviation**2, abs=spread)


def test_gradients_of_gumbel_softmax_are_those_of_finite_differences():
    scores = torch.randn(1, 2, 4, dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[[True, True, False, True], [True] * 4]])

    def weights(each, align):
        torch.manual_seed(3)
        return align(each, mask).weights

    relaxed = GumbelSoftmaxAlignment(SoftmaxAlignment(), temperature=0.7)
    assert torch.autograd.gradcheck(lambda each: weights(each, relaxed), scores)
    straight = GumbelSoftmaxAlignment(SoftmaxAlignment(), temperature=0.7, straight_through=True)
    prices = torch.randn(1, 2, 4, dtype=torch.double)
    gradients = [
        torch.autograd.grad((weights(scores, align) * prices).sum(), scores)[0]
        for align in (relaxed, straight)
    ]
    torch.testing.assert_close(*gradients)
    assert ((weights(scores, straight) % 1) == 0).all()


def build(settings):
    return TypeAdapter(HardAlignmentConfig).validate_python(settings).build(query_size=6)


def test_each_kind_builds_its_alignment_with_its_settings():
    assert isinstance(
        build({"type": "argmax", "inner": {"type": "sparsemax"}}).inner, SparsemaxAlignment
    )
    assert build({"type": "straight-through"}).sample_in_training
    assert not build({"type": "straight-through", "sample_in_training": False}).sample_in_training
    gumbel = build({"type": "gumbel-softmax", "temperature": 0.5, "straight_through": True})
    assert (gumbel.temperature, gumbel.straight_through) == (0.5, True)


def test_sampling_is_xus_unless_told_otherwise():
    align = build({"type": "sampled"})
    constants = (align.soft_probability, align.reward_scale, align.entropy_bonus, align.credit)
    assert constants == (0.5, 0.1, 0.002, "sentence")
    assert isinstance(align.baseline, MovingAverageBaseline)
    assert align.baseline.momentum == 0.9
    learned = build({"type": "sampled", "baseline": {"type": "learned"}, "credit": "future"})
    assert learned.credit == "future"
    assert isinstance(learned.baseline, LearnedBaseline)
    assert isinstance(
        build({"type": "sampled", "baseline": {"type": "zero"}}).baseline, ZeroBaseline
    )
