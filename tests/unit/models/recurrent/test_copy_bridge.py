"""Models with a copy bridge match torch's LSTM stacks."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from heedful.data.text.batching import Batch, SourceBatch
from heedful.errors import ConfigError
from heedful.models.encoder_decoder import EncoderDecoderConfig

E, D, LAYERS = 3, 4, 2
SOURCES, LENGTHS = torch.tensor([[5, 6, 0, 0], [4, 7, 8, 6], [5, 0, 0, 0]]), torch.tensor([2, 4, 1])
INPUTS = torch.tensor([[1, 5, 4], [1, 8, 7], [1, 6, 6]])
DIRECTIONS = {
    "forward": {"type": "forward"},
    "reversed": {"type": "forward", "reverse_source": True},
    "both": {"type": "bidirectional"},
}
each_direction = pytest.mark.parametrize("direction", DIRECTIONS)


def system(direction="forward", encoder_cell="lstm", decoder_cell="lstm"):
    """Two layers per side; the decoder starts with the final states of the encoder."""
    sizes = {"type": "recurrent", "embedding_size": E, "hidden_size": D, "num_layers": LAYERS}
    rest = {
        "bridge": {"type": "copy"},
        "wiring": {"type": "final-state"},
        "pre_output": {"type": "state-only"},
    }
    config = EncoderDecoderConfig.model_validate(
        {
            "encoder": {**sizes, "cell": encoder_cell, "direction": DIRECTIONS[direction]},
            "decoder": {**sizes, "cell": decoder_cell, **rest},
        }
    )
    return config.build(source_vocab_size=9, target_vocab_size=9).double()


def batch(sources=SOURCES):
    return Batch(SourceBatch(sources, LENGTHS), INPUTS, INPUTS)


def cells_of(model):
    """The cells of the encoder, layer by layer and direction by direction, and of the decoder."""
    encoder_cells = [cell for layer in model.encoder.layers for cell in layer.cells]
    return encoder_cells, list(model.decoder.wiring.cells.cells)


def torch_stack(cells, *, both=False):
    """Torch's stack with the parameters of our cells."""
    size = cells[0].hidden_size
    theirs = nn.LSTM(E, size, LAYERS, batch_first=True, bidirectional=both).double()
    with torch.no_grad():
        weights = [weight for cell in cells for weight in cell.weights]
        for weight, parameter in zip(theirs.parameters(), weights, strict=True):
            weight.copy_(parameter)
    return theirs


def reversed_rows(sources):
    """Each row reversed up to its length."""
    rows = zip(sources.tolist(), LENGTHS.tolist(), strict=True)
    return torch.tensor([[*row[:length][::-1], *row[length:]] for row, length in rows])


def torch_log_probs(model, torch_encoder, torch_decoder, direction):
    """Log-probabilities from torch's stacks, on packed sources."""
    encoder_cells = reversed_rows(SOURCES) if direction == "reversed" else SOURCES
    rows = pack_padded_sequence(
        model.encoder.embedding(encoder_cells), LENGTHS, batch_first=True, enforce_sorted=False
    )
    first = [
        part.unflatten(0, (LAYERS, -1)).transpose(1, 2).flatten(2)
        for part in torch_encoder(rows)[1]
    ]
    outputs, _ = torch_decoder(model.decoder.embedding(INPUTS), tuple(first))
    return model.decoder.output_head.projection(outputs).log_softmax(-1)


@each_direction
def test_copy_bridge_same_as_torch_lstm_stacks(direction):
    model = system(direction)
    encoder_cells, decoder_cells = cells_of(model)
    torch_encoder, torch_decoder = (
        torch_stack(encoder_cells, both=direction == "both"),
        torch_stack(decoder_cells),
    )
    actual, expected = (
        model(batch()).log_probs,
        torch_log_probs(model, torch_encoder, torch_decoder, direction),
    )
    torch.testing.assert_close(actual, expected)
    shared = [model.encoder.embedding.embedding.weight, model.decoder.embedding.embedding.weight]
    ours = [weight for cell in (*encoder_cells, *decoder_cells) for weight in cell.weights]
    theirs = [*torch_encoder.parameters(), *torch_decoder.parameters()]
    weights_of_loss = torch.randn_like(actual)
    for pair in zip(
        torch.autograd.grad((actual * weights_of_loss).sum(), [*shared, *ours]),
        torch.autograd.grad((expected * weights_of_loss).sum(), [*shared, *theirs]),
        strict=True,
    ):
        torch.testing.assert_close(*pair)


@each_direction
def test_copied_cell_states_change_outputs(direction):
    model = system(direction)
    encoded = model.encoder(SOURCES, LENGTHS)
    whole = model.decoder(INPUTS, encoded).log_probs
    zeros = tuple(torch.zeros_like(cell_state) for cell_state in encoded.final_cell_states)
    for layer in range(LAYERS):
        cell_states = list(encoded.final_cell_states)
        cell_states[layer] = zeros[layer]
        actual = model.decoder(INPUTS, encoded._replace(final_cell_states=tuple(cell_states)))
        assert ((actual.log_probs - whole).abs().amax(dim=(1, 2)) > 1e-6).all()
    # Without any, memory cells begin empty.
    actual, expected = (
        model.decoder(INPUTS, encoded._replace(final_cell_states=cell_states)).log_probs
        for cell_states in ((), zeros)
    )
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize(
    ("encoder_cell", "decoder_cell", "needs_cell_states"),
    [("lstm", "lstm", True), ("lstm", "gru", False), ("gru", "lstm", True), ("gru", "gru", False)],
)
def test_encoder_returns_cell_states_only_if_decoder_uses_them(
    encoder_cell, decoder_cell, needs_cell_states
):
    model = system("both", encoder_cell, decoder_cell)
    assert model.decoder.needs_cell_states == needs_cell_states
    outputs = []
    model.encoder.register_forward_hook(lambda *arguments: outputs.append(arguments[-1]))
    assert model(batch()).log_probs.isfinite().all()
    num_returned = LAYERS if needs_cell_states and encoder_cell == "lstm" else 0
    assert [len(encoded.final_cell_states) for encoded in outputs] == [num_returned]


def test_copy_bridge_copies_cell_states_of_projected_lstms():
    cell = {"type": "lstm", "cell_state_size": 6}
    model = system(encoder_cell=cell, decoder_cell=cell)
    encoded = model.encoder(SOURCES, LENGTHS)
    state = model.decoder.initial_state(encoded)
    pairs = zip(encoded.final_states, encoded.final_cell_states, strict=True)
    torch.testing.assert_close(state.wiring.cells, tuple(pairs))
    assert encoded.final_cell_states[0].shape == (3, 6)


def test_copy_bridge_needs_equal_cell_states():
    with pytest.raises(ConfigError, match="cell states of sizes 4, 4, but they are 6, 6"):
        system(encoder_cell={"type": "lstm", "cell_state_size": 6})
