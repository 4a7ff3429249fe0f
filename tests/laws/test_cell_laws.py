"""What every cell promises, alone and run along sequences."""

from itertools import product

import pytest
import torch

from heedful.config.base import type_of, types_in
from heedful.layers.rnn import CellConfig, RecurrentLayer, is_history, unroll_outputs, unroll_steps
from heedful.layers.rnn_cells import CellConfigBase
from heedful.pytree import select_rows

OPTIONS = {
    "plain": {},
    "normalised": {"layer_norm": True},
    "recurrent dropout": {"recurrent_dropout": 0.4},
    "zoneout": {"zoneout": 0.3},
    "all": {"layer_norm": True, "recurrent_dropout": 0.4, "zoneout": 0.3},
}
KINDS = {type_of(member): member for member in types_in(CellConfig)}
FORMS = {kind: (member, {}) for kind, member in KINDS.items() if issubclass(member, CellConfigBase)}
FORMS["gru, reset before"] = (type(FORMS["gru"][0]()), {"reset": "before"})
CELLS = {
    f"{form}, {option}": FORMS[form][0](**FORMS[form][1], **OPTIONS[option])
    for form, option in product(FORMS, OPTIONS)
}
CELLS["lstm, memory zoneout"] = FORMS["lstm"][0](cell_zoneout=0.5)
ASKING = {  # how a cell may ask its own past
    "additive": {"type": "additive", "hidden_size": 3},
    "projected-dot": {"type": "similarity", "score": {"type": "projected-dot", "hidden_size": 3}},
    "scaled-dot": {"type": "similarity", "score": {"type": "scaled-dot"}},
    "cosine": {"type": "similarity", "score": {"type": "cosine"}},
    "concat": {"type": "similarity", "score": {"type": "concat", "hidden_size": 3}},
}
for kind, asking in product(["self-attentive-rnn", "self-attentive-lstm"], ASKING):
    CELLS[f"{kind}, {asking}"] = KINDS[kind].model_validate({"intra_attention": ASKING[asking]})
CELLS["lstmn"] = KINDS["lstmn"](score_size=3)
WIDTHS = {"input_size": 3, "hidden_size": 4}
each_cell = pytest.mark.parametrize("name", CELLS)
each_mode = pytest.mark.parametrize("training", [True, False], ids=["training", "asked"])


def build(name, dtype=torch.double, training=False):
    return CELLS[name].build(**WIDTHS).to(dtype).train(training)


def numbers(*shape, dtype=torch.double):
    return torch.randn(*shape, dtype=dtype)


def begun(cell, rows):
    return cell.initial_state(numbers(rows, 4))


def under_way(cell, rows):
    """The state after three inputs."""
    return unroll_steps(cell, numbers(rows, 3, 3), begun(cell, rows))[-1]


def replaced(state):
    """The parts of a state that every step makes anew."""
    return [part for part in state if not is_history(part)]


def test_every_kind_of_cell_is_tried():
    assert {cell.type for cell in CELLS.values()} == set(KINDS)


@each_cell
@each_mode
def test_a_cell_shows_first_what_it_was_begun_with_and_then_as_much(name, training):
    cell, hidden = build(name, training=training), numbers(5, 4)
    first = cell.initial_state(hidden)
    assert torch.equal(first[0], hidden)
    after = cell(numbers(5, 3), first)
    wanted = [
        (len(part), part.size(1) + 1, part.size(2)) if is_history(part) else part.shape
        for part in first
    ]
    assert [part.shape for part in after] == wanted


@each_cell
def test_a_cell_keeps_nothing_between_calls(name):
    cell, inputs = build(name), numbers(5, 3)
    first = under_way(cell, 5)
    once = cell(inputs, first)
    cell(numbers(5, 3), under_way(cell, 5))
    for pair in zip(once, cell(inputs, first), strict=True):
        assert torch.equal(*pair)


@each_cell
def test_rows_go_their_own_way(name):
    cell, inputs, rows = build(name), numbers(5, 3), torch.tensor([3, 0, 0])
    first = under_way(cell, 5)
    chosen = cell(inputs[rows], select_rows(first, rows))
    for pair in zip(chosen, select_rows(cell(inputs, first), rows), strict=True):
        torch.testing.assert_close(*pair)


@each_cell
@each_mode
def test_what_is_no_number_stays_visible_in_its_own_row(name, training):
    cell, inputs = build(name, training=training), numbers(5, 3)
    first = begun(cell, 5)
    inputs[2] = torch.nan
    seen = unroll_outputs(cell, inputs[:, None].expand(-1, 30, -1), first)[:, -1]
    assert seen[2].isnan().all()
    assert seen[[0, 1, 3, 4]].isfinite().all()


@each_cell
def test_preparing_a_sequence_is_preparing_each_input(name):
    cell, inputs = build(name), numbers(2, 5, 3)
    apart = torch.stack([cell.project_inputs(column) for column in inputs.unbind(1)], dim=1)
    torch.testing.assert_close(cell.project_inputs(inputs), apart)


@each_cell
def test_step_by_step_is_the_whole_sequence(name):
    cell, inputs = build(name), numbers(5, 6, 3)
    state = first = begun(cell, 5)
    shown = []
    for column in inputs.unbind(1):
        state = cell(column, state)
        shown.append(state[0])
    torch.testing.assert_close(unroll_outputs(cell, inputs, first), torch.stack(shown, dim=1))


@each_cell
@each_mode
def test_gradients_are_those_of_finite_differences(name, training):
    cell = build(name, training=training)
    hidden, inputs = numbers(2, 4).requires_grad_(), numbers(2, 3, 3).requires_grad_()

    def run(hidden, inputs, *weights):
        torch.manual_seed(1)  # what is drawn is drawn alike
        last = unroll_steps(cell, inputs, cell.initial_state(hidden))[-1]
        return tuple(part for part in last if part.is_floating_point())

    leaves = (hidden, inputs, *cell.parameters())
    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)


@each_cell
@each_mode
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
def test_half_precision_stays_finite_and_half(name, training, dtype):
    cell = build(name, dtype=dtype, training=training)
    inputs = (20 * torch.randn(3, 6, 3)).to(dtype).requires_grad_()
    shown = unroll_outputs(cell, inputs, cell.initial_state(torch.randn(3, 4).to(dtype)))
    assert shown.dtype == dtype
    assert shown.isfinite().all()
    for gradient in torch.autograd.grad(shown.sum(), [inputs, *cell.parameters()]):
        assert gradient.isfinite().all()


@each_cell
def test_what_is_seen_and_a_memory_cell_are_the_whole_state_of_a_cell_without_a_tape(name):
    cell, inputs = build(name), numbers(5, 3)
    state = under_way(cell, 5)
    if any(map(is_history, state)):
        assert cell.cell_state_index is None
        return
    if cell.cell_state_index is None:
        again = cell.initial_state(state[0])
    else:
        again = cell.initial_state_with_cell(state[0], state[cell.cell_state_index])
    torch.testing.assert_close(cell(inputs, again), cell(inputs, state))


def forward_bidirectional(name):
    return RecurrentLayer(forward_cell=build(name), backward_cell=build(name))


def go_on(layer, ends, more):
    """What is seen where each direction goes on from its end."""
    pairs = zip(layer.cells, ends, strict=True)
    return [unroll_outputs(cell, more, end) for cell, end in pairs]


def assert_same_ends(layer, found, wanted):
    """Ends are the same where they look alike and lead to the same."""
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(replaced(one), replaced(other))
    more = numbers(len(found[0][0]), 3, 3)
    torch.testing.assert_close(go_on(layer, found, more), go_on(layer, wanted, more))


@each_cell
def test_padding_has_no_influence_in_either_direction(name):
    layer, inputs, lengths = forward_bidirectional(name), numbers(2, 4, 3), torch.tensor([4, 2])
    wide = torch.cat([inputs, numbers(2, 3, 3)], dim=1)
    narrow_read, wide_read = (
        layer.forward_with_states(inputs, lengths),
        layer.forward_with_states(wide, lengths),
    )
    shown = layer(inputs, lengths)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(shown[row, :length], narrow_read.outputs[row, :length])
        found, wanted = wide_read.outputs[row, :length], narrow_read.outputs[row, :length]
        torch.testing.assert_close(found, wanted)
    assert_same_ends(layer, wide_read.final_states, narrow_read.final_states)


@each_cell
def test_padding_gets_no_gradient(name):
    layer, lengths = forward_bidirectional(name), torch.tensor([4, 2])
    inputs = numbers(2, 6, 3).requires_grad_()
    seen = torch.arange(6) < lengths[:, None]
    outputs, ends = layer.forward_with_states(inputs, lengths)
    told = sum((part**2).sum() for end in ends for part in end)
    (gradient,) = torch.autograd.grad((outputs[seen] ** 2).sum() + told, inputs)
    assert (gradient[~seen] == 0).all()
    assert (gradient[seen] != 0).all()


@each_cell
def test_a_batch_of_one_is_a_batch_of_many(name):
    layer, inputs, lengths = forward_bidirectional(name), numbers(3, 5, 3), torch.tensor([2, 5, 1])
    together = layer.forward_with_states(inputs, lengths)
    for row, length in enumerate(lengths):
        alone = layer.forward_with_states(inputs[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(alone.outputs[0], together.outputs[row, :length])
        assert_same_ends(
            layer, select_rows(together.final_states, torch.tensor([row])), alone.final_states
        )


@each_cell
def test_to_go_on_from_an_end_is_to_have_read_on(name):
    layer, lengths = RecurrentLayer(forward_cell=build(name)), torch.tensor([2, 4, 1])
    inputs, more = numbers(3, 4, 3), numbers(3, 3, 3)
    (found,) = go_on(layer, layer.forward_with_states(inputs, lengths).final_states, more)
    for row, length in enumerate(lengths):
        whole = torch.cat([inputs[row, :length], more[row]])[None]
        wanted = layer(whole, length[None] + 3)[0, length:]
        torch.testing.assert_close(found[row], wanted)
