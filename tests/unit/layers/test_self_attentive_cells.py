"""Self-attentive cells match explicit loops over their equations.

In the loops `history[i]` is h_{i+1}, and capitals are the matrices that a formula names.
"""

import pytest
import torch

from heedful.inspection.attention_trace import trace_attention
from heedful.layers.rnn import StackedCells, unroll_outputs, unroll_steps
from heedful.layers.self_attentive_cells import (
    AdditiveIntraAttentionConfig,
    DeepFusionLSTMNCell,
    LSTMNCell,
    SelfAttentiveCell,
    SelfAttentiveLSTMCell,
    SimilarityIntraAttentionConfig,
)
from heedful.pytree import select_rows

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
    A_x, A_c, b = (
        cell.input_to_hidden.weight,
        cell.context_to_hidden.weight,
        cell.input_to_hidden.bias,
    )
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
    cell, sequences, score = (
        make(SelfAttentiveCell, intra_attention),
        inputs(),
        v_tanh(intra_attention),
    )
    A_x, A_c, b = (
        cell.input_to_hidden.weight,
        cell.context_to_hidden.weight,
        cell.input_to_hidden.bias,
    )
    actual = outputs_of(cell, sequences)
    for row in range(ROWS):
        c, history = zeros(), []
        for t, x in enumerate(sequences[row]):
            if history:
                c = mean([score(x, c, each) for each in history], history)
            h = torch.tanh(A_x @ x + A_c @ c + b)
            torch.testing.assert_close(actual[row, t], h)
            history.append(h)


def test_additive_and_similarity_differ_by_input_in_query():
    with_input, without_input = additive(), similarity(type="additive", hidden_size=A)
    first, second = make(SelfAttentiveCell, with_input), make(SelfAttentiveCell, without_input)
    state = first.state_dict()
    query_name = "intra_attention.attention.score.query_projection.weight"
    with torch.no_grad():
        first.get_parameter(query_name)[:, :E] = 0
    second.load_state_dict(state | {query_name: state[query_name][:, E:]})
    sequences = inputs()
    torch.testing.assert_close(outputs_of(first, sequences), outputs_of(second, sequences))


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


def test_lstmn_differs_from_self_attentive_lstm_by_tanh():
    ours = make(SelfAttentiveLSTMCell, additive())
    theirs = make(LSTMNCell, additive())
    theirs.load_state_dict(ours.state_dict())
    first = torch.zeros(ROWS, D, dtype=torch.double)
    x = inputs()[:, 0]
    _, _, lecture, *_ = ours(x, ours.initial_state(first))
    _, _, paper, *_ = theirs(x, theirs.initial_state(first))
    (shown_by_lecture, cell_states), (shown_by_paper, same) = (
        history[:, 0].chunk(2, dim=-1) for history in (lecture, paper)
    )
    torch.testing.assert_close(cell_states, same)
    torch.testing.assert_close(shown_by_paper / shown_by_lecture, cell_states.tanh() / cell_states)


def test_deep_fusion_cell_adds_term_to_cell_state():
    fused, plain = make(DeepFusionLSTMNCell, additive()), make(LSTMNCell, additive())
    plain.load_state_dict(fused.state_dict())
    x, added = inputs()[:, 0], inputs(D)[:, 0]
    first = torch.randn(ROWS, D, dtype=torch.double)
    _, _, history, *_ = fused(torch.cat([x, added], dim=-1), fused.initial_state(first))
    _, _, without, *_ = plain(x, plain.initial_state(first))
    torch.testing.assert_close(history[:, 0, D:], without[:, 0, D:] + added)
    no_addition = torch.zeros(ROWS, STEPS, D, dtype=torch.double)
    sequences = inputs()
    actual = outputs_of(fused, torch.cat([sequences, no_addition], dim=-1))
    torch.testing.assert_close(actual, outputs_of(plain, sequences))


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


def test_rows_of_stack_can_be_selected():
    cells = [
        make(LSTMNCell, additive()),
        LSTMNCell(
            D, D, AdditiveIntraAttentionConfig(hidden_size=A).build(input_size=D, hidden_size=D)
        ).double(),
    ]
    stack, rows = StackedCells(cells, 0.0), torch.tensor([1, 1, 0])
    sequences = inputs()
    states = stack.initial_state([torch.randn(ROWS, D, dtype=torch.double) for _ in cells])
    for t in range(3):
        states = stack(sequences[:, t], states)
    selected = stack(sequences[rows, 3], select_rows(states, rows))
    torch.testing.assert_close(selected, select_rows(stack(sequences[:, 3], states), rows))


def test_recurrent_input_raises():
    cell = make(SelfAttentiveCell, additive())
    x, first = inputs()[:, 0], torch.zeros(ROWS, D, dtype=torch.double)
    with pytest.raises(AssertionError, match="the recurrent input is the context"):
        cell.update(cell.project_inputs(x), cell.initial_state(first + 1), first)
