"""ByteNet (Kalchbrenner et al. 2016) against loops over positions, with ReLUs."""

import pytest
import torch

from heedful.models.bytenet import DilatedDecoderConfig, DilatedEncoderConfig

SOURCE, TARGET = [4, 7, 5, 9, 6], [2, 8, 5, 7, 7, 9, 10, 4]
SIZES = {"hidden_size": 3, "dilations": (1, 2), "num_repeats": 2}
VOCABULARY = 11


def build_model():
    unfolding = {"length_factor": 1.2, "length_offset": 1}  # 5 positions become 7
    encoder = DilatedEncoderConfig(**SIZES, **unfolding).build(vocab_size=VOCABULARY)
    decoder = DilatedDecoderConfig(**SIZES).build(vocab_size=VOCABULARY, memory_size=6)
    for module in (encoder.double(), decoder.double()):
        with torch.no_grad():
            for weight in module.parameters():
                weight.add_(0.4 * torch.randn_like(weight))
            module.embedding.embedding.weight[0] = 0
    return encoder, decoder


def activated(norm, vector):
    """Return the ReLU of the layer norm of one position."""
    centered = vector - vector.sum() / len(vector)
    deviation = ((centered * centered).sum() / len(vector) + norm.eps).sqrt()
    return (centered / deviation * norm.weight + norm.bias).clamp(min=0)


def matrix(layer, vector):
    return layer.weight @ vector + layer.bias


def block(module, states, offsets):
    """Apply one residual block; `offsets` are the positions of the convolution kernel."""
    first_norm, _, down, second_norm, _ = module.reduce
    third_norm, _, up = module.expand
    inner = [activated(second_norm, matrix(down, activated(first_norm, state))) for state in states]
    outputs = []
    for position, state in enumerate(states):
        result = module.convolution.bias
        for index, offset in enumerate(offsets):
            if 0 <= position + offset < len(states):
                result = result + module.convolution.weight[..., index] @ inner[position + offset]
        outputs.append(state + matrix(up, activated(third_norm, result)))
    return outputs


def encode_positions(encoder, tokens, length):
    """Encode every position of the source, zero-padded to `length`."""
    table = encoder.embedding.embedding.weight
    states = [table[token] for token in tokens]
    states += [torch.zeros(6, dtype=torch.double)] * (length - len(tokens))
    for module, dilation in zip(encoder.stack.blocks, (1, 2, 1, 2), strict=True):
        states = block(module, states, (-dilation, 0, dilation))
    return states


def decode(decoder, tokens, unfolded):
    """Return the log-probabilities after each token."""
    states = [decoder.embedding.embedding.weight[token] for token in tokens]
    pairs = zip(states, unfolded, strict=False)
    states = [state + source_state for state, source_state in pairs] + states[len(unfolded) :]
    for module, dilation in zip(decoder.stack.blocks, (1, 2, 1, 2), strict=True):
        states = block(module, states, (-2 * dilation, -dilation, 0))
    norm = decoder.output_layers[0]
    logits = [matrix(decoder.output_head.projection, activated(norm, state)) for state in states]
    return torch.stack([item - item.exp().sum().log() for item in logits])


def encode(encoder):
    return encoder(torch.tensor([SOURCE]), torch.tensor([len(SOURCE)]))


def test_encoder_same_as_paper_position_by_position():
    encoder, _ = build_model()
    encoded, expected = encode(encoder), torch.stack(encode_positions(encoder, SOURCE, 7))
    torch.testing.assert_close(encoded.unfolded[0], expected)
    torch.testing.assert_close(encoded.states[0], expected[:5])


@pytest.mark.parametrize("length", [3, 7, 8], ids=["shorter", "as long", "longer than unfolded"])
def test_decoder_same_as_paper_position_by_position(length):
    encoder, decoder = build_model()
    log_probs = decoder(torch.tensor([TARGET[:length]]), encode(encoder)).log_probs[0]
    torch.testing.assert_close(
        log_probs, decode(decoder, TARGET[:length], encode_positions(encoder, SOURCE, 7))
    )
