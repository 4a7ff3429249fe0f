"""Initial decoder states of each bridge, and the sizes it rejects."""

import pytest
import torch

from heedful.errors import ConfigError
from heedful.layers.rnn import RecurrentLayer
from heedful.layers.rnn_cells import ResetAfterGRUCell
from heedful.models.base import EncoderOutput, EncoderStateSizes
from heedful.models.recurrent.bridge import BackwardBridge
from heedful.models.recurrent.config import RecurrentDecoderConfig

BIDIRECTIONAL_SIZES = EncoderStateSizes(final_state_sizes=(4, 4), backward_size=3)


def build(kind, final_states=BIDIRECTIONAL_SIZES, **settings):
    bridge = {"type": kind} if isinstance(kind, str) else kind
    config = RecurrentDecoderConfig.model_validate(
        {"hidden_size": 4, "num_layers": 2, "bridge": bridge, **settings}
    )
    return config.build(vocab_size=7, memory_size=6, encoder_sizes=final_states)


def source(final_cell_states=()):
    final_states = (torch.randn(2, 4), torch.randn(2, 4))
    states, lengths, summary = torch.randn(2, 3, 6), torch.tensor([3, 2]), torch.randn(2, 6)
    return EncoderOutput(
        states, lengths, summary, final_states, final_cell_states=final_cell_states
    )


@pytest.mark.parametrize("cell", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("kind", ["tanh", "linear", "backward", "copy", "zeros"])
def test_initial_hidden_is_bridge_output_and_rest_is_zero(kind, cell):
    states = (torch.randn(2, 4), torch.randn(2, 4))
    decoder, encoded = build(kind, cell=cell), source(() if kind == "copy" else states)
    assert decoder.needs_cell_states == (kind == "copy" and cell == "lstm")
    for hidden, (first_hidden, *rest) in zip(
        decoder.bridge(encoded), decoder.initial_state(encoded).wiring.cells, strict=True
    ):
        torch.testing.assert_close(first_hidden, hidden)
        assert all((part == 0).all() for part in rest)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("tanh", lambda bridge, encoded: [map_(encoded.summary).tanh() for map_ in bridge.layers]),
        ("linear", lambda bridge, encoded: [map_(encoded.summary) for map_ in bridge.layers]),
        ("copy", lambda _, encoded: list(encoded.final_states)),
        ("zeros", lambda *_: [torch.zeros(2, 4)] * 2),
    ],
)
def test_bridge_same_as_formula(kind, expected):
    bridge, encoded = build(kind).bridge, source()
    torch.testing.assert_close(bridge(encoded), expected(bridge, encoded))


def test_copy_bridge_passes_final_cell_states():
    encoded = source(final_cell_states=(torch.randn(2, 4), torch.randn(2, 4)))
    expected = tuple(zip(encoded.final_states, encoded.final_cell_states, strict=True))
    torch.testing.assert_close(
        build("copy", cell="lstm").initial_state(encoded).wiring.cells, expected
    )


@pytest.mark.parametrize(
    ("cell", "needs_cell_states"),
    [("rnn", False), ("gru", False), ("lstm", True), ("self-attentive-lstm", False)],
)
def test_copy_bridge_needs_cell_states_for_lstm_only(cell, needs_cell_states):
    assert build("copy", cell=cell).needs_cell_states == needs_cell_states
    assert build("copy", cell=cell, first_residual_layer=2).needs_cell_states == needs_cell_states


def test_backward_bridge_uses_backward_state_at_first_token():
    """s_0 = tanh(W_s h_1), with a bidirectional layer over rows of different lengths."""
    cells = [ResetAfterGRUCell(5, 3) for _ in range(2)]
    encoder_layer = RecurrentLayer(forward_cell=cells[0], backward_cell=cells[1])
    lengths = torch.tensor([4, 2])
    states = encoder_layer(torch.randn(2, 4, 5), lengths)
    final_states = (torch.randn(2, 4), encoder_layer.final_outputs(states, lengths))
    encoded = EncoderOutput(
        states, lengths, torch.randn(2, 6), final_states
    )  # its summary made otherwise
    bridge = BackwardBridge(3, hidden_size=4, num_layers=1)
    (hidden,), (layer,) = bridge(encoded), bridge.layers
    torch.testing.assert_close(hidden, layer(states[:, 0, 3:]).tanh())


@pytest.mark.parametrize(
    ("kind", "final_states", "message"),
    [
        (
            "backward",
            EncoderStateSizes(final_state_sizes=(4, 4), backward_size=0),
            "bridge.type: 'backward' needs a backward cell in the encoder's last layer, but there "
            "is none\n"
            "  choose 'tanh', or set encoder.direction to 'bidirectional'",
        ),
        (
            "copy",
            EncoderStateSizes(final_state_sizes=(4, 6, 4)),
            "bridge.type: 'copy' needs encoder layers of sizes 4, 4, but they are 4, 6, 4\n"
            "  give both the same num_layers and hidden_size, or choose 'tanh'",
        ),
        (
            "copy",
            None,
            "bridge.type: 'copy' needs encoder layers of sizes 4, 4, but they are unknown\n"
            "  give both the same num_layers and hidden_size, or choose 'tanh'",
        ),
    ],
)
def test_incompatible_sizes_raise(kind, final_states, message):
    with pytest.raises(ConfigError) as caught:
        build(kind, final_states)
    assert str(caught.value) == message


@pytest.mark.parametrize("num_layers", [1, 2, 3])
@pytest.mark.parametrize(
    ("activation", "bend"), [("tanh", torch.tanh), ("linear", torch.nn.Identity())]
)
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_mlp_bridge_computes_hidden_and_cell_states_of_all_layers(
    num_layers, activation, bend, cell
):
    settings = {"type": "mlp", "num_layers": num_layers, "activation": activation}
    decoder, encoded = build(settings, cell=cell), source()
    bridge, features = decoder.bridge, encoded.summary
    assert len(bridge.relu_layers) == num_layers - 1
    for layer in bridge.relu_layers:
        features = layer(features).clamp(min=0)
    states = decoder.initial_state(encoded).wiring.cells
    assert len(states) == 2
    for index, state in enumerate(states):
        maps = [bridge.layers, bridge.cell_layers] if cell == "lstm" else [bridge.layers]
        torch.testing.assert_close(state, tuple(bend(map_[index](features)) for map_ in maps))


def test_mlp_bridge_has_the_size_of_a_projected_cell_state():
    decoder = build("mlp", cell={"type": "lstm", "cell_state_size": 9})
    for hidden, cell_state in decoder.initial_state(source()).wiring.cells:
        assert (hidden.size(-1), cell_state.size(-1)) == (4, 9)


@pytest.mark.parametrize("wiring", ["final-state", "constant-context"])
def test_first_input_is_a_step_from_zeros_whose_output_is_not_used(wiring):
    decoder = build("first-input", cell="lstm", wiring={"type": wiring}).eval()
    encoded = source()
    cells = decoder.wiring.cells.initial_state([torch.zeros(2, 4)] * 2)
    projected = decoder.bridge.projection(encoded.summary)
    context = encoded.summary if wiring == "constant-context" else None
    expected = decoder.wiring.cells(projected, cells, context)
    torch.testing.assert_close(decoder.initial_state(encoded).wiring.cells, expected)
    assert decoder(torch.tensor([[1, 5], [1, 6]]), encoded).log_probs.shape == (2, 2, 7)


def test_first_input_is_dropped_out_as_token_embeddings_are():
    decoder = build("first-input", dropout=0.5, wiring={"type": "final-state"}, embedding_size=900)
    share = (decoder.bridge.first_input(source()) == 0).float().mean()
    assert 0.4 < share < 0.6


@pytest.mark.parametrize("num_parts", [1, 2, 4])
def test_all_layers_bridge_projects_each_part_of_all_states(num_parts):
    cells = (torch.randn(2, 4), torch.randn(2, 4))
    encoded = source(final_cell_states=cells)
    decoder = build({"type": "all-layers", "num_parts": num_parts}, cell="lstm")
    for states, projection, actual in (
        (encoded.final_states, decoder.bridge.hidden_projection, decoder.bridge(encoded)),
        (cells, decoder.bridge.cell_projection, decoder.bridge.cell_states(encoded)),
    ):
        joined = [torch.cat([layer[row] for layer in states]) for row in range(2)]
        projected = [
            torch.cat([projection(part).relu() for part in row.chunk(num_parts)]) for row in joined
        ]
        expected = [torch.stack([row[start : start + 4] for row in projected]) for start in (0, 4)]
        torch.testing.assert_close(list(actual), expected)


def test_all_layers_bridge_needs_parts_of_equal_size():
    with pytest.raises(ConfigError) as caught:
        build({"type": "all-layers", "num_parts": 3})
    assert str(caught.value) == (
        "bridge.num_parts: must divide 8, the size of all states, but is 3\n  choose 1 or 2"
    )
