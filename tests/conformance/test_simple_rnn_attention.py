"""The recipe simple-rnn-attention computes the equations of the lectures, here written as loops.

h_i = tanh(A [x_i; h_{i-1}] + b), s_0 = h_m; c_j = sum_i alpha_i h_i with alpha_i = softmax of the
similarity of h_i and s_j; s_{j+1} = tanh(A' [x'_{j+1}; s_j; c_j] + b).
"""

import pytest
import torch

from heedful.data.text.batching import SourceBatch
from heedful.recipes import load_recipe

SIZES = ["model.encoder.hidden_size=5", "model.decoder.hidden_size=5"]


def concatenation(parameters, state, query):
    score = "decoder.wiring.attention.score."
    layer = parameters[f"{score}projection.weight"] @ torch.cat([query, state])
    return parameters[f"{score}score_vector.weight"][0] @ layer.tanh()


def two_linear_maps(parameters, state, query):
    score = "decoder.wiring.attention.score."
    mapped_state = parameters[f"{score}key_projection.weight"] @ state
    return mapped_state @ (parameters[f"{score}query_projection.weight"] @ query)


def rnn_step(parameters, prefix, inputs, state):
    matrix = torch.cat(
        [parameters[f"{prefix}.weight_ih_l0"], parameters[f"{prefix}.weight_hh_l0"]], dim=1
    )
    bias = parameters[f"{prefix}.bias_ih_l0"] + parameters[f"{prefix}.bias_hh_l0"]
    return (matrix @ torch.cat([inputs, state]) + bias).tanh()


@pytest.mark.parametrize(
    ("score", "similarity"), [("concat", concatenation), ("projected-dot", two_linear_maps)]
)
def test_weights_and_states_are_those_of_the_equations(score, similarity):
    torch.manual_seed(0)
    overrides = [*SIZES, f"model.decoder.attention.score.type={score}"]
    recipe = load_recipe("simple-rnn-attention-small", overrides)
    model = recipe.model.build(source_vocab_size=9, target_vocab_size=9).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2)
    parameters = model.state_dict()
    source, target = [4, 6, 5, 8], [1, 7, 4]

    states, state = [], torch.zeros(5).double()
    for token in source:
        embedded = parameters["encoder.embedding.embedding.weight"][token]
        state = rnn_step(parameters, "encoder.layers.0.forward_cell.layer", embedded, state)
        states.append(state)
    expected = []
    for token in target:
        scores = torch.stack([similarity(parameters, other, state) for other in states])
        weights = scores.exp() / scores.exp().sum()
        context = sum(weight * other for weight, other in zip(weights, states, strict=True))
        embedded = parameters["decoder.embedding.embedding.weight"][token]
        inputs = torch.cat([embedded, context])
        state = rnn_step(parameters, "decoder.wiring.cells.cells.0.layer", inputs, state)
        expected.append(weights)

    sources = SourceBatch(torch.tensor([source]), torch.tensor([len(source)]))
    encoded = model.encoder(sources.tokens, sources.lengths)
    torch.testing.assert_close(encoded.states[0], torch.stack(states))
    decoded = model.decoder(torch.tensor([target]), encoded, need_weights=True)
    torch.testing.assert_close(decoded.weights[0], torch.stack(expected))
    assert torch.stack(expected).std(dim=0).max() > 0.01  # they differ between steps
