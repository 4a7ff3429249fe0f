"""ConvS2S: Gehring et al. 2017 written out place by place, and where the authors' code departs.

Sums in equations 1 and 2 have no constant in the paper; in the code each is multiplied by
sqrt(0.5), as section 3.4 has it for the sums of residual blocks. The paper divides the gradients
of the encoder's layers by the number of attentions, the code by twice that number.
"""

import math

import pytest
import torch

from heedful.models.convolutional import ConvolutionalDecoderConfig, ConvolutionalEncoderConfig

ROOT = math.sqrt(0.5)
SOURCE, TARGET = [4, 7, 5, 9, 6], [2, 8, 5, 7]
LAYERS = [
    {"num_layers": 2, "hidden_size": 4, "kernel_size": 3},
    {"hidden_size": 6, "kernel_size": 3},
    {"hidden_size": 5, "kernel_size": 1},
]
VOCABULARY = 11


def built():
    sizes = {"embedding_size": 3, "layers": LAYERS, "positional_encoding": {"type": "learned"}}
    encoder = ConvolutionalEncoderConfig(**sizes).build(vocab_size=VOCABULARY)
    decoder = ConvolutionalDecoderConfig(**sizes).build(vocab_size=VOCABULARY, memory_size=3)
    for part in (encoder.double(), decoder.double()):
        with torch.no_grad():
            for weight in part.parameters():
                weight.add_(0.4 * torch.randn_like(weight))
    return encoder, decoder


def matrix(part):
    """The weights of a convolution for each place of its window: w = g v / |v|, row by row."""
    pairs = zip(part.gain, part.direction, strict=True)
    rows = torch.stack([gain * row / (row * row).sum().sqrt() for gain, row in pairs])
    return rows.unbind(dim=-1)


def apply(part, *window):
    """b + the sum of what each matrix makes of its place."""
    made = part.bias
    for weight, vector in zip(matrix(part), window, strict=True):
        made = made + weight @ vector
    return made


def gated(layer, places, window):
    """GLU: the first half, let through by the second."""
    nothing = torch.zeros(layer.input_size, dtype=torch.double)
    seen = [places[n] if 0 <= n < len(places) else nothing for n in window]
    made = apply(layer.convolution, *seen)
    half = len(made) // 2
    return made[:half] / (1 + torch.exp(-made[half:]))


def past(layer, vector):
    return vector if layer.input_size == layer.size else apply(layer.residual_projection, vector)


def embedded(embedding, tokens):
    places = embedding.position_combiner.encoding.embedding.weight
    return [embedding.embedding.weight[token] + places[n] for n, token in enumerate(tokens)]


def read_source(encoder, words):
    """z for every word."""
    states = [apply(encoder.input_projection, word) for word in words]
    for layer in encoder.layers:
        aside = layer.kernel_size // 2
        states = [
            (past(layer, state) + gated(layer, states, range(n - aside, n + aside + 1))) * ROOT
            for n, state in enumerate(states)
        ]
    return [apply(encoder.output_projection, state) for state in states]


def attend(layer, hidden, word, keys, words, constant):
    """The context of one place: equations 1 and 2, with a constant for the sums in them."""
    query = (apply(layer.query_projection, hidden) + word) * constant
    scores = [torch.dot(query, key).exp() for key in keys]
    shares = [score / sum(scores) for score in scores]
    pairs = zip(shares, keys, words, strict=True)
    context = sum(share * (key + own) * constant for share, key, own in pairs)
    length = len(keys)
    return context * length * math.sqrt(1 / length), torch.stack(shares)


def write_target(decoder, tokens, keys, words, constant):
    """What is said at every place, and where each layer looked."""
    inputs = embedded(decoder.embedding, tokens)
    states, looked = [apply(decoder.input_projection, word) for word in inputs], []
    for layer in decoder.layers:
        conv, after = layer.layer, []
        for n, state in enumerate(states):
            hidden = gated(conv, states, range(n - conv.kernel_size + 1, n + 1))
            context, shares = attend(layer, hidden, inputs[n], keys, words, constant)
            told = (hidden + apply(layer.context_projection, context)) * ROOT
            after.append((past(conv, state) + told) * ROOT)
            looked.append(shares)
        states = after
    output_head = decoder.output_head.projection
    logits = [output_head(apply(decoder.output_projection, state)) for state in states]
    said = [each - each.exp().sum().log() for each in logits]
    weights = torch.stack(looked).unflatten(0, (len(decoder.layers), -1))
    return torch.stack(said), weights.mean(dim=0)


def ours(encoder, decoder):
    encoded = encoder(torch.tensor([SOURCE]), torch.tensor([len(SOURCE)]))
    return encoded, decoder(torch.tensor([TARGET]), encoded, need_weights=True)


def test_the_encoder_is_the_papers_place_by_place():
    encoder, decoder = built()
    words = embedded(encoder.embedding, SOURCE)
    keys = read_source(encoder, words)
    encoded, _ = ours(encoder, decoder)
    torch.testing.assert_close(encoded.keys[0], torch.stack(keys))
    torch.testing.assert_close(encoded.states[0], (torch.stack(keys) + torch.stack(words)) * ROOT)


def test_the_decoder_is_the_authors_place_by_place():
    encoder, decoder = built()
    words = embedded(encoder.embedding, SOURCE)
    said, weights = write_target(decoder, TARGET, read_source(encoder, words), words, ROOT)
    _, found = ours(encoder, decoder)
    torch.testing.assert_close(found.log_probs[0], said)
    torch.testing.assert_close(found.weights[0], weights)


def test_without_constants_equations_1_and_2_look_elsewhere():
    encoder, decoder = built()
    words = embedded(encoder.embedding, SOURCE)
    _, weights = write_target(decoder, TARGET, read_source(encoder, words), words, 1.0)
    _, found = ours(encoder, decoder)
    assert (found.weights[0] - weights).abs().max() > 1e-3


def test_one_layer_asks_as_in_the_paper_with_what_is_multiplied_out():
    # softmax(sqrt(0.5) (W h + b + g) . z) is the paper's, if keys are multiplied by the constant.
    encoder, decoder = built()
    words = embedded(encoder.embedding, SOURCE)
    keys = read_source(encoder, words)
    layer, hidden, word = decoder.layers[0], torch.randn(4).double(), words[0]
    _, code = attend(layer, hidden, word, keys, words, ROOT)
    _, paper = attend(layer, hidden, word, [key * ROOT for key in keys], words, 1.0)
    torch.testing.assert_close(code, paper)


@pytest.fixture
def gradients():
    """Of a loss: those of every weight of our encoder, and those of z and e from the loops."""
    encoder, decoder = built()
    _, found = ours(encoder, decoder)
    weights = list(encoder.parameters())
    mine = torch.autograd.grad(found.log_probs.sin().sum(), weights)
    words = embedded(encoder.embedding, SOURCE)
    keys = read_source(encoder, words)
    cut = [[each.detach().requires_grad_() for each in part] for part in (keys, words)]
    said, _ = write_target(decoder, TARGET, *cut, ROOT)
    of_keys, of_words = (
        torch.autograd.grad(said.sin().sum(), part, retain_graph=True) for part in cut
    )
    return weights, mine, (keys, of_keys), (words, of_words), len(decoder.layers)


def through(weights, parts, gradients, share):
    return torch.autograd.grad(
        parts,
        weights,
        [each * share for each in gradients],
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )


def test_the_encoders_layers_get_the_mean_of_what_the_attentions_send_and_words_their_sum(
    gradients,
):
    weights, mine, keys, words, num_attentions = gradients
    of_keys = through(weights, *keys, 1 / num_attentions)
    of_words = through(weights, *words, 1)
    for found, *wanted in zip(mine, of_keys, of_words, strict=True):
        torch.testing.assert_close(found, sum(wanted))


def test_the_authors_code_halves_that_mean(gradients):
    weights, mine, keys, words, num_attentions = gradients
    of_keys = through(weights, *keys, 1 / (2 * num_attentions))
    of_words = through(weights, *words, 1)
    apart = [
        (found - sum(wanted)).abs().max()
        for found, *wanted in zip(mine, of_keys, of_words, strict=True)
    ]
    assert max(apart) > 1e-3
