"""What every alignment promises."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.attention import Entmax, Sparsemax
from tests.catalogue import ALIGNMENTS

SPARSE = {name: each for name, each in ALIGNMENTS.items() if isinstance(each, Sparsemax | Entmax)}
each_alignment = pytest.mark.parametrize("align", ALIGNMENTS.values(), ids=ALIGNMENTS)
each_sparse_alignment = pytest.mark.parametrize("align", SPARSE.values(), ids=SPARSE)


@st.composite
def scores_and_mask(draw):
    """Scores of any size up to large ones, with any mask."""
    rows, places = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    numbers = st.floats(-1e4, 1e4, width=32)
    scores = draw(st.lists(numbers, min_size=rows * places, max_size=rows * places))
    mask = draw(st.lists(st.booleans(), min_size=rows * places, max_size=rows * places))
    return torch.tensor(scores).view(1, rows, places), torch.tensor(mask).view(1, rows, places)


def all_visible(scores):
    return torch.ones_like(scores, dtype=torch.bool)


@each_alignment
@given(case=scores_and_mask())
def test_weights_share_one_unit_among_the_visible(align, case):
    scores, mask = case
    weights = align(scores, mask).weights
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).float())


@each_alignment
@given(case=scores_and_mask())
def test_a_larger_score_never_gets_a_smaller_weight(align, case):
    scores, _ = case
    ranks = scores.argsort(dim=-1)
    weights = align(scores, all_visible(scores)).weights.gather(-1, ranks)
    assert (weights.diff(dim=-1) >= -1e-6).all()


@each_alignment
@given(case=scores_and_mask(), data=st.data())
def test_permuting_the_keys_permutes_the_weights(align, case, data):
    scores, mask = case
    order = torch.tensor(data.draw(st.permutations(range(scores.size(-1)))))
    moved = align(scores[..., order], mask[..., order]).weights
    torch.testing.assert_close(moved, align(scores, mask).weights[..., order])


@each_alignment
def test_hidden_keys_have_no_influence(align):
    scores = torch.randn(1, 2, 5)
    mask = torch.tensor([True, True, True, False, False]).expand(1, 2, 5)
    seen = align(scores, mask).weights[..., :3]
    torch.testing.assert_close(seen, align(scores[..., :3], mask[..., :3]).weights)


@each_alignment
@pytest.mark.parametrize("hidden", [float("nan"), float("inf"), -float("inf"), 1e30], ids=str)
def test_whatever_stands_at_a_hidden_key_is_not_read(align, hidden):
    scores = torch.randn(1, 2, 4)
    mask = torch.tensor([True, False, True, True]).expand(1, 2, 4)
    spoiled = scores.masked_fill(~mask, hidden).requires_grad_()
    weights = align(spoiled, mask).weights
    weights.square().sum().backward()
    torch.testing.assert_close(weights, align(scores, mask).weights)
    assert spoiled.grad.isfinite().all()
    assert (spoiled.grad[~mask] == 0).all()


@each_alignment
def test_one_mask_serves_every_row_and_every_leading_dimension(align):
    scores = torch.randn(2, 3, 4, 5)
    mask = torch.tensor([True, True, False, True, False]).view(1, 1, 1, 5)
    torch.testing.assert_close(
        align(scores, mask).weights, align(scores, mask.expand(2, 3, 4, 5)).weights
    )


@each_alignment
def test_a_fully_hidden_row_gives_zeros_and_a_finite_gradient(align):
    scores = torch.randn(1, 2, 4, requires_grad=True)
    mask = torch.tensor([[[True] * 4, [False] * 4]])
    weights = align(scores, mask).weights
    weights.square().sum().backward()
    assert (weights[0, 1] == 0).all()
    assert scores.grad.isfinite().all()
    assert (scores.grad[0, 1] == 0).all()


@each_alignment
@pytest.mark.parametrize("row", [(0.0, float("nan"), 1.0), (float("nan"),) * 3], ids=str)
def test_nan_in_the_scores_stays_visible_in_its_row_alone(align, row):
    scores = torch.tensor([[row, (0.0, 1.0, 2.0)]])
    weights = align(scores, all_visible(scores)).weights
    assert weights[0, 0].isnan().any()
    assert weights[0, 1].isfinite().all()


@each_alignment
def test_shifting_all_scores_changes_nothing(align):
    scores = torch.randn(2, 3, 5, dtype=torch.double)
    mask = torch.rand(2, 3, 5) < 0.8
    torch.testing.assert_close(align(scores, mask).weights, align(scores + 7, mask).weights)


@each_alignment
def test_large_scores_keep_their_differences(align):
    scores = torch.tensor([[[10000.0, 9999.75, 9000.0, -10000.0]]])
    weights = align(scores, all_visible(scores)).weights
    torch.testing.assert_close(weights, align(scores - 10000, all_visible(scores)).weights)
    assert weights[0, 0, 0] > weights[0, 0, 1] >= 0
    assert (weights[0, 0, 2:] == 0).all()


@each_alignment
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_loses_only_the_last_digits_of_a_weight(align, dtype):
    scores = torch.randn(2, 3, 300).to(dtype)
    weights = align(scores, all_visible(scores)).weights
    wide = align(scores.float(), all_visible(scores)).weights
    assert weights.dtype == dtype
    torch.testing.assert_close(weights.float(), wide, rtol=0.1, atol=torch.finfo(dtype).eps)


@each_alignment
def test_gradients_are_those_of_finite_differences(align):
    scores = torch.randn(1, 2, 4, dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[[True, True, False, True], [True, True, True, True]]])
    assert torch.autograd.gradcheck(lambda each: align(each, mask).weights, scores)
    assert torch.autograd.gradgradcheck(lambda each: align(each, mask).weights, scores)


@each_sparse_alignment
@given(distance=st.floats(150, 1e4, width=32), data=st.data())
def test_a_place_far_below_the_best_gets_exactly_nothing(align, distance, data):
    near = data.draw(st.lists(st.floats(-1, 0, width=32), min_size=1, max_size=6))
    scores = torch.tensor([[[0.0, *near, -distance, -distance]]])
    weights = align(scores, all_visible(scores)).weights
    assert (weights[..., -2:] == 0).all()
