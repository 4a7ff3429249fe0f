"""What every alignment promises."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.catalogue import ALIGNMENTS

each_alignment = pytest.mark.parametrize("align", ALIGNMENTS.values(), ids=ALIGNMENTS)


@st.composite
def scores_and_mask(draw):
    """Scores of any size up to large ones, with any mask."""
    rows, places = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    numbers = st.floats(-1e4, 1e4, width=32)
    scores = draw(st.lists(numbers, min_size=rows * places, max_size=rows * places))
    mask = draw(st.lists(st.booleans(), min_size=rows * places, max_size=rows * places))
    return torch.tensor(scores).view(1, rows, places), torch.tensor(mask).view(1, rows, places)


@each_alignment
@given(case=scores_and_mask())
def test_weights_share_one_unit_among_the_visible(align, case):
    scores, mask = case
    weights = align(scores, mask)
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).float())


@each_alignment
def test_hidden_keys_have_no_influence(align):
    scores = torch.randn(1, 2, 5)
    mask = torch.tensor([True, True, True, False, False]).expand(1, 2, 5)
    seen = align(scores, mask)[..., :3]
    torch.testing.assert_close(seen, align(scores[..., :3], mask[..., :3]))


@each_alignment
def test_a_fully_hidden_row_gives_zeros_and_a_finite_gradient(align):
    scores = torch.randn(1, 2, 4, requires_grad=True)
    mask = torch.tensor([[[True] * 4, [False] * 4]])
    weights = align(scores, mask)
    weights.square().sum().backward()
    assert (weights[0, 1] == 0).all()
    assert scores.grad.isfinite().all()
    assert (scores.grad[0, 1] == 0).all()


@each_alignment
def test_nan_in_the_scores_stays_visible(align):
    scores = torch.tensor([[[0.0, float("nan"), 1.0]]])
    assert align(scores, torch.ones(1, 1, 3, dtype=torch.bool)).isnan().any()


@each_alignment
def test_shifting_all_scores_changes_nothing(align):
    scores = torch.randn(2, 3, 5)
    mask = torch.ones(2, 3, 5, dtype=torch.bool)
    torch.testing.assert_close(align(scores, mask), align(scores + 7, mask))


@each_alignment
def test_gradients_are_those_of_finite_differences(align):
    scores = torch.randn(1, 2, 4, dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[[True, True, False, True], [True, True, True, True]]])
    assert torch.autograd.gradcheck(lambda each: align(each, mask), scores)
