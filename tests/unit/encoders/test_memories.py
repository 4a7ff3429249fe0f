import pytest
import torch

from heedful.encoders.recurrent import RecurrentEncoderConfig
from heedful.layers.tapes import Tape

TOKENS, LENGTHS = torch.tensor([[5, 6, 7, 8], [4, 3, 0, 0]]), torch.tensor([4, 2])
TAPED = ["lstmn", "self-attentive-lstm"]


def encoder(cell, **settings):
    config = RecurrentEncoderConfig(embedding_size=3, hidden_size=4, cell=cell, **settings)
    return config.build(vocabulary_size=9).double()


def written(cell, words):
    """The memory cell after each word, one by one."""
    state, memories = cell.begin(torch.zeros(1, cell.hidden_size, dtype=torch.double)), []
    for word in words:
        state = cell(word[None], state)
        memories.append(Tape(*state[2:]).values[0, -1, cell.hidden_size :])
    return torch.stack(memories)


@pytest.mark.parametrize("kind", TAPED)
def test_memories_stand_where_their_words_stand_both_directions_side_by_side(kind):
    built = encoder(kind)
    encoded = built(TOKENS, LENGTHS)
    layer = built.layers[0]
    assert encoded.memories.shape == encoded.states.shape
    assert (encoded.memories[1, 2:] == 0).all()
    for row, length in enumerate(LENGTHS.tolist()):
        words = built.embedding(TOKENS[row, :length])
        there, back = written(layer.forwards, words), written(layer.backwards, words.flip(0))
        wanted = torch.cat([there, back.flip(0)], dim=-1)
        torch.testing.assert_close(encoded.memories[row, :length], wanted)


@pytest.mark.parametrize("kind", TAPED)
def test_states_are_the_same_whether_memories_are_kept_or_not(kind):
    built = encoder(kind, direction="alternating", num_layers=2)
    read = built.embedding(TOKENS)
    for layer in built.layers:
        read = layer(read, LENGTHS)
    seen = torch.arange(4) < LENGTHS[:, None]
    torch.testing.assert_close(built(TOKENS, LENGTHS).states, read * seen[:, :, None])


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm", "self-attentive-rnn"])
def test_cells_without_a_tape_of_memory_cells_give_none_away(kind):
    assert encoder(kind)(TOKENS, LENGTHS).memories is None
