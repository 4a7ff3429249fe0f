"""Recurrent readers: pieces are read as the whole, each row from its own end."""

import pytest
import torch

from heedful.layers.rnn_cells import CELL_CLASSES
from heedful.models.language_model import RecurrentBackboneConfig

ROWS, INPUT, HIDDEN = 3, 5, 6


def build(cell, **settings):
    torch.manual_seed(2)
    config = RecurrentBackboneConfig.model_validate(
        {"cell": cell, "hidden_size": HIDDEN, "num_layers": 2, **settings}
    )
    return config.build(input_size=INPUT).double().eval()


@pytest.mark.parametrize("cell", CELL_CLASSES)
def test_pieces_equal_the_whole_sequence(cell):
    reader, pieces = build(cell), [(2, 1, 3), (1, 4, 1), (3, 1, 2)]
    whole = torch.randn(ROWS, 6, INPUT, dtype=torch.double)
    lengths = torch.tensor(pieces).sum(dim=0)
    expected = reader(whole, lengths, reader.initial_state(whole))
    state, first = reader.initial_state(whole), [0] * ROWS
    for piece in pieces:
        inputs = torch.randn(ROWS, max(piece), INPUT, dtype=torch.double)
        for row, length in enumerate(piece):
            inputs[row, :length] = whole[row, first[row] : first[row] + length]
        actual = reader(inputs, torch.tensor(piece), state)
        state = actual.state
        for row, length in enumerate(piece):
            here = slice(first[row], first[row] + length)
            torch.testing.assert_close(actual.outputs[row, :length], expected.outputs[row, here])
            first[row] += length
    torch.testing.assert_close(state, expected.state)


def test_state_is_none_if_not_needed_and_weights_are_none():
    reader, inputs = build("gru"), torch.randn(ROWS, 4, INPUT, dtype=torch.double)
    lengths = torch.tensor([4, 2, 1])
    kept = reader(inputs, lengths, reader.initial_state(inputs))
    alone = reader(
        inputs, lengths, reader.initial_state(inputs), need_state=False, need_weights=True
    )
    assert alone.state is None
    assert alone.weights is None
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(alone.outputs[row, :length], kept.outputs[row, :length])


def test_dropout_between_layers_acts_only_in_training():
    reader, inputs = build("lstm", dropout=0.5), torch.randn(1, 4, INPUT, dtype=torch.double)

    def read():
        return reader(inputs, torch.tensor([4]), reader.initial_state(inputs)).outputs

    torch.testing.assert_close(read(), read())
    reader.train()
    assert not torch.allclose(read(), read())
