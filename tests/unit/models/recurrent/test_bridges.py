"""What each bridge hands over to the first state, and when it refuses."""

import pytest
import torch

from heedful.errors import ConfigError
from heedful.layers.rnn import RecurrentLayer
from heedful.layers.rnn_cells import ResetAfterGRUCell
from heedful.models.base import EncoderOutput, EncoderStateSizes
from heedful.models.recurrent.bridges import BridgeSizes, ProjectedBridge
from heedful.models.recurrent.decoder import RecurrentDecoderConfig

BOTH_WAYS = EncoderStateSizes(final_state_sizes=(4, 4), backward_size=3)


def build(kind, ends=BOTH_WAYS, **settings):
    config = RecurrentDecoderConfig.model_validate(
        {"hidden_size": 4, "num_layers": 2, "bridge": {"type": kind}, **settings}
    )
    return config.build(vocab_size=7, memory_size=6, encoder_sizes=ends)


def source(final_cell_states=()):
    ends = (torch.randn(2, 4), torch.randn(2, 4))
    states, lengths, summary = torch.randn(2, 3, 6), torch.tensor([3, 2]), torch.randn(2, 6)
    return EncoderOutput(states, lengths, summary, ends, final_cell_states=final_cell_states)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("kind", ["tanh", "linear", "backward", "copy", "zeros"])
def test_the_first_state_shows_what_the_bridge_says_and_is_else_empty(kind, cell):
    decoder, encoded = build(kind, cell=cell), source()
    for hidden, (seen, *rest) in zip(
        decoder.bridge(encoded), decoder.initial_state(encoded).wiring.cells, strict=True
    ):
        torch.testing.assert_close(seen, hidden)
        assert all((part == 0).all() for part in rest)


def test_tanh_is_a_tanh_of_the_summary_for_each_layer():
    bridge, encoded = build("tanh").bridge, source()
    for layer, hidden in zip(bridge.layers, bridge(encoded), strict=True):
        torch.testing.assert_close(hidden, layer(encoded.summary).tanh())


def test_linear_is_the_same_without_a_tanh():
    bridge, encoded = build("linear").bridge, source()
    for layer, hidden in zip(bridge.layers, bridge(encoded), strict=True):
        torch.testing.assert_close(hidden, layer(encoded.summary))


def test_copy_begins_each_layer_where_the_encoders_ended():
    encoded = source()
    torch.testing.assert_close(build("copy").bridge(encoded), list(encoded.final_states))


def test_copy_hands_over_memory_cells_where_the_encoder_tells_them():
    encoded = source(final_cell_states=(torch.randn(2, 4), torch.randn(2, 4)))
    wanted = tuple(zip(encoded.final_states, encoded.final_cell_states, strict=True))
    torch.testing.assert_close(
        build("copy", cell="lstm").initial_state(encoded).wiring.cells, wanted
    )


@pytest.mark.parametrize("kind", ["tanh", "linear", "backward", "zeros"])
def test_other_bridges_leave_memory_cells_empty(kind):
    encoded = source(final_cell_states=(torch.randn(2, 4), torch.randn(2, 4)))
    decoder = build(kind, cell="lstm")
    assert not decoder.needs_cell_states
    for _, memory in decoder.initial_state(encoded).wiring.cells:
        assert (memory == 0).all()


@pytest.mark.parametrize(
    ("cell", "wants"),
    [("rnn", False), ("gru", False), ("lstm", True), ("self-attentive-lstm", False)],
)
def test_copy_wants_memories_for_cells_that_have_room_for_them(cell, wants):
    assert build("copy", cell=cell).needs_cell_states == wants
    assert build("copy", cell=cell, first_residual_layer=2).needs_cell_states == wants


def test_zeros_are_zeros():
    for hidden in build("zeros").bridge(source()):
        torch.testing.assert_close(hidden, torch.zeros(2, 4))


def test_backward_is_what_the_backward_reading_shows_at_the_first_word():
    """s_0 = tanh(W_s h_1), by a recurrence both ways, for rows of different lengths."""
    cells = [ResetAfterGRUCell(5, 3) for _ in range(2)]
    reading = RecurrentLayer(forward_cell=cells[0], backward_cell=cells[1])
    lengths = torch.tensor([4, 2])
    states = reading(torch.randn(2, 4, 5), lengths)
    ends = (torch.randn(2, 4), reading.final_outputs(states, lengths))
    encoded = EncoderOutput(states, lengths, torch.randn(2, 6), ends)  # its summary made otherwise
    layer = torch.nn.Linear(3, 4)
    (hidden,) = ProjectedBridge([layer], uses_tanh=True, backward_size=3)(encoded)
    torch.testing.assert_close(hidden, layer(states[:, 0, 3:]).tanh())


def test_layers_are_as_many_and_as_wide_as_the_decoders():
    layers = BridgeSizes(6, EncoderStateSizes(), hidden_size=4, num_layers=3).build_projections(5)
    assert [(each.in_features, each.out_features) for each in layers] == [(5, 4)] * 3


@pytest.mark.parametrize(
    ("kind", "ends", "message"),
    [
        (
            "backward",
            EncoderStateSizes(final_state_sizes=(4, 4), backward_size=0),
            "bridge.type: 'backward' begins where a backward reading of the source ends, but the "
            "encoder has none in its last layer\n"
            "  choose 'tanh', or let the encoder read both ways",
        ),
        (
            "copy",
            EncoderStateSizes(final_state_sizes=(4, 6, 4)),
            "bridge.type: 'copy' begins each layer where the encoder's layer ended, but the "
            "widths of the encoder's layers are 4, 6, 4 and those of the decoder's are 4, 4\n"
            "  give both as many layers, of one hidden_size, or choose 'tanh'",
        ),
        (
            "copy",
            None,
            "bridge.type: 'copy' begins each layer where the encoder's layer ended, but the "
            "widths of the encoder's layers are not known and those of the decoder's are 4, 4\n"
            "  give both as many layers, of one hidden_size, or choose 'tanh'",
        ),
    ],
)
def test_banks_that_do_not_fit_are_named_with_a_remedy(kind, ends, message):
    with pytest.raises(ConfigError) as caught:
        build(kind, ends)
    assert str(caught.value) == message
