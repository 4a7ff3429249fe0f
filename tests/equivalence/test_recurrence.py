"""A single kernel along a sequence is the cell, step by step, in value and in gradient."""

import pytest
import torch

from heedful.layers.cells import CELLS, GruCell
from heedful.layers.fused.sequences import (
    fused_shown,
    fused_states,
    fusible,
    holding,
    ragged,
)
from heedful.layers.gated import ResetAfterGruCell, ResetBeforeGruCell
from heedful.layers.recurrence import Recurrence
from heedful.layers.regularised import RecurrentDropout, Zoneout
from heedful.layers.sequences import read_along, repeat, shown_along, states_along

each_kind = pytest.mark.parametrize("kind", CELLS)
each_dtype = pytest.mark.parametrize("dtype", [torch.float, torch.double], ids=str)


def setting(kind, dtype):
    """A cell, inputs (3, 5, 2) and a first state, all of whose values are to be learned."""
    cell = CELLS[kind](2, 4).to(dtype)
    inputs = torch.randn(3, 5, 2, dtype=dtype, requires_grad=True)
    hidden = torch.randn(3, 4, dtype=dtype, requires_grad=True)
    return cell, inputs, tuple(part + hidden.tanh() for part in cell.begin(hidden)), hidden


def gradients(value, cell, *leaves):
    leaves = [*leaves, *cell.parameters()]
    return torch.autograd.grad((value * value.detach().cos()).sum(), leaves, retain_graph=True)


@each_kind
@each_dtype
def test_what_is_seen_along_a_sequence_is_what_the_steps_show(kind, dtype):
    cell, inputs, state, hidden = setting(kind, dtype)
    found = fused_shown(cell, inputs, state)
    wanted = torch.stack([each[0] for each in repeat(cell, inputs, state)], dim=1)
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
    parts = zip(*repeat(cell, inputs, state), strict=True)
    for found, part in zip(states_along(cell, inputs, state), parts, strict=True):
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
    cell = CELLS[kind](2, 4)
    assert fusible(cell.train()) is cell
    assert fusible(cell.eval()) is cell


@pytest.mark.parametrize(("form", "beyond"), [(holding, torch.nan), (ragged, 1e3)])
@each_dtype
def test_a_memory_at_the_end_is_that_of_the_steps_up_to_it(form, beyond, dtype):
    """With a row that has no inputs, and anything past the ends."""
    cell, inputs, state, hidden = setting("lstm", dtype)
    lengths = torch.tensor([5, 0, 2])
    seen = torch.arange(5) < lengths[:, None]
    spoiled = torch.where(seen[..., None], inputs, beyond)
    shown, memory = form(cell, spoiled, lengths, state)
    steps = [state, *repeat(cell, inputs, state)]
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
    _, held = holding(cell, 20 * inputs, lengths, state)
    _, last = holding(cell, 20 * inputs[:, :2], lengths, state)
    torch.testing.assert_close(held, last)


@each_kind
def test_where_a_row_ends_is_the_state_of_the_steps_up_to_it(kind):
    cell, inputs, state, _ = setting(kind, torch.double)
    lengths = torch.tensor([5, 0, 2])
    steps = [state, *repeat(cell, inputs, state)]
    _, found = read_along(cell, inputs, lengths, state)
    for place, part in enumerate(found):
        wanted = [steps[length][place][row] for row, length in enumerate(lengths)]
        torch.testing.assert_close(part, torch.stack(wanted))


def test_only_the_memory_of_an_lstm_is_told_by_no_kernel():
    told = {kind for kind in CELLS if fused_states(*setting(kind, torch.float)[:3]) is not None}
    assert told == {"rnn", "gru"}


@each_kind
def test_a_cell_that_drops_is_fused_only_where_it_drops_nothing(kind):
    inner = CELLS[kind](2, 4)
    cell = RecurrentDropout(inner, 0.5)
    inputs = torch.randn(3, 5, 2)
    assert fusible(cell.train()) is None
    assert fusible(cell.eval()) is inner
    first = cell.begin(torch.randn(3, 4))
    wanted = tuple(torch.stack(part, 1) for part in zip(*repeat(cell, inputs, first), strict=True))
    torch.testing.assert_close(shown_along(cell, inputs, first), wanted[0])
    torch.testing.assert_close(states_along(cell, inputs, first), wanted)


def test_what_steps_otherwise_is_not_fused():
    class Shifted(GruCell):
        def step(self, prepared, state, recalled=None):
            return super().step(prepared + 1, state, recalled)

    zoned = Zoneout(GruCell(2, 4), (0.1,)).eval()
    for cell in (Shifted(2, 4), zoned, ResetBeforeGruCell(2, 4), ResetAfterGruCell(2, 4)):
        assert fusible(cell) is None
        inputs, first = torch.randn(3, 5, 2), cell.begin(torch.randn(3, 4))
        wanted = torch.stack([each[0] for each in repeat(cell, inputs, first)], dim=1)
        torch.testing.assert_close(shown_along(cell, inputs, first), wanted)


@pytest.mark.gpu
@each_kind
def test_on_a_gpu_one_kernel_reads_what_the_cpu_reads_and_finds_the_weights_together(kind, recwarn):
    cells = {name: CELLS[kind](2, 4) for name in ("forwards", "backwards")}
    ours, inputs = Recurrence(**cells).double(), torch.randn(3, 5, 2, dtype=torch.double)
    lengths = torch.tensor([5, 1, 3])
    here = ours.read(inputs, lengths)
    there = ours.cuda().read(inputs.cuda(), lengths.cuda())
    seen = torch.arange(5) < lengths[:, None]
    for outputs in (there.outputs, ours(inputs.cuda(), lengths.cuda())):
        torch.testing.assert_close(outputs.cpu()[seen], here.outputs[seen])
    for found, wanted in zip(there.ends, here.ends, strict=True):
        for pair in zip(found, wanted, strict=True):
            torch.testing.assert_close(pair[0].cpu(), pair[1])
    # torch warns where weights do not lie in one piece and must be gathered at every call.
    assert not [each for each in recwarn if "contiguous" in str(each.message)]
