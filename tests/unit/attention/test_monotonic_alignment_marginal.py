"""The monotonic marginal against its double sum, written out."""

import pytest
import torch

from heedful.attention import AttentionState, DotScore, SingleHeadAttention, WeightedSumReadout
from heedful.attention.monotonic_alignment import MonotonicMarginalAlignment

NAN = float("nan")
align = MonotonicMarginalAlignment()


def everything(scores):
    return torch.ones_like(scores, dtype=torch.bool)


def believing(belief):
    """A past in which the last token came from somewhere by these chances."""
    shape = belief.shape[:-1]
    asked = torch.ones(shape, dtype=torch.long)
    return AttentionState(asked, belief, belief, torch.zeros(*shape, 1), torch.ones(shape))


def move(belief, scores, mask):
    """From each place, share what is believed of it among the places from there on."""
    weights = torch.zeros_like(scores)
    for place, chance in enumerate(belief):
        ahead = [each for each in range(place, len(scores)) if mask[each]]
        weights[ahead] += chance * scores[ahead].softmax(dim=-1)
    return weights


@pytest.mark.parametrize("hidden", [[], [0], [1, 2], [0, 3]], ids=str)
def test_weights_sum_over_where_the_last_token_came_from(hidden):
    scores = 3 * torch.randn(6, 5, dtype=torch.double)
    mask = torch.ones(5, dtype=torch.bool)
    mask[hidden] = False
    belief = torch.rand(6, 5, dtype=torch.double) * mask
    belief = belief / belief.sum(-1, keepdim=True)
    weights = align(scores.unsqueeze(1), mask.view(1, 5), None, believing(belief)).weights[:, 0]
    wanted = torch.stack([move(*each, mask) for each in zip(belief, scores, strict=True)])
    torch.testing.assert_close(weights, wanted)
    torch.testing.assert_close(weights.sum(-1), torch.ones(6, dtype=torch.double))
    assert (weights[:, hidden] == 0).all()


def test_the_first_weights_are_a_softmax_over_all():
    scores = torch.randn(3, 1, 5)
    mask = torch.tensor([False, True, True, False, True]).view(1, 5)
    wanted = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
    torch.testing.assert_close(align(scores, mask).weights, wanted)


def test_queries_follow_one_another_as_beliefs_move():
    scores = torch.randn(4, 5, dtype=torch.double)
    belief, wanted = torch.tensor([1.0, 0, 0, 0, 0], dtype=torch.double), []
    for row in scores:
        belief = move(belief, row, [True] * 5)
        wanted.append(belief)
    torch.testing.assert_close(align(scores, everything(scores)).weights, torch.stack(wanted))


def test_one_by_one_is_all_together_under_masks_that_change():
    attention = SingleHeadAttention(DotScore(), align, WeightedSumReadout()).double()
    values = torch.randn(4, 6, 3, dtype=torch.double)
    queries = torch.randn(4, 5, 3, dtype=torch.double)
    mask = torch.rand(4, 5, 6) < 0.3
    assert (~mask).all(-1).any()  # rows that see nothing are among them
    memory = attention.build_memory(values, mask)
    whole = attention(queries, memory)
    past = attention.initial_state(memory)
    for time in range(5):
        seen = memory._replace(mask=mask[:, time : time + 1])
        found = attention(queries[:, time : time + 1], seen, past)
        past = found.state
        torch.testing.assert_close(found.weights[:, 0], whole.weights[:, time])
    torch.testing.assert_close(whole.weights.sum(-1), mask.any(-1).double())
    assert (whole.weights[~mask] == 0).all()


def test_a_belief_with_nothing_ahead_takes_the_last_visible_place_or_waits():
    scores = torch.zeros(1, 4)
    believed = believing(torch.tensor([0.0, 0.5, 0.0, 0.5]))
    seen = torch.tensor([[True, True, True, False]])
    wanted = [[0.0, 0.25, 0.75, 0.0]]  # the belief in the fourth falls back on the third
    torch.testing.assert_close(align(scores, seen, None, believed).weights, torch.tensor(wanted))
    nothing = align(scores, torch.zeros(1, 4, dtype=torch.bool), None, believed)
    assert (nothing.weights == 0).all()
    assert nothing.pointers.tolist() == [[0, 0.5, 0, 0.5]]


@pytest.mark.parametrize("shift", [-1e4, 1e4])
def test_large_scores_keep_their_differences(shift):
    scores = torch.randn(3, 6).round(decimals=2)
    belief = torch.rand(6).softmax(-1)
    near = align(scores, everything(scores), None, believing(belief)).weights
    far = align(scores + shift, everything(scores), None, believing(belief)).weights
    torch.testing.assert_close(far, near, rtol=0.01, atol=0.01)


def test_a_place_far_better_than_all_after_it_does_not_drown_them():
    scores = torch.tensor([[1e4, 0.0, 1.0, -1e4]])
    weights = align(scores, everything(scores), None, believing(torch.tensor([0.5, 0.5, 0, 0])))
    later = torch.tensor([0.0, 1.0]).softmax(-1) / 2
    torch.testing.assert_close(weights[0], torch.tensor([[0.5, *later.tolist(), 0.0]]))


def test_gradients_are_those_of_finite_differences_and_none_where_hidden():
    mask = torch.tensor([[True, True, False, True], [False] * 4, [True, True, True, False]])
    scores = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
    belief = torch.rand(4, dtype=torch.double, requires_grad=True)

    def weigh(scores, belief):
        return align(scores, mask, None, believing(belief)).weights

    assert torch.autograd.gradcheck(weigh, (scores, belief))
    assert torch.autograd.gradgradcheck(weigh, (scores, belief))
    weigh(scores, belief).square().sum().backward()
    assert (scores.grad[~mask] == 0).all()


@pytest.mark.parametrize("hidden", [NAN, float("inf"), 1e30])
def test_whatever_stands_at_a_hidden_place_is_not_read(hidden):
    scores = torch.randn(2, 4)
    mask = torch.tensor([[True, False, True, False]])
    spoiled = scores.masked_fill(~mask, hidden).requires_grad_()
    weights = align(spoiled, mask).weights
    torch.testing.assert_close(weights, align(scores, mask).weights)
    weights.square().sum().backward()
    assert spoiled.grad.isfinite().all()
    assert (spoiled.grad[:, ~mask[0]] == 0).all()


@pytest.mark.parametrize("row", [(0.0, NAN, 1.0), (NAN, NAN, NAN), (1.0, 0.0, NAN)], ids=str)
def test_nan_stays_visible(row):
    scores = torch.tensor([row])
    assert align(scores, everything(scores)).weights.isnan().any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_loses_only_the_last_digits(dtype):
    scores = torch.randn(2, 3, 300).to(dtype)
    weights = align(scores, everything(scores)).weights
    assert weights.dtype == dtype
    torch.testing.assert_close(weights, align(scores.float(), everything(scores)).weights.to(dtype))
