"""Local attention against the formulas of Luong et al. 2015, one position at a time."""

import math

import pytest
import torch

from heedful.attention.alignments import SoftmaxAlignment, SparsemaxAlignment
from heedful.attention.local_alignment import (
    LocalAlignment,
    LocalAlignmentConfig,
    MonotonicCenter,
    PredictiveCenter,
    WindowCenter,
)
from heedful.config import validate_settings
from heedful.errors import ConfigError

PLACEMENTS = ["none", "before", "after"]
all_placements = pytest.mark.parametrize("gaussian", PLACEMENTS)


class FixedCenter(WindowCenter):
    """A center at fixed positions."""

    def __init__(self, *positions):
        super().__init__()
        self.places = torch.nn.Parameter(torch.tensor(positions, dtype=torch.double))

    def forward(self, queries, lengths, state=None):
        return self.places.expand(lengths.shape)


def local(*positions, half_width=2, gaussian="none", inner=None):
    return LocalAlignment(
        inner or SoftmaxAlignment(),
        FixedCenter(*positions),
        half_width=half_width,
        gaussian=gaussian,
    )


def all_visible(scores):
    return torch.ones_like(scores, dtype=torch.bool)


def scores_of(*shape):
    return torch.randn(*shape, dtype=torch.double)


def by_hand(scores, center, *, half_width, gaussian):
    """Return one row: softmax over the window, with the Gaussian before or after it."""
    first, last = math.floor(center) - half_width, math.floor(center) + half_width
    window = [position for position in range(len(scores)) if first <= position <= last]
    sigma = half_width / 2
    gaussian_weights = {
        position: math.exp(-((position - center) ** 2) / (2 * sigma**2)) for position in window
    }
    exponentials = {position: math.exp(scores[position]) for position in window}
    if gaussian == "before":
        exponentials = {
            position: exponentials[position] * gaussian_weights[position] for position in window
        }
    weights = {position: exponentials[position] / sum(exponentials.values()) for position in window}
    if gaussian == "after":
        weights = {position: weights[position] * gaussian_weights[position] for position in window}
    return torch.tensor([weights.get(position, 0.0) for position in range(len(scores))]).double()


@all_placements
@pytest.mark.parametrize("half_width", [1, 2, 3])
@pytest.mark.parametrize("center", [0.0, 0.7, 3.0, 4.2, 6.99, 8.0, 8.6, 9.0])
def test_local_weights_match_formula(gaussian, half_width, center):
    scores = scores_of(1, 1, 9)
    output = local(center, half_width=half_width, gaussian=gaussian)(scores, all_visible(scores))
    expected = by_hand(scores[0, 0].tolist(), center, half_width=half_width, gaussian=gaussian)
    torch.testing.assert_close(output.weights[0, 0].detach(), expected)


def test_each_query_has_own_window():
    scores = scores_of(2, 3, 9)
    output = local(1.0, 4.5, 7.9, half_width=1)(scores, all_visible(scores))
    for row in output.weights:
        visible = [query.nonzero().flatten().tolist() for query in row]
        assert visible == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert output.centers.tolist() == [[1.0, 4.5, 7.9]] * 2


def test_local_p_rows_sum_to_less_than_one():
    alignment = LocalAlignment(
        SoftmaxAlignment(), PredictiveCenter(3, hidden_size=2), gaussian="after"
    ).double()
    scores, queries = scores_of(2, 4, 30), scores_of(2, 4, 3)
    output = alignment(scores, all_visible(scores), queries)
    weights, centers = output.weights, output.centers
    for row in range(2):
        for step in range(4):
            expected = by_hand(
                scores[row, step].tolist(),
                centers[row, step].item(),
                half_width=10,
                gaussian="after",
            )
            torch.testing.assert_close(weights[row, step].detach(), expected)
    assert (weights.sum(dim=-1) < 1).all()
    assert (weights.sum(dim=-1) > 0).all()


def test_only_gaussian_after_softmax_is_unnormalized():
    assert {gaussian: local(0.0, gaussian=gaussian).is_unnormalized for gaussian in PLACEMENTS} == {
        "none": False,
        "before": False,
        "after": True,
    }


@pytest.mark.parametrize("inner", [SoftmaxAlignment(), SparsemaxAlignment()], ids=str)
def test_window_over_whole_source_equals_inner_alignment(inner):
    scores = scores_of(2, 3, 9)
    weights = local(4.0, half_width=9, inner=inner)(scores, all_visible(scores)).weights
    assert torch.equal(weights, inner.normalize(scores, all_visible(scores)))


def test_center_has_gradient_only_through_gaussian():
    scores = scores_of(1, 1, 9)
    assert not local(4.3)(scores, all_visible(scores)).weights.requires_grad


@pytest.mark.parametrize("gaussian", ["before", "after"])
def test_center_gradient_same_as_finite_differences(gaussian):
    alignment, scores = local(4.3, 0.2, 8.7, gaussian=gaussian), scores_of(2, 3, 9)

    def weights(_):
        return alignment(scores, all_visible(scores)).weights

    assert torch.autograd.gradcheck(weights, alignment.center.places)


@all_placements
def test_nan_center_stays_in_the_row(gaussian):
    scores = scores_of(1, 3, 9)
    scores[0, 1] = math.nan  # as if the query were NaN
    mask = all_visible(scores)
    mask[0, 2] = False
    weights = local(4.0, math.nan, math.nan, gaussian=gaussian)(scores, mask).weights
    assert weights[0, 0].isfinite().all()
    assert weights[0, 1].isnan().any()
    assert (weights[0, 2] == 0).all()


def build(**settings):
    return validate_settings(LocalAlignmentConfig, settings, location="recipe.yaml").build(
        query_size=3
    )


def test_default_config_is_local_p():
    alignment = build()
    assert isinstance(alignment.center, PredictiveCenter)
    assert isinstance(alignment.inner, SoftmaxAlignment)
    assert alignment.is_unnormalized


def test_config_passes_settings_to_local_alignment():
    alignment = build(
        center={"type": "monotonic"}, half_width=3, gaussian="none", inner={"type": "sparsemax"}
    )
    assert isinstance(alignment.center, MonotonicCenter)
    assert isinstance(alignment.inner, SparsemaxAlignment)
    assert (alignment.half_width, alignment.gaussian) == (3, "none")
    predictive = build(center={"type": "predictive", "hidden_size": 7}).center
    assert predictive.projection.weight.shape == (7, 3)


def test_predictive_center_without_gaussian_raises():
    with pytest.raises(ConfigError) as error:
        build(gaussian="none")
    assert str(error.value) == (
        "recipe.yaml: a predictive center is trained through the Gaussian: set gaussian to "
        "'before' or 'after'\n"
        "  `heedful recipes --schema` lists every setting and its values"
    )
