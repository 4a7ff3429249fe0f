"""A single kernel along a sequence is the cell, step by step, in value and in gradient."""

import pytest
import torch

import heedful.acceleration.kernels  # noqa: F401
from heedful.acceleration.recurrent_kernels import (
    has_kernel_for_states,
    run_packed,
    run_with_frozen_padding,
    torch_cell,
    torch_outputs,
)
from heedful.layers.rnn import (
    RecurrentLayer,
    unroll_outputs,
    unroll_states,
    unroll_steps,
    unroll_with_final_state,
)
from heedful.layers.rnn_cells import (
    CELL_CLASSES,
    GRUCell,
    RecurrentDropout,
    ResetAfterGRUCell,
    ResetBeforeGRUCell,
    Zoneout,
)

each_kind = pytest.mark.parametrize("kind", CELL_CLASSES)
each_dtype = pytest.mark.parametrize("dtype", [torch.float, torch.double], ids=str)


def setting(kind, dtype):
    """A cell, inputs (3, 5, 2) and a first state, all of whose values are to be learned."""
    cell = CELL_CLASSES[kind](2, 4).to(dtype)
    inputs = torch.randn(3, 5, 2, dtype=dtype, requires_grad=True)
    hidden = torch.randn(3, 4, dtype=dtype, requires_grad=True)
    return cell, inputs, tuple(part + hidden.tanh() for part in cell.initial_state(hidden)), hidden


def gradients(value, cell, *leaves):
    leaves = [*leaves, *cell.parameters()]
    return torch.autograd.grad((value * value.detach().cos()).sum(), leaves, retain_graph=True)


@each_kind
@each_dtype
def test_what_is_seen_along_a_sequence_is_what_the_steps_show(kind, dtype):
    cell, inputs, state, hidden = setting(kind, dtype)
    found = torch_outputs(cell, inputs, state)
    wanted = torch.stack([each[0] for each in unroll_steps(cell, inputs, state)], dim=1)
    torch.testing.assert_close(found, wanted)
    for pair in zip(
        gradients(found, cell, inputs, hidden),
        gradients(wanted, cell, inputs, hidden),
        strict=True,
    ):
        torch.testing.assert_close(*pair)


@each_kind
@each_dtype
def test_the_states_along_a_sequence_are_those_of_the_steps(kind, dtype):
    cell, inputs, state, hidden = setting(kind, dtype)
    parts = zip(*unroll_steps(cell, inputs, state), strict=True)
    for found, part in zip(unroll_states(cell, inputs, state), parts, strict=True):
        wanted = torch.stack(part, dim=1)
        torch.testing.assert_close(found, wanted)
        for pair in zip(
            gradients(found, cell, inputs, hidden),
            gradients(wanted, cell, inputs, hidden),
            strict=True,
        ):
            torch.testing.assert_close(*pair)


@each_kind
def test_cells_of_torch_are_fused_in_training_and_when_asked(kind):
    cell = CELL_CLASSES[kind](2, 4)
    assert torch_cell(cell.train()) is cell
    assert torch_cell(cell.eval()) is cell


@pytest.mark.parametrize(
    ("form", "beyond"), [(run_with_frozen_padding, torch.nan), (run_packed, 1e3)]
)
@each_dtype
def test_a_memory_at_the_end_is_that_of_the_steps_up_to_it(form, beyond, dtype):
    """With a row that has no inputs, and anything past the ends."""
    cell, inputs, state, hidden = setting("lstm", dtype)
    lengths = torch.tensor([5, 0, 2])
    seen = torch.arange(5) < lengths[:, None]
    spoiled = torch.where(seen[..., None], inputs, beyond)
    shown, memory = form(cell, spoiled, lengths, state)
    steps = [state, *unroll_steps(cell, inputs, state)]
    wanted = torch.stack([steps[length][1][row] for row, length in enumerate(lengths)])
    wanted_shown = torch.stack([step[0] for step in steps[1:]], dim=1)
    for found, value in ((memory, wanted), (shown[seen], wanted_shown[seen])):
        torch.testing.assert_close(found, value)
        leaves = (cell, inputs, hidden)
        for pair in zip(gradients(found, *leaves), gradients(value, *leaves), strict=True):
            torch.testing.assert_close(*pair)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
def test_in_half_precision_a_memory_is_held_as_it_was(dtype):
    cell, inputs, state, _ = setting("lstm", dtype)
    lengths = torch.tensor([2, 2, 2])
    _, held = run_with_frozen_padding(cell, 20 * inputs, lengths, state)
    _, last = run_with_frozen_padding(cell, 20 * inputs[:, :2], lengths, state)
    torch.testing.assert_close(held, last)


@each_kind
def test_where_a_row_ends_is_the_state_of_the_steps_up_to_it(kind):
    cell, inputs, state, _ = setting(kind, torch.double)
    lengths = torch.tensor([5, 0, 2])
    steps = [state, *unroll_steps(cell, inputs, state)]
    _, found = unroll_with_final_state(cell, inputs, lengths, state)
    for place, part in enumerate(found):
        wanted = [steps[length][place][row] for row, length in enumerate(lengths)]
        torch.testing.assert_close(part, torch.stack(wanted))


def test_only_the_memory_of_an_lstm_is_told_by_no_kernel():
    told = {kind for kind in CELL_CLASSES if has_kernel_for_states(*setting(kind, torch.float)[:3])}
    assert told == {"rnn", "gru"}


@each_kind
def test_a_cell_that_drops_is_fused_only_where_it_drops_nothing(kind):
    inner = CELL_CLASSES[kind](2, 4)
    cell = RecurrentDropout(inner, 0.5)
    inputs = torch.randn(3, 5, 2)
    assert torch_cell(cell.train()) is None
    assert torch_cell(cell.eval()) is inner
    first = cell.initial_state(torch.randn(3, 4))
    wanted = tuple(
        torch.stack(part, 1) for part in zip(*unroll_steps(cell, inputs, first), strict=True)
    )
    torch.testing.assert_close(unroll_outputs(cell, inputs, first), wanted[0])
    torch.testing.assert_close(unroll_states(cell, inputs, first), wanted)


def test_what_steps_otherwise_is_not_fused():
    class Shifted(GRUCell):
        def step(self, projected_inputs, state, recurrent_input=None):
            return super().step(projected_inputs + 1, state, recurrent_input)

    zoned = Zoneout(GRUCell(2, 4), (0.1,)).eval()
    for cell in (Shifted(2, 4), zoned, ResetBeforeGRUCell(2, 4), ResetAfterGRUCell(2, 4)):
        assert torch_cell(cell) is None
        inputs, first = torch.randn(3, 5, 2), cell.initial_state(torch.randn(3, 4))
        wanted = torch.stack([each[0] for each in unroll_steps(cell, inputs, first)], dim=1)
        torch.testing.assert_close(unroll_outputs(cell, inputs, first), wanted)


@pytest.mark.gpu
@each_kind
def test_on_a_gpu_one_kernel_reads_what_the_cpu_reads_and_finds_the_weights_together(kind, recwarn):
    cells = {name: CELL_CLASSES[kind](2, 4) for name in ("forwards", "backwards")}
    ours, inputs = RecurrentLayer(**cells).double(), torch.randn(3, 5, 2, dtype=torch.double)
    lengths = torch.tensor([5, 1, 3])
    here = ours.forward_with_states(inputs, lengths)
    there = ours.cuda().forward_with_states(inputs.cuda(), lengths.cuda())
    seen = torch.arange(5) < lengths[:, None]
    for outputs in (there.outputs, ours(inputs.cuda(), lengths.cuda())):
        torch.testing.assert_close(outputs.cpu()[seen], here.outputs[seen])
    for found, wanted in zip(there.final_states, here.final_states, strict=True):
        for pair in zip(found, wanted, strict=True):
            torch.testing.assert_close(pair[0].cpu(), pair[1])
    # torch warns where weights do not lie in one piece and must be gathered at every call.
    assert not [each for each in recwarn if "contiguous" in str(each.message)]
