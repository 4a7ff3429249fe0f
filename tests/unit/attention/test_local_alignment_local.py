"""Local attention against the formulas of Luong et al. 2015, one place at a time."""

import math

import pytest
import torch

from heedful.attention import SoftmaxAlignment, SparsemaxAlignment
from heedful.attention.local_alignment import (
    LocalAlignment,
    LocalAlignmentConfig,
    MonotonicCenter,
    PredictiveCenter,
    WindowCenter,
)
from heedful.config import validate_settings
from heedful.errors import ConfigError

TAPERS = ["none", "before", "after"]
each_taper = pytest.mark.parametrize("taper", TAPERS)


class Given(WindowCenter):
    """A centre that is told to it."""

    def __init__(self, *places):
        super().__init__()
        self.places = torch.nn.Parameter(torch.tensor(places, dtype=torch.double))

    def forward(self, queries, lengths, state=None):
        return self.places.expand(lengths.shape)


def local(*places, reach=2, gaussian="none", inner=None):
    return LocalAlignment(
        inner or SoftmaxAlignment(), Given(*places), half_width=reach, gaussian=gaussian
    )


def everywhere(scores):
    return torch.ones_like(scores, dtype=torch.bool)


def scores_of(*shape):
    return torch.randn(*shape, dtype=torch.double)


def by_hand(scores, center, *, reach, gaussian):
    """One row: softmax over the window, with exp(-(s - p)^2 / (2 sigma^2)) where it belongs."""
    first, last = math.floor(center) - reach, math.floor(center) + reach
    window = [place for place in range(len(scores)) if first <= place <= last]
    sigma = reach / 2
    near = {place: math.exp(-((place - center) ** 2) / (2 * sigma**2)) for place in window}
    power = {place: math.exp(scores[place]) for place in window}
    if gaussian == "before":
        power = {place: power[place] * near[place] for place in window}
    weights = {place: power[place] / sum(power.values()) for place in window}
    if gaussian == "after":
        weights = {place: weights[place] * near[place] for place in window}
    return torch.tensor([weights.get(place, 0.0) for place in range(len(scores))]).double()


@each_taper
@pytest.mark.parametrize("reach", [1, 2, 3])
@pytest.mark.parametrize("center", [0.0, 0.7, 3.0, 4.2, 6.99, 8.0, 8.6, 9.0])
def test_weights_are_those_of_the_formula(gaussian, reach, center):
    scores = scores_of(1, 1, 9)
    aligned = local(center, reach=reach, gaussian=gaussian)(scores, everywhere(scores))
    wanted = by_hand(scores[0, 0].tolist(), center, reach=reach, gaussian=gaussian)
    torch.testing.assert_close(aligned.weights[0, 0].detach(), wanted)


@pytest.mark.parametrize(
    ("center", "seen"),
    [
        (0.0, [0, 1, 2]),
        (1.9, [0, 1, 2, 3]),
        (4.0, [2, 3, 4, 5, 6]),
        (4.999, [2, 3, 4, 5, 6]),
        (5.0, [3, 4, 5, 6, 7]),
        (8.9, [6, 7, 8]),
        (9.0, [7, 8]),
    ],
)
def test_the_window_lies_round_the_centre_rounded_down_and_ends_with_the_source(center, seen):
    scores = scores_of(1, 1, 9)
    weights = local(center)(scores, everywhere(scores)).weights
    assert weights[0, 0].nonzero().flatten().tolist() == seen


def test_each_query_has_a_window_of_its_own():
    scores = scores_of(2, 3, 9)
    aligned = local(1.0, 4.5, 7.9, reach=1)(scores, everywhere(scores))
    for row in aligned.weights:
        seen = [query.nonzero().flatten().tolist() for query in row]
        assert seen == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert aligned.centers.tolist() == [[1.0, 4.5, 7.9]] * 2


def test_the_papers_local_m_is_a_softmax_over_a_window_that_goes_along():
    align = LocalAlignment(SoftmaxAlignment(), MonotonicCenter(), half_width=1)
    scores = scores_of(1, 5, 4)
    weights = align(scores, everywhere(scores)).weights
    windows = [(0, 2), (0, 3), (1, 4), (2, 4), (2, 4)]
    for time, (start, end) in enumerate(windows):
        torch.testing.assert_close(
            weights[0, time, start:end], scores[0, time, start:end].softmax(dim=-1)
        )
        torch.testing.assert_close(weights[0, time].sum().item(), 1.0)


def test_the_papers_local_p_gives_less_than_one_unit_away():
    align = LocalAlignment(
        SoftmaxAlignment(), PredictiveCenter(3, hidden_size=2), gaussian="after"
    ).double()
    scores, queries = scores_of(2, 4, 30), scores_of(2, 4, 3)
    weights, *_, centers = align(scores, everywhere(scores), queries)
    for row in range(2):
        for time in range(4):
            wanted = by_hand(
                scores[row, time].tolist(), centers[row, time].item(), reach=10, gaussian="after"
            )
            torch.testing.assert_close(weights[row, time].detach(), wanted)
    assert (weights.sum(dim=-1) < 1).all()
    assert (weights.sum(dim=-1) > 0).all()


def test_only_a_taper_after_sharing_leaks():
    assert {gaussian: local(0.0, gaussian=gaussian).is_unnormalized for gaussian in TAPERS} == {
        "none": False,
        "before": False,
        "after": True,
    }


def test_the_papers_reach_is_the_default():
    assert LocalAlignment(SoftmaxAlignment(), MonotonicCenter()).half_width == 10
    assert LocalAlignmentConfig().half_width == 10


def test_a_taper_before_a_softmax_is_one_after_it_shared_out_again():
    scores = scores_of(2, 3, 9)
    places = (1.2, 4.5, 8.3)
    after = local(*places, gaussian="after")(scores, everywhere(scores)).weights
    before = local(*places, gaussian="before")(scores, everywhere(scores)).weights
    torch.testing.assert_close(before, after / after.sum(dim=-1, keepdim=True))


@pytest.mark.parametrize("inner", [SoftmaxAlignment(), SparsemaxAlignment()], ids=str)
def test_a_window_over_everything_without_a_taper_is_the_inner_alignment(inner):
    scores = scores_of(2, 3, 9)
    weights = local(4.0, reach=9, inner=inner)(scores, everywhere(scores)).weights
    assert torch.equal(weights, inner.normalize(scores, everywhere(scores)))


def test_a_centre_learns_only_through_the_taper():
    scores = scores_of(1, 1, 9)
    assert not local(4.3)(scores, everywhere(scores)).weights.requires_grad


def test_the_gradient_of_the_centre_is_that_of_the_gaussian():
    """d weight_s / d p = weight_s (s - p) / sigma^2."""
    align, scores = local(4.3, gaussian="after"), scores_of(1, 1, 9)
    aligned = align(scores, everywhere(scores))
    for place, weight in enumerate(aligned.weights[0, 0]):
        (slope,) = torch.autograd.grad(weight, aligned.centers, retain_graph=True)
        torch.testing.assert_close(slope[0, 0], (weight * (place - 4.3)).detach())  # sigma is 1


@pytest.mark.parametrize("gaussian", ["before", "after"])
def test_the_gradient_of_the_centre_is_that_of_finite_differences(gaussian):
    align, scores = local(4.3, 0.2, 8.7, gaussian=gaussian), scores_of(2, 3, 9)

    def weights(_):
        return align(scores, everywhere(scores)).weights

    assert torch.autograd.gradcheck(weights, align.center.places)


@each_taper
def test_a_centre_that_is_not_a_number_stays_visible_in_its_row_alone(gaussian):
    scores = scores_of(1, 3, 9)
    scores[0, 1] = math.nan  # as scores are where the query is not a number
    mask = everywhere(scores)
    mask[0, 2] = False
    weights = local(4.0, math.nan, math.nan, gaussian=gaussian)(scores, mask).weights
    assert weights[0, 0].isfinite().all()
    assert weights[0, 1].isnan().any()
    assert (weights[0, 2] == 0).all()


def build(**settings):
    return validate_settings(LocalAlignmentConfig, settings, location="recipe.yaml").build(
        query_size=3
    )


def test_a_configuration_is_local_p_unless_told_otherwise():
    align = build()
    assert isinstance(align.center, PredictiveCenter)
    assert isinstance(align.inner, SoftmaxAlignment)
    assert align.is_unnormalized


def test_the_settings_reach_the_alignment():
    align = build(
        center={"type": "monotonic"}, half_width=3, gaussian="none", inner={"type": "sparsemax"}
    )
    assert isinstance(align.center, MonotonicCenter)
    assert isinstance(align.inner, SparsemaxAlignment)
    assert (align.half_width, align.gaussian) == (3, "none")
    predicted = build(center={"type": "predictive", "hidden_size": 7}).center
    assert predicted.projection.weight.shape == (7, 3)


def test_a_predicted_centre_that_could_not_learn_is_refused():
    with pytest.raises(ConfigError) as refused:
        build(gaussian="none")
    assert str(refused.value) == (
        "recipe.yaml: a predicted centre learns through a taper: 'before' or 'after'\n"
        "  `heedful recipes --schema` lists every setting and what it takes"
    )
