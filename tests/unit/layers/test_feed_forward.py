"""Feed-forward sublayers against their formulas, place by place and unit by unit."""

import math

import pytest
import torch

from heedful.layers.sublayers import FeedForward

MASK = torch.tensor([[True, True, True], [True, False, False]])
BENT = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "gelu-tanh": lambda x: (  # as in the code of GPT
        0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "swish": lambda x: x / (1 + torch.exp(-x)),
}


def numbers(*shape):
    return torch.randn(*shape, dtype=torch.double)


@pytest.mark.parametrize("activation", BENT)
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_feed_forward_same_as_the_formula(activation, gated, bias):
    built = FeedForward(3, 5, activation=activation, gated=gated, bias=bias).double()
    inputs = numbers(2, 3, 3)
    hidden = BENT[activation](built.input_projection(inputs))
    if gated:
        hidden = hidden * built.gate(inputs)
    assert (built.input_projection.bias is not None) == bias
    torch.testing.assert_close(built(inputs, MASK).outputs, built.output_projection(hidden))


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
