"""Strictly balanced and hierarchical gates of Shazeer et al. 2017, appendices B and F, by hand."""

import math

import pytest
import torch

from heedful.layers.expert_gates import HierarchicalGate, NoisyTopKGate, StrictlyBalancedGate
from heedful.layers.mixture_of_experts import MixtureOfExperts, MoESublayerConfig

SETTINGS = {
    "strict": {"gating": "strictly-balanced"},
    "hierarchical": {"num_groups": 3},
    "strict, hierarchical": {"gating": "strictly-balanced", "num_groups": 3},
}
each_gating = pytest.mark.parametrize("gating", SETTINGS.values(), ids=SETTINGS)


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.double)


def experts(*, num_experts=6, num_experts_per_token=4, **settings):
    """Experts whose gates have an opinion."""
    built = MixtureOfExperts(
        5,
        intermediate_size=4,
        num_experts=num_experts,
        num_experts_per_token=num_experts_per_token,
        importance_weight=0.3,
        load_weight=0.7,
        **settings,
    ).double()
    for module in built.modules():
        if isinstance(module, NoisyTopKGate | StrictlyBalancedGate):
            torch.nn.init.normal_(module.score.weight)
    return built


def gate_matrix(routing, num_tokens):
    """G(x) of every token, zero for the experts that do not process it."""
    matrix = torch.zeros(num_tokens, len(routing.load), dtype=torch.double)
    pairs = zip(routing.token_indices, routing.expert_indices, routing.gate_weights, strict=True)
    for token, expert, weight in pairs:
        assert matrix[token, expert] == 0  # no pair occurs twice
        matrix[token, expert] = weight.detach()
    return matrix


def strict_matrix(gate, words):
    """Equations 15, 16 and 18 in training, 15, 16 and 19 otherwise; and the loss of equation 20."""
    values = (words @ gate.score.weight.T).softmax(dim=-1).tolist()
    thresholds, num_experts = gate.threshold.tolist(), len(gate.threshold)
    above = [[value > t for value, t in zip(row, thresholds, strict=True)] for row in values]
    mask = above
    if gate.training:
        count = math.ceil(gate.num_experts_per_token * len(words) / num_experts)
        mask = [[False] * num_experts for _ in values]
        for expert in range(num_experts):
            order = sorted(range(len(words)), key=lambda row: -values[row][expert])
            for row in order[:count]:
                mask[row][expert] = True
    gates, loss = torch.zeros(len(words), num_experts, dtype=torch.double), 0.0
    for row, kept in enumerate(mask):
        total = sum(value for value, keep in zip(values[row], kept, strict=True) if keep)
        for expert, keep in enumerate(kept):
            gates[row, expert] = values[row][expert] / total if keep else 0
            loss += (above[row][expert] - keep) * (values[row][expert] - thresholds[expert])
    return gates, loss


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("num_tokens", [1, 7, 12])
def test_strictly_balanced_gate_same_as_appendix_f(training, num_tokens):
    gate = StrictlyBalancedGate(5, 4, 2).double().train(training)
    torch.nn.init.normal_(gate.score.weight)
    words = numbers(num_tokens, 5)
    routing = gate(words)
    gates, loss = strict_matrix(gate, words)
    torch.testing.assert_close(gate_matrix(routing, num_tokens), gates)
    torch.testing.assert_close(routing.load, (gates > 0).double().sum(dim=0))
    assert routing.threshold_loss.item() == pytest.approx(loss)
    if training:
        assert (routing.load == math.ceil(num_tokens * 2 / 4)).all()


@pytest.mark.parametrize("gate_class", [NoisyTopKGate, StrictlyBalancedGate])
@pytest.mark.parametrize("training", [True, False])
def test_hierarchical_gate_same_as_appendix_b(gate_class, training):
    gates = [gate_class(5, *sizes).double() for sizes in ((3, 2), *[(4, 2)] * 3)]
    for gate in gates:
        torch.nn.init.normal_(gate.score.weight)
    hierarchical = HierarchicalGate(gates[0], gates[1:]).train(training)
    words = numbers(11, 5)
    torch.manual_seed(0)
    routing = hierarchical(words)
    torch.manual_seed(0)
    outer = gates[0](words)
    primary, load = gate_matrix(outer, 11), []
    products = torch.zeros(11, 3, 4, dtype=torch.double)
    losses = [outer.threshold_loss]
    for group in range(3):
        members = primary[:, group].nonzero().squeeze(1)
        if gate_class is StrictlyBalancedGate and training:  # in the order of the gate's values
            members = outer.token_indices[outer.expert_indices == group]
        inner = gates[1 + group](words[members])
        products[members, group] = primary[members, group, None] * gate_matrix(inner, len(members))
        load.append(outer.load[group] * inner.load / len(members))  # equation 14
        losses.append(inner.threshold_loss)
    torch.testing.assert_close(gate_matrix(routing, 11), products.flatten(1))  # equation 12
    torch.testing.assert_close(routing.load, torch.cat(load))
    if gate_class is StrictlyBalancedGate:
        torch.testing.assert_close(routing.threshold_loss, sum(losses))


@each_gating
@pytest.mark.parametrize("training", [True, False])
def test_routing_equals_dense_computation(gating, training):
    built, inputs = experts(**gating).train(training), numbers(2, 6, 5)
    mask = torch.rand(2, 6) < 0.7
    torch.manual_seed(2)
    outputs = built(inputs, mask).outputs
    torch.manual_seed(2)
    words = inputs[mask]
    gates = gate_matrix(built.gate(words), len(words))
    pairs = zip(gates.T, built.experts, strict=True)
    expected = sum(weights[:, None] * expert(words) for weights, expert in pairs)
    torch.testing.assert_close(outputs[mask], expected)
    assert (outputs[~mask] == 0).all()


@each_gating
def test_tokens_are_independent_in_eval_mode(gating):
    built, words = experts(**gating).eval(), numbers(1, 9, 5)
    together = built(words, torch.ones(1, 9, dtype=torch.bool)).outputs
    alone = [
        built(word[None, None], torch.ones(1, 1, dtype=torch.bool)).outputs for word in words[0]
    ]
    torch.testing.assert_close(together, torch.cat(alone, dim=1))


@each_gating
@pytest.mark.parametrize("training", [True, False])
def test_gradients_match_finite_differences(gating, training):
    built, inputs = experts(**gating).train(training), numbers(2, 4, 5).requires_grad_()
    mask = torch.tensor([[True, True, True, False], [True, False, True, False]])
    names = [name for name, _ in built.named_parameters() if "threshold" not in name]
    parameters = [built.get_parameter(name) for name in names]

    def run(inputs, *parameters):
        torch.manual_seed(1)
        mixed = built(inputs, mask)
        losses = mixed.auxiliary_losses
        return mixed.outputs, losses["expert-importance"], losses["expert-load"]

    assert torch.autograd.gradcheck(run, (inputs, *parameters), fast_mode=True)


@each_gating
@pytest.mark.parametrize("training", [True, False])
def test_batch_of_padding_returns_zeros(gating, training):
    built = experts(**gating).train(training)
    mixed = built(numbers(2, 4, 5), torch.zeros(2, 4, dtype=torch.bool))
    assert (mixed.outputs == 0).all()
    assert all(loss == 0 for loss in mixed.auxiliary_losses.values())


def test_token_without_experts_passes_the_sublayer():
    sublayer = MoESublayerConfig(num_experts=4, gating="strictly-balanced").build_after(
        1, 2, size=3, dropout=0.0
    )
    torch.nn.init.constant_(sublayer.experts.gate.threshold, 1.0)  # no value is above it
    inputs = torch.randn(2, 3, 3)
    outputs = sublayer.eval()(inputs, torch.ones(2, 3, dtype=torch.bool)).outputs
    torch.testing.assert_close(outputs, inputs + 0.5)  # sigmoid(0)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_experts": 10, "num_groups": 3},
        {"num_experts": 12, "num_groups": 3, "num_experts_per_token": 5},
        {"num_experts": 12, "num_groups": 3, "num_groups_per_token": 4},
        {"num_experts": 8, "num_groups": 4, "num_experts_per_token": 6, "num_groups_per_token": 2},
    ],
)
def test_groups_that_do_not_fit_reported(settings):
    with pytest.raises(ValueError, match="groups need equal numbers of experts"):
        MoESublayerConfig(**settings)
