"""Chunkwise alignment against a loop over boundaries and chunks."""

import pytest
import torch

from heedful.attention.monotonic_alignment import MonotonicAlignment, MonotonicChunkwiseAlignment


def chunkwise(chunk_size, inference="expected"):
    return MonotonicChunkwiseAlignment(
        MonotonicAlignment(bias=-0.5, inference=inference), chunk_size=chunk_size
    ).eval()


def by_hand(boundaries, scores, mask, chunk_size):
    """Distribute the probability of each boundary by a softmax over its chunk."""
    weights = torch.zeros_like(scores)
    for end in mask.nonzero().flatten().tolist():
        chunk = [
            position for position in range(max(0, end - chunk_size + 1), end + 1) if mask[position]
        ]
        weights[chunk] += boundaries[end] * scores[chunk].softmax(dim=-1)
    return weights


@pytest.mark.parametrize("chunk_size", [1, 2, 3, 9])
@pytest.mark.parametrize("inference", ["hard", "expected"])
@pytest.mark.parametrize("masked", [[], [0], [2, 5]], ids=str)
def test_each_boundary_distributes_probability_over_the_chunk(chunk_size, inference, masked):
    alignment = chunkwise(chunk_size, inference)
    scores = torch.randn(2, 3, 6, dtype=torch.double)
    mask = torch.ones(6, dtype=torch.bool)
    mask[masked] = False
    boundaries = alignment.boundaries(scores, mask.view(1, 6)).weights
    output = alignment(scores, mask.view(1, 6))
    torch.testing.assert_close(output.boundaries, boundaries)
    pairs = zip(boundaries.view(-1, 6), scores.view(-1, 6), strict=True)
    expected = torch.stack([by_hand(stop, score, mask, chunk_size) for stop, score in pairs])
    torch.testing.assert_close(output.weights.view(-1, 6), expected)
    assert (output.weights[..., masked] == 0).all()


def test_large_scores_do_not_overflow():
    scores = torch.tensor([[1e4, 1e4 - 1, 1e4 + 1, -1e4]])
    weights = chunkwise(3)(scores, torch.ones(1, 4, dtype=torch.bool)).weights
    assert weights.tolist() == [[1, 0, 0, 0]]
    last = chunkwise(2, "hard")
    with torch.no_grad():
        last.boundaries.bias.fill_(-1e4)  # the third score is the first above it
    weights = last(scores, torch.ones(1, 4, dtype=torch.bool)).weights
    expected = torch.tensor([[0.0, *torch.tensor([-1.0, 1.0]).softmax(-1).tolist(), 0.0]])
    torch.testing.assert_close(weights, expected)


def test_gradients_match_finite_differences():
    alignment = chunkwise(2).double()
    mask = torch.tensor([[True, True, False, True], [False] * 4, [True] * 4])
    scores = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda scores: alignment(scores, mask).weights, scores)
    assert torch.autograd.gradgradcheck(lambda scores: alignment(scores, mask).weights, scores)
    alignment(scores, mask).weights.square().sum().backward()
    assert (scores.grad[~mask] == 0).all()
