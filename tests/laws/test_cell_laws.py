"""Invariants of every recurrent cell, alone and in a layer."""

from itertools import product

import pytest
import torch

from heedful.config.base import type_of, types_in
from heedful.layers.rnn import RecurrentLayer, unroll_outputs, unroll_steps
from heedful.layers.rnn_cell_config import CellConfig, CellConfigBase
from heedful.layers.rnn_cells import is_history
from heedful.pytree import select_rows

OPTIONS = {
    "plain": {},
    "layer norm": {"layer_norm": True},
    "recurrent dropout": {"recurrent_dropout": 0.4},
    "zoneout": {"zoneout": 0.3},
    "all": {"layer_norm": True, "recurrent_dropout": 0.4, "zoneout": 0.3},
}
CELL_TYPES = {type_of(member): member for member in types_in(CellConfig)}
CELL_FORMS = {
    type_name: (member, {})
    for type_name, member in CELL_TYPES.items()
    if issubclass(member, CellConfigBase)
}
CELL_FORMS["gru, reset before"] = (type(CELL_FORMS["gru"][0]()), {"reset": "before"})
CELL_FORMS["lstm, projected"] = (type(CELL_FORMS["lstm"][0]()), {"cell_state_size": 6})
CELLS = {
    f"{form}, {option}": CELL_FORMS[form][0](**CELL_FORMS[form][1], **OPTIONS[option])
    for form, option in product(CELL_FORMS, OPTIONS)
}
CELLS["lstm, memory zoneout"] = CELL_FORMS["lstm"][0](cell_zoneout=0.5)
INTRA_ATTENTION = {  # scores over earlier states
    "additive": {"type": "additive", "hidden_size": 3},
    "projected-dot": {"type": "similarity", "score": {"type": "projected-dot", "hidden_size": 3}},
    "scaled-dot": {"type": "similarity", "score": {"type": "scaled-dot"}},
    "cosine": {"type": "similarity", "score": {"type": "cosine"}},
    "concat": {"type": "similarity", "score": {"type": "concat", "hidden_size": 3}},
}
for type_name, attention_name in product(
    ["self-attentive-rnn", "self-attentive-lstm"], INTRA_ATTENTION
):
    CELLS[f"{type_name}, {attention_name}"] = CELL_TYPES[type_name].model_validate(
        {"intra_attention": INTRA_ATTENTION[attention_name]}
    )
CELLS["lstmn"] = CELL_TYPES["lstmn"](score_size=3)
SIZES = {"input_size": 3, "hidden_size": 4}
all_cells = pytest.mark.parametrize("name", CELLS)
both_modes = pytest.mark.parametrize("training", [True, False], ids=["training", "eval"])


def build(name, dtype=torch.double, training=False):
    return CELLS[name].build(**SIZES).to(dtype).train(training)


def random_inputs(*shape, dtype=torch.double):
    return torch.randn(*shape, dtype=dtype)


def initial_state_of(cell, rows):
    return cell.initial_state(random_inputs(rows, 4))


def state_after_three_steps(cell, rows):
    """The state after three inputs."""
    return unroll_steps(cell, random_inputs(rows, 3, 3), initial_state_of(cell, rows))[-1]


def non_history_parts(state):
    """Return the parts of a state that are replaced at every step."""
    return [part for part in state if not is_history(part)]


def test_every_cell_type_is_tested():
    assert {cell.type for cell in CELLS.values()} == set(CELL_TYPES)


@all_cells
@both_modes
def test_cell_state_starts_with_hidden_and_keeps_shape(name, training):
    cell, hidden = build(name, training=training), random_inputs(5, 4)
    first = cell.initial_state(hidden)
    assert torch.equal(first[0], hidden)
    after = cell(random_inputs(5, 3), first)
    expected = [
        (len(part), part.size(1) + 1, part.size(2)) if is_history(part) else part.shape
        for part in first
    ]
    assert [part.shape for part in after] == expected


@all_cells
def test_cell_is_stateless(name):
    cell, inputs = build(name), random_inputs(5, 3)
    first = state_after_three_steps(cell, 5)
    first_result = cell(inputs, first)
    cell(random_inputs(5, 3), state_after_three_steps(cell, 5))
    for pair in zip(first_result, cell(inputs, first), strict=True):
        assert torch.equal(*pair)


@all_cells
def test_cell_rows_are_independent(name):
    cell, inputs, rows = build(name), random_inputs(5, 3), torch.tensor([3, 0, 0])
    first = state_after_three_steps(cell, 5)
    chosen = cell(inputs[rows], select_rows(first, rows))
    for pair in zip(chosen, select_rows(cell(inputs, first), rows), strict=True):
        torch.testing.assert_close(*pair)


@all_cells
@both_modes
def test_nan_stays_in_the_row(name, training):
    cell, inputs = build(name, training=training), random_inputs(5, 3)
    first = initial_state_of(cell, 5)
    inputs[2] = torch.nan
    visible = unroll_outputs(cell, inputs[:, None].expand(-1, 30, -1), first)[:, -1]
    assert visible[2].isnan().all()
    assert visible[[0, 1, 3, 4]].isfinite().all()


@all_cells
def test_project_inputs_of_sequence_same_as_single_inputs(name):
    cell, inputs = build(name), random_inputs(2, 5, 3)
    separate = torch.stack([cell.project_inputs(column) for column in inputs.unbind(1)], dim=1)
    torch.testing.assert_close(cell.project_inputs(inputs), separate)


@all_cells
def test_unrolled_steps_match_whole_sequence(name):
    cell, inputs = build(name), random_inputs(5, 6, 3)
    state = first = initial_state_of(cell, 5)
    outputs = []
    for column in inputs.unbind(1):
        state = cell(column, state)
        outputs.append(state[0])
    torch.testing.assert_close(unroll_outputs(cell, inputs, first), torch.stack(outputs, dim=1))


@all_cells
@both_modes
def test_gradients_match_finite_differences(name, training):
    cell = build(name, training=training)
    hidden, inputs = random_inputs(2, 4).requires_grad_(), random_inputs(2, 3, 3).requires_grad_()

    def run(hidden, inputs, *weights):
        torch.manual_seed(1)  # the same random masks
        last = unroll_steps(cell, inputs, cell.initial_state(hidden))[-1]
        return tuple(part for part in last if part.is_floating_point())

    leaves = (hidden, inputs, *cell.parameters())
    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)


@all_cells
@both_modes
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
def test_half_precision_stays_finite_and_half(name, training, dtype):
    cell = build(name, dtype=dtype, training=training)
    inputs = (20 * torch.randn(3, 6, 3)).to(dtype).requires_grad_()
    outputs = unroll_outputs(cell, inputs, cell.initial_state(torch.randn(3, 4).to(dtype)))
    assert outputs.dtype == dtype
    assert outputs.isfinite().all()
    for gradient in torch.autograd.grad(outputs.sum(), [inputs, *cell.parameters()]):
        assert gradient.isfinite().all()


@all_cells
def test_output_and_cell_state_determine_state(name):
    cell, inputs = build(name), random_inputs(5, 3)
    state = state_after_three_steps(cell, 5)
    if any(map(is_history, state)):
        assert cell.cell_state_index is None
        return
    if cell.cell_state_index is None:
        restored = cell.initial_state(state[0])
    else:
        restored = cell.initial_state_with_cell(state[0], state[cell.cell_state_index])
    torch.testing.assert_close(cell(inputs, restored), cell(inputs, state))


def forward_bidirectional(name):
    return RecurrentLayer(forward_cell=build(name), backward_cell=build(name))


def continue_from(layer, ends, continuation):
    """Return the outputs of each direction continued from its final state."""
    pairs = zip(layer.cells, ends, strict=True)
    return [unroll_outputs(cell, continuation, end) for cell, end in pairs]


def assert_same_ends(layer, actual, expected):
    """Final states are equal if they and their continuations are."""
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(non_history_parts(one), non_history_parts(other))
    continuation = random_inputs(len(actual[0][0]), 3, 3)
    torch.testing.assert_close(
        continue_from(layer, actual, continuation), continue_from(layer, expected, continuation)
    )


@all_cells
def test_padding_has_no_influence_in_either_direction(name):
    layer, inputs, lengths = (
        forward_bidirectional(name),
        random_inputs(2, 4, 3),
        torch.tensor([4, 2]),
    )
    wide = torch.cat([inputs, random_inputs(2, 3, 3)], dim=1)
    narrow_output, wide_output = (
        layer.forward_with_states(inputs, lengths),
        layer.forward_with_states(wide, lengths),
    )
    outputs = layer(inputs, lengths)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(outputs[row, :length], narrow_output.outputs[row, :length])
        actual, expected = wide_output.outputs[row, :length], narrow_output.outputs[row, :length]
        torch.testing.assert_close(actual, expected)
    assert_same_ends(layer, wide_output.final_states, narrow_output.final_states)


@all_cells
def test_padding_gets_no_gradient(name):
    layer, lengths = forward_bidirectional(name), torch.tensor([4, 2])
    inputs = random_inputs(2, 6, 3).requires_grad_()
    visible = torch.arange(6) < lengths[:, None]
    outputs, ends = layer.forward_with_states(inputs, lengths)
    state_loss = sum((part**2).sum() for end in ends for part in end)
    (gradient,) = torch.autograd.grad((outputs[visible] ** 2).sum() + state_loss, inputs)
    assert (gradient[~visible] == 0).all()
    assert (gradient[visible] != 0).all()


@all_cells
def test_batch_same_as_single_rows(name):
    layer, inputs, lengths = (
        forward_bidirectional(name),
        random_inputs(3, 5, 3),
        torch.tensor([2, 5, 1]),
    )
    batched = layer.forward_with_states(inputs, lengths)
    for row, length in enumerate(lengths):
        single = layer.forward_with_states(inputs[row : row + 1, :length], lengths[row : row + 1])
        torch.testing.assert_close(single.outputs[0], batched.outputs[row, :length])
        assert_same_ends(
            layer, select_rows(batched.final_states, torch.tensor([row])), single.final_states
        )


@all_cells
def test_continuing_from_final_state_same_as_longer_input(name):
    layer, lengths = RecurrentLayer(forward_cell=build(name)), torch.tensor([2, 4, 1])
    inputs, continuation = random_inputs(3, 4, 3), random_inputs(3, 3, 3)
    (actual,) = continue_from(
        layer, layer.forward_with_states(inputs, lengths).final_states, continuation
    )
    for row, length in enumerate(lengths):
        whole = torch.cat([inputs[row, :length], continuation[row]])[None]
        expected = layer(whole, length[None] + 3)[0, length:]
        torch.testing.assert_close(actual[row], expected)
