"""Recurrent layers match torch on packed sequences."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.layers.rnn import RecurrentLayer, reverse_padded
from heedful.layers.rnn_cells import CELL_CLASSES

TORCH = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
LENGTHS = torch.tensor([2, 5, 1])
each_kind = pytest.mark.parametrize("kind", TORCH)


def matching_layers(kind):
    """A bidirectional layer and torch's with the same parameters."""
    cells = [CELL_CLASSES[kind](3, 4) for _ in range(2)]
    ours = RecurrentLayer(forward_cell=cells[0], backward_cell=cells[1]).double()
    theirs = TORCH[kind](3, 4, batch_first=True, bidirectional=True).double()
    state = {**cells[0].layer.state_dict()}
    state |= {f"{name}_reverse": each for name, each in cells[1].layer.state_dict().items()}
    theirs.load_state_dict(state)
    return ours, theirs


def first_states(kind):
    """Initial states of both directions, and the same in torch's layout."""
    parts = 2 if kind == "lstm" else 1
    states = torch.randn(parts, 2, 3, 4, dtype=torch.double)
    return list(zip(*(part.unbind(0) for part in states), strict=True)), tuple(states)


@each_kind
def test_outputs_final_states_and_gradients_match_torch_on_packed_sequences(kind):
    ours, theirs = matching_layers(kind)
    inputs = torch.randn(3, 5, 3, dtype=torch.double, requires_grad=True)
    first, torch_first = first_states(kind)
    packed = pack_padded_sequence(inputs, LENGTHS, batch_first=True, enforce_sorted=False)
    outputs, last = theirs(packed, torch_first if kind == "lstm" else torch_first[0])
    expected, _ = pad_packed_sequence(outputs, batch_first=True)
    is_real = (torch.arange(5) < LENGTHS[:, None])[:, :, None]
    actual = ours.forward_with_states(inputs, LENGTHS, first)
    torch.testing.assert_close(actual.outputs * is_real, expected)
    torch.testing.assert_close(ours(inputs, LENGTHS, first) * is_real, expected)
    final_states = tuple(torch.stack(part) for part in zip(*actual.final_states, strict=True))
    torch.testing.assert_close(final_states, last if kind == "lstm" else (last,))
    losses = [(actual.outputs * is_real).sin().sum(), expected.sin().sum()]
    weights = [[w for cell in ours.cells for w in cell.weights], list(theirs.parameters())]
    gradients = [
        torch.autograd.grad(loss, [inputs, *of], retain_graph=True)
        for loss, of in zip(losses, weights, strict=True)
    ]
    for each in zip(*gradients, strict=True):
        torch.testing.assert_close(*each)


@pytest.mark.parametrize("directions", ["forward", "backward", "both"])
def test_final_outputs_are_hidden_parts_of_final_states(directions):
    names = ["forward", "backward"] if directions == "both" else [directions]
    ours = RecurrentLayer(**{f"{name}_cell": CELL_CLASSES["lstm"](3, 4) for name in names})
    outputs, final_states = ours.forward_with_states(torch.randn(3, 5, 3), LENGTHS)
    expected = torch.cat([end[0] for end in final_states], -1)
    torch.testing.assert_close(ours.final_outputs(outputs, LENGTHS), expected)


def test_empty_sequence_keeps_initial_state():
    ours, (first, _) = matching_layers("lstm")[0], first_states("lstm")
    inputs = torch.randn(3, 5, 3, dtype=torch.double)
    final_states = ours.forward_with_states(inputs, torch.tensor([0, 5, 0]), first).final_states
    for initial, final in zip(first, final_states, strict=True):
        for before, after in zip(initial, final, strict=True):
            assert torch.equal(before[[0, 2]], after[[0, 2]])


def test_layer_without_cell_raises():
    with pytest.raises(AssertionError, match="needs a cell"):
        RecurrentLayer()


def test_reverse_padded_reverses_each_row_up_to_the_length():
    rows = torch.arange(8.0).view(2, 4, 1)
    reversed_rows = reverse_padded(rows, torch.tensor([3, 1])).squeeze(-1)
    assert reversed_rows.tolist() == [[2, 1, 0, 3], [4, 5, 6, 7]]
