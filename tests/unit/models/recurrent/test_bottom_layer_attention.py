"""Bottom-layer attention matches an explicit loop over GNMT's equations."""

import torch

from heedful.models.base import EncoderOutput
from heedful.models.recurrent.config import RecurrentDecoderConfig

HIDDEN, EMBEDDED, MEMORY = 4, 3, 5
SETTINGS = {
    "embedding_size": EMBEDDED,
    "hidden_size": HIDDEN,
    "cell": "lstm",
    "num_layers": 3,
    "wiring": {"type": "bottom-layer-attention"},
    "pre_output": {"type": "state-only"},
}


def build(**settings):
    config = RecurrentDecoderConfig.model_validate({**SETTINGS, **settings})
    return config.build(vocab_size=7, memory_size=MEMORY)


def source():
    return EncoderOutput(torch.randn(2, 4, MEMORY), torch.tensor([4, 2]), torch.randn(2, MEMORY))


def test_bottom_layer_attention_same_as_gnmt_equations():
    """Residuals from layer 3 on: x^i = m^i + x^{i-1}, m^i being the output of the cell."""
    decoder, encoded, tokens = build(first_residual_layer=3), source(), torch.randint(3, 7, (2, 3))
    output = decoder(tokens, encoded)
    cells = [each.layer for each in decoder.wiring.cells.cells[:2]]
    cells.append(decoder.wiring.cells.cells[2].cell.layer)
    states = [(hidden, torch.zeros_like(hidden)) for hidden in decoder.bridge(encoded)]
    memory = decoder.wiring.build_memory(encoded)
    for time in range(3):
        attention_output = decoder.wiring.attention(states[0][0][:, None], memory)
        context = attention_output.context[:, 0]
        below, residual = decoder.embedding(tokens[:, time]), None
        for index, layer in enumerate(cells):
            read = torch.cat([below, context], -1)[:, None]
            first = tuple(part[None] for part in states[index])
            _, (hidden, cell) = layer(read, first)
            states[index] = (hidden[0], cell[0])
            residual = below if index == 2 else 0
            below = hidden[0] + residual
        expected = decoder.output_head.projection(below).log_softmax(-1)
        torch.testing.assert_close(output.log_probs[:, time], expected)
        torch.testing.assert_close(output.weights[:, time], attention_output.weights[:, 0])


def test_bottom_layer_attention_with_one_layer_is_attend_then_step():
    one = build(num_layers=1)
    other = build(num_layers=1, wiring={"type": "attend-then-step"})
    other.load_state_dict(one.state_dict())
    encoded, tokens = source(), torch.randint(3, 7, (2, 5))
    torch.testing.assert_close(one(tokens, encoded)[:2], other(tokens, encoded)[:2])
