"""Recurrences against torch's own packed sequences, weight for weight."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.layers.rnn import RecurrentLayer, reverse_padded
from heedful.layers.rnn_cells import CELL_CLASSES

TORCH = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
LENGTHS = torch.tensor([2, 5, 1])
each_kind = pytest.mark.parametrize("kind", TORCH)


def pair(kind):
    """A recurrence in both directions and torch's layer with the same weights."""
    cells = [CELL_CLASSES[kind](3, 4) for _ in range(2)]
    ours = RecurrentLayer(forward_cell=cells[0], backward_cell=cells[1]).double()
    theirs = TORCH[kind](3, 4, batch_first=True, bidirectional=True).double()
    state = {**cells[0].layer.state_dict()}
    state |= {f"{name}_reverse": each for name, each in cells[1].layer.state_dict().items()}
    theirs.load_state_dict(state)
    return ours, theirs


def first_states(kind):
    """One for each direction, and the same as torch takes them."""
    parts = 2 if kind == "lstm" else 1
    states = torch.randn(parts, 2, 3, 4, dtype=torch.double)
    return list(zip(*(part.unbind(0) for part in states), strict=True)), tuple(states)


@each_kind
def test_outputs_ends_and_gradients_are_those_of_torch_on_packed_sequences(kind):
    ours, theirs = pair(kind)
    inputs = torch.randn(3, 5, 3, dtype=torch.double, requires_grad=True)
    first, torch_first = first_states(kind)
    packed = pack_padded_sequence(inputs, LENGTHS, batch_first=True, enforce_sorted=False)
    outputs, last = theirs(packed, torch_first if kind == "lstm" else torch_first[0])
    wanted, _ = pad_packed_sequence(outputs, batch_first=True)
    seen = (torch.arange(5) < LENGTHS[:, None])[:, :, None]
    found = ours.forward_with_states(inputs, LENGTHS, first)
    torch.testing.assert_close(found.outputs * seen, wanted)
    torch.testing.assert_close(ours(inputs, LENGTHS, first) * seen, wanted)
    ends = tuple(torch.stack(part) for part in zip(*found.final_states, strict=True))
    torch.testing.assert_close(ends, last if kind == "lstm" else (last,))
    losses = [(found.outputs * seen).sin().sum(), wanted.sin().sum()]
    weights = [[w for cell in ours.cells for w in cell.weights], list(theirs.parameters())]
    gradients = [
        torch.autograd.grad(loss, [inputs, *of], retain_graph=True)
        for loss, of in zip(losses, weights, strict=True)
    ]
    for each in zip(*gradients, strict=True):
        torch.testing.assert_close(*each)


@each_kind
def test_without_first_states_a_recurrence_begins_from_zeros(kind):
    ours, theirs = pair(kind)
    inputs = torch.randn(2, 5, 3, dtype=torch.double)
    found = ours(inputs, torch.tensor([5, 5]))
    torch.testing.assert_close(found, theirs(inputs)[0])


def test_one_direction_is_half_of_both():
    ours, _ = pair("gru")
    inputs = torch.randn(3, 5, 3, dtype=torch.double)
    both = ours(inputs, LENGTHS)
    forwards = RecurrentLayer(forward_cell=ours.forward_cell)(inputs, LENGTHS)
    backwards = RecurrentLayer(backward_cell=ours.backward_cell)(inputs, LENGTHS)
    assert torch.equal(both, torch.cat([forwards, backwards], -1))


def test_backwards_is_forwards_on_the_sequence_turned_round():
    cell, inputs = CELL_CLASSES["lstm"](3, 4), torch.randn(2, 5, 3)
    lengths = torch.tensor([5, 5])
    forwards = RecurrentLayer(forward_cell=cell).forward_with_states(inputs.flip(1), lengths)
    backwards = RecurrentLayer(backward_cell=cell).forward_with_states(inputs, lengths)
    torch.testing.assert_close(backwards.outputs, forwards.outputs.flip(1))
    torch.testing.assert_close(backwards.final_states, forwards.final_states)


@pytest.mark.parametrize("directions", ["forwards", "backwards", "both"])
def test_what_is_seen_at_the_end_is_the_first_part_of_the_last_states(directions):
    names = ["forwards", "backwards"] if directions == "both" else [directions]
    ours = RecurrentLayer(**{name: CELL_CLASSES["lstm"](3, 4) for name in names})
    outputs, ends = ours.forward_with_states(torch.randn(3, 5, 3), LENGTHS)
    wanted = torch.cat([end[0] for end in ends], -1)
    torch.testing.assert_close(ours.final_outputs(outputs, LENGTHS), wanted)


def test_a_sequence_without_inputs_ends_as_it_began():
    ours, (first, _) = pair("lstm")[0], first_states("lstm")
    inputs = torch.randn(3, 5, 3, dtype=torch.double)
    ends = ours.forward_with_states(inputs, torch.tensor([0, 5, 0]), first).final_states
    for began, ended in zip(first, ends, strict=True):
        for before, after in zip(began, ended, strict=True):
            assert torch.equal(before[[0, 2]], after[[0, 2]])


def test_a_recurrence_without_a_direction_is_refused():
    with pytest.raises(AssertionError, match="some direction"):
        RecurrentLayer()


def test_reversing_turns_each_row_round_up_to_its_own_end():
    rows = torch.arange(8.0).view(2, 4, 1)
    turned = reverse_padded(rows, torch.tensor([3, 1])).squeeze(-1)
    assert turned.tolist() == [[2, 1, 0, 3], [4, 5, 6, 7]]


def test_reversing_twice_changes_nothing():
    rows, lengths = torch.randn(3, 6, 2), torch.tensor([6, 2, 4])
    assert torch.equal(reverse_padded(reverse_padded(rows, lengths), lengths), rows)
