"""Self-attentive cells match explicit loops over their equations.

In the loops `history[i]` is h_{i+1}, and capitals are the matrices that a formula names.
"""

import pytest
import torch

from heedful.inspection.attention_trace import trace_attention
from heedful.layers.rnn import unroll_outputs, unroll_steps
from heedful.layers.self_attentive_cells import (
    AdditiveIntraAttentionConfig,
    LSTMNCell,
    SelfAttentiveCell,
    SelfAttentiveLSTMCell,
    SimilarityIntraAttentionConfig,
)

E, D, A, ROWS, STEPS = 3, 4, 5, 2, 6
SIZES = {"input_size": E, "hidden_size": D}
LSTMS = [SelfAttentiveLSTMCell, LSTMNCell]


def additive():
    return AdditiveIntraAttentionConfig(hidden_size=A).build(**SIZES)


def similarity(**score):
    return SimilarityIntraAttentionConfig.model_validate({"score": score}).build(**SIZES)


def make(kind, intra_attention):
    cell = kind(E, D, intra_attention).double()
    with torch.no_grad():
        for weight in cell.parameters():
            weight.mul_(3)  # attention far from uniform
    return cell


def inputs(size=E):
    return torch.randn(ROWS, STEPS, size, dtype=torch.double)


def zeros():
    return torch.zeros(D, dtype=torch.double)


def mean(scores, vectors):
    """The mean of the vectors, weighted by softmax(scores)."""
    powers = [torch.exp(score) for score in scores]
    return sum(power / sum(powers) * vector for power, vector in zip(powers, vectors, strict=True))


def v_tanh(intra_attention):
    """v . tanh(W_x x + W_c c + W_h h)."""
    score = intra_attention.attention.score
    W_x, W_c = score.query_projection.weight.split([E, D], dim=1)
    W_h, v = score.key_projection.weight, score.score_vector.weight[0]
    return lambda x, c, h: v @ torch.tanh(W_x @ x + W_c @ c + W_h @ h)


def outputs_of(cell, sequences, first=None):
    first = torch.zeros(len(sequences), D, dtype=torch.double) if first is None else first
    return unroll_outputs(cell, sequences, cell.initial_state(first))


def test_similarity_cell_same_as_equations():
    intra_attention = similarity(type="projected-dot", hidden_size=A)
    cell, sequences = make(SelfAttentiveCell, intra_attention), inputs()
    W_s, W_h = (
        getattr(intra_attention.attention.score, name).weight
        for name in ("query_projection", "key_projection")
    )
    x_to_h = cell.input_to_hidden
    A_x, A_c, b = x_to_h.weight, cell.context_to_hidden.weight, x_to_h.bias
    actual = outputs_of(cell, sequences)
    for row in range(ROWS):
        c, history = zeros(), []
        for t in range(STEPS):
            h = torch.tanh(A_x @ sequences[row, t] + A_c @ c + b)
            torch.testing.assert_close(actual[row, t], h)
            history.append(h)
            c = h if t == 0 else mean([(W_h @ each) @ (W_s @ c) for each in history], history)


def test_additive_cell_same_as_equations():
    intra_attention = additive()
    cell, sequences = make(SelfAttentiveCell, intra_attention), inputs()
    score = v_tanh(intra_attention)
    x_to_h = cell.input_to_hidden
    A_x, A_c, b = x_to_h.weight, cell.context_to_hidden.weight, x_to_h.bias
    actual = outputs_of(cell, sequences)
    for row in range(ROWS):
        c, history = zeros(), []
        for t, x in enumerate(sequences[row]):
            if history:
                c = mean([score(x, c, each) for each in history], history)
            h = torch.tanh(A_x @ x + A_c @ c + b)
            torch.testing.assert_close(actual[row, t], h)
            history.append(h)


@pytest.mark.parametrize("kind", LSTMS)
def test_self_attentive_lstm_same_as_equations(kind):
    intra_attention = additive()
    cell, sequences, score = make(kind, intra_attention), inputs(), v_tanh(intra_attention)
    output_activation = {SelfAttentiveLSTMCell: lambda c: c, LSTMNCell: torch.tanh}[kind]
    W, U, b = cell.input_to_hidden.weight, cell.context_to_hidden.weight, cell.input_to_hidden.bias
    actual = outputs_of(cell, sequences)
    for row in range(ROWS):
        s, cell_context, hidden, cell_states = zeros(), zeros(), [], []
        for t, x in enumerate(sequences[row]):
            if hidden:
                scores = [score(x, s, each) for each in hidden]
                s, cell_context = mean(scores, hidden), mean(scores, cell_states)
            i, f, g, o = (W @ x + U @ s + b).chunk(4)
            c = f.sigmoid() * cell_context + i.sigmoid() * g.tanh()
            h = o.sigmoid() * output_activation(c)
            torch.testing.assert_close(actual[row, t], h)
            hidden.append(h)
            cell_states.append(c)


@pytest.mark.parametrize("kind", [SelfAttentiveCell, *LSTMS])
@pytest.mark.parametrize("intra_attention", [additive, lambda: similarity(type="bilinear")])
def test_first_context_is_initial_state_and_second_is_first_output(kind, intra_attention):
    cell, sequences = make(kind, intra_attention()), inputs()
    first = torch.randn(ROWS, D, dtype=torch.double)
    initial = cell.initial_state(first)
    assert torch.equal(initial[1][:, :D], first)
    assert not initial[1][:, D:].any()
    states = unroll_steps(cell, sequences, initial)
    assert torch.equal(states[0][1], initial[1])
    torch.testing.assert_close(states[1][1][:, :D], states[0][0])  # c_1 = h_1


def test_history_entries_do_not_change():
    cell = make(LSTMNCell, additive())
    states = unroll_steps(
        cell, inputs(), cell.initial_state(torch.zeros(ROWS, D, dtype=torch.double))
    )
    for t, (hidden, _, *history) in enumerate(states):
        values, keys, mask = history
        assert torch.equal(values[:, t, :D], hidden)
        assert mask.all()
        for part, last in zip((values, keys), states[-1][2:4], strict=True):
            assert torch.equal(part, last[:, : t + 1])


def test_trace_records_intra_attention():
    cell = make(SelfAttentiveCell, similarity(type="dot"))
    with trace_attention(cell) as records:
        outputs_of(cell, inputs())
    assert {(record.module_path, record.role) for record in records} == {
        ("intra_attention.attention", "intra")
    }
    weights = [record.weights for record in records]
    assert [each.shape for each in weights] == [(ROWS, 1, 1, t) for t in range(1, STEPS)]
    for each in weights:
        torch.testing.assert_close(each.sum(-1), torch.ones(ROWS, 1, 1, dtype=torch.double))


def test_recurrent_input_raises():
    cell = make(SelfAttentiveCell, additive())
    x, first = inputs()[:, 0], torch.zeros(ROWS, D, dtype=torch.double)
    with pytest.raises(AssertionError, match="the recurrent input is the context"):
        cell.update(cell.project_inputs(x), cell.initial_state(first + 1), first)
