"""Each readout against its formula, one place at a time."""

import math

import pytest
import torch

from heedful.attention import ArgmaxReadout, GatedReadout, PerPositionReadout, WeightedSumReadout
from heedful.attention.readouts import (
    ArgmaxReadoutConfig,
    GatedReadoutConfig,
    PerPositionReadoutConfig,
    WeightedSumReadoutConfig,
)

VALUES = torch.tensor([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]])
MODEL_FILE = torch.tensor([[0.25, 0.75, 0.0], [0.1, 0.2, 0.7], [0.0, 0.0, 0.0]])


def test_expectation_is_the_mean_under_the_weights():
    wanted = [[0.25 * 1 + 0.75 * 3, 0.25 * 2 + 0.75 * 5], [5.6, 8.9], [0.0, 0.0]]
    torch.testing.assert_close(WeightedSumReadout()(MODEL_FILE, VALUES), torch.tensor(wanted))


def test_selection_takes_the_value_with_the_most_weight_whole():
    wanted = [[3.0, 5.0], [7.0, 11.0], [0.0, 0.0]]
    assert ArgmaxReadout()(MODEL_FILE, VALUES).tolist() == wanted


def test_selection_of_a_single_place_is_the_expectation():
    places = torch.tensor([[2, 0, 1], [1, 1, 2]])
    weights = torch.nn.functional.one_hot(places, 4).float()
    values = torch.randn(2, 4, 5)
    torch.testing.assert_close(
        ArgmaxReadout()(weights, values), WeightedSumReadout()(weights, values)
    )


def test_selection_teaches_the_value_it_took_and_no_other():
    values = VALUES.clone().requires_grad_()
    weights = MODEL_FILE.clone().requires_grad_()
    ArgmaxReadout()(weights, values)[0].sum().backward()
    assert values.grad.tolist() == [[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    assert weights.grad is None or (weights.grad == 0).all()


def test_selection_shows_weights_that_are_no_numbers():
    weights = torch.tensor([[0.5, float("nan"), 0.5]])
    assert ArgmaxReadout()(weights, VALUES).isnan().all()


def test_a_gate_is_one_number_for_the_whole_context():
    gated = GatedReadout(WeightedSumReadout(), query_size=2)
    query = torch.tensor([[0.5, -1.0]])
    vector, bias = gated.gate.weight[0].tolist(), gated.gate.bias.item()
    beta = 1 / (1 + math.exp(-(0.5 * vector[0] - 1.0 * vector[1] + bias)))
    context = gated(MODEL_FILE[:1], VALUES, query)
    torch.testing.assert_close(context, torch.tensor([[beta * 2.5, beta * 4.25]]))
    assert gated.gate.out_features == 1


def test_a_gate_can_stand_before_a_selection():
    gated = GatedReadoutConfig(inner=ArgmaxReadoutConfig()).build(query_size=2)
    context = gated(MODEL_FILE, VALUES, torch.zeros(3, 2))
    beta = gated.gate.bias.sigmoid().item()
    torch.testing.assert_close(context[0], beta * VALUES[1])


def test_per_position_keeps_every_value_apart():
    contexts = PerPositionReadout()(MODEL_FILE.expand(4, 3, 3), VALUES.expand(4, 3, 2))
    assert contexts.shape == (4, 3, 3, 2)
    for row in range(4):
        for query in range(3):
            assert contexts[row, query].tolist() == VALUES.tolist()


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        (WeightedSumReadoutConfig(), WeightedSumReadout),
        (ArgmaxReadoutConfig(), ArgmaxReadout),
        (GatedReadoutConfig(), GatedReadout),
        (PerPositionReadoutConfig(), PerPositionReadout),
    ],
    ids=lambda each: getattr(each, "kind", ""),
)
def test_each_kind_builds_its_readout(choice, wanted):
    built = choice.build(query_size=2)
    assert isinstance(built, wanted)
    assert built.is_per_position == (wanted is PerPositionReadout)
