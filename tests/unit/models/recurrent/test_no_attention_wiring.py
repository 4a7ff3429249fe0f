"""Wirings without attention match explicit loops over the equations of their papers."""

import pytest
import torch

from heedful.models.base import EncoderOutput
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.models.recurrent.config import RecurrentDecoderConfig
from heedful.recipes import load_recipe

HIDDEN, EMBEDDED, MEMORY = 4, 3, 5
each_kind = pytest.mark.parametrize("kind", ["final-state", "constant-context"])


def build(kind, **settings):
    sizes = {"embedding_size": EMBEDDED, "hidden_size": HIDDEN, "wiring": {"type": kind}}
    config = RecurrentDecoderConfig.model_validate({**sizes, **settings})
    return config.build(vocab_size=7, memory_size=MEMORY)


def source():
    return EncoderOutput(torch.randn(2, 4, MEMORY), torch.tensor([4, 2]), torch.randn(2, MEMORY))


def test_final_state_wiring_same_as_sutskever_2014():
    decoder = build("final-state", cell="lstm", num_layers=2, pre_output={"type": "state-only"})
    encoded, tokens = source(), torch.randint(3, 7, (2, 3))
    output = decoder(tokens, encoded)
    states = [(hidden, torch.zeros_like(hidden)) for hidden in decoder.bridge(encoded)]
    for time in range(3):
        below = decoder.embedding(tokens[:, time])
        for index, cell in enumerate(decoder.wiring.cells.cells):
            first = tuple(part[None] for part in states[index])
            _, after = cell.layer(below[:, None], first)
            states[index] = tuple(part[0] for part in after)
            below = states[index][0]
        expected = decoder.output_head.projection(below).log_softmax(-1)
        torch.testing.assert_close(output.log_probs[:, time], expected)


def test_rnn_encdec_2014_same_as_appendix_a_of_cho_2014():
    """Equations of sections A.1.1 and A.1.2, a sentence at a time, in float64."""
    settings = load_recipe("rnn-encdec-2014-small").model.model_dump()
    settings["encoder"] |= {"embedding_size": 3, "hidden_size": HIDDEN}
    settings["decoder"] |= {"embedding_size": 3, "hidden_size": HIDDEN}
    settings["decoder"]["pre_output"]["size"] = 3
    config = EncoderDecoderConfig.model_validate(settings)
    model = config.build(source_vocab_size=7, target_vocab_size=7).double().eval()
    encoder, decoder = model.encoder, model.decoder
    sources, targets = torch.randint(3, 7, (2, 4)), torch.randint(3, 7, (2, 3))
    lengths = torch.tensor([4, 2])
    log_probs = decoder(targets, encoder(sources, lengths)).log_probs

    (cell,) = encoder.layers[0].cells
    V, V_target = encoder.summary_layer[0], decoder.bridge.layers[0]
    (target_cell,), combine = decoder.wiring.cells.cells, decoder.wiring.pre_output.projection
    for row, length in enumerate(lengths):
        h = torch.zeros(HIDDEN, dtype=torch.double)
        for token in sources[row, :length]:
            x = encoder.embedding(token)
            r, z = (cell.input_to_gates(x) + cell.hidden_to_gates(h)).sigmoid().chunk(2)
            new = (cell.input_to_candidate(x) + cell.hidden_to_candidate(r * h)).tanh()
            h = (1 - z) * h + z * new
        c = V(h).tanh()
        h = V_target(c).tanh()
        C_r, C_z, C_n = target_cell.context_projection(c).chunk(3)
        for time, token in enumerate(targets[row]):
            y = decoder.embedding(token)
            W_r, W_z = target_cell.input_to_gates(y).chunk(2)
            U_r, U_z = target_cell.hidden_to_gates(h).chunk(2)
            r, z = (W_r + U_r + C_r).sigmoid(), (W_z + U_z + C_z).sigmoid()
            candidate = r * (target_cell.hidden_to_candidate(h) + C_n)
            h = z * h + (1 - z) * (target_cell.input_to_candidate(y) + candidate).tanh()
            features = combine(torch.cat([h, y, c])).view(3, 2).amax(1)
            expected = decoder.output_head.projection(features).log_softmax(-1)
            torch.testing.assert_close(log_probs[row, time], expected)


@each_kind
def test_wiring_without_attention_has_zero_weights_and_no_records(kind):
    decoder, encoded = build(kind), source()
    output = decoder(torch.randint(3, 7, (2, 3)), encoded)
    assert output.weights.shape == (2, 3, 4)
    assert (output.weights == 0).all()
    assert output.attention_records == ()
    assert decoder.step(torch.tensor([1, 1]), decoder.initial_state(encoded)).weights.shape == (
        2,
        4,
    )


@each_kind
def test_wiring_without_attention_never_uses_states(kind):
    decoder, encoded, tokens = build(kind), source(), torch.randint(3, 7, (2, 3))
    broken = encoded._replace(states=torch.full_like(encoded.states, float("nan")))
    torch.testing.assert_close(decoder(tokens, broken), decoder(tokens, encoded))


def test_constant_context_depends_on_source_with_zeros_bridge():
    first, second = source(), source()
    tokens = torch.randint(3, 7, (2, 3))
    decoder = build("constant-context", bridge={"type": "zeros"})
    assert not torch.allclose(decoder(tokens, first).log_probs, decoder(tokens, second).log_probs)
