"""What each bridge hands over to the first state, and when it refuses."""

import pytest
import torch

from heedful.decoders.bridges import Banks, Ends, ProjectedBridge
from heedful.decoders.config import RecurrentDecoderConfig
from heedful.errors import ConfigError
from heedful.layers.encoded import Encoded
from heedful.layers.gated import ResetAfterGruCell
from heedful.layers.recurrence import Recurrence

BOTH_WAYS = Ends(sizes=(4, 4), backward_size=3)


def build(kind, ends=BOTH_WAYS, **settings):
    config = RecurrentDecoderConfig.model_validate(
        {"hidden_size": 4, "num_layers": 2, "bridge": {"kind": kind}, **settings}
    )
    return config.build(vocabulary_size=7, memory_size=6, ends=ends)


def source(end_memories=()):
    ends = (torch.randn(2, 4), torch.randn(2, 4))
    states, lengths, summary = torch.randn(2, 3, 6), torch.tensor([3, 2]), torch.randn(2, 6)
    return Encoded(states, lengths, summary, ends, end_memories=end_memories)


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("kind", ["tanh", "linear", "backward", "copy", "zeros"])
def test_the_first_state_shows_what_the_bridge_says_and_is_else_empty(kind, cell):
    decoder, encoded = build(kind, cell=cell), source()
    for hidden, (seen, *rest) in zip(
        decoder.bridge(encoded), decoder.start(encoded).wiring.cells, strict=True
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
    torch.testing.assert_close(build("copy").bridge(encoded), list(encoded.ends))


def test_copy_hands_over_memory_cells_where_the_encoder_tells_them():
    encoded = source(end_memories=(torch.randn(2, 4), torch.randn(2, 4)))
    wanted = tuple(zip(encoded.ends, encoded.end_memories, strict=True))
    torch.testing.assert_close(build("copy", cell="lstm").start(encoded).wiring.cells, wanted)


@pytest.mark.parametrize("kind", ["tanh", "linear", "backward", "zeros"])
def test_other_bridges_leave_memory_cells_empty(kind):
    encoded = source(end_memories=(torch.randn(2, 4), torch.randn(2, 4)))
    decoder = build(kind, cell="lstm")
    assert not decoder.wants_memories
    for _, memory in decoder.start(encoded).wiring.cells:
        assert (memory == 0).all()


@pytest.mark.parametrize(
    ("cell", "wants"),
    [("rnn", False), ("gru", False), ("lstm", True), ("self-attentive-lstm", False)],
)
def test_copy_wants_memories_for_cells_that_have_room_for_them(cell, wants):
    assert build("copy", cell=cell).wants_memories == wants
    assert build("copy", cell=cell, residual_from=2).wants_memories == wants


def test_zeros_are_zeros():
    for hidden in build("zeros").bridge(source()):
        torch.testing.assert_close(hidden, torch.zeros(2, 4))


def test_backward_is_what_the_backward_reading_shows_at_the_first_word():
    """s_0 = tanh(W_s h_1), by a recurrence both ways, for rows of different lengths."""
    cells = [ResetAfterGruCell(5, 3) for _ in range(2)]
    reading = Recurrence(forwards=cells[0], backwards=cells[1])
    lengths = torch.tensor([4, 2])
    states = reading(torch.randn(2, 4, 5), lengths)
    ends = (torch.randn(2, 4), reading.seen_at_end(states, lengths))
    encoded = Encoded(states, lengths, torch.randn(2, 6), ends)  # its summary made otherwise
    layer = torch.nn.Linear(3, 4)
    (hidden,) = ProjectedBridge([layer], squashes=True, backward_size=3)(encoded)
    torch.testing.assert_close(hidden, layer(states[:, 0, 3:]).tanh())


def test_layers_are_as_many_and_as_wide_as_the_decoders():
    layers = Banks(6, Ends(), hidden_size=4, num_layers=3).layers(5)
    assert [(each.in_features, each.out_features) for each in layers] == [(5, 4)] * 3


@pytest.mark.parametrize(
    ("kind", "ends", "message"),
    [
        (
            "backward",
            Ends(sizes=(4, 4), backward_size=0),
            "bridge.kind: 'backward' begins where a backward reading of the source ends, but the "
            "encoder has none in its last layer\n"
            "  choose 'tanh', or let the encoder read both ways",
        ),
        (
            "copy",
            Ends(sizes=(4, 6, 4)),
            "bridge.kind: 'copy' begins each layer where the encoder's layer ended, but the "
            "widths of the encoder's layers are 4, 6, 4 and those of the decoder's are 4, 4\n"
            "  give both as many layers, of one hidden_size, or choose 'tanh'",
        ),
        (
            "copy",
            None,
            "bridge.kind: 'copy' begins each layer where the encoder's layer ended, but the "
            "widths of the encoder's layers are not known and those of the decoder's are 4, 4\n"
            "  give both as many layers, of one hidden_size, or choose 'tanh'",
        ),
    ],
)
def test_banks_that_do_not_fit_are_named_with_a_remedy(kind, ends, message):
    with pytest.raises(ConfigError) as caught:
        build(kind, ends)
    assert str(caught.value) == message
