"""Monotonic alignment against the process it is the expectation of, enumerated in full."""

from itertools import product

import pytest
import torch

from heedful.attention import AttentionState, DotScore, SingleHeadAttention, WeightedSumReadout
from heedful.attention.monotonic_alignment import (
    MonotonicAlignment,
    MonotonicAlignmentConfig,
    MonotonicChunkwiseAlignmentConfig,
    MonotonicMarginalAlignmentConfig,
    linear_recurrence,
)

NAN = float("nan")


def expected(form="recursive", bias=-0.5):
    return MonotonicAlignment(bias=bias, algorithm=form, inference="expected").eval()


def everything(scores):
    return torch.ones_like(scores, dtype=torch.bool)


def scan(stops, start=0):
    """Walk for each row of outcomes; None where the pointer has walked off the end."""
    places = []
    for row in stops:
        if start is not None:
            start = next((place for place in range(start, len(row)) if row[place]), None)
        places.append(start)
    return places


def by_enumeration(chances):
    """Average where the pointer stops over every outcome of every coin that could be tossed."""
    queries, places = chances.shape
    weights = torch.zeros_like(chances)
    for outcome in product([False, True], repeat=queries * places):
        stops = torch.tensor(outcome).view(queries, places)
        chance = torch.where(stops, chances, 1 - chances).prod()
        for query, place in enumerate(scan(stops.tolist())):
            if place is not None:
                weights[query, place] += chance
    return weights


@pytest.mark.parametrize("form", ["recursive", "parallel"])
@pytest.mark.parametrize("hidden", [[], [0], [1]], ids=str)
def test_weights_are_the_chances_to_stop_over_all_outcomes(form, hidden):
    scores = 2 * torch.randn(3, 3, dtype=torch.double)
    mask = everything(scores)
    mask[:, hidden] = False
    chances = (scores - 0.5).sigmoid() * mask
    weights = expected(form)(scores, mask).weights
    torch.testing.assert_close(weights, by_enumeration(chances))
    assert (weights[:, hidden] == 0).all()


def test_what_may_be_seen_can_change_from_query_to_query():
    scores = torch.randn(3, 3, dtype=torch.double)
    mask = torch.tensor([[True, False, True], [False, True, True], [True, True, True]])
    chances = (scores - 0.5).sigmoid() * mask
    torch.testing.assert_close(expected()(scores, mask).weights, by_enumeration(chances))


def test_rows_sum_to_the_chance_that_some_place_was_found():
    scores = torch.randn(5, 4, 6, dtype=torch.double)
    sums = expected()(scores, everything(scores)).weights.sum(-1)
    assert (sums < 1).all()
    assert (sums.diff(dim=-1) <= 1e-12).all()


def test_accumulating_is_a_loop_over_the_places():
    gains, decays = torch.rand(2, 3, 11, dtype=torch.double).unbind(0)
    total, wanted = torch.zeros(3, dtype=torch.double), []
    for place in range(11):
        total = gains[:, place] + decays[:, place] * total
        wanted.append(total)
    torch.testing.assert_close(linear_recurrence(gains, decays), torch.stack(wanted, -1))


def test_only_the_recursive_form_keeps_a_pointer_far_into_a_long_source():
    places = 200
    scores = torch.zeros(1, places, dtype=torch.double)  # half of what comes to a place stops
    mask, last = everything(scores), torch.zeros(places, dtype=torch.double)
    last[150] = 1
    past = AttentionState(torch.tensor(1), last, last, torch.zeros(1), torch.ones(()))
    wanted = torch.zeros(places, dtype=torch.double)
    wanted[150:] = 0.5 ** torch.arange(1, places - 149, dtype=torch.double)
    exact = expected("recursive", bias=0.0)(scores, mask, None, past).weights[0]
    torch.testing.assert_close(exact, wanted)
    assert expected("parallel", bias=0.0)(scores, mask, None, past).weights.sum() < 1e-9


@pytest.mark.parametrize("hidden", [[], [0], [1, 2]], ids=str)
def test_in_use_a_query_stops_at_the_first_place_it_may(hidden):
    align = MonotonicAlignment(bias=-1.0).eval()
    scores = 2 * torch.randn(50, 4, 5)
    mask = everything(scores)
    mask[..., hidden] = False
    weights = align(scores, mask).weights
    for row, found in zip((scores > 1) & mask, weights, strict=True):
        for place, given in zip(scan(row.tolist()), found, strict=True):
            assert given.nonzero().flatten().tolist() == ([] if place is None else [place])
            assert given.sum() == (place is not None)


def test_a_pointer_that_walked_off_the_end_does_not_come_back():
    scores = torch.tensor([[-9.0, 9.0], [9.0, -9.0], [9.0, 9.0]])
    weights = MonotonicAlignment().eval()(scores, everything(scores)).weights
    assert weights.tolist() == [[0, 1], [0, 0], [0, 0]]


@pytest.mark.parametrize("form", ["recursive", "parallel"])
def test_the_hard_pointer_is_the_limit_of_large_scores(form):
    scores = torch.randn(20, 1, 5, dtype=torch.double)
    hard = MonotonicAlignment(bias=0.0).eval()(scores, everything(scores)).weights
    torch.testing.assert_close(expected(form, bias=0.0)(1e7 * scores, everything(scores))[0], hard)


def test_noise_is_for_training_and_the_bias_is_added_and_learned():
    align = MonotonicAlignment(bias=-2.0, noise=3.0)
    scores = torch.zeros(20000, 1, 1)
    noise = align(scores, everything(scores)).weights.logit() + 2
    assert noise.mean().abs() < 0.1
    assert (noise.std() - 3).abs() < 0.1
    align(scores, everything(scores)).weights.sum().backward()
    assert align.bias.grad > 0
    align.eval()
    align.inference = "expected"
    torch.testing.assert_close(align(scores, everything(scores)).weights.logit(), scores - 2)


@pytest.mark.parametrize("gain", [0.1, 1.0, 10.0, -2.0])
def test_the_gain_multiplies_scores_before_the_bias_is_added(gain):
    align = MonotonicAlignment(gain=gain, bias=-2.0, inference="expected").double().eval()
    scores = torch.randn(2, 3, 5, dtype=torch.double)
    wanted = expected(bias=-2.0).double()(gain * scores, everything(scores)).weights
    torch.testing.assert_close(align(scores, everything(scores)).weights, wanted)
    hard = (
        MonotonicAlignment(gain=gain, bias=-2.0).double().eval()(scores, everything(scores)).weights
    )
    scaled = (
        MonotonicAlignment(bias=-2.0).double().eval()(gain * scores, everything(scores)).weights
    )
    torch.testing.assert_close(hard, scaled)


@pytest.mark.parametrize("gain", [0.1, 10.0, -2.0])
@pytest.mark.parametrize("hidden", [NAN, float("inf"), 5.0])
def test_whatever_the_gain_hidden_places_stay_hidden_and_teach_it_nothing(gain, hidden):
    align = MonotonicAlignment(gain=gain, inference="expected").eval()
    seen = torch.tensor([[1.0, 2.0]])
    align(seen, everything(seen)).weights.square().sum().backward()
    wanted, align.gain.grad = align.gain.grad, None
    scores = torch.tensor([[1.0, hidden, 2.0]])
    weights = align(scores, torch.tensor([[True, False, True]])).weights
    weights.square().sum().backward()
    assert weights[0, 1] == 0
    assert wanted != 0
    torch.testing.assert_close(align.gain.grad, wanted)


@pytest.mark.parametrize("inference", ["hard", "expected"])
def test_queries_one_by_one_are_answered_like_all_together(inference):
    attention = SingleHeadAttention(
        DotScore(), MonotonicAlignment(bias=0.0, inference=inference), WeightedSumReadout()
    ).eval()
    values, queries = torch.randn(2, 3, 6, 4), torch.randn(2, 3, 5, 4)
    memory = attention.build_memory(values, torch.rand(2, 3, 1, 6) < 0.8)
    whole = attention(queries, memory)
    past, weights = attention.initial_state(memory), []
    for query in queries.split(1, dim=-2):
        found = attention(query, memory, past)
        past = found.state
        weights.append(found.weights)
    torch.testing.assert_close(torch.cat(weights, dim=-2), whole.weights)


def test_each_row_goes_on_from_its_own_past():
    last = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    past = AttentionState(torch.tensor([0, 4]), last, last, torch.zeros(2, 1), torch.ones(2))
    scores = torch.full((2, 1, 3), 9.0)
    weights = MonotonicAlignment().eval()(scores, everything(scores), None, past).weights
    assert weights.tolist() == [[[1, 0, 0]], [[0, 0, 1]]]


@pytest.mark.parametrize("form", ["recursive", "parallel"])
def test_gradients_are_those_of_finite_differences(form):
    align = expected(form).double()
    mask = torch.tensor([[True, True, False, True], [True, True, True, True]])
    scores = torch.randn(2, 4, dtype=torch.double, requires_grad=True)

    def weigh(scores, *_):
        return align(scores, mask).weights

    assert torch.autograd.gradcheck(weigh, (scores, align.gain, align.bias))
    assert torch.autograd.gradgradcheck(weigh, (scores, align.gain, align.bias))


@pytest.mark.parametrize(
    "align", [MonotonicAlignment().eval(), expected()], ids=["hard", "expected"]
)
def test_nan_stays_visible_and_is_not_read_where_hidden(align):
    scores = torch.tensor([[9.0, NAN, 9.0]], requires_grad=True)
    assert align(scores, everything(scores)).weights.isnan().any()
    weights = align(scores, torch.tensor([[True, False, True]])).weights
    weights.sum().backward()
    assert weights.isfinite().all()
    assert scores.grad.isfinite().all()
    assert scores.grad[0, 1] == 0


@pytest.mark.parametrize("form", ["recursive", "parallel"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_loses_only_the_last_digits(form, dtype):
    scores = torch.randn(2, 3, 100).to(dtype)
    weights = expected(form)(scores, everything(scores)).weights
    wide = expected(form)(scores.float(), everything(scores)).weights
    assert weights.dtype == dtype
    torch.testing.assert_close(weights, wide.to(dtype))


def test_each_kind_builds_its_alignment_with_its_settings():
    walking = MonotonicAlignmentConfig(
        gain=2, bias=-3, noise=0.5, algorithm="parallel", inference="expected"
    )
    built = walking.build(query_size=4)
    learned = (built.gain.item(), built.bias.item())
    assert (*learned, built.noise, built.algorithm, built.inference) == (
        2,
        -3,
        0.5,
        "parallel",
        "expected",
    )
    chunked = MonotonicChunkwiseAlignmentConfig(chunk_size=3, boundaries=walking).build(
        query_size=4
    )
    assert (chunked.chunk_size, chunked.boundaries.noise) == (3, 0.5)
    assert not MonotonicMarginalAlignmentConfig().build(query_size=4).is_unnormalized
