"""What every alignment promises."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.attention import AttentionState, EntmaxAlignment, SparsemaxAlignment
from heedful.attention.alignments import SoftAlignment
from heedful.attention.local_alignment import LocalAlignment
from heedful.attention.outputs import concat_alignments
from heedful.pytree import map_tensors, select_rows
from tests.catalogue import ALIGNMENTS, AT_RANDOM, BY_PLACE, HARD, WIDTH


def each_of(names):
    return pytest.mark.parametrize("align", [ALIGNMENTS[name] for name in names], ids=names)


each_alignment = each_of(list(ALIGNMENTS))
each_sharing = each_of(
    [name for name, each in ALIGNMENTS.items() if isinstance(each, SoftAlignment)]
)
each_sparse = each_of(
    [
        name
        for name, each in ALIGNMENTS.items()
        if isinstance(each, SparsemaxAlignment | EntmaxAlignment)
    ]
)
each_smooth = each_of([name for name in ALIGNMENTS if name not in HARD])
each_hard = each_of([name for name in ALIGNMENTS if name in HARD])
each_by_content = each_of([name for name in ALIGNMENTS if name not in BY_PLACE])
each_mode = pytest.mark.parametrize("training", [False, True], ids=["asked", "training"])


@pytest.fixture(autouse=True)
def _settled():
    """Leave every alignment as if it were asked, whatever a test has made of it."""
    yield
    for align in ALIGNMENTS.values():
        align.eval()


def queries_for(scores):
    """Queries that differ from row to row and not with the number of keys."""
    rows = torch.arange(scores.shape[:-1].numel(), dtype=scores.dtype).sin()
    return rows.view(*scores.shape[:-1], 1).expand(*scores.shape[:-1], WIDTH).contiguous()


def weigh(align, scores, mask, past=None):
    return align.to(scores.dtype)(scores, mask, queries_for(scores), past).weights


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
@each_mode
@given(case=scores_and_mask())
def test_weights_share_one_unit_among_the_visible(align, training, case):
    scores, mask = case
    weights = weigh(align.train(training), scores, mask)
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()
    total = weights.sum(-1)
    if align.is_unnormalized:
        assert (total <= mask.any(-1) + 1e-5).all()
    elif isinstance(
        align, LocalAlignment
    ):  # a window may show nothing although something is visible
        assert ((total - 1).abs().minimum(total.abs()) <= 1e-5).all()
    else:
        torch.testing.assert_close(total, mask.any(-1).float())


@each_sharing
@given(case=scores_and_mask())
def test_a_larger_score_never_gets_a_smaller_weight(align, case):
    scores, _ = case
    ranks = scores.argsort(dim=-1)
    weights = weigh(align, scores, all_visible(scores)).gather(-1, ranks)
    assert (weights.diff(dim=-1) >= -1e-6).all()


@each_sharing
@given(case=scores_and_mask(), data=st.data())
def test_permuting_the_keys_permutes_the_weights(align, case, data):
    scores, mask = case
    order = torch.tensor(data.draw(st.permutations(range(scores.size(-1)))))
    moved = weigh(align, scores[..., order], mask[..., order])
    torch.testing.assert_close(moved, weigh(align, scores, mask)[..., order])


@each_hard
def test_hard_choices_follow_their_keys_to_other_places(align):
    scores, order = torch.randn(2, 3, 5), torch.tensor([2, 0, 4, 3, 1])
    mask = torch.rand(2, 3, 5) < 0.8
    moved = weigh(align, scores[..., order], mask[..., order])
    torch.testing.assert_close(moved, weigh(align, scores, mask)[..., order])


@each_hard
def test_a_hard_choice_takes_the_best_visible_place_when_asked(align):
    scores = torch.tensor([[[0.5, 2.0, 1.0, 3.0]]])
    mask = torch.tensor([[[True, True, True, False]]])
    assert weigh(align, scores, mask).tolist() == [[[0.0, 1.0, 0.0, 0.0]]]


@each_alignment
def test_hidden_keys_have_no_influence(align):
    scores = torch.randn(1, 2, 5)
    mask = torch.tensor([True, True, True, False, False]).expand(1, 2, 5)
    seen = weigh(align, scores, mask)[..., :3]
    torch.testing.assert_close(seen, weigh(align, scores[..., :3], mask[..., :3]))


@each_alignment
@each_mode
@pytest.mark.parametrize("hidden", [float("nan"), float("inf"), -float("inf"), 1e30], ids=str)
def test_whatever_stands_at_a_hidden_key_is_not_read(align, training, hidden):
    align.train(training)
    scores = torch.randn(1, 2, 4)
    mask = torch.tensor([True, False, True, True]).expand(1, 2, 4)
    spoiled = scores.masked_fill(~mask, hidden).requires_grad_()
    torch.manual_seed(1)
    weights = weigh(align, spoiled, mask)
    torch.manual_seed(1)
    torch.testing.assert_close(weights, weigh(align, scores, mask))
    if weights.requires_grad:
        weights.square().sum().backward()
    if spoiled.grad is not None:
        assert spoiled.grad.isfinite().all()
        assert (spoiled.grad[~mask] == 0).all()


@each_alignment
def test_one_mask_serves_every_row_and_every_leading_dimension(align):
    scores = torch.randn(2, 3, 4, 5)
    mask = torch.tensor([True, True, False, True, False]).view(1, 1, 1, 5)
    together = weigh(align, scores, mask)
    torch.testing.assert_close(together, weigh(align, scores, mask.expand(2, 3, 4, 5)))


@each_alignment
def test_leading_dimensions_are_free(align):
    scores = torch.randn(2, 3, 4, 5)
    queries, mask = queries_for(scores), torch.rand(2, 3, 4, 5) < 0.8
    together = align.float()(scores, mask, queries).weights
    for row in range(2):
        for head in range(3):
            alone = align(scores[row, head], mask[row, head], queries[row, head]).weights
            torch.testing.assert_close(together[row, head], alone)


@each_alignment
@each_mode
def test_a_fully_hidden_row_gives_zeros_and_a_finite_gradient(align, training):
    align.train(training)
    scores = torch.randn(2, 1, 4, requires_grad=True)
    mask = torch.tensor([[[True] * 4], [[False] * 4]])
    weights = weigh(align, scores, mask)
    assert (weights[1] == 0).all()
    if weights.requires_grad:
        weights.square().sum().backward()
    if scores.grad is not None:
        assert scores.grad.isfinite().all()
        assert (scores.grad[1] == 0).all()


@each_alignment
@each_mode
@pytest.mark.parametrize("row", [(0.0, float("nan"), 1.0), (float("nan"),) * 3], ids=str)
def test_nan_in_the_scores_stays_visible_in_its_row_alone(align, training, row):
    align.train(training)
    scores = torch.tensor([[row], [(0.0, 1.0, 2.0)]])
    weights = weigh(align, scores, all_visible(scores))
    assert weights[0].isnan().any()
    assert weights[1].isfinite().all()


@each_by_content
def test_shifting_all_scores_changes_nothing(align):
    scores = torch.randn(2, 3, 5, dtype=torch.double)
    mask = torch.rand(2, 3, 5) < 0.8
    torch.testing.assert_close(weigh(align, scores, mask), weigh(align, scores + 7, mask))


@each_sharing
def test_large_scores_keep_their_differences(align):
    scores = torch.tensor([[[10000.0, 9999.75, 9000.0, -10000.0]]])
    weights = weigh(align, scores, all_visible(scores))
    torch.testing.assert_close(weights, weigh(align, scores - 10000, all_visible(scores)))
    assert weights[0, 0, 0] > weights[0, 0, 1] >= 0
    assert (weights[0, 0, 2:] == 0).all()


@each_alignment
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_loses_only_the_last_digits_of_a_weight(align, dtype):
    # One query: what several carry on to one another loses digits at every one. And few places
    # where a centre is predicted: it is a share of their number, so its last digits are places.
    is_local = isinstance(align, LocalAlignment)
    scores = torch.randn(6, 1, 12 if is_local else 300).to(dtype)
    mask, queries = all_visible(scores), queries_for(scores)
    weights = align.to(dtype)(scores, mask, queries).weights
    wide = align.float()(scores.float(), mask, queries.float()).weights
    assert weights.dtype == dtype
    slack = (16 if is_local else 2) * torch.finfo(dtype).eps
    torch.testing.assert_close(weights.float(), wide, rtol=0.1, atol=slack)


@each_smooth
def test_gradients_are_those_of_finite_differences(align):
    scores = torch.randn(1, 2, 4, dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[[True, True, False, True], [True, True, True, True]]])
    queries = queries_for(scores)
    align.double()
    if not align(scores, mask, queries).weights.requires_grad:
        align.train()  # hard when asked, smooth while it learns
    assert torch.autograd.gradcheck(lambda each: align(each, mask, queries).weights, scores)


@each_sharing
def test_gradients_of_gradients_are_those_of_finite_differences(align):
    scores = torch.randn(1, 2, 4, dtype=torch.double, requires_grad=True)
    mask = torch.tensor([[[True, True, False, True], [True, True, True, True]]])
    assert torch.autograd.gradgradcheck(lambda each: weigh(align, each, mask), scores)


@pytest.mark.parametrize(
    ("name", "training"),
    [
        *((name, False) for name in ALIGNMENTS),
        *((name, True) for name in ALIGNMENTS if name not in AT_RANDOM),
    ],
)
def test_queries_asked_together_are_answered_as_if_one_by_one(name, training):
    align = ALIGNMENTS[name]
    align.double().train(training)
    scores = torch.randn(2, 5, 6, dtype=torch.double)
    mask = (torch.arange(6) < torch.tensor([[6], [4]]))[:, None]
    queries, nowhere = queries_for(scores), scores.new_zeros(2, 6)
    start = AttentionState(
        torch.zeros(2, dtype=torch.long), nowhere, nowhere, queries[:, 0], torch.ones(2).double()
    )
    together, past, parts = align(scores, mask, queries, start), start, []
    for step in range(5):
        rows = slice(step, step + 1)
        parts.append(align(scores[:, rows], mask, queries[:, rows], past))
        past = past._replace(
            num_queries=past.num_queries + 1, last_weights=parts[-1].pointers[:, 0]
        )
    apart = concat_alignments(parts)
    for name, whole in together._asdict().items():
        torch.testing.assert_close(getattr(apart, name), whole, msg=name)


@each_alignment
def test_what_is_known_can_be_selected_by_rows(align):
    scores, rows = torch.randn(3, 2, 5), torch.tensor([2, 0, 0])
    known = align.float()(scores, all_visible(scores), queries_for(scores))
    chosen = select_rows(known, rows)
    torch.testing.assert_close(chosen.weights, known.weights[rows])
    assert map_tensors(len, chosen)  # every part leads with the batch


@each_sparse
@given(distance=st.floats(150, 1e4, width=32), data=st.data())
def test_a_place_far_below_the_best_gets_exactly_nothing(align, distance, data):
    near = data.draw(st.lists(st.floats(-1, 0, width=32), min_size=1, max_size=6))
    scores = torch.tensor([[[0.0, *near, -distance, -distance]]])
    weights = weigh(align, scores, all_visible(scores))
    assert (weights[..., -2:] == 0).all()
