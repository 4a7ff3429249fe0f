"""Encoders with connections match explicit loops over the equations of the papers."""

import pytest
import torch

from heedful.errors import ConfigError
from heedful.models.recurrent.encoder import RecurrentEncoderConfig

TOKENS, LENGTHS = torch.tensor([[5, 6, 7, 8, 4], [4, 3, 0, 0, 0]]), torch.tensor([5, 2])


def encoder(**settings):
    config = RecurrentEncoderConfig(embedding_size=3, hidden_size=4, **settings)
    return config.build(vocab_size=9).double()


def run(cell, inputs, positions):
    """Run a cell over one row in this order of positions; return states in position order."""
    state, outputs = cell.initial_state(torch.zeros(1, cell.hidden_size, dtype=torch.double)), {}
    for position in positions:
        state = cell(inputs[position][None], state)
        outputs[position] = state[0][0]
    return torch.stack([outputs[position] for position in sorted(outputs)])


def gnmt(built, row, length):
    """One bidirectional layer, forward ones above; x^i = m^i + x^(i-1) from the third layer on."""
    inputs = built.embedding(TOKENS[row, :length])
    forward_order, backward_order = range(length), range(length)[::-1]
    first = built.layers[0]
    inputs = torch.cat(
        [
            run(first.forward_cell, inputs, forward_order),
            run(first.backward_cell, inputs, backward_order),
        ],
        dim=-1,
    )
    final_states = [torch.cat([inputs[-1, :2], inputs[0, 2:]])]
    for index in range(1, len(built.layers)):
        outputs = run(built.layers[index].forward_cell, inputs, forward_order)
        final_states.append(outputs[-1])
        inputs = outputs + inputs if index >= 2 else outputs
    return inputs, final_states


def deep_att(built, row, length, *, halve_shortcut):
    """Alternating directions; f^1 = W x, h^k = cell(f^k), f^(k+1) = W [half of f^k; h^k]."""
    words = built.embedding(TOKENS[row, :length])
    path = words @ built.input_projection.weight.T
    final_states = []
    for index, layer in enumerate(built.layers):
        is_forwards = index % 2 == 0
        positions = range(length) if is_forwards else range(length)[::-1]
        hidden = run(layer.cells[0], path, positions)
        final_states.append(hidden[-1 if is_forwards else 0])
        is_top = index == len(built.layers) - 1
        shortcut = path[:, : path.size(-1) // 2] if halve_shortcut and not is_top else path
        weight = built.layer_wrappers[index].connection.projection.weight
        path = torch.cat([shortcut, hidden], dim=-1) @ weight.T
    return path, final_states


def assert_encoder_matches(built, reference):
    encoded = built(TOKENS, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        states, final_states = reference(built, row, length)
        torch.testing.assert_close(encoded.states[row, :length], states)
        for final_state, expected in zip(encoded.final_states, final_states, strict=True):
            torch.testing.assert_close(final_state[row], expected)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_gnmt_encoder_same_as_equations(cell):
    assert_encoder_matches(
        encoder(
            cell=cell, num_layers=5, direction="bidirectional-then-forward", connection="residual"
        ),
        gnmt,
    )


@pytest.mark.parametrize("halve_shortcut", [True, False])
@pytest.mark.parametrize("size", [None, 6])
def test_deep_att_encoder_same_as_equations(halve_shortcut, size):
    connection = {"type": "fast-forward", "halve_shortcut": halve_shortcut, "shortcut_size": size}
    built = encoder(cell="lstm", num_layers=5, direction="alternating", connection=connection)
    assert_encoder_matches(built, lambda *row: deep_att(*row, halve_shortcut=halve_shortcut))


def test_dropout_does_not_drop_residual_and_fast_forward_paths():
    for connection in ({"type": "residual", "first_residual_layer": 2}, "fast-forward"):
        built = encoder(num_layers=4, connection=connection, dropout=0.9)
        built.embedding.dropout.p = 0.0
        built.train()
        for layer in built.layers[1:]:
            for weight in layer.parameters():
                weight.detach().zero_()
        if connection == "fast-forward":
            for weight in built.layers[0].parameters():
                weight.detach().zero_()
        states = [built(TOKENS, LENGTHS).states for _ in range(2)]
        assert torch.equal(*states)


def test_odd_shortcut_size_raises():
    with pytest.raises(ConfigError) as caught:
        encoder(connection={"type": "fast-forward", "shortcut_size": 5})
    assert str(caught.value) == (
        "connection.shortcut_size: a path of size 5 cannot be halved\n"
        "  choose an even size, or set `halve_shortcut: false`"
    )
