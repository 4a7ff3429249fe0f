import pytest
import torch

from heedful.layers.self_attentive_cells import StateHistory
from heedful.models.recurrent.encoder import RecurrentEncoderConfig

TOKENS, LENGTHS = torch.tensor([[5, 6, 7, 8], [4, 3, 0, 0]]), torch.tensor([4, 2])
WITH_HISTORY = ["lstmn", "self-attentive-lstm"]


WITH_MEMORY = {
    "plain": {},
    "layer norm": {"layer_norm": True},
    "dropped and zoned out": {"recurrent_dropout": 0.4, "zoneout": 0.3, "cell_zoneout": 0.2},
}
DIRECTIONS = {
    "forward": "forward",
    "reversed": {"type": "forward", "reverse_source": True},
    "both": "bidirectional",
}


def encoder(cell, **settings):
    config = RecurrentEncoderConfig(embedding_size=3, hidden_size=4, cell=cell, **settings)
    built = config.build(vocab_size=9).double()
    built.returns_cell_states = True
    return built


def cell_states_of(cell, words):
    """The cell state after each token."""
    state, cell_states = (
        cell.initial_state(torch.zeros(1, cell.hidden_size, dtype=torch.double)),
        [],
    )
    for word in words:
        state = cell(word[None], state)
        cell_states.append(StateHistory(*state[2:]).values[0, -1, cell.hidden_size :])
    return torch.stack(cell_states)


@pytest.mark.parametrize("kind", WITH_HISTORY)
def test_cell_states_aligned_with_tokens_in_both_directions(kind):
    built = encoder(kind)
    encoded = built(TOKENS, LENGTHS)
    layer = built.layers[0]
    assert encoded.cell_states.shape == encoded.states.shape
    assert (encoded.cell_states[1, 2:] == 0).all()
    for row, length in enumerate(LENGTHS.tolist()):
        words = built.embedding(TOKENS[row, :length])
        forward_words, backward_words = (
            cell_states_of(layer.forward_cell, words),
            cell_states_of(layer.backward_cell, words.flip(0)),
        )
        expected = torch.cat([forward_words, backward_words.flip(0)], dim=-1)
        torch.testing.assert_close(encoded.cell_states[row, :length], expected)


@pytest.mark.parametrize("kind", WITH_HISTORY)
def test_states_do_not_depend_on_returning_cell_states(kind):
    built = encoder(kind, direction="alternating", num_layers=2)
    inputs = built.embedding(TOKENS)
    for layer in built.layers:
        inputs = layer(inputs, LENGTHS)
    is_real = torch.arange(4) < LENGTHS[:, None]
    torch.testing.assert_close(built(TOKENS, LENGTHS).states, inputs * is_real[:, :, None])


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm", "self-attentive-rnn"])
def test_cells_without_history_return_no_cell_states(kind):
    assert encoder(kind)(TOKENS, LENGTHS).cell_states is None


def last_state(cell, words):
    """The state after all tokens, one by one."""
    state = cell.initial_state(torch.zeros(1, cell.hidden_size, dtype=torch.double))
    for word in words:
        state = cell(word[None], state)
    return state


@pytest.mark.parametrize("option", WITH_MEMORY)
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_final_cell_states_are_those_after_last_real_token(option, direction):
    settings = {"type": "lstm", **WITH_MEMORY[option]}
    built = encoder(settings, direction=DIRECTIONS[direction], num_layers=2).eval()
    encoded = built(TOKENS, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        inputs = built.embedding(TOKENS[row : row + 1, :length])
        for layer, final_state, cell_state in zip(
            built.layers, encoded.final_states, encoded.final_cell_states, strict=True
        ):
            forward_words, backward_words = inputs[0], inputs[0].flip(0)
            states = [
                last_state(cell, backward_words if cell is layer.backward_cell else forward_words)
                for cell in layer.cells
            ]
            torch.testing.assert_close(
                final_state[row], torch.cat([state[0][0] for state in states])
            )
            torch.testing.assert_close(
                cell_state[row], torch.cat([state[1][0] for state in states])
            )
            inputs = layer(inputs, LENGTHS[row : row + 1])


def test_lstm_outputs_do_not_depend_on_final_cell_states():
    built = encoder("lstm", num_layers=2).eval()
    with_cell_states = built(TOKENS, LENGTHS)
    built.returns_cell_states = False
    expected = built(TOKENS, LENGTHS)
    assert len(with_cell_states.final_cell_states) == 2
    assert expected.final_cell_states == ()
    torch.testing.assert_close(with_cell_states.states, expected.states)
    torch.testing.assert_close(with_cell_states.final_states, expected.final_states)


@pytest.mark.parametrize("kind", ["rnn", "gru", "self-attentive-rnn", *WITH_HISTORY])
def test_cells_without_cell_state_return_no_final_cell_states(kind):
    """A history is no cell state: a decoder starts one of its own."""
    encoded = encoder(kind).eval()(TOKENS, LENGTHS)
    assert encoded.final_cell_states == ()
