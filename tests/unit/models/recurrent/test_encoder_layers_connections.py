"""Encoders with connections, against loops over positions written from the papers."""

import pytest
import torch

from heedful.errors import ConfigError
from heedful.models.recurrent.encoder import RecurrentEncoderConfig

TOKENS, LENGTHS = torch.tensor([[5, 6, 7, 8, 4], [4, 3, 0, 0, 0]]), torch.tensor([5, 2])


def encoder(**settings):
    config = RecurrentEncoderConfig(embedding_size=3, hidden_size=4, **settings)
    return config.build(vocab_size=9).double()


def run(cell, inputs, places):
    """One row, position by position, in this order of places; the states in their own."""
    state, shown = cell.initial_state(torch.zeros(1, cell.hidden_size, dtype=torch.double)), {}
    for place in places:
        state = cell(inputs[place][None], state)
        shown[place] = state[0][0]
    return torch.stack([shown[place] for place in sorted(shown)])


def gnmt(built, row, length):
    """One layer both ways, the rest forwards; x^i = m^i + x^(i-1) from the third layer on."""
    read = built.embedding(TOKENS[row, :length])
    there, back = range(length), range(length)[::-1]
    first = built.layers[0]
    read = torch.cat(
        [run(first.forward_cell, read, there), run(first.backward_cell, read, back)], dim=-1
    )
    ends = [torch.cat([read[-1, :2], read[0, 2:]])]
    for number in range(1, len(built.layers)):
        made = run(built.layers[number].forward_cell, read, there)
        ends.append(made[-1])
        read = made + read if number >= 2 else made
    return read, ends


def deep_att(built, row, length, *, halved):
    """Every other layer backwards; f^1 = W x, h^k = cell(f^k), f^(k+1) = W [half of f^k; h^k]."""
    words = built.embedding(TOKENS[row, :length])
    straight = words @ built.input_projection.weight.T
    ends = []
    for number, layer in enumerate(built.layers):
        is_forwards = number % 2 == 0
        places = range(length) if is_forwards else range(length)[::-1]
        hidden = run(layer.cells[0], straight, places)
        ends.append(hidden[-1 if is_forwards else 0])
        is_top = number == len(built.layers) - 1
        passed = straight[:, : straight.size(-1) // 2] if halved and not is_top else straight
        weight = built.layer_wrappers[number].connection.projection.weight
        straight = torch.cat([passed, hidden], dim=-1) @ weight.T
    return straight, ends


def check(built, slow):
    encoded = built(TOKENS, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        states, ends = slow(built, row, length)
        torch.testing.assert_close(encoded.states[row, :length], states)
        for end, wanted in zip(encoded.final_states, ends, strict=True):
            torch.testing.assert_close(end[row], wanted)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_one_layer_both_ways_and_residual_ones_above_are_the_encoder_of_gnmt(cell):
    check(
        encoder(
            cell=cell, num_layers=5, direction="bidirectional-then-forward", connection="residual"
        ),
        gnmt,
    )


@pytest.mark.parametrize("halved", [True, False])
@pytest.mark.parametrize("size", [None, 6])
def test_alternating_layers_with_a_straight_path_are_the_encoder_of_deep_att(halved, size):
    connection = {"type": "fast-forward", "halve_shortcut": halved, "shortcut_size": size}
    built = encoder(cell="lstm", num_layers=5, direction="alternating", connection=connection)
    check(built, lambda *row: deep_att(*row, halved=halved))


def test_the_straight_path_is_a_line_from_the_words_to_the_top():
    built = encoder(num_layers=9, connection="fast-forward", direction="alternating")
    for layer in built.layers:  # cells that show nothing leave the straight path alone
        for weight in layer.parameters():
            weight.detach().zero_()
    tables = [torch.randn(9, 3, dtype=torch.double) for _ in range(2)]

    def states(table):
        with torch.no_grad():
            built.embedding.embedding.weight.copy_(table)
        return built(TOKENS, LENGTHS).states

    together = states(tables[0] + 2 * tables[1])
    torch.testing.assert_close(together, states(tables[0]) + 2 * states(tables[1]))
    assert together.abs().sum() > 0


def test_dropout_leaves_residual_and_straight_paths_whole():
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
        drawn = [built(TOKENS, LENGTHS).states for _ in range(2)]
        assert torch.equal(*drawn)


def test_a_straight_path_that_cannot_be_halved_is_refused():
    with pytest.raises(ConfigError) as caught:
        encoder(connection={"type": "fast-forward", "shortcut_size": 5})
    assert str(caught.value) == (
        "connection.shortcut_size: a straight path of width 5 cannot be halved\n"
        "  choose an even width, or set `halved: false`"
    )
