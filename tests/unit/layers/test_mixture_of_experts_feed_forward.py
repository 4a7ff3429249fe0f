"""Experts as a sublayer: a dense loop, and spread by their losses."""

import math

import torch

from heedful.layers.mixture_of_experts import MixtureOfExperts, MoEFeedForward

MASK = torch.tensor([[True, True, True, False], [True, False, False, False]])


def sublayer(*, num_experts=6, num_experts_per_token=2, weight=0.0, capacity_factor=None):
    return MoEFeedForward(
        MixtureOfExperts(
            3,
            intermediate_size=5,
            num_experts=num_experts,
            num_experts_per_token=num_experts_per_token,
            importance_weight=weight,
            load_weight=weight,
            capacity_factor=capacity_factor,
        )
    )


def test_sparse_computation_equals_dense_computation_with_sparse_gates():
    built, inputs = sublayer().double().eval(), torch.randn(2, 4, 3, dtype=torch.double)
    torch.nn.init.normal_(built.experts.gate.score.weight)
    inputs.requires_grad_()
    scores = inputs @ built.experts.gate.score.weight.T
    second_best = scores.sort(dim=-1).values[..., -2:-1]
    gates = scores.masked_fill(scores < second_best, -math.inf).softmax(dim=-1)
    made = torch.stack([expert(inputs) for expert in built.experts.experts], dim=-1)
    expected = (made * gates.unsqueeze(-2)).sum(dim=-1) * MASK.unsqueeze(-1)
    actual = built(inputs, MASK).outputs
    torch.testing.assert_close(actual, expected)
    leaves = [inputs, *built.experts.experts.parameters(), built.experts.gate.score.weight]
    pairs = (torch.autograd.grad(each.sin().sum(), leaves) for each in (actual, expected))
    for pair in zip(*pairs, strict=True):
        torch.testing.assert_close(*pair)


def test_auxiliary_losses_are_those_of_the_experts():
    built, inputs = sublayer(weight=0.4).eval(), torch.randn(2, 4, 3)
    torch.testing.assert_close(
        built(inputs, MASK).auxiliary_losses, built.experts(inputs, MASK).auxiliary_losses
    )


def busiest_after_learning(weight):
    """The share of the busiest expert, after a task that the first two begin with an edge in."""
    torch.manual_seed(0)
    built = sublayer(weight=weight)
    with torch.no_grad():
        built.experts.gate.score.weight[:2] = 1.0  # of words that are mostly positive
    words, seen = torch.randn(8, 16, 3) + 1, torch.ones(8, 16, dtype=torch.bool)
    optimizer = torch.optim.Adam(built.parameters(), lr=0.1)
    for _ in range(100):
        fed = built.train()(words, seen)
        error = (fed.outputs - words.sin()).square().sum()
        optimizer.zero_grad()
        ((error + sum(fed.auxiliary_losses.values())) / 128).backward()
        optimizer.step()
    with torch.no_grad():
        return built.eval().experts(words, seen).expert_load.max().item()


def test_balance_losses_spread_tokens_during_training():
    even = 1 / 6
    assert busiest_after_learning(1.0) < 2 * even
    assert busiest_after_learning(0.0) > 2 * even
