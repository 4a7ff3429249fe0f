"""The monotonic marginal against its double sum."""

import pytest
import torch

from heedful.attention.attention import SingleHeadAttention
from heedful.attention.memory import AttentionState
from heedful.attention.monotonic_alignment import MonotonicMarginalAlignment
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import DotScore

alignment = MonotonicMarginalAlignment()


def all_visible(scores):
    return torch.ones_like(scores, dtype=torch.bool)


def state_with_belief(belief):
    """Return a state with this distribution of the last position."""
    shape = belief.shape[:-1]
    num_queries = torch.ones(shape, dtype=torch.long)
    return AttentionState(num_queries, belief, belief, torch.zeros(*shape, 1), torch.ones(shape))


def move_belief(belief, scores, mask):
    """Distribute the belief at each position by a softmax over the positions from there on."""
    weights = torch.zeros_like(scores)
    for position, probability in enumerate(belief):
        ahead = [pair for pair in range(position, len(scores)) if mask[pair]]
        weights[ahead] += probability * scores[ahead].softmax(dim=-1)
    return weights


@pytest.mark.parametrize("masked", [[], [0], [1, 2], [0, 3]], ids=str)
def test_weights_marginalize_over_last_position(masked):
    scores = 3 * torch.randn(6, 5, dtype=torch.double)
    mask = torch.ones(5, dtype=torch.bool)
    mask[masked] = False
    belief = torch.rand(6, 5, dtype=torch.double) * mask
    belief = belief / belief.sum(-1, keepdim=True)
    weights = alignment(
        scores.unsqueeze(1), mask.view(1, 5), None, state_with_belief(belief)
    ).weights[:, 0]
    expected = torch.stack([move_belief(*pair, mask) for pair in zip(belief, scores, strict=True)])
    torch.testing.assert_close(weights, expected)
    torch.testing.assert_close(weights.sum(-1), torch.ones(6, dtype=torch.double))
    assert (weights[:, masked] == 0).all()


def test_first_weights_are_softmax_over_source():
    scores = torch.randn(3, 1, 5)
    mask = torch.tensor([False, True, True, False, True]).view(1, 5)
    expected = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    torch.testing.assert_close(alignment(scores, mask).weights, expected)


def test_belief_moves_with_each_query():
    scores = torch.randn(4, 5, dtype=torch.double)
    belief, expected = torch.tensor([1.0, 0, 0, 0, 0], dtype=torch.double), []
    for row in scores:
        belief = move_belief(belief, row, [True] * 5)
        expected.append(belief)
    torch.testing.assert_close(
        alignment(scores, all_visible(scores)).weights, torch.stack(expected)
    )


def test_batched_queries_match_single_queries_under_changing_masks():
    attention = SingleHeadAttention(DotScore(), alignment, WeightedSumReadout()).double()
    values = torch.randn(4, 6, 3, dtype=torch.double)
    queries = torch.randn(4, 5, 3, dtype=torch.double)
    mask = torch.rand(4, 5, 6) < 0.3
    assert (~mask).all(-1).any()  # some rows are fully masked
    memory = attention.build_memory(values, mask)
    whole = attention(queries, memory)
    state = attention.initial_state(memory)
    for step in range(5):
        step_memory = memory._replace(mask=mask[:, step : step + 1])
        output = attention(queries[:, step : step + 1], step_memory, state)
        state = output.state
        torch.testing.assert_close(output.weights[:, 0], whole.weights[:, step])
    torch.testing.assert_close(whole.weights.sum(-1), mask.any(-1).double())
    assert (whole.weights[~mask] == 0).all()


def test_belief_without_visible_position_ahead_moves_to_last_or_waits():
    scores = torch.zeros(1, 4)
    state = state_with_belief(torch.tensor([0.0, 0.5, 0.0, 0.5]))
    mask = torch.tensor([[True, True, True, False]])
    expected = [[0.0, 0.25, 0.75, 0.0]]  # the belief in the fourth position moves to the third
    torch.testing.assert_close(alignment(scores, mask, None, state).weights, torch.tensor(expected))
    nothing = alignment(scores, torch.zeros(1, 4, dtype=torch.bool), None, state)
    assert (nothing.weights == 0).all()
    assert nothing.pointers.tolist() == [[0, 0.5, 0, 0.5]]


@pytest.mark.parametrize("shift", [-1e4, 1e4])
def test_large_scores_keep_differences(shift):
    scores = torch.randn(3, 6).round(decimals=2)
    belief = torch.rand(6).softmax(-1)
    expected = alignment(scores, all_visible(scores), None, state_with_belief(belief)).weights
    shifted = alignment(
        scores + shift, all_visible(scores), None, state_with_belief(belief)
    ).weights
    torch.testing.assert_close(shifted, expected, rtol=0.01, atol=0.01)


def test_dominant_score_does_not_underflow_later_ones():
    scores = torch.tensor([[1e4, 0.0, 1.0, -1e4]])
    weights = alignment(
        scores, all_visible(scores), None, state_with_belief(torch.tensor([0.5, 0.5, 0, 0]))
    )
    later = torch.tensor([0.0, 1.0]).softmax(-1) / 2
    torch.testing.assert_close(weights[0], torch.tensor([[0.5, *later.tolist(), 0.0]]))


def test_gradients_match_finite_differences_and_are_zero_where_masked():
    mask = torch.tensor([[True, True, False, True], [False] * 4, [True, True, True, False]])
    scores = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
    belief = torch.rand(4, dtype=torch.double, requires_grad=True)

    def compute_weights(scores, belief):
        return alignment(scores, mask, None, state_with_belief(belief)).weights

    assert torch.autograd.gradcheck(compute_weights, (scores, belief))
    assert torch.autograd.gradgradcheck(compute_weights, (scores, belief))
    compute_weights(scores, belief).square().sum().backward()
    assert (scores.grad[~mask] == 0).all()
