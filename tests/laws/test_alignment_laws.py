"""Invariants of every alignment."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.attention.alignments import (
    EntmaxAlignment,
    SoftAlignment,
    SparsemaxAlignment,
    concat_alignments,
)
from heedful.attention.local_alignment import LocalAlignment
from heedful.attention.memory import AttentionState
from heedful.pytree import map_tensors, select_rows
from tests.catalogue import ALIGNMENTS, HARD, POSITIONAL, STOCHASTIC, WIDTH


def parametrize_alignment(names):
    return pytest.mark.parametrize("alignment", [ALIGNMENTS[name] for name in names], ids=names)


all_alignments = parametrize_alignment(list(ALIGNMENTS))
all_soft_alignments = parametrize_alignment(
    [name for name, alignment in ALIGNMENTS.items() if isinstance(alignment, SoftAlignment)]
)
all_sparse_alignments = parametrize_alignment(
    [
        name
        for name, alignment in ALIGNMENTS.items()
        if isinstance(alignment, SparsemaxAlignment | EntmaxAlignment)
    ]
)
all_smooth_alignments = parametrize_alignment([name for name in ALIGNMENTS if name not in HARD])
all_hard_alignments = parametrize_alignment([name for name in ALIGNMENTS if name in HARD])
all_content_alignments = parametrize_alignment(
    [name for name in ALIGNMENTS if name not in POSITIONAL]
)
both_modes = pytest.mark.parametrize("training", [False, True], ids=["eval", "training"])


@pytest.fixture(autouse=True)
def _reset_mode():
    """Put all alignments back into eval mode after each test."""
    yield
    for alignment in ALIGNMENTS.values():
        alignment.eval()


def queries_for(scores):
    """Return queries that differ between rows and do not depend on the number of keys."""
    rows = torch.arange(scores.shape[:-1].numel(), dtype=scores.dtype).sin()
    return rows.view(*scores.shape[:-1], 1).expand(*scores.shape[:-1], WIDTH).contiguous()


def compute_weights(alignment, scores, mask, state=None):
    return alignment.to(scores.dtype)(scores, mask, queries_for(scores), state).weights


@st.composite
def scores_and_mask(draw):
    """Draw scores, some of them large, and a mask."""
    rows, positions = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    numbers = st.floats(-1e4, 1e4, width=32)
    scores = draw(st.lists(numbers, min_size=rows * positions, max_size=rows * positions))
    mask = draw(st.lists(st.booleans(), min_size=rows * positions, max_size=rows * positions))
    return torch.tensor(scores).view(1, rows, positions), torch.tensor(mask).view(
        1, rows, positions
    )


def all_visible(scores):
    return torch.ones_like(scores, dtype=torch.bool)


@all_alignments
@both_modes
@given(case=scores_and_mask())
def test_alignment_rows_sum_to_one_over_visible_positions(alignment, training, case):
    scores, mask = case
    weights = compute_weights(alignment.train(training), scores, mask)
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()
    total = weights.sum(-1)
    if alignment.is_unnormalized:
        assert (total <= mask.any(-1) + 1e-5).all()
    elif isinstance(
        alignment, LocalAlignment
    ):  # the window may be fully masked although other positions are visible
        assert ((total - 1).abs().minimum(total.abs()) <= 1e-5).all()
    else:
        torch.testing.assert_close(total, mask.any(-1).float())


@all_soft_alignments
@given(case=scores_and_mask())
def test_weights_are_monotonic_in_scores(alignment, case):
    scores, _ = case
    ranks = scores.argsort(dim=-1)
    weights = compute_weights(alignment, scores, all_visible(scores)).gather(-1, ranks)
    assert (weights.diff(dim=-1) >= -1e-6).all()


@all_soft_alignments
@given(case=scores_and_mask(), data=st.data())
def test_permuting_keys_permutes_weights(alignment, case, data):
    scores, mask = case
    order = torch.tensor(data.draw(st.permutations(range(scores.size(-1)))))
    moved = compute_weights(alignment, scores[..., order], mask[..., order])
    torch.testing.assert_close(moved, compute_weights(alignment, scores, mask)[..., order])


@all_hard_alignments
def test_permuting_keys_permutes_hard_weights(alignment):
    scores, order = torch.randn(2, 3, 5), torch.tensor([2, 0, 4, 3, 1])
    mask = torch.rand(2, 3, 5) < 0.8
    moved = compute_weights(alignment, scores[..., order], mask[..., order])
    torch.testing.assert_close(moved, compute_weights(alignment, scores, mask)[..., order])


@all_hard_alignments
def test_hard_alignment_uses_argmax_in_eval_mode(alignment):
    scores = torch.tensor([[[0.5, 2.0, 1.0, 3.0]]])
    mask = torch.tensor([[[True, True, True, False]]])
    assert compute_weights(alignment, scores, mask).tolist() == [[[0.0, 1.0, 0.0, 0.0]]]


@all_alignments
def test_masked_keys_have_no_influence(alignment):
    scores = torch.randn(1, 2, 5)
    mask = torch.tensor([True, True, True, False, False]).expand(1, 2, 5)
    weights = compute_weights(alignment, scores, mask)[..., :3]
    torch.testing.assert_close(weights, compute_weights(alignment, scores[..., :3], mask[..., :3]))


@all_alignments
@both_modes
@pytest.mark.parametrize("hidden", [float("nan"), float("inf"), -float("inf"), 1e30], ids=str)
def test_masked_scores_are_never_read(alignment, training, hidden):
    alignment.train(training)
    scores = torch.randn(1, 2, 4)
    mask = torch.tensor([True, False, True, True]).expand(1, 2, 4)
    corrupted = scores.masked_fill(~mask, hidden).requires_grad_()
    outputs = []
    for inputs in (scores, corrupted):
        torch.manual_seed(1)
        outputs.append(alignment.float()(inputs, mask, queries_for(inputs)))
    weights, probabilities = outputs[1].weights, outputs[1].probabilities
    torch.testing.assert_close(weights, outputs[0].weights)
    total = weights.square().sum() + (0 if probabilities is None else probabilities.square().sum())
    if total.requires_grad:
        total.backward()
    if corrupted.grad is not None:
        assert corrupted.grad.isfinite().all()
        assert (corrupted.grad[~mask] == 0).all()


@all_alignments
def test_mask_broadcasts_over_leading_dimensions(alignment):
    scores = torch.randn(2, 3, 4, 5)
    mask = torch.tensor([True, True, False, True, False]).view(1, 1, 1, 5)
    batched = compute_weights(alignment, scores, mask)
    torch.testing.assert_close(batched, compute_weights(alignment, scores, mask.expand(2, 3, 4, 5)))


@all_alignments
def test_leading_dimensions_are_independent(alignment):
    scores = torch.randn(2, 3, 4, 5)
    queries, mask = queries_for(scores), torch.rand(2, 3, 4, 5) < 0.8
    batched = alignment.float()(scores, mask, queries).weights
    for row in range(2):
        for head in range(3):
            single = alignment(scores[row, head], mask[row, head], queries[row, head]).weights
            torch.testing.assert_close(batched[row, head], single)


@all_alignments
@both_modes
def test_fully_masked_row_returns_zeros_and_finite_gradient(alignment, training):
    alignment.train(training)
    scores = torch.randn(2, 1, 4, requires_grad=True)
    mask = torch.tensor([[[True] * 4], [[False] * 4]])
    weights = compute_weights(alignment, scores, mask)
    assert (weights[1] == 0).all()
    if weights.requires_grad:
        weights.square().sum().backward()
    if scores.grad is not None:
        assert scores.grad.isfinite().all()
        assert (scores.grad[1] == 0).all()


@all_alignments
@both_modes
@pytest.mark.parametrize("row", [(0.0, float("nan"), 1.0), (float("nan"),) * 3], ids=str)
def test_nan_in_scores_stays_in_the_row(alignment, training, row):
    alignment.train(training)
    scores = torch.tensor([[row], [(0.0, 1.0, 2.0)]])
    weights = compute_weights(alignment, scores, all_visible(scores))
    assert weights[0].isnan().any()
    assert weights[1].isfinite().all()


@all_content_alignments
def test_constant_shift_of_scores_changes_nothing(alignment):
    scores = torch.randn(2, 3, 5, dtype=torch.double)
    mask = torch.rand(2, 3, 5) < 0.8
    torch.testing.assert_close(
        compute_weights(alignment, scores, mask), compute_weights(alignment, scores + 7, mask)
    )


@all_soft_alignments
def test_large_scores_keep_differences(alignment):
    scores = torch.tensor([[[10000.0, 9999.75, 9000.0, -10000.0]]])
    weights = compute_weights(alignment, scores, all_visible(scores))
    torch.testing.assert_close(
        weights, compute_weights(alignment, scores - 10000, all_visible(scores))
    )
    assert weights[0, 0, 0] > weights[0, 0, 1] >= 0
    assert (weights[0, 0, 2:] == 0).all()


@all_alignments
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_weights_are_close_to_float32(alignment, dtype):
    # One query, since rounding accumulates over queries. And few positions for a predictive
    # center, because its rounding error is proportional to the source length.
    is_local = isinstance(alignment, LocalAlignment)
    scores = torch.randn(6, 1, 12 if is_local else 300).to(dtype)
    mask, queries = all_visible(scores), queries_for(scores)
    weights = alignment.to(dtype)(scores, mask, queries).weights
    wide = alignment.float()(scores.float(), mask, queries.float()).weights
    assert weights.dtype == dtype
    atol = (16 if is_local else 2) * torch.finfo(dtype).eps
    torch.testing.assert_close(weights.float(), wide, rtol=0.1, atol=atol)


@all_smooth_alignments
def test_gradients_match_finite_differences(alignment):
    scores = torch.randn(1, 2, 4, dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[[True, True, False, True], [True, True, True, True]]])
    queries = queries_for(scores)
    alignment.double()
    if not alignment(scores, mask, queries).weights.requires_grad:
        alignment.train()  # hard in eval mode, smooth in training
    assert torch.autograd.gradcheck(lambda inputs: alignment(inputs, mask, queries).weights, scores)


@all_soft_alignments
def test_second_gradients_match_finite_differences(alignment):
    scores = torch.randn(1, 2, 4, dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[[True, True, False, True], [True, True, True, True]]])
    assert torch.autograd.gradgradcheck(
        lambda inputs: compute_weights(alignment, inputs, mask), scores
    )


@pytest.mark.parametrize(
    ("name", "training"),
    [
        *((name, False) for name in ALIGNMENTS),
        *((name, True) for name in ALIGNMENTS if name not in STOCHASTIC),
    ],
)
def test_batched_queries_match_one_query_at_a_time(name, training):
    alignment = ALIGNMENTS[name]
    alignment.double().train(training)
    scores = torch.randn(2, 5, 6, dtype=torch.double)
    mask = (torch.arange(6) < torch.tensor([[6], [4]]))[:, None]
    queries, zeros = queries_for(scores), scores.new_zeros(2, 6)
    start = AttentionState(
        torch.zeros(2, dtype=torch.long), zeros, zeros, queries[:, 0], torch.ones(2).double()
    )
    batched, state, parts = alignment(scores, mask, queries, start), start, []
    for step in range(5):
        rows = slice(step, step + 1)
        parts.append(alignment(scores[:, rows], mask, queries[:, rows], state))
        state = state._replace(
            num_queries=state.num_queries + 1, last_weights=parts[-1].pointers[:, 0]
        )
    separate = concat_alignments(parts)
    for name, whole in batched._asdict().items():
        torch.testing.assert_close(getattr(separate, name), whole, msg=name)


@all_alignments
def test_alignment_output_rows_can_be_selected(alignment):
    scores, rows = torch.randn(3, 2, 5), torch.tensor([2, 0, 0])
    output = alignment.float()(scores, all_visible(scores), queries_for(scores))
    selected = select_rows(output, rows)
    torch.testing.assert_close(selected.weights, output.weights[rows])
    assert map_tensors(len, selected)  # every field has the batch dimension first


@all_sparse_alignments
@given(distance=st.floats(150, 1e4, width=32), data=st.data())
def test_low_score_gets_exactly_zero_weight(alignment, distance, data):
    near = data.draw(st.lists(st.floats(-1, 0, width=32), min_size=1, max_size=6))
    scores = torch.tensor([[[0.0, *near, -distance, -distance]]])
    weights = compute_weights(alignment, scores, all_visible(scores))
    assert (weights[..., -2:] == 0).all()
