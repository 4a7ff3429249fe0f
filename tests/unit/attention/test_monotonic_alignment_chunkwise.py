"""Chunkwise alignment against every boundary and every chunk, written out."""

import pytest
import torch

from heedful.attention.monotonic_alignment import MonotonicAlignment, MonotonicChunkwiseAlignment


def chunkwise(width, inference="expected"):
    return MonotonicChunkwiseAlignment(
        MonotonicAlignment(bias=-0.5, inference=inference), chunk_size=width
    ).eval()


def by_hand(stops, scores, mask, width):
    """Let each boundary share its chance by a softmax over its chunk."""
    weights = torch.zeros_like(scores)
    for end in mask.nonzero().flatten().tolist():
        chunk = [place for place in range(max(0, end - width + 1), end + 1) if mask[place]]
        weights[chunk] += stops[end] * scores[chunk].softmax(dim=-1)
    return weights


@pytest.mark.parametrize("width", [1, 2, 3, 9])
@pytest.mark.parametrize("inference", ["hard", "expected"])
@pytest.mark.parametrize("hidden", [[], [0], [2, 5]], ids=str)
def test_each_boundary_shares_its_chance_among_its_chunk(width, inference, hidden):
    align = chunkwise(width, inference)
    scores = torch.randn(2, 3, 6, dtype=torch.double)
    mask = torch.ones(6, dtype=torch.bool)
    mask[hidden] = False
    stops = align.boundaries(scores, mask.view(1, 6)).weights
    aligned = align(scores, mask.view(1, 6))
    torch.testing.assert_close(aligned.boundaries, stops)
    pairs = zip(stops.view(-1, 6), scores.view(-1, 6), strict=True)
    wanted = torch.stack([by_hand(stop, score, mask, width) for stop, score in pairs])
    torch.testing.assert_close(aligned.weights.view(-1, 6), wanted)
    assert (aligned.weights[..., hidden] == 0).all()


def test_a_chunk_of_one_place_is_the_boundary():
    scores = torch.randn(4, 3, 7)
    aligned = chunkwise(1)(scores, torch.ones(4, 3, 7, dtype=torch.bool))
    torch.testing.assert_close(aligned.weights, aligned.boundaries)


def test_the_next_query_goes_on_from_the_boundary_and_not_from_the_chunk():
    scores = torch.tensor([[-9.0, -9.0, 9.0], [9.0, 9.0, 9.0]])
    aligned = chunkwise(3, "hard")(scores, torch.ones(2, 3, dtype=torch.bool))
    assert aligned.pointers.tolist() == [[0, 0, 1], [0, 0, 1]]
    torch.testing.assert_close(aligned.weights, scores.softmax(dim=-1))


def test_rows_sum_to_the_chance_of_their_boundaries():
    scores = torch.randn(3, 4, 5, 6)
    aligned = chunkwise(3)(scores, torch.rand(1, 1, 6) < 0.7)
    torch.testing.assert_close(aligned.weights.sum(-1), aligned.boundaries.sum(-1))


def test_scores_too_large_for_an_exponential_keep_their_differences():
    scores = torch.tensor([[1e4, 1e4 - 1, 1e4 + 1, -1e4]])
    weights = chunkwise(3)(scores, torch.ones(1, 4, dtype=torch.bool)).weights
    assert weights.tolist() == [[1, 0, 0, 0]]
    last = chunkwise(2, "hard")
    with torch.no_grad():
        last.boundaries.bias.fill_(-1e4)  # the first above this is the third
    weights = last(scores, torch.ones(1, 4, dtype=torch.bool)).weights
    wanted = torch.tensor([[0.0, *torch.tensor([-1.0, 1.0]).softmax(-1).tolist(), 0.0]])
    torch.testing.assert_close(weights, wanted)


def test_gradients_are_those_of_finite_differences():
    align = chunkwise(2).double()
    mask = torch.tensor([[True, True, False, True], [False] * 4, [True] * 4])
    scores = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda each: align(each, mask).weights, scores)
    assert torch.autograd.gradgradcheck(lambda each: align(each, mask).weights, scores)
    align(scores, mask).weights.square().sum().backward()
    assert (scores.grad[~mask] == 0).all()


@pytest.mark.parametrize("hidden", [float("nan"), float("inf")])
def test_whatever_stands_at_a_hidden_place_is_not_read(hidden):
    scores = torch.randn(2, 4)
    mask = torch.tensor([[True, False, True, True]])
    spoiled = scores.masked_fill(~mask, hidden).requires_grad_()
    weights = chunkwise(3)(spoiled, mask).weights
    torch.testing.assert_close(weights, chunkwise(3)(scores, mask).weights)
    weights.square().sum().backward()
    assert spoiled.grad.isfinite().all()


def test_nan_stays_visible():
    scores = torch.tensor([[0.0, float("nan"), 1.0]])
    assert chunkwise(2)(scores, torch.ones(1, 3, dtype=torch.bool)).weights.isnan().any()
