"""Unfused GRU cells match the equations of the papers, and torch."""

import torch
from torch import nn

from heedful.layers.rnn import unroll_outputs
from heedful.layers.rnn_cells import ResetAfterGRUCell, ResetBeforeGRUCell

PRODUCTS = ("input_to_gates", "input_to_candidate", "hidden_to_gates", "hidden_to_candidate")


def matrices(cell):
    """W_r, W_z, W, U_r, U_z, U as a paper has them, and the bias of each."""
    parts = []
    for name in PRODUCTS:
        product = getattr(cell, name)
        count = product.out_features // cell.hidden_size
        parts += zip(product.weight.chunk(count), product.bias.chunk(count), strict=True)
    return parts


def test_reset_before_gru_same_as_equations_of_cho_and_bahdanau():
    cell = ResetBeforeGRUCell(3, 2)
    (W_r, b_r), (W_z, b_z), (W, b), (U_r, c_r), (U_z, c_z), (U, c) = matrices(cell)
    inputs, first = torch.randn(4, 6, 3), torch.randn(4, 2)
    actual = unroll_outputs(cell, inputs, cell.initial_state(first))
    for row in range(4):
        h = first[row]
        for time in range(6):
            x = inputs[row, time]
            r = torch.sigmoid(W_r @ x + U_r @ h + b_r + c_r)
            z = torch.sigmoid(W_z @ x + U_z @ h + b_z + c_z)
            candidate = torch.tanh(W @ x + U @ (r * h) + b + c)
            h = (1 - z) * h + z * candidate
            torch.testing.assert_close(actual[row, time], h)


def test_reset_after_gru_same_as_torch():
    cell, torch_layer = ResetAfterGRUCell(3, 2), nn.GRU(3, 2, batch_first=True)
    W, U = ("weight_ih_l0", "bias_ih_l0"), ("weight_hh_l0", "bias_hh_l0")
    with torch.no_grad():
        for names, gates, candidate in ((W, *PRODUCTS[:2]), (U, *PRODUCTS[2:])):
            for name, part in zip(names, ("weight", "bias"), strict=True):
                parts = [getattr(getattr(cell, each), part) for each in (gates, candidate)]
                getattr(torch_layer, name).copy_(torch.cat(parts))
    inputs, hidden = torch.randn(4, 6, 3), torch.randn(4, 2)
    actual = unroll_outputs(cell, inputs, cell.initial_state(hidden))
    torch.testing.assert_close(actual, torch_layer(inputs, hidden[None])[0])


def test_reset_before_gru_carries_over_state_not_recurrent_input():
    cell, inputs = ResetBeforeGRUCell(3, 2), torch.randn(4, 3)
    hidden, other = torch.randn(4, 2), torch.randn(4, 2)
    (W_z, b_z), (U_z, c_z) = matrices(cell)[1], matrices(cell)[4]
    z = torch.sigmoid(inputs @ W_z.T + other @ U_z.T + b_z + c_z)
    expected = cell(inputs, (other,))[0] + (1 - z) * (hidden - other)
    torch.testing.assert_close(
        cell.update(cell.project_inputs(inputs), (hidden,), other)[0], expected
    )
