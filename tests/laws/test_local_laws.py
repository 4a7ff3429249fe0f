"""What local attention promises whatever its centre, its taper and the alignment within."""

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.attention import (
    DotScore,
    EntmaxAlignment,
    SingleHeadAttention,
    SoftmaxAlignment,
    SparsemaxAlignment,
    WeightedSumReadout,
    padding_mask,
)
from heedful.attention.local_alignment import LocalAlignment, MonotonicCenter, PredictiveCenter

QUERY, REACH = 3, 2
CENTRES = {"step": MonotonicCenter, "predicted": lambda: PredictiveCenter(QUERY, hidden_size=4)}
INNER = {"softmax": SoftmaxAlignment, "sparsemax": SparsemaxAlignment, "entmax": EntmaxAlignment}
MEMBERS = {
    f"{center}, {gaussian}, {inner}": (CENTRES[center], gaussian, INNER[inner])
    for center, gaussian, inner in [
        *product(CENTRES, ["none", "before", "after"], ["softmax"]),
        ("step", "none", "entmax"),
        ("predicted", "before", "sparsemax"),
        ("predicted", "after", "entmax"),
    ]
}
each_member = pytest.mark.parametrize("member", MEMBERS)


def build(member):
    make_centre, gaussian, make_inner = MEMBERS[member]
    torch.manual_seed(5)
    align = LocalAlignment(make_inner(), make_centre(), half_width=REACH, gaussian=gaussian)
    with torch.no_grad():
        for weight in align.parameters():
            weight.mul_(4)  # so that centres lie anywhere in the source
    return align


@st.composite
def rows(draw):
    """Scores, any mask, and queries."""
    times, places = draw(st.integers(1, 4)), draw(st.integers(1, 9))
    numbers = st.floats(-1e3, 1e3, width=32)
    scores = draw(st.lists(numbers, min_size=times * places, max_size=times * places))
    mask = draw(st.lists(st.booleans(), min_size=times * places, max_size=times * places))
    shape = (1, times, places)
    queries = torch.randn(1, times, QUERY, generator=torch.Generator().manual_seed(len(scores)))
    return torch.tensor(scores).view(shape), torch.tensor(mask).view(shape), queries


def window(centers, size):
    """Which places each centre sees, counted one by one."""
    return torch.tensor(
        [
            [[abs(place - int(center)) <= REACH for place in range(size)] for center in row]
            for row in centers.tolist()
        ]
    )


@each_member
@given(case=rows())
def test_attention_is_shared_within_the_window_and_nowhere_else(member, case):
    align = build(member)
    scores, mask, queries = case
    aligned = align(scores, mask, queries)
    seen = mask & window(aligned.centers, scores.size(-1))
    assert (aligned.weights >= 0).all()
    assert (aligned.weights[~seen] == 0).all()
    sums, some = aligned.weights.sum(dim=-1), seen.any(dim=-1).float()
    if align.is_unnormalized:
        assert (sums <= some + 1e-6).all()
    else:
        torch.testing.assert_close(sums, some)


@each_member
@given(case=rows())
def test_a_centre_lies_within_the_source(member, case):
    scores, mask, queries = case
    centers = build(member)(scores, mask, queries).centers
    for query, center in enumerate(centers[0].tolist()):
        visible = mask[0, query].nonzero().flatten().tolist()
        assert 0 <= center <= (visible[-1] + 1 if visible else 0)


def case_of(*leading, times=4, places=9):
    scores, queries = torch.randn(*leading, times, places), torch.randn(*leading, times, QUERY)
    return scores, queries


@each_member
@pytest.mark.parametrize("spoilt", [float("nan"), float("inf"), -float("inf"), 1e30], ids=str)
def test_what_stands_outside_the_window_is_not_read(member, spoilt):
    align, (scores, queries) = build(member), case_of(2)
    mask = padding_mask(torch.tensor([9, 6]), 9)
    aligned = align(scores, mask, queries)
    seen = mask & window(aligned.centers, 9)
    assert not seen.all()
    spoiled = scores.masked_fill(~seen, spoilt).requires_grad_()
    weights = align(spoiled, mask, queries).weights
    weights.square().sum().backward()
    torch.testing.assert_close(weights, aligned.weights)
    assert spoiled.grad.isfinite().all()
    assert (spoiled.grad[~seen] == 0).all()


@each_member
def test_padding_has_no_influence(member):
    align, (scores, queries) = build(member), case_of(2)
    wide = torch.cat([scores, torch.randn(2, 4, 5)], dim=-1)
    mask = torch.ones(2, 1, 9, dtype=torch.bool)
    padded = align(wide, padding_mask(torch.tensor([9, 9]), 14), queries)
    alone = align(scores, mask, queries)
    torch.testing.assert_close(padded.weights[..., :9], alone.weights)
    torch.testing.assert_close(padded.centers, alone.centers)


@each_member
@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
def test_leading_dimensions_are_free_and_one_mask_serves_them_all(member, leading):
    align, (scores, queries) = build(member), case_of(*leading)
    mask = padding_mask(torch.tensor([7]), 9)[0]
    aligned = align(scores, mask, queries)
    flat = zip(scores.view(-1, 4, 9), queries.view(-1, 4, QUERY), strict=True)
    apart = [align(each, mask, query) for each, query in flat]
    for name in ("weights", "centres"):
        together = getattr(aligned, name)
        wanted = torch.stack([getattr(each, name) for each in apart])
        torch.testing.assert_close(together.reshape(wanted.shape), wanted)
    whole = align(scores, mask.expand(scores.shape), queries)
    torch.testing.assert_close(aligned.weights, whole.weights)


@each_member
def test_a_fully_hidden_row_gives_zeros_and_finite_gradients(member):
    align, (scores, queries) = build(member), case_of(1, times=2)
    mask = torch.tensor([[[True] * 9, [False] * 9]])
    inputs = [scores.requires_grad_(), queries.requires_grad_()]
    weights = align(scores, mask, queries).weights
    assert (weights[0, 1] == 0).all()
    gradients = torch.autograd.grad(weights.square().sum(), inputs, materialize_grads=True)
    for gradient in gradients:
        assert gradient.isfinite().all()
        assert (gradient[0, 1] == 0).all()


@each_member
def test_a_window_without_a_visible_place_gives_zeros(member):
    align, scores, queries = build(member), torch.randn(1, 4, 40), torch.zeros(1, 4, QUERY)
    centers = align(scores, torch.ones(1, 1, 40, dtype=torch.bool), queries).centers
    mask = ~window(centers, 40)  # the far end stays visible, so that no centre moves
    aligned = align(scores, mask, queries)
    torch.testing.assert_close(aligned.centers, centers)
    assert (aligned.weights == 0).all()


@each_member
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_loses_only_the_last_digits_of_a_weight(member, dtype):
    align, (scores, queries) = build(member), case_of(2, places=300)
    mask = padding_mask(torch.tensor([300, 290]), 300)
    narrow = align(scores.to(dtype), mask, queries).weights
    wide = align(scores.to(dtype).float(), mask, queries).weights
    assert narrow.dtype == dtype
    torch.testing.assert_close(narrow.float(), wide, rtol=0.1, atol=torch.finfo(dtype).eps)


@each_member
def test_gradients_are_those_of_finite_differences(member):
    align = build(member).double()
    scores, queries = (each.double().requires_grad_() for each in case_of(1, times=2, places=5))
    mask = torch.tensor([[[True, True, False, True, True], [True] * 5]])
    inputs = (scores, queries, *align.parameters())
    assert torch.autograd.gradcheck(lambda s, q, *_: align(s, mask, q).weights, inputs)


@each_member
def test_queries_one_by_one_are_queries_at_once(member):
    attention = SingleHeadAttention(DotScore(), build(member), WeightedSumReadout()).double()
    queries, values = torch.randn(2, 6, QUERY).double(), torch.randn(2, 9, QUERY).double()
    memory = attention.build_memory(values, padding_mask(torch.tensor([9, 4]), 9))
    begun = attention.initial_state(memory)
    whole = attention(queries, memory, begun)
    past, parts = begun, []
    for query in queries.split(1, dim=1):
        parts.append(attention(query, memory, past))
        past = parts[-1].state
    centers = torch.cat([part.alignment.centers for part in parts], dim=1)
    torch.testing.assert_close(torch.cat([part.weights for part in parts], dim=1), whole.weights)
    torch.testing.assert_close(centers, whole.alignment.centers)
    torch.testing.assert_close(tuple(past), tuple(whole.state))
