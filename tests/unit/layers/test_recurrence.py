"""Recurrences against torch's own packed sequences, weight for weight."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.layers.recurrence import Recurrence, reverse

TORCH = {"gru": nn.GRU, "lstm": nn.LSTM}


@pytest.mark.parametrize("kind", TORCH)
def test_both_directions_are_those_of_torch_on_packed_sequences(kind):
    ours = Recurrence(kind, 3, 4, bidirectional=True)
    theirs = TORCH[kind](3, 4, batch_first=True, bidirectional=True)
    state = {**ours.forwards.state_dict()}
    state |= {f"{name}_reverse": weight for name, weight in ours.backwards.state_dict().items()}
    theirs.load_state_dict(state)
    inputs, lengths = torch.randn(3, 5, 3), torch.tensor([2, 5, 1])
    packed = pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    wanted, _ = pad_packed_sequence(theirs(packed)[0], batch_first=True)
    found = ours(inputs, lengths)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(found[row, :length], wanted[row, :length])


def test_reversing_turns_each_row_round_up_to_its_own_end():
    rows = torch.arange(8.0).view(2, 4, 1)
    turned = reverse(rows, torch.tensor([3, 1])).squeeze(-1)
    assert turned.tolist() == [[2, 1, 0, 3], [4, 5, 6, 7]]


def test_reversing_twice_changes_nothing():
    rows, lengths = torch.randn(3, 6, 2), torch.tensor([6, 2, 4])
    assert torch.equal(reverse(reverse(rows, lengths), lengths), rows)
