"""Experts against a dense loop, and the formulas of Shazeer et al. 2017 by hand."""

import math

import pytest
import torch

from heedful.layers.expert_gates import NoisyTopKGate
from heedful.layers.mixture_of_experts import (
    MixtureOfExperts,
    MoEFeedForward,
    MoESublayer,
    cv_squared,
)

MASK = torch.tensor([[True, True, True, False], [True, False, True, False]])


def experts(*, num_experts=5, num_experts_per_token=2, importance_weight=0.3, load_weight=0.7):
    """Experts whose gate has an opinion."""
    built = MixtureOfExperts(
        3,
        intermediate_size=6,
        num_experts=num_experts,
        num_experts_per_token=num_experts_per_token,
        importance_weight=importance_weight,
        load_weight=load_weight,
    ).double()
    torch.nn.init.normal_(built.gate.score.weight)
    torch.nn.init.normal_(built.gate.noise.weight)
    return built


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.double)


def gates(built, word):
    """G(x), written as the paper has it: softmax over scores of which all but the best are -inf."""
    scores = built.gate.score.weight @ word
    kept = torch.full_like(scores, -math.inf)
    for best in sorted(range(len(scores)), key=lambda n: -scores[n])[
        : built.gate.num_experts_per_token
    ]:
        kept[best] = scores[best]
    return kept.softmax(dim=0)


def dense(built, word):
    """sum_i G(x)_i E_i(x), over all experts, whether they were chosen or not."""
    shares = gates(built, word)
    return sum(share * expert(word) for share, expert in zip(shares, built.experts, strict=True))


@pytest.mark.parametrize("num_experts_per_token", [1, 2, 5])
def test_routing_equals_dense_computation_with_sparse_gates(num_experts_per_token):
    built, inputs = (
        experts(num_experts_per_token=num_experts_per_token).eval(),
        numbers(2, 4, 3).requires_grad_(),
    )
    outputs = built(inputs, MASK).outputs
    pairs = zip(inputs.flatten(0, 1), MASK.flatten(), strict=True)
    wanted = torch.stack([dense(built, word) if seen else 0 * word for word, seen in pairs])
    wanted = wanted.view(2, 4, 3)
    torch.testing.assert_close(outputs, wanted)
    leaves = [inputs, built.gate.score.weight, *built.experts.parameters()]
    actual, expected = (torch.autograd.grad(each.sin().sum(), leaves) for each in (outputs, wanted))
    for pair in zip(actual, expected, strict=True):
        torch.testing.assert_close(*pair)


@pytest.mark.parametrize("training", [True, False])
def test_gradients_match_finite_differences(training):
    built, inputs = experts().train(training), numbers(2, 4, 3).requires_grad_()

    def run(inputs, *weights):
        torch.manual_seed(1)  # what is drawn is drawn alike
        mixed = built(inputs, MASK)
        return mixed.outputs, *mixed.auxiliary_losses.values()

    assert torch.autograd.gradcheck(run, (inputs, *built.parameters()), fast_mode=True)


def test_leading_dimensions_are_arbitrary():
    built, inputs, mask = experts().eval(), numbers(2, 3, 4, 3), torch.rand(2, 3, 4) < 0.7
    whole = built(inputs, mask).outputs
    parts = [built(*part).outputs for part in zip(inputs, mask, strict=True)]
    torch.testing.assert_close(whole, torch.stack(parts))


def test_padding_is_not_routed_and_has_no_loss():
    built, inputs = experts().eval(), numbers(2, 4, 3)
    alone = built(inputs[MASK][None], torch.ones(1, 5, dtype=torch.bool))
    spoiled = inputs.masked_fill(~MASK[:, :, None], math.nan).requires_grad_()
    mixed = built(spoiled, MASK)
    assert (mixed.outputs[~MASK] == 0).all()
    torch.testing.assert_close(mixed.outputs[MASK], alone.outputs[0])
    torch.testing.assert_close(mixed.auxiliary_losses, alone.auxiliary_losses)
    torch.testing.assert_close(mixed.expert_load, alone.expert_load)
    (gradient,) = torch.autograd.grad(mixed.outputs.sum(), spoiled)
    assert (gradient[~MASK] == 0).all()


def test_batch_of_padding_returns_zeros():
    built = experts()
    mixed = built(numbers(2, 4, 3), torch.zeros(2, 4, dtype=torch.bool))
    assert (mixed.outputs == 0).all()
    assert all(penalty == 0 for penalty in mixed.auxiliary_losses.values())
    assert (mixed.expert_load == 0).all()


def test_expert_load_is_the_fraction_of_routed_tokens():
    built, inputs = experts().eval(), numbers(2, 4, 3)
    counts = torch.zeros(5)
    for word in inputs[MASK]:
        counts += gates(built, word) > 0
    torch.testing.assert_close(built(inputs, MASK).expert_load, counts / 10)


def phi(number):
    return 0.5 * (1 + math.erf(number / math.sqrt(2)))


def test_noisy_gate_same_as_the_paper_in_training():
    gate = experts().gate
    words = numbers(7, 3)
    torch.manual_seed(3)
    actual = gate(words)
    torch.manual_seed(3)
    drawn = torch.randn(7, 5, dtype=torch.double)
    # The authors' code adds 0.01 to the standard deviation of the noise (noise_epsilon).
    assert actual.token_indices.tolist() == [row for row in range(7) for _ in range(2)]
    load = [0.0] * 5
    for row in range(7):
        clean = (gate.score.weight @ words[row]).tolist()
        wide = (gate.noise.weight @ words[row]).tolist()
        spreads = [math.log1p(math.exp(each)) + 0.01 for each in wide]
        noisy = [c + n * s for c, n, s in zip(clean, drawn[row].tolist(), spreads, strict=True)]
        best = sorted(range(5), key=lambda n: -noisy[n])[:2]
        assert actual.expert_indices.view(7, 2)[row].tolist() == best
        total = sum(math.exp(noisy[n]) for n in best)
        shares = [math.exp(noisy[n]) / total for n in best]
        assert actual.gate_weights.view(7, 2)[row].tolist() == pytest.approx(shares)
        for expert in range(5):
            others = sorted(noisy[:expert] + noisy[expert + 1 :], reverse=True)
            chance = phi((clean[expert] - others[1]) / spreads[expert])  # the second but for itself
            load[expert] += chance
    assert actual.load.tolist() == pytest.approx(load)


def test_gate_is_deterministic_in_eval_mode():
    built, inputs = experts().eval(), numbers(2, 4, 3)
    once, again = (built(inputs, MASK) for _ in range(2))
    assert torch.equal(once.outputs, again.outputs)
    for word in inputs[MASK]:
        chances = built.gate(word[None]).load
        assert ((chances == 0) | (chances == 1)).all()
        assert chances.sum() == 2


def test_new_gate_routes_only_by_noise():
    gate = NoisyTopKGate(3, 4, 2)
    assert not any(weight.any() for weight in gate.parameters())
    counts = gate(torch.randn(8000, 3)).expert_indices.flatten().bincount() / 16000
    torch.testing.assert_close(counts, torch.full((4,), 0.25), atol=0.02, rtol=0)


def test_cv_squared_same_as_hand_calculation():
    # Mean 2, variance of the whole population (1 + 1 + 4 + 4) / 4 = 2.5.
    amounts = torch.tensor([1.0, 3.0, 0.0, 4.0])
    assert cv_squared(amounts).item() == pytest.approx(2.5 / 4)
    assert cv_squared(7 * amounts).item() == pytest.approx(2.5 / 4)
    assert cv_squared(torch.full((3,), 2.0)).item() == 0


def test_balance_losses_are_weight_times_cv_squared_times_tokens():
    built, inputs = experts().eval(), numbers(2, 4, 3)
    importance = sum(gates(built, word) for word in inputs[MASK])
    load = sum((gates(built, word) > 0).double() for word in inputs[MASK])
    auxiliary_losses = built(inputs, MASK).auxiliary_losses
    wanted = {
        "expert-importance": 0.3 * 5 * importance.var(correction=0) / importance.mean() ** 2,
        "expert-load": 0.7 * 5 * load.var(correction=0) / load.mean() ** 2,
    }
    torch.testing.assert_close(auxiliary_losses, wanted)


def test_sublayer_adds_to_the_input():
    built, inputs = experts().eval(), numbers(2, 4, 3)
    sublayer = MoESublayer(built, dropout=0.0)
    mixed = sublayer(inputs, MASK)
    torch.testing.assert_close(mixed.outputs, inputs + built(inputs, MASK).outputs.sigmoid())


def test_feed_forward_of_experts_has_outputs_and_losses():
    built, inputs = experts().eval(), numbers(2, 4, 3)
    fed, mixed = MoEFeedForward(built)(inputs, MASK), built(inputs, MASK)
    torch.testing.assert_close(fed.outputs, mixed.outputs)
    torch.testing.assert_close(fed.auxiliary_losses, mixed.auxiliary_losses)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_half_precision_is_kept_and_finite(dtype, training):
    built = experts().to(dtype).train(training)
    inputs = (20 * torch.randn(40, 100, 3)).to(dtype).requires_grad_()
    mixed = built(inputs, torch.ones(40, 100, dtype=torch.bool))
    assert mixed.outputs.dtype == dtype
    total = mixed.outputs.float().sum() + sum(mixed.auxiliary_losses.values())
    for each in (total, *torch.autograd.grad(total, [inputs, *built.experts.parameters()])):
        assert each.isfinite().all()
