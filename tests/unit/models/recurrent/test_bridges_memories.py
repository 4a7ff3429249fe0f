"""Systems that begin where the encoder ended, against torch's own stacks of LSTMs."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from heedful.data.batching import Batch, SourceBatch
from heedful.models.encoder_decoder import EncoderDecoderConfig

E, D, LAYERS = 3, 4, 2
SOURCES, LENGTHS = torch.tensor([[5, 6, 0, 0], [4, 7, 8, 6], [5, 0, 0, 0]]), torch.tensor([2, 4, 1])
INPUTS = torch.tensor([[1, 5, 4], [1, 8, 7], [1, 6, 6]])
DIRECTIONS = {
    "forwards": {"type": "forward"},
    "reversed": {"type": "forward", "reverse_source": True},
    "both": {"type": "bidirectional"},
}
each_direction = pytest.mark.parametrize("direction", DIRECTIONS)


def system(direction="forwards", encoder_cell="lstm", decoder_cell="lstm"):
    """Two layers a side, the last states of one being the first of the other."""
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


def cells(model):
    """Those of the encoder, each direction of a layer after the other, and of the decoder."""
    read = [cell for layer in model.encoder.layers for cell in layer.cells]
    return read, list(model.decoder.wiring.cells.cells)


def torch_stack(own, *, both=False):
    """Torch's stack with the weights of our cells."""
    size = own[0].hidden_size
    theirs = nn.LSTM(E, size, LAYERS, batch_first=True, bidirectional=both).double()
    with torch.no_grad():
        weights = [weight for cell in own for weight in cell.weights]
        for weight, given in zip(theirs.parameters(), weights, strict=True):
            weight.copy_(given)
    return theirs


def turned(sources):
    """Each row turned round, its padding where it was."""
    rows = zip(sources.tolist(), LENGTHS.tolist(), strict=True)
    return torch.tensor([[*row[:length][::-1], *row[length:]] for row, length in rows])


def by_torch(model, reader, writer, direction):
    """Log-probabilities: packed rows are read, and what was kept is gone on from."""
    read = turned(SOURCES) if direction == "reversed" else SOURCES
    rows = pack_padded_sequence(
        model.encoder.embedding(read), LENGTHS, batch_first=True, enforce_sorted=False
    )
    first = [part.unflatten(0, (LAYERS, -1)).transpose(1, 2).flatten(2) for part in reader(rows)[1]]
    outputs, _ = writer(model.decoder.embedding(INPUTS), tuple(first))
    return model.decoder.output_head.projection(outputs).log_softmax(-1)


@each_direction
def test_outputs_and_gradients_are_those_of_torchs_stacks(direction):
    model = system(direction)
    read, written = cells(model)
    reader, writer = torch_stack(read, both=direction == "both"), torch_stack(written)
    found, wanted = model(batch()).log_probs, by_torch(model, reader, writer, direction)
    torch.testing.assert_close(found, wanted)
    shared = [model.encoder.embedding.embedding.weight, model.decoder.embedding.embedding.weight]
    ours = [weight for cell in (*read, *written) for weight in cell.weights]
    theirs = [*reader.parameters(), *writer.parameters()]
    told = torch.randn_like(found)
    for pair in zip(
        torch.autograd.grad((found * told).sum(), [*shared, *ours]),
        torch.autograd.grad((wanted * told).sum(), [*shared, *theirs]),
        strict=True,
    ):
        torch.testing.assert_close(*pair)


@each_direction
def test_padding_has_no_influence(direction):
    model = system(direction)
    wide = torch.cat([SOURCES, torch.zeros(3, 5, dtype=torch.long)], dim=1)
    torch.testing.assert_close(model(batch(wide)).log_probs, model(batch()).log_probs)


@each_direction
def test_memories_that_are_handed_over_matter(direction):
    model = system(direction)
    encoded = model.encoder(SOURCES, LENGTHS)
    whole = model.decoder(INPUTS, encoded).log_probs
    nothing = tuple(torch.zeros_like(memory) for memory in encoded.final_cell_states)
    for layer in range(LAYERS):
        forgotten = list(encoded.final_cell_states)
        forgotten[layer] = nothing[layer]
        found = model.decoder(INPUTS, encoded._replace(final_cell_states=tuple(forgotten)))
        assert ((found.log_probs - whole).abs().amax(dim=(1, 2)) > 1e-6).all()
    # Without any, memory cells begin empty.
    found, wanted = (
        model.decoder(INPUTS, encoded._replace(final_cell_states=memories)).log_probs
        for memories in ((), nothing)
    )
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("encoder_cell", "decoder_cell", "keeps"),
    [("lstm", "lstm", True), ("lstm", "gru", False), ("gru", "lstm", True), ("gru", "gru", False)],
)
def test_an_encoder_is_asked_for_memories_where_the_decoder_has_room(
    encoder_cell, decoder_cell, keeps
):
    model = system("both", encoder_cell, decoder_cell)
    assert model.encoder.returns_cell_states == keeps
    told = model.encoder(SOURCES, LENGTHS).final_cell_states
    assert len(told) == (LAYERS if keeps and encoder_cell == "lstm" else 0)
    assert model(batch()).log_probs.isfinite().all()


def test_a_gru_begins_with_what_is_seen_at_the_end_which_is_all_there_is():
    model = system("both", "gru", "gru")
    encoded = model.encoder(SOURCES, LENGTHS)
    first = model.decoder.initial_state(encoded).wiring.cells
    torch.testing.assert_close(first, tuple((end,) for end in encoded.final_states))
