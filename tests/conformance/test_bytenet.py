"""ByteNet: Kalchbrenner et al. 2016 written out place by place, with ReLUs as for translation."""

import pytest
import torch

from heedful.models.bytenet import DilatedDecoderConfig, DilatedEncoderConfig

SOURCE, TARGET = [4, 7, 5, 9, 6], [2, 8, 5, 7, 7, 9, 10, 4]
SIZES = {"hidden_size": 3, "dilations": (1, 2), "num_repeats": 2}
VOCABULARY = 11


def built():
    unfolding = {"length_factor": 1.2, "length_offset": 1}  # 5 places become 7
    encoder = DilatedEncoderConfig(**SIZES, **unfolding).build(vocab_size=VOCABULARY)
    decoder = DilatedDecoderConfig(**SIZES).build(vocab_size=VOCABULARY, memory_size=6)
    for part in (encoder.double(), decoder.double()):
        with torch.no_grad():
            for weight in part.parameters():
                weight.add_(0.4 * torch.randn_like(weight))
            part.embedding.embedding.weight[0] = 0
    return encoder, decoder


def activated(norm, vector):
    """ReLU of the norm over the numbers of one place."""
    away = vector - vector.sum() / len(vector)
    spread = ((away * away).sum() / len(vector) + norm.eps).sqrt()
    return (away / spread * norm.weight + norm.bias).clamp(min=0)


def matrix(layer, vector):
    return layer.weight @ vector + layer.bias


def block(part, states, offsets):
    """One residual block; `offsets` are those of the places that the convolution puts together."""
    first, _, narrow, second, _ = part.reduce
    third, _, widen = part.expand
    inner = [activated(second, matrix(narrow, activated(first, state))) for state in states]
    after = []
    for place, state in enumerate(states):
        made = part.convolution.bias
        for number, offset in enumerate(offsets):
            if 0 <= place + offset < len(states):
                made = made + part.convolution.weight[..., number] @ inner[place + offset]
        after.append(state + matrix(widen, activated(third, made)))
    return after


def unfold(encoder, tokens, length):
    """What the encoder makes of every place, the source filled up with zeros to its length."""
    table = encoder.embedding.embedding.weight
    states = [table[token] for token in tokens]
    states += [torch.zeros(6, dtype=torch.double)] * (length - len(tokens))
    for part, dilation in zip(encoder.stack.blocks, (1, 2, 1, 2), strict=True):
        states = block(part, states, (-dilation, 0, dilation))
    return states


def write(decoder, tokens, unfolded):
    """What is said after each token."""
    states = [decoder.embedding.embedding.weight[token] for token in tokens]
    pairs = zip(states, unfolded, strict=False)
    states = [state + own for state, own in pairs] + states[len(unfolded) :]
    for part, dilation in zip(decoder.stack.blocks, (1, 2, 1, 2), strict=True):
        states = block(part, states, (-2 * dilation, -dilation, 0))
    norm = decoder.output_layers[0]
    logits = [matrix(decoder.output_head.projection, activated(norm, state)) for state in states]
    return torch.stack([each - each.exp().sum().log() for each in logits])


def encode(encoder):
    return encoder(torch.tensor([SOURCE]), torch.tensor([len(SOURCE)]))


def test_the_encoder_is_the_papers_place_by_place():
    encoder, _ = built()
    encoded, wanted = encode(encoder), torch.stack(unfold(encoder, SOURCE, 7))
    torch.testing.assert_close(encoded.unfolded[0], wanted)
    torch.testing.assert_close(encoded.states[0], wanted[:5])


@pytest.mark.parametrize("length", [3, 7, 8], ids=["shorter", "as long", "longer than unfolded"])
def test_the_decoder_is_the_papers_place_by_place(length):
    encoder, decoder = built()
    said = decoder(torch.tensor([TARGET[:length]]), encode(encoder)).log_probs[0]
    torch.testing.assert_close(said, write(decoder, TARGET[:length], unfold(encoder, SOURCE, 7)))
