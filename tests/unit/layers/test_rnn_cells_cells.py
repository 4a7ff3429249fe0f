"""Cells against torch's own and against their formulas; stacks against cells one by one."""

import pytest
import torch
from torch import nn

from heedful.layers.rnn import ResidualCell, StackedCells
from heedful.layers.rnn_cells import CELL_CLASSES, GRUCell, LSTMCell

TORCH = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}


def as_parts(state):
    return state if isinstance(state, tuple) else (state,)


@pytest.mark.parametrize("kind", CELL_CLASSES)
def test_a_step_is_that_of_torch_weight_for_weight_in_value_and_gradient(kind):
    ours, theirs = CELL_CLASSES[kind](3, 4).double(), TORCH[kind](3, 4).double()
    with torch.no_grad():
        for copy, weight in zip(theirs.parameters(), ours.weights, strict=True):
            copy.copy_(weight)
    inputs = torch.randn(5, 3, dtype=torch.double, requires_grad=True)
    hidden = torch.randn(5, 4, dtype=torch.double, requires_grad=True)
    state = tuple(torch.rand_like(part) + part for part in ours.initial_state(hidden))
    found = ours(inputs, state)
    wanted = as_parts(theirs(inputs, state if kind == "lstm" else state[0]))
    grads = []
    for after, weights in ((found, ours.weights), (wanted, theirs.parameters())):
        loss = sum((part**2).sum() for part in after)
        grads.append(torch.autograd.grad(loss, [inputs, hidden, *weights], retain_graph=True))
    for pair in zip((*found, *grads[0]), (*wanted, *grads[1]), strict=True):
        torch.testing.assert_close(*pair)


def gates(cell, inputs, hidden):
    """W x + b and U h + b, in torch's order of gates."""
    of_input, of_hidden, input_bias, hidden_bias = cell.weights
    return inputs @ of_input.T + input_bias, hidden @ of_hidden.T + hidden_bias


def test_a_gru_resets_after_the_product():
    cell, inputs, hidden = GRUCell(3, 2), torch.randn(4, 3), torch.randn(4, 2)
    (r, z, n), (r_h, z_h, n_h) = (part.chunk(3, -1) for part in gates(cell, inputs, hidden))
    reset, update = (r + r_h).sigmoid(), (z + z_h).sigmoid()
    wanted = (1 - update) * (n + reset * n_h).tanh() + update * hidden
    torch.testing.assert_close(cell(inputs, (hidden,))[0], wanted)


def test_an_lstm_forgets_takes_in_and_shows():
    cell, inputs = LSTMCell(3, 2), torch.randn(4, 3)
    hidden, memory = torch.randn(4, 2), torch.randn(4, 2)
    i, f, g, o = sum(gates(cell, inputs, hidden)).chunk(4, -1)
    kept = f.sigmoid() * memory + i.sigmoid() * g.tanh()
    shown = o.sigmoid() * kept.tanh()
    for found, wanted in zip(cell(inputs, (hidden, memory)), (shown, kept), strict=True):
        torch.testing.assert_close(found, wanted)


def test_an_lstm_begins_with_an_empty_memory():
    hidden, memory = LSTMCell(3, 2).initial_state(torch.ones(4, 2))
    assert (hidden == 1).all()
    assert (memory == 0).all()


def test_an_lstm_may_begin_with_a_memory():
    cell, hidden, memory = LSTMCell(3, 2), torch.randn(4, 2), torch.randn(4, 2)
    torch.testing.assert_close(cell.initial_state_with_cell(hidden, memory), (hidden, memory))


@pytest.mark.parametrize("kind", ["rnn", "gru"])
def test_a_cell_without_a_memory_cannot_begin_with_one(kind):
    with pytest.raises(AssertionError, match="Cell has no memory cell"):
        CELL_CLASSES[kind](3, 2).initial_state_with_cell(torch.randn(4, 2), torch.randn(4, 2))


@pytest.mark.parametrize("kind", ["rnn", "lstm"])
def test_where_only_products_see_the_state_recalling_another_is_having_another(kind):
    cell, inputs = CELL_CLASSES[kind](3, 2), torch.randn(4, 3)
    state, other = cell.initial_state(torch.randn(4, 2)), torch.randn(4, 2)
    found = cell.step(inputs, state, other)
    for pair in zip(found, cell.step(inputs, (other, *state[1:])), strict=True):
        torch.testing.assert_close(*pair)


def test_a_gru_carries_over_its_state_and_not_what_was_recalled():
    cell, inputs = GRUCell(3, 2), torch.randn(4, 3)
    hidden, other = torch.randn(4, 2), torch.randn(4, 2)
    with_other = cell(inputs, (other,))[0]
    keep = sum(part.chunk(3, -1)[1] for part in gates(cell, inputs, other)).sigmoid()
    found = cell.step(inputs, (hidden,), other)[0]
    torch.testing.assert_close(found, with_other + keep * (hidden - other))


# --- stacks --------------------------------------------------------------------------------


def test_in_a_stack_each_cell_reads_the_one_below():
    stack = StackedCells([LSTMCell(3, 4), LSTMCell(4, 4)], dropout=0.0)
    inputs, states = torch.randn(5, 3), stack.initial_state([torch.randn(5, 4), torch.randn(5, 4)])
    bottom, top = stack.cells
    lower = bottom(inputs, states[0])
    upper = top(lower[0], states[1])
    for found, wanted in zip(stack(inputs, states), (lower, upper), strict=True):
        torch.testing.assert_close(found, wanted)


def test_in_a_stack_values_are_dropped_between_layers_only():
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
    kept = 2 * lower[0]
    wanted = (1 - kept.sigmoid()) * kept.tanh()
    torch.testing.assert_close(upper[0][~dropped], wanted[~dropped])


def test_every_layer_of_a_stack_hears_the_context():
    cells = [GRUCell(3 + 2, 4), GRUCell(4 + 2, 4)]
    stack = StackedCells(cells, dropout=0.0)
    inputs, context = torch.randn(5, 3), torch.randn(5, 2)
    states = stack.initial_state([torch.randn(5, 4), torch.randn(5, 4)])
    lower = cells[0](torch.cat([inputs, context], -1), states[0])
    upper = cells[1](torch.cat([lower[0], context], -1), states[1])
    for found, wanted in zip(stack(inputs, states, context), (lower, upper), strict=True):
        torch.testing.assert_close(found, wanted)


def test_from_its_layer_on_a_residual_stack_adds_what_each_layer_read():
    cells = [LSTMCell(3 + 2, 4), LSTMCell(4 + 2, 4), LSTMCell(4 + 2, 4)]
    stack = StackedCells(cells, dropout=0.0, first_residual_layer=2)
    hidden = [torch.randn(5, 4) for _ in cells]
    states = stack.initial_state(hidden)
    inner = [cell.initial_state(seen) for cell, seen in zip(cells, hidden, strict=True)]
    for _ in range(3):
        inputs, context = torch.randn(5, 3), torch.randn(5, 2)
        states = stack(inputs, states, context)
        shown = inputs
        for number, cell in enumerate(cells):
            inner[number] = cell(torch.cat([shown, context], -1), inner[number])
            shown = inner[number][0] + (shown if number >= 1 else 0)
            torch.testing.assert_close(states[number][0], shown)


def test_a_residual_cell_shows_first_what_it_was_begun_with():
    hidden = torch.randn(2, 4)
    assert torch.equal(ResidualCell(LSTMCell(4, 4)).initial_state(hidden)[0], hidden)


def test_a_stack_begins_with_what_is_seen_and_with_memories_where_told():
    stack = StackedCells([LSTMCell(3, 4), LSTMCell(4, 4)], dropout=0.0, first_residual_layer=2)
    hidden, memories = torch.randn(2, 5, 4), torch.randn(2, 5, 4)
    lower, upper = stack.initial_state([*hidden], [*memories])
    torch.testing.assert_close(lower, (hidden[0], memories[0]))
    torch.testing.assert_close(upper, (hidden[1], hidden[1], memories[1]))
    nothing = torch.zeros(5, 4)
    lower, upper = stack.initial_state([*hidden])
    torch.testing.assert_close(lower, (hidden[0], nothing))
    torch.testing.assert_close(upper, (hidden[1], hidden[1], nothing))


@pytest.mark.parametrize("kind", CELL_CLASSES)
@pytest.mark.parametrize("first_residual_layer", [None, 2])
def test_a_stack_has_memories_where_its_cells_have(kind, first_residual_layer):
    stack = StackedCells(
        [CELL_CLASSES[kind](4, 4)] * 2, dropout=0.0, first_residual_layer=first_residual_layer
    )
    assert stack.has_cell_states == (kind == "lstm")


@pytest.mark.parametrize("layer", [0, 1])
def test_the_first_layer_of_a_stack_cannot_be_residual(layer):
    with pytest.raises(AssertionError, match=f"residual from layer {layer}"):
        StackedCells([GRUCell(4, 4)], dropout=0.0, first_residual_layer=layer)
