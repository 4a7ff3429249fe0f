"""A single kernel along a sequence is the cell, step by step, in value and in gradient."""

from functools import partial

import pytest
import torch

import heedful.acceleration.kernels  # noqa: F401
from heedful.acceleration import rnn_layers
from heedful.acceleration.cuda import graphs
from heedful.acceleration.cuda.unrolled_rnn import unroll_gru, unroll_lstm
from heedful.acceleration.rnn_layers import (
    has_kernel,
    rnn_library,
    run_packed,
    run_with_frozen_padding,
    torch_cell,
    torch_unroll,
)
from heedful.layers.rnn import (
    RecurrentLayer,
    unroll,
    unroll_outputs,
    unroll_steps,
)
from heedful.layers.rnn_cell_config import RecurrentDropout, Zoneout
from heedful.layers.rnn_cells import (
    CELL_CLASSES,
    GRUCell,
    ProjectedLSTMCell,
    ResetAfterGRUCell,
    ResetBeforeGRUCell,
)

CELLS = {**CELL_CLASSES, "projected lstm": partial(ProjectedLSTMCell, cell_state_size=6)}
each_kind = pytest.mark.parametrize("kind", CELLS)
each_dtype = pytest.mark.parametrize("dtype", [torch.float, torch.double], ids=str)


def setting(kind, dtype):
    """A cell, inputs (3, 5, 2) and a first state, all of whose values are to be learned."""
    cell = CELLS[kind](2, 4).to(dtype)
    inputs = torch.randn(3, 5, 2, dtype=dtype, requires_grad=True)
    hidden = torch.randn(3, 4, dtype=dtype, requires_grad=True)
    added = torch.cat([hidden, hidden], dim=-1).tanh()  # a cell state may be larger
    state = tuple(part + added[:, : part.size(1)] for part in cell.initial_state(hidden))
    return cell, inputs, state, hidden


def gradients(value, cell, *leaves):
    leaves = [*leaves, *cell.parameters()]
    return torch.autograd.grad((value * value.detach().cos()).sum(), leaves, retain_graph=True)


@each_kind
@each_dtype
def test_kernel_outputs_equal_steps(kind, dtype):
    cell, inputs, state, hidden = setting(kind, dtype)
    actual = torch_unroll(cell, inputs, state, None)[0]
    expected = torch.stack([each[0] for each in unroll_steps(cell, inputs, state)], dim=1)
    torch.testing.assert_close(actual, expected)
    for pair in zip(
        gradients(actual, cell, inputs, hidden),
        gradients(expected, cell, inputs, hidden),
        strict=True,
    ):
        torch.testing.assert_close(*pair)


@each_kind
def test_torch_cells_have_a_kernel_in_training_and_eval_mode(kind):
    cell = CELLS[kind](2, 4)
    assert torch_cell(cell.train()) is cell
    assert torch_cell(cell.eval()) is cell


def run_unrolled(cell, inputs, lengths, state):
    return unroll_lstm(inputs, *state, cell.weights, lengths)


@pytest.mark.parametrize(
    ("form", "beyond"),
    [(run_with_frozen_padding, torch.nan), (run_unrolled, torch.nan), (run_packed, 1e3)],
)
@each_dtype
def test_final_cell_state_equals_steps(form, beyond, dtype):
    """With a row that has no inputs, and anything past the ends."""
    cell, inputs, state, hidden = setting("lstm", dtype)
    lengths = torch.tensor([5, 0, 2])
    seen = torch.arange(5) < lengths[:, None]
    spoiled = torch.where(seen[..., None], inputs, beyond)
    shown, memory = form(cell, spoiled, lengths, state)
    steps = [state, *unroll_steps(cell, inputs, state)]
    expected = torch.stack([steps[length][1][row] for row, length in enumerate(lengths)])
    wanted_shown = torch.stack([step[0] for step in steps[1:]], dim=1)
    for actual, value in ((memory, expected), (shown[seen], wanted_shown[seen])):
        torch.testing.assert_close(actual, value)
        leaves = (cell, inputs, hidden)
        for pair in zip(gradients(actual, *leaves), gradients(value, *leaves), strict=True):
            torch.testing.assert_close(*pair)


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
def test_frozen_padding_is_exact_in_half_precision(dtype):
    cell, inputs, state, _ = setting("lstm", dtype)
    lengths = torch.tensor([2, 2, 2])
    _, held = run_with_frozen_padding(cell, 20 * inputs, lengths, state)
    _, last = run_with_frozen_padding(cell, 20 * inputs[:, :2], lengths, state)
    torch.testing.assert_close(held, last)


@each_kind
def test_final_state_of_each_row_equals_steps(kind):
    cell, inputs, state, hidden = setting(kind, torch.double)
    lengths = torch.tensor([5, 0, 2])
    steps = [state, *unroll_steps(cell, inputs, state)]
    _, actual = unroll(cell, inputs, state, lengths)
    for place, part in enumerate(actual):
        rows = [steps[length][place][row] for row, length in enumerate(lengths)]
        expected = torch.stack(rows)
        torch.testing.assert_close(part, expected)
        leaves = (cell, inputs, hidden)
        torch.testing.assert_close(gradients(part, *leaves), gradients(expected, *leaves))


@each_kind
def test_cell_state_of_a_single_step_has_no_kernel(kind):
    cell, inputs, state, _ = setting(kind, torch.float)
    lengths = torch.ones(3, dtype=torch.long)
    assert has_kernel(cell, inputs, state, lengths)
    assert has_kernel(cell, inputs[:, :1], state, None)
    assert has_kernel(cell, inputs[:, :1], state, lengths) == ("lstm" not in kind)


@each_kind
def test_recurrent_dropout_has_a_kernel_only_in_eval_mode(kind):
    inner = CELLS[kind](2, 4)
    cell = RecurrentDropout(inner, 0.5)
    inputs = torch.randn(3, 5, 2)
    assert torch_cell(cell.train()) is None
    assert torch_cell(cell.eval()) is inner
    first = cell.initial_state(torch.randn(3, 4))
    expected = tuple(
        torch.stack(part, 1) for part in zip(*unroll_steps(cell, inputs, first), strict=True)
    )
    torch.testing.assert_close(unroll_outputs(cell, inputs, first), expected[0])
    final = unroll(cell, inputs, first, torch.full((3,), 5))[1]
    torch.testing.assert_close(final, tuple(part[:, -1] for part in expected))


def test_other_cells_have_no_kernel():
    class Shifted(GRUCell):
        def update(self, inputs, state, hidden):
            return super().update(inputs + 1, state, hidden)

    zoned = Zoneout(GRUCell(2, 4), (0.1,)).eval()
    for cell in (Shifted(2, 4), zoned, ResetBeforeGRUCell(2, 4), ResetAfterGRUCell(2, 4)):
        assert torch_cell(cell) is None
        inputs, first = torch.randn(3, 5, 2), cell.initial_state(torch.randn(3, 4))
        expected = torch.stack([each[0] for each in unroll_steps(cell, inputs, first)], dim=1)
        torch.testing.assert_close(unroll_outputs(cell, inputs, first), expected)


@pytest.mark.gpu
@each_kind
def test_gpu_kernel_equals_cpu_and_has_contiguous_weights(kind, recwarn):
    cells = {name: CELLS[kind](2, 4) for name in ("forward_cell", "backward_cell")}
    ours, inputs = RecurrentLayer(**cells).double(), torch.randn(3, 5, 2, dtype=torch.double)
    lengths = torch.tensor([5, 1, 3])
    here = ours.forward_with_states(inputs, lengths)
    there = ours.cuda().forward_with_states(inputs.cuda(), lengths.cuda())
    seen = torch.arange(5) < lengths[:, None]
    for outputs in (there.outputs, ours(inputs.cuda(), lengths.cuda())):
        torch.testing.assert_close(outputs.cpu()[seen], here.outputs[seen])
    for actual, expected in zip(there.final_states, here.final_states, strict=True):
        for pair in zip(actual, expected, strict=True):
            torch.testing.assert_close(pair[0].cpu(), pair[1])
    # torch warns where weights do not lie in one piece and must be gathered at every call.
    assert not [each for each in recwarn if "contiguous" in str(each.message)]


@pytest.mark.parametrize("kind", ["gru", "lstm"])
def test_outputs_in_a_graph_equal_steps(kind):
    cell, inputs, state, hidden = setting(kind, torch.double)
    with graphs.capturing():
        actual = torch_unroll(cell, inputs, state, None)[0]
    expected = torch.stack([each[0] for each in unroll_steps(cell, inputs, state)], dim=1)
    torch.testing.assert_close(actual, expected)
    for pair in zip(
        gradients(actual, cell, inputs, hidden),
        gradients(expected, cell, inputs, hidden),
        strict=True,
    ):
        torch.testing.assert_close(*pair)


def test_gradients_of_unrolled_layers_are_derivatives():
    """By finite differences, with cell states, and padding whose inputs have none."""
    lstm, inputs, state, _ = setting("lstm", torch.double)
    gru = setting("gru", torch.double)[0]
    lengths = torch.tensor([5, 0, 2])
    leaves = [inputs, *(part.detach().requires_grad_() for part in state)]

    def lstm_outputs(inputs, hidden, cell_state, *weights):
        outputs, last = unroll_lstm(inputs, hidden, cell_state, weights, lengths)
        return outputs * (torch.arange(5) < lengths[:, None]).unsqueeze(-1), last

    def gru_outputs(inputs, hidden, *weights):
        return unroll_gru(inputs, hidden, weights)

    assert torch.autograd.gradcheck(lstm_outputs, [*leaves, *lstm.weights])
    assert torch.autograd.gradcheck(gru_outputs, [*leaves[:2], *gru.weights])


def test_cudnn_is_used_only_outside_of_graphs():
    def is_enabled():
        with rnn_library():
            return torch.backends.cudnn.enabled

    assert is_enabled()
    with graphs.capturing():
        assert not is_enabled()
    assert is_enabled()


@pytest.mark.parametrize("is_arm", [True, False])
def test_onednn_runs_no_lstm_on_arm(monkeypatch, is_arm):
    monkeypatch.setattr(rnn_layers, "IS_ARM", is_arm)
    cell, inputs, state, _ = setting("lstm", torch.float)
    with torch.profiler.profile() as profiler:
        outputs = torch_unroll(cell, inputs, state, None)[0]
    used = any("mkldnn" in event.key for event in profiler.key_averages())
    assert used == (torch.backends.mkldnn.is_available() and not is_arm)
    expected = torch.stack([each[0] for each in unroll_steps(cell, inputs, state)], dim=1)
    torch.testing.assert_close(outputs, expected)
    assert torch._C._get_mkldnn_enabled()


@pytest.mark.gpu
@each_kind
def test_graph_of_a_layer_does_not_depend_on_host_memory(kind):
    """Graphs of several shapes are replayed after the host has reused what it freed."""
    cells = {name: CELLS[kind](8, 4) for name in ("forward_cell", "backward_cell")}
    layer = RecurrentLayer(**cells).cuda()

    def gradients_of(inputs, lengths):
        output = layer.forward_with_states(inputs, lengths)
        states = [part for states in output.final_states for part in states]
        is_real = torch.arange(inputs.size(1), device="cuda") < lengths[:, None]
        outputs = output.outputs * is_real.unsqueeze(-1)  # arbitrary in padding
        loss = outputs.square().sum() + sum(state.sum() for state in states)
        return torch.autograd.grad(loss, [inputs, *layer.parameters()])

    captured, pool = [], torch.cuda.graph_pool_handle()
    for rows, length in ((33, 18), (64, 9), (17, 30), (128, 5)):
        inputs = torch.randn(rows, length, 8, device="cuda", requires_grad=True)
        lengths = torch.randint(0, length + 1, (rows,), device="cuda")
        function = graphs.StaticFunction(partial(gradients_of, inputs, lengths))
        captured.append((inputs, lengths, function, function.capture(pool)))
    for _ in range(20):
        junk = [bytes([255]) * size for size in range(16, 4096, 4)]
        for inputs, lengths, function, results in captured:
            inputs.data.normal_()
            function.run()
            actual = [result.clone() for result in results]
            with torch.backends.cudnn.flags(allow_tf32=False):  # a graph does without cuDNN
                expected = gradients_of(inputs, lengths)
            for pair in zip(actual, expected, strict=True):
                torch.testing.assert_close(*pair, rtol=1e-3, atol=1e-3)
        del junk
