"""Invariants of local attention for every center, Gaussian and inner alignment."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.attention.alignments import EntmaxAlignment, SoftmaxAlignment, SparsemaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.local_alignment import LocalAlignment, MonotonicCenter, PredictiveCenter
from heedful.attention.masks import padding_mask
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import DotScore

QUERY, HALF_WIDTH = 3, 2
CENTERS = {
    "monotonic": MonotonicCenter,
    "predictive": lambda: PredictiveCenter(QUERY, hidden_size=4),
}
INNER = {"softmax": SoftmaxAlignment, "sparsemax": SparsemaxAlignment, "entmax": EntmaxAlignment}
MEMBERS = {
    f"{center}, {gaussian}, {inner}": (CENTERS[center], gaussian, INNER[inner])
    for center, gaussian, inner in [
        *product(CENTERS, ["none", "before", "after"], ["softmax"]),
        ("monotonic", "none", "entmax"),
        ("predictive", "before", "sparsemax"),
        ("predictive", "after", "entmax"),
    ]
}
all_members = pytest.mark.parametrize("member", MEMBERS)


def build(member):
    build_center, gaussian, build_inner = MEMBERS[member]
    torch.manual_seed(5)
    alignment = LocalAlignment(
        build_inner(), build_center(), half_width=HALF_WIDTH, gaussian=gaussian
    )
    with torch.no_grad():
        for weight in alignment.parameters():
            weight.mul_(4)  # so that centers are spread over the source
    return alignment


@st.composite
def scores_mask_and_queries(draw):
    """Draw scores, a mask and queries."""
    num_queries, positions = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    numbers = st.floats(-1e3, 1e3, width=32)
    scores = draw(
        st.lists(numbers, min_size=num_queries * positions, max_size=num_queries * positions)
    )
    mask = draw(
        st.lists(st.booleans(), min_size=num_queries * positions, max_size=num_queries * positions)
    )
    shape = (1, num_queries, positions)
    queries = torch.randn(
        1, num_queries, QUERY, generator=torch.Generator().manual_seed(len(scores))
    )
    return torch.tensor(scores).view(shape), torch.tensor(mask).view(shape), queries


def window(centers, size):
    """Return the window of each center, position by position."""
    return torch.tensor(
        [
            [
                [abs(position - int(center)) <= HALF_WIDTH for position in range(size)]
                for center in row
            ]
            for row in centers.tolist()
        ]
    )


@all_members
@given(case=scores_mask_and_queries())
def test_local_weights_are_zero_outside_window(member, case):
    alignment = build(member)
    scores, mask, queries = case
    output = alignment(scores, mask, queries)
    visible = mask & window(output.centers, scores.size(-1))
    assert (output.weights >= 0).all()
    assert (output.weights[~visible] == 0).all()
    sums, is_visible = output.weights.sum(dim=-1), visible.any(dim=-1).float()
    if alignment.is_unnormalized:
        assert (sums <= is_visible + 1e-6).all()
    else:
        torch.testing.assert_close(sums, is_visible)


@all_members
@given(case=scores_mask_and_queries())
def test_center_is_within_source(member, case):
    scores, mask, queries = case
    centers = build(member)(scores, mask, queries).centers
    for query, center in enumerate(centers[0].tolist()):
        visible = mask[0, query].nonzero().flatten().tolist()
        assert 0 <= center <= (visible[-1] + 1 if visible else 0)


def case_of(*leading, num_queries=4, positions=9):
    scores, queries = (
        torch.randn(*leading, num_queries, positions),
        torch.randn(*leading, num_queries, QUERY),
    )
    return scores, queries


@all_members
@pytest.mark.parametrize(
    "corrupt_value", [float("nan"), float("inf"), -float("inf"), 1e30], ids=str
)
def test_scores_outside_window_are_never_read(member, corrupt_value):
    alignment, (scores, queries) = build(member), case_of(2)
    mask = padding_mask(torch.tensor([9, 6]), 9)
    output = alignment(scores, mask, queries)
    visible = mask & window(output.centers, 9)
    assert not visible.all()
    corrupted = scores.masked_fill(~visible, corrupt_value).requires_grad_()
    weights = alignment(corrupted, mask, queries).weights
    weights.square().sum().backward()
    torch.testing.assert_close(weights, output.weights)
    assert corrupted.grad.isfinite().all()
    assert (corrupted.grad[~visible] == 0).all()


@all_members
def test_padding_has_no_influence(member):
    alignment, (scores, queries) = build(member), case_of(2)
    wide = torch.cat([scores, torch.randn(2, 4, 5)], dim=-1)
    mask = torch.ones(2, 1, 9, dtype=torch.bool)
    padded = alignment(wide, padding_mask(torch.tensor([9, 9]), 14), queries)
    single = alignment(scores, mask, queries)
    torch.testing.assert_close(padded.weights[..., :9], single.weights)
    torch.testing.assert_close(padded.centers, single.centers)


@all_members
@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
def test_leading_dimensions_are_independent_and_mask_broadcasts(member, leading):
    alignment, (scores, queries) = build(member), case_of(*leading)
    mask = padding_mask(torch.tensor([7]), 9)[0]
    output = alignment(scores, mask.view(*(1 for _ in leading), 1, 9), queries)
    flat = zip(scores.view(-1, 4, 9), queries.view(-1, 4, QUERY), strict=True)
    separate = [alignment(item, mask, query) for item, query in flat]
    for name in ("weights", "centers"):
        batched = getattr(output, name)
        expected = torch.stack([getattr(item, name) for item in separate])
        torch.testing.assert_close(batched.reshape(expected.shape), expected)
    whole = alignment(scores, mask.expand(scores.shape), queries)
    torch.testing.assert_close(output.weights, whole.weights)


@all_members
def test_fully_masked_row_returns_zeros_and_finite_gradients(member):
    alignment, (scores, queries) = build(member), case_of(1, num_queries=2)
    mask = torch.tensor([[[True] * 9, [False] * 9]])
    inputs = [scores.requires_grad_(), queries.requires_grad_()]
    weights = alignment(scores, mask, queries).weights
    assert (weights[0, 1] == 0).all()
    gradients = torch.autograd.grad(weights.square().sum(), inputs, materialize_grads=True)
    for gradient in gradients:
        assert gradient.isfinite().all()
        assert (gradient[0, 1] == 0).all()


@all_members
def test_fully_masked_window_returns_zeros(member):
    alignment, scores, queries = build(member), torch.randn(1, 4, 40), torch.zeros(1, 4, QUERY)
    centers = alignment(scores, torch.ones(1, 1, 40, dtype=torch.bool), queries).centers
    mask = ~window(centers, 40)  # the far end stays visible, so that centers do not move
    output = alignment(scores, mask, queries)
    torch.testing.assert_close(output.centers, centers)
    assert (output.weights == 0).all()


@all_members
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_weights_are_close_to_float32(member, dtype):
    alignment, (scores, queries) = build(member), case_of(2, positions=300)
    mask = padding_mask(torch.tensor([300, 290]), 300)
    half = alignment(scores.to(dtype), mask, queries).weights
    wide = alignment(scores.to(dtype).float(), mask, queries).weights
    assert half.dtype == dtype
    torch.testing.assert_close(half.float(), wide, rtol=0.1, atol=torch.finfo(dtype).eps)


@all_members
def test_gradients_match_finite_differences(member):
    alignment = build(member).double()
    scores, queries = (
        item.double().requires_grad_() for item in case_of(1, num_queries=2, positions=5)
    )
    mask = torch.tensor([[[True, True, False, True, True], [True] * 5]])
    inputs = (scores, queries, *alignment.parameters())
    assert torch.autograd.gradcheck(lambda s, q, *_: alignment(s, mask, q).weights, inputs)


@all_members
def test_batched_queries_match_one_query_at_a_time(member):
    attention = SingleHeadAttention(DotScore(), build(member), WeightedSumReadout()).double()
    queries, values = torch.randn(2, 6, QUERY).double(), torch.randn(2, 9, QUERY).double()
    memory = attention.build_memory(values, padding_mask(torch.tensor([9, 4]), 9))
    initial = attention.initial_state(memory)
    whole = attention(queries, memory, initial)
    state, parts = initial, []
    for query in queries.split(1, dim=1):
        parts.append(attention(query, memory, state))
        state = parts[-1].state
    centers = torch.cat([part.alignment.centers for part in parts], dim=1)
    torch.testing.assert_close(torch.cat([part.weights for part in parts], dim=1), whole.weights)
    torch.testing.assert_close(centers, whole.alignment.centers)
    torch.testing.assert_close(tuple(state), tuple(whole.state))
