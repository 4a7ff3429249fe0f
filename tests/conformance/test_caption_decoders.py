"""Decoders of captions against their papers: NumPy loops over words and cells of a grid.

Show and tell (Vinyals et al. 2015); Show, attend and tell (Xu et al. 2015); adaptive attention (Lu
et al. 2017); and where the authors' own code departs from the last two.
"""

import numpy as np
import pytest
import torch

from heedful.models.base import EncoderOutput
from heedful.models.recurrent.config import RecurrentDecoderConfig

CELLS, CHANNELS, EMBEDDING, WORDS = 4, 6, 5, 9  # an image of 2 x 2 cells
CAPTION = [1, 5, 8, 4, 7]


def build(**settings):
    """Return a decoder with LSTM cells and large random parameters, and these by name."""
    torch.manual_seed(3)
    sizes = {"embedding_size": EMBEDDING, "hidden_size": CHANNELS, "cell": "lstm"}
    config = RecurrentDecoderConfig.model_validate({**sizes, **settings})
    decoder = config.build(vocab_size=WORDS, memory_size=CHANNELS).double().eval()
    with torch.no_grad():
        for weight in decoder.parameters():
            weight.normal_(std=0.8)
    return decoder, {name: value.numpy() for name, value in decoder.state_dict().items()}


def decode(decoder, image):
    """Return the log-probabilities and weights of the caption, (T, N) and (T, S)."""
    encoded = EncoderOutput(torch.from_numpy(image)[None], torch.tensor([CELLS]))
    output = decoder(torch.tensor([CAPTION]), encoded)
    return output.log_probs[0].detach().numpy(), output.weights[0].detach().numpy()


@pytest.fixture
def image():
    return np.random.default_rng(5).normal(size=(CELLS, CHANNELS))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(x):
    powers = np.exp(x - x.max())
    return powers / powers.sum()


def linear(weights, name, x):
    product = weights[f"{name}.weight"] @ x
    return product + weights.get(f"{name}.bias", 0)


def lstm(weights, x, state):
    """torch's order of gates: input, forget, candidate, output."""
    hidden, memory = state
    layer = {
        name.rpartition(".")[2]: value for name, value in weights.items() if ".cells.0" in name
    }
    gates = layer["weight_ih_l0"] @ x + layer["bias_ih_l0"]
    gates = gates + layer["weight_hh_l0"] @ hidden + layer["bias_hh_l0"]
    enter, forget, candidate, leave = np.split(gates, 4)
    memory = sigmoid(forget) * memory + sigmoid(enter) * np.tanh(candidate)
    return sigmoid(leave) * np.tanh(memory), memory


def word(weights, token):
    return weights["embedding.embedding.weight"][token]


def predict(weights, features):
    return np.log(softmax(linear(weights, "output_head.projection", features)))


def scores(weights, score, hidden, keys):
    """w . tanh(W_a a_i + W_h h) for each cell."""
    query = linear(weights, f"{score}.query_projection", hidden)
    vector = weights[f"{score}.score_vector.weight"][0]
    projected = [linear(weights, f"{score}.key_projection", key) for key in keys]
    return np.array([vector @ np.tanh(key + query) for key in projected])


# ----- Show and tell


def test_show_and_tell_reads_image_once_before_first_word(image):
    """x_{-1} = CNN(I); x_t = W_e S_t; p_{t+1} = LSTM(x_t)  (equations 10 to 12)."""
    decoder, weights = build(
        wiring={"type": "final-state"},
        bridge={"type": "first-input"},
        pre_output={"type": "state-only"},
    )
    zeros = np.zeros(CHANNELS)
    state = lstm(weights, linear(weights, "bridge.projection", image.mean(axis=0)), (zeros, zeros))
    log_probs, _ = decode(decoder, image)
    for token, actual in zip(CAPTION, log_probs, strict=True):
        state = lstm(weights, word(weights, token), state)
        np.testing.assert_allclose(actual, predict(weights, state[0]), rtol=1e-10)


# ----- Show, attend and tell


SHOW_ATTEND_TELL = {
    "bridge": {"type": "mlp"},
    "attention": {
        "score": {"type": "additive", "hidden_size": 7, "bias": True},
        "readout": {"type": "gated"},
    },
}


def first_state(weights, image):
    """h_0 and c_0: MLPs of the mean annotation (section 3.1.2)."""
    features = np.maximum(linear(weights, "bridge.relu_layers.0", image.mean(axis=0)), 0)
    layers = ("bridge.layers.0", "bridge.cell_layers.0")
    return tuple(np.tanh(linear(weights, layer, features)) for layer in layers)


@pytest.mark.parametrize(
    "tanh", [pytest.param(False, id="paper"), pytest.param(True, id="authors' code")]
)
def test_show_attend_and_tell_same_as_equations(image, tanh):
    decoder, weights = build(**SHOW_ATTEND_TELL, pre_output={"type": "deep-output", "tanh": tanh})
    state, attention = first_state(weights, image), "wiring.attention"
    L_h, L_z = np.split(weights["wiring.pre_output.projection.weight"], [CHANNELS], axis=1)
    for token, actual, actual_weights in zip(CAPTION, *decode(decoder, image), strict=True):
        hidden = state[0]
        alpha = softmax(scores(weights, f"{attention}.score", hidden, image))  # equations 4, 5
        beta = sigmoid(linear(weights, f"{attention}.readout.gate", hidden))  # section 4.2.1
        z = beta * sum(weight * cell for weight, cell in zip(alpha, image, strict=True))
        state = lstm(weights, np.concatenate([word(weights, token), z]), state)  # equations 1 to 3
        features = word(weights, token) + L_h @ state[0] + L_z @ z  # equation 7
        features = features + weights["wiring.pre_output.projection.bias"]
        features = np.tanh(features) if tanh else features
        np.testing.assert_allclose(actual_weights, alpha, rtol=1e-10)
        np.testing.assert_allclose(actual, predict(weights, features), rtol=1e-10)


@pytest.mark.parametrize("inference", ["hard", "expected"])
def test_hard_attention_decodes_with_one_cell_or_as_authors_code_with_all(image, inference):
    """The authors' generate_caps.py never passes `argmax`, so it uses the expected context."""
    alignment = {"alignment": {"type": "sampled", "inference": inference}}
    settings = {**SHOW_ATTEND_TELL["attention"], **alignment}
    decoder, weights = build(attention=settings, bridge={"type": "mlp"})
    state, attention = first_state(weights, image), "wiring.attention"
    _, actual = decode(decoder, image)
    for token, actual_weights in zip(CAPTION, actual, strict=True):
        alpha = softmax(scores(weights, f"{attention}.score", state[0], image))
        used = alpha if inference == "expected" else np.eye(CELLS)[alpha.argmax()]
        beta = sigmoid(linear(weights, f"{attention}.readout.gate", state[0]))
        np.testing.assert_allclose(actual_weights, used, rtol=1e-10)
        inputs = np.concatenate([word(weights, token), beta * (used @ image)])
        state = lstm(weights, inputs, state)


# ----- adaptive attention


ADAPTIVE = {
    "wiring": {"type": "adaptive"},
    "bridge": {"type": "zeros"},
    "attention": {"score": {"type": "additive", "hidden_size": 3}},
    "pre_output": {"type": "sum"},
}


def test_adaptive_attention_same_as_equations(image):
    """The paper has its own matrix W_s for the sentinel: any, not a product (section 2.3)."""
    decoder, weights = build(**ADAPTIVE)
    score = "wiring.attention.inner.score"
    W_v, W_g = (weights[f"{score}.{name}_projection.weight"] for name in ("key", "query"))
    w_h = weights[f"{score}.score_vector.weight"][0]
    W_s = np.random.default_rng(6).normal(size=(3, CHANNELS))
    key_matrix = torch.from_numpy(np.linalg.pinv(W_v) @ W_s)  # W_v times this is W_s
    decoder.wiring.sentinel_key.weight.data.copy_(key_matrix)
    W_x, W_h = np.split(weights["wiring.gate.weight"], [EMBEDDING + CHANNELS], axis=1)
    state = (np.zeros(CHANNELS), np.zeros(CHANNELS))
    for token, actual, actual_weights in zip(CAPTION, *decode(decoder, image), strict=True):
        x = np.concatenate([word(weights, token), image.mean(axis=0)])
        gate = sigmoid(W_x @ x + W_h @ state[0] + weights["wiring.gate.bias"])
        state = lstm(weights, x, state)
        hidden, memory = state
        sentinel = gate * np.tanh(memory)
        z = np.array([w_h @ np.tanh(W_v @ cell + W_g @ hidden) for cell in image])
        z_sentinel = w_h @ np.tanh(W_s @ sentinel + W_g @ hidden)
        beta = softmax(np.append(z, z_sentinel))[-1]
        context = beta * sentinel + (1 - beta) * (softmax(z) @ image)
        np.testing.assert_allclose(actual, predict(weights, context + hidden), rtol=1e-9)
        np.testing.assert_allclose(actual_weights, (1 - beta) * softmax(z), rtol=1e-9)


def test_sentinel_may_be_negative_unlike_in_authors_code(image):
    """Their sentinel passes a ReLU layer, so it cannot be negative; in the paper it can."""
    decoder, _ = build(**ADAPTIVE)
    memories = []
    decoder.wiring.attention.register_forward_hook(lambda _, args, output: memories.append(args[1]))
    decode(decoder, image)
    sentinels = torch.cat([memory.values[0, -1:] for memory in memories])
    assert len(sentinels) == len(CAPTION)
    assert (sentinels < 0).any()
    assert (sentinels.abs() < 1).all()  # a gate times a tanh
