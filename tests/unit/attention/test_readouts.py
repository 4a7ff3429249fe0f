"""Each readout against its formula, one position at a time."""

import math

import pytest
import torch

from heedful.attention.readouts import (
    ArgmaxReadout,
    ArgmaxReadoutConfig,
    GatedReadout,
    GatedReadoutConfig,
    PerPositionReadout,
    PerPositionReadoutConfig,
    WeightedSumReadout,
    WeightedSumReadoutConfig,
)

VALUES = torch.tensor([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]])
WEIGHTS = torch.tensor([[0.25, 0.75, 0.0], [0.1, 0.2, 0.7], [0.0, 0.0, 0.0]])


def test_weighted_sum_readout_same_as_formula():
    expected = [[0.25 * 1 + 0.75 * 3, 0.25 * 2 + 0.75 * 5], [5.6, 8.9], [0.0, 0.0]]
    torch.testing.assert_close(WeightedSumReadout()(WEIGHTS, VALUES), torch.tensor(expected))


def test_argmax_readout_returns_value_with_largest_weight():
    expected = [[3.0, 5.0], [7.0, 11.0], [0.0, 0.0]]
    assert ArgmaxReadout()(WEIGHTS, VALUES).tolist() == expected


def test_argmax_readout_gradient_reaches_only_chosen_value():
    values = VALUES.clone().requires_grad_()
    weights = WEIGHTS.clone().requires_grad_()
    ArgmaxReadout()(weights, values)[0].sum().backward()
    assert values.grad.tolist() == [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    assert weights.grad is None or (weights.grad == 0).all()


def test_argmax_readout_propagates_nan():
    weights = torch.tensor([[0.5, float("nan"), 0.5]])
    assert ArgmaxReadout()(weights, VALUES).isnan().all()


def test_gate_is_scalar_for_whole_context():
    gated = GatedReadout(WeightedSumReadout(), query_size=2)
    query = torch.tensor([[0.5, -1.0]])
    vector, bias = gated.gate.weight[0].tolist(), gated.gate.bias.item()
    beta = 1 / (1 + math.exp(-(0.5 * vector[0] - 1.0 * vector[1] + bias)))
    context = gated(WEIGHTS[:1], VALUES, query)
    torch.testing.assert_close(context, torch.tensor([[beta * 2.5, beta * 4.25]]))
    assert gated.gate.out_features == 1


def test_gated_readout_wraps_argmax_readout():
    gated = GatedReadoutConfig(inner=ArgmaxReadoutConfig()).build(query_size=2)
    context = gated(WEIGHTS, VALUES, torch.zeros(3, 2))
    beta = gated.gate.bias.sigmoid().item()
    torch.testing.assert_close(context[0], beta * VALUES[1])


def test_per_position_readout_returns_all_values():
    contexts = PerPositionReadout()(WEIGHTS.expand(4, 3, 3), VALUES.expand(4, 3, 2))
    assert contexts.shape == (4, 3, 3, 2)
    for row in range(4):
        for query in range(3):
            assert contexts[row, query].tolist() == VALUES.tolist()


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (WeightedSumReadoutConfig(), WeightedSumReadout),
        (ArgmaxReadoutConfig(), ArgmaxReadout),
        (GatedReadoutConfig(), GatedReadout),
        (PerPositionReadoutConfig(), PerPositionReadout),
    ],
    ids=lambda item: getattr(item, "kind", ""),
)
def test_config_builds_readout(config, expected):
    built = config.build(query_size=2)
    assert isinstance(built, expected)
    assert built.is_per_position == (expected is PerPositionReadout)
