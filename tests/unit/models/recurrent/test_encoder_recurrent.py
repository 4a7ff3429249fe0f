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
ONE_WAY = ["forwards", "alternating"]


def encoder(**settings):
    config = RecurrentEncoderConfig(**{"embedding_size": 3, "hidden_size": 4} | settings)
    return config.build(vocab_size=9)


def stack(kind, *, both):
    """An encoder of three layers, and torch's stack with the same weights."""
    ours = encoder(cell=kind, num_layers=3, direction="both" if both else "forwards").double()
    size = 2 if both else 4
    theirs = TORCH[kind](3, size, num_layers=3, batch_first=True, bidirectional=both).double()
    state = {}
    for number, layer in enumerate(ours.layers):
        for cell, suffix in zip(layer.cells, ["", "_reverse"], strict=False):
            for name, weight in cell.layer.state_dict().items():
                state[f"{name[:-1]}{number}{suffix}"] = weight
    theirs.load_state_dict(state)
    return ours, theirs


@each_kind
@pytest.mark.parametrize("both", [True, False], ids=["both ways", "one way"])
def test_a_plain_stack_is_that_of_torch_on_packed_sequences(kind, both):
    ours, theirs = stack(kind, both=both)
    encoded = ours(TOKENS, LENGTHS)
    embedded = ours.embedding(TOKENS)
    packed = pack_padded_sequence(embedded, LENGTHS, batch_first=True)
    outputs, last = theirs(packed)
    states, _ = pad_packed_sequence(outputs, batch_first=True)
    torch.testing.assert_close(encoded.states, states)
    hidden = last[0] if kind == "lstm" else last  # layers and directions, rows, width
    ends = hidden.unflatten(0, (3, -1)).transpose(1, 2).flatten(2)  # layers, rows, both directions
    torch.testing.assert_close(torch.stack(encoded.final_states), ends)
    torch.testing.assert_close(encoded.summary, ends[-1])
    losses = [
        (each.states.sin()).sum() + each.final_states.cos().sum()
        for each in (
            encoded._replace(final_states=torch.stack(encoded.final_states)),
            encoded._replace(states=states, final_states=ends),
        )
    ]
    table = ours.embedding.embedding.weight
    own = [w for layer in ours.layers for cell in layer.cells for w in cell.weights]
    pairs = [
        torch.autograd.grad(loss, [table, *weights], retain_graph=True)
        for loss, weights in zip(losses, [own, list(theirs.parameters())], strict=True)
    ]
    for each in zip(*pairs, strict=True):
        torch.testing.assert_close(*each)


def test_the_summary_is_where_each_direction_ends():
    encoded = encoder()(TOKENS, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        forwards = encoded.states[row, length - 1, :2]
        backwards = encoded.states[row, 0, 2:]
        torch.testing.assert_close(encoded.summary[row], torch.cat([forwards, backwards]))


def test_read_one_way_the_summary_is_the_last_state():
    encoded = encoder(direction="forward", cell="lstm", num_layers=2)(TOKENS, LENGTHS)
    torch.testing.assert_close(encoded.summary[1], encoded.states[1, 1])


def test_states_past_the_end_are_zero():
    encoded = encoder()(TOKENS, LENGTHS)
    assert (encoded.states[1, 2:] == 0).all()


@pytest.mark.parametrize("direction", ["both", *ONE_WAY, "bidirectional-then-forward"])
def test_the_width_of_states_is_the_hidden_size_however_it_reads(direction):
    built = encoder(direction=direction, num_layers=3)
    encoded = built(TOKENS, LENGTHS)
    assert encoded.states.shape == (2, 4, 4)
    assert [end.shape for end in encoded.final_states] == [(2, 4)] * 3
    assert built.size == 4


def test_a_cell_may_be_named_or_described():
    described = {"type": "gru", "reset": "before", "layer_norm": True}
    assert type(encoder(cell="lstm").layers[0].forward_cell) is LSTMCell
    layer = encoder(cell=described).layers[0]
    assert type(layer.forward_cell) is type(layer.backward_cell) is ResetBeforeGRUCell
    assert layer.forward_cell is not layer.backward_cell


def test_in_training_what_cells_drop_is_drawn_and_when_asked_it_is_not():
    built = encoder(cell={"type": "lstm", "recurrent_dropout": 0.5, "zoneout": 0.3}, num_layers=2)
    drawn = [built(TOKENS, LENGTHS).states for _ in range(2)]
    assert not torch.equal(*drawn)
    built.eval()
    asked = [built(TOKENS, LENGTHS).states for _ in range(2)]
    assert torch.equal(*asked)


def turned(state):
    """The weights of an encoder under the names of one that reads the other way."""
    swap = {"forwards": "backwards", "backwards": "forwards"}
    return {
        ".".join(swap.get(part, part) for part in name.split(".")): each
        for name, each in state.items()
    }


@pytest.mark.parametrize("kind", ONE_WAY)
@pytest.mark.parametrize(
    "connection", ["plain", {"type": "residual", "first_residual_layer": 2}, "fast-forward"]
)
@pytest.mark.parametrize("summary", ["last", "mean"])
def test_a_reversed_source_is_one_turned_round_by_hand_with_states_turned_back(
    kind, connection, summary
):
    settings = {
        "num_layers": 3,
        "connection": connection,
        "lower_attention": {},
        "pooling": summary,
    }
    plain = encoder(direction=kind, **settings)
    back = encoder(direction={"type": kind, "reverse_source": True}, **settings)
    back.load_state_dict(turned(plain.state_dict()))
    by_hand = torch.tensor([[8, 7, 6, 5], [3, 4, 0, 0]])
    wanted, found = plain(by_hand, LENGTHS), back(TOKENS, LENGTHS)
    torch.testing.assert_close(found.states, reverse_padded(wanted.states, LENGTHS))
    torch.testing.assert_close(found.summary, wanted.summary)
    torch.testing.assert_close(found.final_states, wanted.final_states)


def test_reversed_layers_above_those_that_read_both_ways_read_backwards():
    direction = {
        "type": "bidirectional-then-forward",
        "num_bidirectional": 2,
        "reverse_source": True,
    }
    layers = encoder(direction=direction, num_layers=3).layers
    ways = [(layer.forward_cell is not None, layer.backward_cell is not None) for layer in layers]
    assert ways == [(True, True), (True, True), (False, True)]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"hidden_size": 5}, "hidden_size, for both directions, must be even: 5"),
        (
            {"hidden_size": 5, "num_layers": 2, "direction": "bidirectional-then-forward"},
            "hidden_size, for both directions, must be even: 5",
        ),
        ({"lower_attention": {}}, "looks_down needs num_layers of 2 or more: 1"),
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
            "num_chosen is 4, but there are 3 experts",
        ),
    ],
)
def test_settings_that_do_not_fit_one_another_are_refused(settings, problem):
    with pytest.raises(ValidationError) as caught:
        encoder(**settings)
    assert problem in str(caught.value)


def test_an_odd_width_will_do_where_no_layer_reads_both_ways():
    assert encoder(hidden_size=5, direction="alternating", num_layers=2).size == 5
