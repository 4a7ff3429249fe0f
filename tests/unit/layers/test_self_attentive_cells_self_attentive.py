"""Self-attentive cells against slow loops from lecture and paper, one row and one place at a time.

In the loops `tape[i]` is h_{i+1}, and capitals are the matrices that a formula names.
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


def make(kind, past):
    cell = kind(E, D, past).double()
    with torch.no_grad():
        for weight in cell.parameters():
            weight.mul_(3)  # so that weights are far from even
    return cell


def inputs(size=E):
    return torch.randn(ROWS, STEPS, size, dtype=torch.double)


def zeros():
    return torch.zeros(D, dtype=torch.double)


def mean(scores, vectors):
    """softmax(scores), and the mean of the vectors under it."""
    powers = [torch.exp(score) for score in scores]
    return sum(power / sum(powers) * vector for power, vector in zip(powers, vectors, strict=True))


def v_tanh(past):
    """v . tanh(W_x x + W_c c + W_h h)."""
    score = past.attention.score
    W_x, W_c = score.query_projection.weight.split([E, D], dim=1)
    W_h, v = score.key_projection.weight, score.score_vector.weight[0]
    return lambda x, c, h: v @ torch.tanh(W_x @ x + W_c @ c + W_h @ h)


def shown(cell, sequences, first=None):
    first = torch.zeros(len(sequences), D, dtype=torch.double) if first is None else first
    return unroll_outputs(cell, sequences, cell.initial_state(first))


def test_the_similarity_form_makes_each_context_after_its_step_and_the_first_is_the_state():
    past = similarity(type="projected-dot", hidden_size=A)
    cell, sequences = make(SelfAttentiveCell, past), inputs()
    W_s, W_h = (
        getattr(past.attention.score, name).weight
        for name in ("query_projection", "key_projection")
    )
    A_x, A_c, b = (
        cell.input_to_hidden.weight,
        cell.context_to_hidden.weight,
        cell.input_to_hidden.bias,
    )
    found = shown(cell, sequences)
    for row in range(ROWS):
        c, tape = zeros(), []
        for t in range(STEPS):
            h = torch.tanh(A_x @ sequences[row, t] + A_c @ c + b)
            torch.testing.assert_close(found[row, t], h)
            tape.append(h)
            c = h if t == 0 else mean([(W_h @ each) @ (W_s @ c) for each in tape], tape)


def test_the_additive_form_makes_each_context_before_its_step_from_input_and_last_context():
    past = additive()
    cell, sequences, score = make(SelfAttentiveCell, past), inputs(), v_tanh(past)
    A_x, A_c, b = (
        cell.input_to_hidden.weight,
        cell.context_to_hidden.weight,
        cell.input_to_hidden.bias,
    )
    found = shown(cell, sequences)
    for row in range(ROWS):
        c, tape = zeros(), []
        for t, x in enumerate(sequences[row]):
            if tape:
                c = mean([score(x, c, each) for each in tape], tape)
            h = torch.tanh(A_x @ x + A_c @ c + b)
            torch.testing.assert_close(found[row, t], h)
            tape.append(h)


def test_the_two_forms_differ_by_the_input_in_the_question_alone():
    seeing, blind = additive(), similarity(type="additive", hidden_size=A)
    first, second = make(SelfAttentiveCell, seeing), make(SelfAttentiveCell, blind)
    state = first.state_dict()
    asks = "past.attention.score.query_projection.weight"
    with torch.no_grad():
        first.get_parameter(asks)[:, :E] = 0
    second.load_state_dict(state | {asks: state[asks][:, E:]})
    sequences = inputs()
    torch.testing.assert_close(shown(first, sequences), shown(second, sequences))


@pytest.mark.parametrize("kind", LSTMS)
def test_an_lstm_recalls_hidden_states_and_memory_cells_with_the_same_weights(kind):
    past = additive()
    cell, sequences, score = make(kind, past), inputs(), v_tanh(past)
    output_activation = {SelfAttentiveLSTMCell: lambda c: c, LSTMNCell: torch.tanh}[kind]
    W, U, b = cell.input_to_hidden.weight, cell.context_to_hidden.weight, cell.input_to_hidden.bias
    found = shown(cell, sequences)
    for row in range(ROWS):
        s, recalled, hidden, memory = zeros(), zeros(), [], []
        for t, x in enumerate(sequences[row]):
            if hidden:
                scores = [score(x, s, each) for each in hidden]
                s, recalled = mean(scores, hidden), mean(scores, memory)
            i, f, g, o = (W @ x + U @ s + b).chunk(4)
            c = f.sigmoid() * recalled + i.sigmoid() * g.tanh()
            h = o.sigmoid() * output_activation(c)
            torch.testing.assert_close(found[row, t], h)
            hidden.append(h)
            memory.append(c)


def test_lecture_and_paper_differ_by_a_tanh():
    ours = make(SelfAttentiveLSTMCell, additive())
    theirs = make(LSTMNCell, additive())
    theirs.load_state_dict(ours.state_dict())
    first = torch.zeros(ROWS, D, dtype=torch.double)
    x = inputs()[:, 0]
    _, _, lecture, *_ = ours(x, ours.initial_state(first))
    _, _, paper, *_ = theirs(x, theirs.initial_state(first))
    (shown_by_lecture, memory), (shown_by_paper, same) = (
        tape[:, 0].chunk(2, dim=-1) for tape in (lecture, paper)
    )
    torch.testing.assert_close(memory, same)
    torch.testing.assert_close(shown_by_paper / shown_by_lecture, memory.tanh() / memory)


def test_what_is_to_be_added_goes_into_the_memory_cell_as_it_is():
    fused, plain = make(DeepFusionLSTMNCell, additive()), make(LSTMNCell, additive())
    plain.load_state_dict(fused.state_dict())
    x, added = inputs()[:, 0], inputs(D)[:, 0]
    first = torch.randn(ROWS, D, dtype=torch.double)
    _, _, tape, *_ = fused(torch.cat([x, added], dim=-1), fused.initial_state(first))
    _, _, without, *_ = plain(x, plain.initial_state(first))
    torch.testing.assert_close(tape[:, 0, D:], without[:, 0, D:] + added)
    nothing = torch.zeros(ROWS, STEPS, D, dtype=torch.double)
    sequences = inputs()
    found = shown(fused, torch.cat([sequences, nothing], dim=-1))
    torch.testing.assert_close(found, shown(plain, sequences))


@pytest.mark.parametrize("kind", [SelfAttentiveCell, *LSTMS])
@pytest.mark.parametrize("past", [additive, lambda: similarity(type="bilinear")])
def test_the_first_step_recalls_what_was_begun_with_and_the_second_the_first_state(kind, past):
    cell, sequences = make(kind, past()), inputs()
    first = torch.randn(ROWS, D, dtype=torch.double)
    begun = cell.initial_state(first)
    assert torch.equal(begun[1][:, :D], first)
    assert not begun[1][:, D:].any()
    states = unroll_steps(cell, sequences, begun)
    assert torch.equal(states[0][1], begun[1])
    torch.testing.assert_close(states[1][1][:, :D], states[0][0])  # c_1 = h_1


def test_a_place_on_the_tape_stays_as_it_was_written():
    cell = make(LSTMNCell, additive())
    states = unroll_steps(
        cell, inputs(), cell.initial_state(torch.zeros(ROWS, D, dtype=torch.double))
    )
    for t, (hidden, _, *tape) in enumerate(states):
        values, keys, seen = tape
        assert torch.equal(values[:, t, :D], hidden)
        assert seen.all()
        for part, last in zip((values, keys), states[-1][2:4], strict=True):
            assert torch.equal(part, last[:, : t + 1])


def test_a_trace_sees_each_step_look_at_its_own_past():
    cell = make(SelfAttentiveCell, similarity(type="dot"))
    with trace_attention(cell) as records:
        shown(cell, inputs())
    assert {(record.module_path, record.role) for record in records} == {
        ("past.attention", "own past")
    }
    looked = [record.weights for record in records]
    assert [each.shape for each in looked] == [(ROWS, 1, 1, t) for t in range(1, STEPS)]
    for each in looked:
        torch.testing.assert_close(each.sum(-1), torch.ones(ROWS, 1, 1, dtype=torch.double))


def test_rows_of_a_stack_can_be_chosen_as_a_beam_does():
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
    chosen = stack(sequences[rows, 3], select_rows(states, rows))
    torch.testing.assert_close(chosen, select_rows(stack(sequences[:, 3], states), rows))


def test_nothing_else_can_be_recalled():
    cell = make(SelfAttentiveCell, additive())
    x, first = inputs()[:, 0], torch.zeros(ROWS, D, dtype=torch.double)
    with pytest.raises(AssertionError, match="what is recalled is taken from the tape"):
        cell.step(cell.project_inputs(x), cell.initial_state(first), first)
