"""Wirings match the equations of their papers, step by step."""

import pytest
import torch

from heedful.attention.config import AttentionConfig
from heedful.attention.multi_head import MultiHeadConfig
from heedful.attention.scores import BilinearScoreConfig
from heedful.layers.rnn_cell_config import GRUCellConfig
from heedful.models.base import EncoderOutput
from heedful.models.recurrent.config import RecurrentDecoderConfig
from heedful.models.recurrent.decoder_parts import MaxoutPreOutputConfig
from heedful.models.recurrent.wiring import AttendThenStepConfig, StepThenAttendConfig

MEMORY, HIDDEN, EMBEDDED = 6, 4, 3
each_number_of_heads = pytest.mark.parametrize(
    "heads", [None, MultiHeadConfig(num_heads=2)], ids=str
)


def make(wiring, heads=None):
    """A wiring, its memory, its initial state and the hidden state of that."""
    config = RecurrentDecoderConfig(
        embedding_size=EMBEDDED,
        hidden_size=HIDDEN,
        wiring=wiring,
        attention=AttentionConfig(score=BilinearScoreConfig(), multi_head=heads),
    )
    built = wiring.build(config, memory_size=MEMORY)
    encoded = EncoderOutput(torch.randn(2, 3, MEMORY), torch.tensor([3, 2]), torch.randn(2, MEMORY))
    memory, hidden = built.build_memory(encoded), torch.randn(2, HIDDEN)
    return (
        built,
        memory,
        built.initial_state(built.cells.initial_state([hidden]), memory, encoded.summary),
        hidden,
    )


@each_number_of_heads
def test_attend_then_step_queries_with_last_state(heads):
    wiring, memory, state, hidden = make(AttendThenStepConfig(), heads)
    token = torch.randn(2, EMBEDDED)
    output = wiring(token, state, memory)
    context, weights, *_ = wiring.attention(hidden[:, None], memory)
    torch.testing.assert_close(output.weights, weights)
    read = torch.cat([token, context[:, 0]], -1)
    (after,) = wiring.cells.cells[0](read, (hidden,))
    torch.testing.assert_close(output.state.cells[0][0], after)
    pre_output_input = torch.cat([after, context[:, 0], token], -1)
    features = wiring.compute_features(output.pre_output_input[:, None])[:, 0]
    torch.testing.assert_close(features, wiring.pre_output.projection(pre_output_input).tanh())


@each_number_of_heads
def test_step_then_attend_queries_with_new_state(heads):
    wiring, memory, state, hidden = make(StepThenAttendConfig(input_feeding=False), heads)
    token = torch.randn(2, EMBEDDED)
    output = wiring(token, state, memory)
    (after,) = wiring.cells.cells[0](token, (hidden,))
    context, weights, *_ = wiring.attention(after[:, None], memory)
    torch.testing.assert_close(output.weights, weights)
    expected = wiring.pre_output.projection(torch.cat([context[:, 0], after], -1)).tanh()
    torch.testing.assert_close(
        wiring.compute_features(output.pre_output_input[:, None])[:, 0], expected
    )
    assert output.state.input_feed is None


def test_input_feeding_appends_last_features_to_token():
    wiring, memory, state, _ = make(StepThenAttendConfig())
    token = torch.randn(2, EMBEDDED)
    assert (state.input_feed == 0).all()
    first = wiring(token, state, memory)
    assert first.state.input_feed is first.pre_output_input
    second = wiring(token, first.state, memory)
    read = torch.cat([token, first.pre_output_input], -1)
    (after,) = wiring.cells.cells[0](read, first.state.cells[0])
    torch.testing.assert_close(second.state.cells[0][0], after)


@pytest.mark.parametrize("wiring", [AttendThenStepConfig(), StepThenAttendConfig()], ids=str)
@each_number_of_heads
def test_attention_state_is_carried(wiring, heads):
    built, memory, state, _ = make(wiring, heads)
    token = torch.randn(2, EMBEDDED)
    first = built(token, state, memory)
    second = built(token, first.state, memory)
    assert (second.state.attention_state.num_queries == 2).all()
    weights = [output.alignment.weights[..., 0, :] for output in (first, second)]
    torch.testing.assert_close(second.state.attention_state.coverage, sum(weights))


def test_attend_then_step_same_as_bahdanau_2015():
    """By an explicit loop over the equations of appendix A, for one sentence."""
    config = RecurrentDecoderConfig(
        embedding_size=EMBEDDED,
        hidden_size=HIDDEN,
        cell=GRUCellConfig(reset="before"),
        pre_output=MaxoutPreOutputConfig(size=5),
    )
    decoder = config.build(vocab_size=7, memory_size=MEMORY)
    encoded = EncoderOutput(torch.randn(1, 4, MEMORY), torch.tensor([4]), torch.randn(1, MEMORY))
    tokens = torch.tensor([[1, 5, 3]])
    actual = decoder(tokens, encoded).log_probs[0]

    score, cell = decoder.wiring.attention.score, decoder.wiring.cells.cells[0]
    W_a, U_a = score.query_projection.weight, score.key_projection.weight
    v_a = score.score_vector.weight[0]
    bias = cell.input_to_gates.bias + cell.hidden_to_gates.bias
    W_r, W_z = cell.input_to_gates.weight.chunk(2)
    U_r, U_z = cell.hidden_to_gates.weight.chunk(2)
    b_r, b_z = bias.chunk(2)
    W, U = cell.input_to_candidate.weight, cell.hidden_to_candidate.weight
    b = cell.input_to_candidate.bias + cell.hidden_to_candidate.bias
    U_o, V_o, C_o = decoder.wiring.pre_output.projection.weight.split(
        [HIDDEN, EMBEDDED, MEMORY], dim=1
    )
    b_o, W_o = decoder.wiring.pre_output.projection.bias, decoder.output_head.projection

    (s,) = (row[0] for row in decoder.bridge(encoded))
    for i, token in enumerate(tokens[0].tolist()):
        y, h = decoder.embedding.embedding.weight[token], encoded.states[0]
        e = torch.stack([v_a @ torch.tanh(W_a @ s + U_a @ h[j]) for j in range(4)])
        a = e.exp() / e.exp().sum()
        c = sum(a[j] * h[j] for j in range(4))
        read = torch.cat([y, c])
        r = torch.sigmoid(W_r @ read + U_r @ s + b_r)
        z = torch.sigmoid(W_z @ read + U_z @ s + b_z)
        t = U_o @ s + V_o @ y + C_o @ c + b_o
        t = torch.stack([max(t[2 * j], t[2 * j + 1]) for j in range(5)])
        torch.testing.assert_close(actual[i], W_o(t).log_softmax(-1))
        s = (1 - z) * s + z * torch.tanh(W @ read + U @ (r * s) + b)
