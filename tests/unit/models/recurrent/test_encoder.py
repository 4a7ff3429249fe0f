import pytest
import torch
from pydantic import ValidationError
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.layers.rnn import reverse_padded
from heedful.layers.rnn_cells import LSTMCell, ResetBeforeGRUCell
from heedful.models.recurrent.encoder import RecurrentEncoderConfig

TORCH = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
each_kind = pytest.mark.parametrize("kind", TORCH)
TOKENS, LENGTHS = torch.tensor([[5, 6, 7, 8], [4, 3, 0, 0]]), torch.tensor([4, 2])
ONE_WAY = ["forward", "alternating"]


def encoder(**settings):
    config = RecurrentEncoderConfig(**{"embedding_size": 3, "hidden_size": 4} | settings)
    return config.build(vocab_size=9)


def stack(kind, *, bidirectional):
    """An encoder of three layers, and torch's stack with the same parameters."""
    ours = encoder(
        cell=kind, num_layers=3, direction="bidirectional" if bidirectional else "forward"
    ).double()
    size = 2 if bidirectional else 4
    theirs = TORCH[kind](
        3, size, num_layers=3, batch_first=True, bidirectional=bidirectional
    ).double()
    state = {}
    for index, layer in enumerate(ours.layers):
        for cell, suffix in zip(layer.cells, ["", "_reverse"], strict=False):
            for name, weight in cell.layer.state_dict().items():
                state[f"{name[:-1]}{index}{suffix}"] = weight
    theirs.load_state_dict(state)
    return ours, theirs


@each_kind
@pytest.mark.parametrize("bidirectional", [True, False], ids=["bidirectional", "forward"])
def test_encoder_same_as_torch_on_packed_sequences(kind, bidirectional):
    ours, theirs = stack(kind, bidirectional=bidirectional)
    encoded = ours(TOKENS, LENGTHS)
    embedded = ours.embedding(TOKENS)
    packed = pack_padded_sequence(embedded, LENGTHS, batch_first=True)
    outputs, last = theirs(packed)
    states, _ = pad_packed_sequence(outputs, batch_first=True)
    torch.testing.assert_close(encoded.states, states)
    hidden = last[0] if kind == "lstm" else last  # layers and directions, rows, width
    final_states = (
        hidden.unflatten(0, (3, -1)).transpose(1, 2).flatten(2)
    )  # layers, rows, both directions
    torch.testing.assert_close(torch.stack(encoded.final_states), final_states)
    torch.testing.assert_close(encoded.summary, final_states[-1])
    losses = [
        (each.states.sin()).sum() + each.final_states.cos().sum()
        for each in (
            encoded._replace(final_states=torch.stack(encoded.final_states)),
            encoded._replace(states=states, final_states=final_states),
        )
    ]
    table = ours.embedding.embedding.weight
    parameters = [w for layer in ours.layers for cell in layer.cells for w in cell.weights]
    pairs = [
        torch.autograd.grad(loss, [table, *weights], retain_graph=True)
        for loss, weights in zip(losses, [parameters, list(theirs.parameters())], strict=True)
    ]
    for each in zip(*pairs, strict=True):
        torch.testing.assert_close(*each)


def test_cell_can_be_name_or_section():
    described = {"type": "gru", "reset": "before", "layer_norm": True}
    assert type(encoder(cell="lstm").layers[0].forward_cell) is LSTMCell
    layer = encoder(cell=described).layers[0]
    assert type(layer.forward_cell) is type(layer.backward_cell) is ResetBeforeGRUCell
    assert layer.forward_cell is not layer.backward_cell


def swap_directions(state):
    """The state dict of an encoder whose layers have the other direction."""
    swap = {"forward_cell": "backward_cell", "backward_cell": "forward_cell"}
    return {
        ".".join(swap.get(part, part) for part in name.split(".")): each
        for name, each in state.items()
    }


@pytest.mark.parametrize("kind", ONE_WAY)
@pytest.mark.parametrize(
    "connection", ["plain", {"type": "residual", "first_residual_layer": 2}, "fast-forward"]
)
@pytest.mark.parametrize("summary", ["last", "mean"])
def test_reverse_source_same_as_reversed_tokens(kind, connection, summary):
    settings = {
        "num_layers": 3,
        "connection": connection,
        "lower_attention": {},
        "pooling": summary,
    }
    plain = encoder(direction=kind, **settings)
    reversed_encoder = encoder(direction={"type": kind, "reverse_source": True}, **settings)
    reversed_encoder.load_state_dict(swap_directions(plain.state_dict()))
    reversed_tokens = torch.tensor([[8, 7, 6, 5], [3, 4, 0, 0]])
    expected, actual = plain(reversed_tokens, LENGTHS), reversed_encoder(TOKENS, LENGTHS)
    torch.testing.assert_close(actual.states, reverse_padded(expected.states, LENGTHS))
    torch.testing.assert_close(actual.summary, expected.summary)
    torch.testing.assert_close(actual.final_states, expected.final_states)


def test_reverse_source_makes_upper_layers_backward():
    direction = {
        "type": "bidirectional-then-forward",
        "num_bidirectional": 2,
        "reverse_source": True,
    }
    layers = encoder(direction=direction, num_layers=3).layers
    directions = [
        (layer.forward_cell is not None, layer.backward_cell is not None) for layer in layers
    ]
    assert directions == [(True, True), (True, True), (False, True)]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"hidden_size": 5}, "of a layer, must be divisible by 2: 5"),
        (
            {"hidden_size": 5, "num_layers": 2, "direction": "bidirectional-then-forward"},
            "of a layer, must be divisible by 2: 5",
        ),
        ({"lower_attention": {}}, "lower_attention needs num_layers of 2 or more: 1"),
        ({"experts": {}}, "experts needs num_layers of 2 or more: 1"),
        (
            {"num_layers": 3, "experts": {"after_layers": [1, 3]}},
            "experts needs num_layers of 4 or more: 3",
        ),
        (
            {"num_layers": 2, "connection": "residual"},
            "connection needs num_layers of 3 or more: 2",
        ),
        (
            {"num_layers": 2, "experts": {"num_experts": 3}},
            "num_experts_per_token is 4, but num_experts is 3",
        ),
    ],
)
def test_incompatible_settings_raise(settings, problem):
    with pytest.raises(ValidationError) as caught:
        encoder(**settings)
    assert problem in str(caught.value)


def test_odd_hidden_size_is_allowed_without_bidirectional_layers():
    assert encoder(hidden_size=5, direction="alternating", num_layers=2).output_size == 5
