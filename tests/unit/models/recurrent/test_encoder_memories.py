import pytest
import torch

from heedful.layers.self_attentive_cells import StateHistory
from heedful.models.recurrent.encoder import RecurrentEncoderConfig

TOKENS, LENGTHS = torch.tensor([[5, 6, 7, 8], [4, 3, 0, 0]]), torch.tensor([4, 2])
TAPED = ["lstmn", "self-attentive-lstm"]


WITH_MEMORY = {
    "plain": {},
    "normalised": {"layer_norm": True},
    "dropped and zoned out": {"recurrent_dropout": 0.4, "zoneout": 0.3, "cell_zoneout": 0.2},
}
DIRECTIONS = {
    "forwards": "forwards",
    "reversed": {"type": "forward", "reverse_source": True},
    "both": "both",
}


def encoder(cell, **settings):
    config = RecurrentEncoderConfig(embedding_size=3, hidden_size=4, cell=cell, **settings)
    return config.build(vocab_size=9).double()


def written(cell, words):
    """The memory cell after each word, one by one."""
    state, memories = cell.initial_state(torch.zeros(1, cell.hidden_size, dtype=torch.double)), []
    for word in words:
        state = cell(word[None], state)
        memories.append(StateHistory(*state[2:]).values[0, -1, cell.hidden_size :])
    return torch.stack(memories)


@pytest.mark.parametrize("kind", TAPED)
def test_memories_stand_where_their_words_stand_both_directions_side_by_side(kind):
    built = encoder(kind)
    encoded = built(TOKENS, LENGTHS)
    layer = built.layers[0]
    assert encoded.cell_states.shape == encoded.states.shape
    assert (encoded.cell_states[1, 2:] == 0).all()
    for row, length in enumerate(LENGTHS.tolist()):
        words = built.embedding(TOKENS[row, :length])
        there, back = (
            written(layer.forward_cell, words),
            written(layer.backward_cell, words.flip(0)),
        )
        wanted = torch.cat([there, back.flip(0)], dim=-1)
        torch.testing.assert_close(encoded.cell_states[row, :length], wanted)


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
    assert encoder(kind)(TOKENS, LENGTHS).cell_states is None


def asked(cell, **settings):
    """An encoder that is asked for memories at the ends, and does not drop."""
    built = encoder(cell, **settings).eval()
    built.returns_cell_states = True
    return built


def last_state(cell, words):
    """The state after all words, one by one."""
    state = cell.initial_state(torch.zeros(1, cell.hidden_size, dtype=torch.double))
    for word in words:
        state = cell(word[None], state)
    return state


@pytest.mark.parametrize("option", WITH_MEMORY)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_asked_for_memories_are_those_after_each_rows_own_last_word(option, direction):
    settings = {"type": "lstm", **WITH_MEMORY[option]}
    built = asked(settings, direction=DIRECTIONS[direction], num_layers=2)
    encoded = built(TOKENS, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        read = built.embedding(TOKENS[row : row + 1, :length])
        for layer, end, memory in zip(
            built.layers, encoded.final_states, encoded.final_cell_states, strict=True
        ):
            there, back = read[0], read[0].flip(0)
            states = [
                last_state(cell, back if cell is layer.backward_cell else there)
                for cell in layer.cells
            ]
            torch.testing.assert_close(end[row], torch.cat([state[0][0] for state in states]))
            torch.testing.assert_close(memory[row], torch.cat([state[1][0] for state in states]))
            read = layer(read, LENGTHS[row : row + 1])


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_padding_has_no_influence_on_memories_at_the_ends(direction):
    built = asked("lstm", direction=DIRECTIONS[direction], num_layers=2)
    wide = torch.cat([TOKENS, torch.full((2, 3), 7)], dim=1)
    torch.testing.assert_close(
        built(wide, LENGTHS).final_cell_states, built(TOKENS, LENGTHS).final_cell_states
    )


def test_an_lstm_is_the_same_whether_asked_for_memories_or_not():
    built = asked("lstm", num_layers=2)
    found = built(TOKENS, LENGTHS)
    built.returns_cell_states = False
    wanted = built(TOKENS, LENGTHS)
    assert len(found.final_cell_states) == 2
    assert wanted.final_cell_states == ()
    torch.testing.assert_close(found.states, wanted.states)
    torch.testing.assert_close(found.final_states, wanted.final_states)


@pytest.mark.parametrize("kind", ["rnn", "gru", "self-attentive-rnn", *TAPED])
def test_cells_without_a_memory_cell_have_none_at_the_ends(kind):
    """A tape is none: whoever goes on from the end begins one of its own."""
    assert asked(kind)(TOKENS, LENGTHS).final_cell_states == ()
