"""Cells against their formulas; stacks against cells one by one."""

import torch

from heedful.layers.cells import CELLS, CellStack, GruCell, LstmCell


def gates(cell, inputs, hidden):
    """W x + b and U h + b, in torch's order of gates."""
    of_input = inputs @ cell.weight_ih.T + cell.bias_ih
    of_state = hidden @ cell.weight_hh.T + cell.bias_hh
    return of_input, of_state


def test_a_gru_resets_after_the_product():
    cell, inputs, hidden = GruCell(3, 2), torch.randn(4, 3), torch.randn(4, 2)
    (r, z, n), (r_h, z_h, n_h) = (part.chunk(3, -1) for part in gates(cell.cell, inputs, hidden))
    reset, update = (r + r_h).sigmoid(), (z + z_h).sigmoid()
    wanted = (1 - update) * (n + reset * n_h).tanh() + update * hidden
    torch.testing.assert_close(cell(inputs, (hidden,))[0], wanted)


def test_an_lstm_forgets_takes_in_and_shows():
    cell, inputs = LstmCell(3, 2), torch.randn(4, 3)
    hidden, memory = torch.randn(4, 2), torch.randn(4, 2)
    i, f, g, o = sum(gates(cell.cell, inputs, hidden)).chunk(4, -1)
    kept = f.sigmoid() * memory + i.sigmoid() * g.tanh()
    shown = o.sigmoid() * kept.tanh()
    for found, wanted in zip(cell(inputs, (hidden, memory)), (shown, kept), strict=True):
        torch.testing.assert_close(found, wanted)


def test_every_cell_shows_first_what_it_was_begun_with():
    hidden = torch.randn(2, 4)
    for kind in CELLS.values():
        assert torch.equal(kind(3, 4).begin(hidden)[0], hidden)


def test_in_a_stack_each_cell_reads_the_one_below():
    stack = CellStack.of("lstm", 3, 4, num_layers=2, dropout=0.0)
    inputs, states = torch.randn(5, 3), stack.begin([torch.randn(5, 4), torch.randn(5, 4)])
    bottom, top = stack.cells
    lower = bottom(inputs, states[0])
    upper = top(lower[0], states[1])
    for found, wanted in zip(stack(inputs, states), (lower, upper), strict=True):
        torch.testing.assert_close(found, wanted)
