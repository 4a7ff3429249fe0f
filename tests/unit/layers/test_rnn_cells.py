"""Cells match torch's cells and their formulas; stacks match their cells."""

import pytest
import torch
from torch import nn

from heedful.layers.rnn import StackedCells
from heedful.layers.rnn_cells import CELL_CLASSES, GRUCell, LSTMCell, ProjectedLSTMCell

TORCH = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}


def as_parts(state):
    return state if isinstance(state, tuple) else (state,)


@pytest.mark.parametrize("kind", CELL_CLASSES)
def test_step_same_as_torch_cell_in_value_and_gradient(kind):
    ours, theirs = CELL_CLASSES[kind](3, 4).double(), TORCH[kind](3, 4).double()
    with torch.no_grad():
        for copy, weight in zip(theirs.parameters(), ours.weights, strict=True):
            copy.copy_(weight)
    inputs = torch.randn(5, 3, dtype=torch.double, requires_grad=True)
    hidden = torch.randn(5, 4, dtype=torch.double, requires_grad=True)
    state = tuple(torch.rand_like(part) + part for part in ours.initial_state(hidden))
    actual = ours(inputs, state)
    expected = as_parts(theirs(inputs, state if kind == "lstm" else state[0]))
    grads = []
    for after, weights in ((actual, ours.weights), (expected, theirs.parameters())):
        loss = sum((part**2).sum() for part in after)
        grads.append(torch.autograd.grad(loss, [inputs, hidden, *weights], retain_graph=True))
    for pair in zip((*actual, *grads[0]), (*expected, *grads[1]), strict=True):
        torch.testing.assert_close(*pair)


def gate_inputs(cell, inputs, hidden):
    """W x + b and U h + b, in torch's order of gates."""
    of_input, of_hidden, input_bias, hidden_bias = cell.weights
    return inputs @ of_input.T + input_bias, hidden @ of_hidden.T + hidden_bias


def test_projected_lstm_same_as_formula():
    cell, inputs = ProjectedLSTMCell(3, 2, 5), torch.randn(4, 3)
    hidden, cell_state = torch.randn(4, 2), torch.randn(4, 5)
    *gate_weights, projection = cell.weights
    of_input, of_hidden, input_bias, hidden_bias = gate_weights
    gates = inputs @ of_input.T + input_bias + hidden @ of_hidden.T + hidden_bias
    i, f, g, o = gates.split(5, dim=-1)
    next_cell_state = f.sigmoid() * cell_state + i.sigmoid() * g.tanh()
    output = (o.sigmoid() * next_cell_state.tanh()) @ projection.T
    torch.testing.assert_close(cell(inputs, (hidden, cell_state)), (output, next_cell_state))
    assert cell.initial_state(hidden)[1].shape == (4, 5)


@pytest.mark.parametrize("kind", ["rnn", "gru"])
def test_cell_without_cell_state_cannot_start_with_one(kind):
    with pytest.raises(AssertionError, match="Cell has no cell state"):
        CELL_CLASSES[kind](3, 2).initial_state_with_cell(torch.randn(4, 2), torch.randn(4, 2))


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_recurrent_input_replaces_state_of_rnn_and_lstm(kind):
    cell, inputs = CELL_CLASSES[kind](3, 2), torch.randn(4, 3)
    state, other = cell.initial_state(torch.randn(4, 2)), torch.randn(4, 2)
    actual = cell.update(inputs, state, other)
    for pair in zip(actual, cell.step(inputs, (other, *state[1:])), strict=True):
        torch.testing.assert_close(*pair)


def test_gru_carries_over_state_not_recurrent_input():
    cell, inputs = GRUCell(3, 2), torch.randn(4, 3)
    hidden, other = torch.randn(4, 2), torch.randn(4, 2)
    with_other = cell(inputs, (other,))[0]
    keep = sum(part.chunk(3, -1)[1] for part in gate_inputs(cell, inputs, other)).sigmoid()
    actual = cell.update(inputs, (hidden,), other)[0]
    torch.testing.assert_close(actual, with_other + keep * (hidden - other))


def test_stack_applies_dropout_between_layers_only():
    stack = StackedCells([GRUCell(3, 4), GRUCell(4, 4)], dropout=0.5)
    bottom, top = stack.cells
    with torch.no_grad():
        for weight in top.weights:
            weight.zero_()
        top.weights[0].copy_(torch.eye(4).repeat(3, 1))  # r, z and n are the input itself
    inputs, states = torch.randn(5, 3), stack.initial_state([torch.randn(5, 4), torch.zeros(5, 4)])
    lower, upper = stack(inputs, states)
    torch.testing.assert_close(lower, bottom(inputs, states[0]))
    dropped = upper[0] == 0
    assert dropped.any()
    next_cell_state = 2 * lower[0]
    expected = (1 - next_cell_state.sigmoid()) * next_cell_state.tanh()
    torch.testing.assert_close(upper[0][~dropped], expected[~dropped])


def test_residual_layers_add_input():
    cells = [LSTMCell(3 + 2, 4), LSTMCell(4 + 2, 4), LSTMCell(4 + 2, 4)]
    stack = StackedCells(cells, dropout=0.0, first_residual_layer=2)
    hidden = [torch.randn(5, 4) for _ in cells]
    states = stack.initial_state(hidden)
    inner = [
        cell.initial_state(layer_hidden) for cell, layer_hidden in zip(cells, hidden, strict=True)
    ]
    for _ in range(3):
        inputs, context = torch.randn(5, 3), torch.randn(5, 2)
        states = stack(inputs, states, context)
        output = inputs
        for index, cell in enumerate(cells):
            inner[index] = cell(torch.cat([output, context], -1), inner[index])
            output = inner[index][0] + (output if index >= 1 else 0)
            torch.testing.assert_close(states[index][0], output)


def test_stack_starts_with_hidden_and_optional_cell_states():
    stack = StackedCells([LSTMCell(3, 4), LSTMCell(4, 4)], dropout=0.0, first_residual_layer=2)
    hidden, cell_states = torch.randn(2, 5, 4), torch.randn(2, 5, 4)
    lower, upper = stack.initial_state([*hidden], [*cell_states])
    torch.testing.assert_close(lower, (hidden[0], cell_states[0]))
    torch.testing.assert_close(upper, (hidden[1], hidden[1], cell_states[1]))
    zeros = torch.zeros(5, 4)
    lower, upper = stack.initial_state([*hidden])
    torch.testing.assert_close(lower, (hidden[0], zeros))
    torch.testing.assert_close(upper, (hidden[1], hidden[1], zeros))


@pytest.mark.parametrize("kind", CELL_CLASSES)
@pytest.mark.parametrize("first_residual_layer", [None, 2])
def test_stack_of_lstms_has_cell_states(kind, first_residual_layer):
    stack = StackedCells(
        [CELL_CLASSES[kind](4, 4)] * 2, dropout=0.0, first_residual_layer=first_residual_layer
    )
    assert stack.has_cell_states == (kind == "lstm")


@pytest.mark.parametrize("layer", [0, 1])
def test_first_layer_cannot_be_residual(layer):
    with pytest.raises(AssertionError, match=f"residual from layer {layer}"):
        StackedCells([GRUCell(4, 4)], dropout=0.0, first_residual_layer=layer)
