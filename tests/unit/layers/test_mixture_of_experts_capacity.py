"""Experts that take so many words and no more: who gets in, who does not, and who is told."""

import math

import pytest
import torch

from heedful.layers.mixture_of_experts import MixtureOfExperts

SEEN = torch.ones(3, 4, dtype=torch.bool)


def experts(*, capacity_factor, num_experts=4, num_experts_per_token=2):
    """Experts in training mode, so with a capacity; their gate is not, so it draws no noise."""
    built = MixtureOfExperts(
        3,
        intermediate_size=6,
        num_experts=num_experts,
        num_experts_per_token=num_experts_per_token,
        importance_weight=0.3,
        load_weight=0.7,
        capacity_factor=capacity_factor,
    ).double()
    torch.manual_seed(2)
    for weight in built.parameters():
        torch.nn.init.normal_(weight)
    built.gate.eval()
    return built


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.double)


def one_by_one(built, words, room):
    """Let words come to their experts in order; those who find one full get nothing of it."""
    gated = built.gate(words)
    left, outputs, dropped = [room] * len(built.experts), [], 0
    chosen_experts = gated.expert_indices.view(len(words), -1).tolist()
    for word, chosen, shares in zip(
        words, chosen_experts, gated.gate_weights.view(len(words), -1), strict=True
    ):
        outputs.append(torch.zeros_like(word))
        for expert, share in zip(chosen, shares, strict=True):
            if left[expert]:
                left[expert] -= 1
                outputs[-1] = outputs[-1] + share * built.experts[expert](word)
            else:
                dropped += 1
    return torch.stack(outputs), dropped


@pytest.mark.parametrize("factor", [0.2, 0.5, 1.0, 1.3])
@pytest.mark.parametrize("num_experts_per_token", [1, 2, 4])
def test_tokens_beyond_the_capacity_dropped(factor, num_experts_per_token):
    built, inputs = (
        experts(capacity_factor=factor, num_experts_per_token=num_experts_per_token),
        numbers(3, 4, 3),
    )
    inputs.requires_grad_()
    room = math.ceil(factor * 12 * num_experts_per_token / 4)
    mixed = built(inputs, SEEN)
    wanted, dropped = one_by_one(built, inputs.flatten(0, 1), room)
    torch.testing.assert_close(mixed.outputs, wanted.view(3, 4, 3))
    assert mixed.num_dropped.item() == dropped
    assert mixed.num_routed.item() == 12 * num_experts_per_token
    leaves = [inputs, built.gate.score.weight, *built.experts.parameters()]
    actual, expected = (
        torch.autograd.grad(each.sin().sum(), leaves, materialize_grads=True)
        for each in (mixed.outputs.flatten(0, 1), wanted)
    )
    for pair in zip(actual, expected, strict=True):
        torch.testing.assert_close(*pair)


def test_capacity_without_overflow_changes_nothing():
    inputs = numbers(3, 4, 3)
    free, limited = (experts(capacity_factor=factor)(inputs, SEEN) for factor in (None, 2.0))
    assert (
        limited.num_dropped.item() == free.num_dropped.item() == 0
    )  # twice an even share is all words
    for actual, expected in zip(limited, free, strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)


def test_capacity_is_limited_only_in_training():
    built = experts(capacity_factor=0.5)
    assert built.capacity(12) == 3
    assert built.eval().capacity(12) is None
    assert built.train().capacity(12) == 3
    assert experts(capacity_factor=None).train().capacity(12) is None


def test_padding_does_not_count_for_capacity():
    built, inputs = experts(capacity_factor=0.5), numbers(3, 4, 3)
    mask = torch.rand(3, 4) < 0.6
    alone = built(inputs[mask][None], torch.ones(1, int(mask.sum()), dtype=torch.bool))
    mixed = built(inputs.masked_fill(~mask[:, :, None], math.nan), mask)
    torch.testing.assert_close(mixed.outputs[mask], alone.outputs[0])
    assert (mixed.outputs[~mask] == 0).all()
    assert mixed.num_dropped.item() == alone.num_dropped.item() > 0


def test_dropping_does_not_change_losses_and_loads():
    inputs = numbers(3, 4, 3)
    free, limited = (experts(capacity_factor=factor)(inputs, SEEN) for factor in (None, 0.3))
    assert limited.num_dropped.item() > 0
    torch.testing.assert_close(limited.auxiliary_losses, free.auxiliary_losses, rtol=0, atol=0)
    torch.testing.assert_close(limited.expert_load, free.expert_load, rtol=0, atol=0)


def test_batch_of_padding_drops_nothing():
    mixed = experts(capacity_factor=0.5)(numbers(3, 4, 3), ~SEEN)
    assert (mixed.num_routed.item(), mixed.num_dropped.item()) == (0, 0)
    assert (mixed.outputs == 0).all()


def test_bias_and_activation_match_a_feed_forward_network():
    built = MixtureOfExperts(
        3,
        intermediate_size=6,
        num_experts=1,
        num_experts_per_token=1,
        importance_weight=0.0,
        load_weight=0.0,
        activation="gelu",
        bias=True,
    ).double()
    inputs, (input_projection, _, output_projection) = numbers(3, 4, 3), built.experts[0]
    hidden = torch.nn.functional.gelu(inputs @ input_projection.weight.T + input_projection.bias)
    wanted = hidden @ output_projection.weight.T + output_projection.bias
    torch.testing.assert_close(built(inputs, SEEN).outputs, wanted)
