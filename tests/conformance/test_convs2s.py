"""ConvS2S (Gehring et al. 2017) against loops over positions, and where the authors' code departs.

Sums in equations 1 and 2 have no constant in the paper; in the code each is multiplied by
sqrt(0.5), as in section 3.4 for residual blocks. The paper divides the gradients of the encoder by
the number of attention layers, the code by twice that number.
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


def build_model():
    sizes = {"embedding_size": 3, "layers": LAYERS, "positional_encoding": {"type": "learned"}}
    encoder = ConvolutionalEncoderConfig(**sizes).build(vocab_size=VOCABULARY)
    decoder = ConvolutionalDecoderConfig(**sizes).build(vocab_size=VOCABULARY, memory_size=3)
    for part in (encoder.double(), decoder.double()):
        with torch.no_grad():
            for weight in part.parameters():
                weight.add_(0.4 * torch.randn_like(weight))
    return encoder, decoder


def matrix(part):
    """Return the matrices of a convolution kernel: w = g v / |v|, row by row."""
    pairs = zip(part.gain, part.direction, strict=True)
    rows = torch.stack([gain * row / (row * row).sum().sqrt() for gain, row in pairs])
    return rows.unbind(dim=-1)


def apply(part, *window):
    """b + the sum of all matrix products."""
    result = part.bias
    for weight, vector in zip(matrix(part), window, strict=True):
        result = result + weight @ vector
    return result


def gated(layer, positions, window):
    """GLU: the first half gated by the second."""
    nothing = torch.zeros(layer.input_size, dtype=torch.double)
    window_vectors = [positions[n] if 0 <= n < len(positions) else nothing for n in window]
    result = apply(layer.convolution, *window_vectors)
    half = len(result) // 2
    return result[:half] / (1 + torch.exp(-result[half:]))


def residual(layer, vector):
    return vector if layer.input_size == layer.size else apply(layer.residual_projection, vector)


def embedded(embedding, tokens):
    positions = embedding.position_combiner.encoding.embedding.weight
    return [embedding.embedding.weight[token] + positions[n] for n, token in enumerate(tokens)]


def encode_source(encoder, words):
    """z for every word."""
    states = [apply(encoder.input_projection, word) for word in words]
    for layer in encoder.layers:
        padding = layer.kernel_size // 2
        states = [
            (residual(layer, state) + gated(layer, states, range(n - padding, n + padding + 1)))
            * ROOT
            for n, state in enumerate(states)
        ]
    return [apply(encoder.output_projection, state) for state in states]


def attend(layer, hidden, word, keys, words, constant):
    """The context of one position: equations 1 and 2, with a constant for the sums in them."""
    query = (apply(layer.query_projection, hidden) + word) * constant
    scores = [torch.dot(query, key).exp() for key in keys]
    attention_weights = [score / sum(scores) for score in scores]
    pairs = zip(attention_weights, keys, words, strict=True)
    context = sum(share * (key + query) * constant for share, key, query in pairs)
    length = len(keys)
    return context * length * math.sqrt(1 / length), torch.stack(attention_weights)


def decode_target(decoder, tokens, keys, words, constant):
    """Return the log-probabilities and the mean attention weights of all layers."""
    inputs = embedded(decoder.embedding, tokens)
    states, weights_by_layer = [apply(decoder.input_projection, word) for word in inputs], []
    for layer in decoder.layers:
        conv, after = layer.layer, []
        for n, state in enumerate(states):
            hidden = gated(conv, states, range(n - conv.kernel_size + 1, n + 1))
            context, attention_weights = attend(layer, hidden, inputs[n], keys, words, constant)
            update = (hidden + apply(layer.context_projection, context)) * ROOT
            after.append((residual(conv, state) + update) * ROOT)
            weights_by_layer.append(attention_weights)
        states = after
    output_head = decoder.output_head.projection
    logits = [output_head(apply(decoder.output_projection, state)) for state in states]
    log_probs = [item - item.exp().sum().log() for item in logits]
    weights = torch.stack(weights_by_layer).unflatten(0, (len(decoder.layers), -1))
    return torch.stack(log_probs), weights.mean(dim=0)


def run_model(encoder, decoder):
    encoded = encoder(torch.tensor([SOURCE]), torch.tensor([len(SOURCE)]))
    return encoded, decoder(torch.tensor([TARGET]), encoded, need_weights=True)


def test_encoder_same_as_paper_position_by_position():
    encoder, decoder = build_model()
    words = embedded(encoder.embedding, SOURCE)
    keys = encode_source(encoder, words)
    encoded, _ = run_model(encoder, decoder)
    torch.testing.assert_close(encoded.keys[0], torch.stack(keys))
    torch.testing.assert_close(encoded.states[0], (torch.stack(keys) + torch.stack(words)) * ROOT)


def test_decoder_same_as_authors_code_position_by_position():
    encoder, decoder = build_model()
    words = embedded(encoder.embedding, SOURCE)
    log_probs, weights = decode_target(decoder, TARGET, encode_source(encoder, words), words, ROOT)
    _, actual = run_model(encoder, decoder)
    torch.testing.assert_close(actual.log_probs[0], log_probs)
    torch.testing.assert_close(actual.weights[0], weights)


def test_weights_differ_without_scaling_constants():
    encoder, decoder = build_model()
    words = embedded(encoder.embedding, SOURCE)
    _, weights = decode_target(decoder, TARGET, encode_source(encoder, words), words, 1.0)
    _, actual = run_model(encoder, decoder)
    assert (actual.weights[0] - weights).abs().max() > 1e-3


def test_one_layer_same_as_paper_with_rescaled_keys():
    # softmax(sqrt(0.5) (W h + b + g) . z) equals the paper's with keys times the constant.
    encoder, decoder = build_model()
    words = embedded(encoder.embedding, SOURCE)
    keys = encode_source(encoder, words)
    layer, hidden, word = decoder.layers[0], torch.randn(4).double(), words[0]
    _, code = attend(layer, hidden, word, keys, words, ROOT)
    _, paper = attend(layer, hidden, word, [key * ROOT for key in keys], words, 1.0)
    torch.testing.assert_close(code, paper)


@pytest.fixture
def gradients():
    """Gradients of a loss: of all encoder parameters, and of z and e in the loops."""
    encoder, decoder = build_model()
    _, actual = run_model(encoder, decoder)
    weights = list(encoder.parameters())
    mine = torch.autograd.grad(actual.log_probs.sin().sum(), weights)
    words = embedded(encoder.embedding, SOURCE)
    keys = encode_source(encoder, words)
    leaves = [[item.detach().requires_grad_() for item in part] for part in (keys, words)]
    log_probs, _ = decode_target(decoder, TARGET, *leaves, ROOT)
    of_keys, of_words = (
        torch.autograd.grad(log_probs.sin().sum(), part, retain_graph=True) for part in leaves
    )
    return weights, mine, (keys, of_keys), (words, of_words), len(decoder.layers)


def gradients_through(weights, parts, gradients, share):
    return torch.autograd.grad(
        parts,
        weights,
        [item * share for item in gradients],
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )


def test_encoder_gradient_is_mean_over_attentions_and_embedding_gradient_sum(
    gradients,
):
    weights, mine, keys, words, num_attentions = gradients
    of_keys = gradients_through(weights, *keys, 1 / num_attentions)
    of_words = gradients_through(weights, *words, 1)
    for actual, *expected in zip(mine, of_keys, of_words, strict=True):
        torch.testing.assert_close(actual, sum(expected))


def test_authors_code_halves_encoder_gradient(gradients):
    weights, mine, keys, words, num_attentions = gradients
    of_keys = gradients_through(weights, *keys, 1 / (2 * num_attentions))
    of_words = gradients_through(weights, *words, 1)
    separate = [
        (actual - sum(expected)).abs().max()
        for actual, *expected in zip(mine, of_keys, of_words, strict=True)
    ]
    assert max(separate) > 1e-3
