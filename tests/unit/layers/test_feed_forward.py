"""Feed-forward sublayers against their formulas, place by place and unit by unit."""

import math

import pytest
import torch

from heedful.layers.sublayers import FeedForward

MASK = torch.tensor([[True, True, True], [True, False, False]])
BENT = {
    "relu": lambda number: max(0.0, number),
    "gelu": lambda number: number * 0.5 * (1 + math.erf(number / math.sqrt(2))),
    "gelu-tanh": lambda number: (  # as in the code of GPT
        0.5 * number * (1 + math.tanh(math.sqrt(2 / math.pi) * (number + 0.044715 * number**3)))
    ),
    "swish": lambda number: number / (1 + math.exp(-number)),
}


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.double)


def affine(layer, place):
    """W x + b, number by number."""
    rows = layer.weight.tolist()
    added = [0.0] * len(rows) if layer.bias is None else layer.bias.tolist()
    pairs = zip(rows, added, strict=True)
    return [sum(w * x for w, x in zip(row, place, strict=True)) + bias for row, bias in pairs]


@pytest.mark.parametrize("activation", BENT)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_feed_forward_same_as_the_formula(activation, gated, bias):
    built = FeedForward(3, 5, activation=activation, gated=gated, bias=bias).double()
    inputs = numbers(2, 3, 3)
    outputs = built(inputs, MASK).outputs
    for place, actual in zip(inputs.flatten(0, 1).tolist(), outputs.flatten(0, 1), strict=True):
        hidden = [BENT[activation](each) for each in affine(built.input_projection, place)]
        if gated:
            hidden = [h * g for h, g in zip(hidden, affine(built.gate, place), strict=True)]
        assert actual.tolist() == pytest.approx(affine(built.output_projection, hidden))


@pytest.mark.parametrize("gated", [False, True])
def test_gradients_match_finite_differences(gated):
    built, inputs = FeedForward(3, 5, activation="swish", gated=gated).double(), numbers(2, 3, 3)

    def run(inputs, *weights):
        return built(inputs, MASK).outputs

    assert torch.autograd.gradcheck(run, (inputs.requires_grad_(), *built.parameters()))


def test_dropout_acts_on_hidden_units_only_in_training():
    built, inputs = FeedForward(3, 5, dropout=0.5), torch.randn(2, 3, 3)
    built.output_projection = torch.nn.Identity()  # to see the hidden layer
    whole = built.eval()(inputs, MASK).outputs
    torch.testing.assert_close(whole, built.input_projection(inputs).relu())
    some = built.train()(inputs, MASK).outputs
    kept = some != 0
    torch.testing.assert_close(some[kept], 2 * whole[kept])
    assert (whole[~kept] != 0).any()
