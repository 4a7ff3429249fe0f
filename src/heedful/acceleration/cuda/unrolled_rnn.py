"""LSTM and GRU layers that are unrolled step by step, two kernels each, for CUDA graphs.

All input projections are one product, and so are the gradients of all weights; a step is the
product with the hidden state and one kernel for the gates. A graph replays hundreds of such
launches at the speed of the GPU, so this is nearly as fast as cuDNN, which a graph cannot contain.
Invariant: outputs and gradients equal the cell's, step by step, up to rounding.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from heedful.layers.rnn_cells import gru_update, lstm_update
from heedful.shapes import Float, Lengths

Gates = Float[Tensor, "B G"]
Hidden = Float[Tensor, "B D"]
Outputs = Float[Tensor, "B T D"]


class CellGradients(NamedTuple):
    """Gradients of one step."""

    input_gates: Gates
    hidden_gates: Gates
    hidden: Hidden | None  # through the gate that carries it over; None if there is none
    cell_state: Hidden | None


class FusedLSTM:
    """c' = f * c + i * g; h' = o * tanh(c')."""

    @staticmethod
    def forward(
        input_gates: Gates, hidden_gates: Gates, hidden: Hidden, cell_state: Hidden
    ) -> tuple[Hidden, Hidden, tuple[Tensor, ...]]:
        """Return hidden state, cell state and saved tensors of the gradient."""
        if input_gates.is_cuda:
            hidden, after, workspace = torch.ops.aten._thnn_fused_lstm_cell(
                input_gates, hidden_gates, cell_state
            )
            return hidden, after, (cell_state, after, workspace)
        gates = input_gates + hidden_gates
        output_gate, after = lstm_update(gates, cell_state)
        return output_gate * after.tanh(), after, (cell_state, after, gates)

    @staticmethod
    def backward(
        saved: Sequence[Tensor], grad_hidden: Hidden, grad_cell_state: Hidden
    ) -> CellGradients:
        """Return the gradients of a step."""
        before, after, workspace = saved
        if workspace.is_cuda:
            grad_gates, grad_before, _ = torch.ops.aten._thnn_fused_lstm_cell_backward_impl(
                grad_hidden, grad_cell_state, before, after, workspace, False
            )
            return CellGradients(grad_gates, grad_gates, None, grad_before)
        input_gate, forget_gate, candidate, output_gate = workspace.chunk(4, dim=-1)
        i, f, o = (gate.sigmoid() for gate in (input_gate, forget_gate, output_gate))
        g, squashed = candidate.tanh(), after.tanh()
        grad_after = grad_cell_state + grad_hidden * o * (1 - squashed.square())
        grad_i, grad_f = grad_after * g * i * (1 - i), grad_after * before * f * (1 - f)
        grad_g, grad_o = grad_after * i * (1 - g.square()), grad_hidden * squashed * o * (1 - o)
        grad_gates = torch.cat([grad_i, grad_f, grad_g, grad_o], dim=-1)
        return CellGradients(grad_gates, grad_gates, None, grad_after * f)


class FusedGRU:
    """n = tanh(W x + r * (U h)); h' = (1 - z) * n + z * h."""

    @staticmethod
    def forward(
        input_gates: Gates, hidden_gates: Gates, hidden: Hidden, cell_state: Hidden
    ) -> tuple[Hidden, Hidden, tuple[Tensor, ...]]:
        """Return hidden state, the unchanged cell state and saved tensors of the gradient."""
        if input_gates.is_cuda:
            after, workspace = torch.ops.aten._thnn_fused_gru_cell(
                input_gates, hidden_gates, hidden
            )
            return after, cell_state, (workspace,)
        after = gru_update(input_gates, hidden_gates, hidden)
        return after, cell_state, (input_gates, hidden_gates, hidden)

    @staticmethod
    def backward(
        saved: Sequence[Tensor], grad_hidden: Hidden, grad_cell_state: Hidden
    ) -> CellGradients:
        """Return the gradients of a step."""
        if saved[0].is_cuda:
            gradients = torch.ops.aten._thnn_fused_gru_cell_backward(grad_hidden, saved[0], False)
            return CellGradients(gradients[0], gradients[1], gradients[2], grad_cell_state)
        input_gates, hidden_gates, hidden = saved
        (r_input, z_input, n_input), (r_hidden, z_hidden, n_hidden) = (
            gates.chunk(3, dim=-1) for gates in (input_gates, hidden_gates)
        )
        r, z = (r_input + r_hidden).sigmoid(), (z_input + z_hidden).sigmoid()
        n = (n_input + r * n_hidden).tanh()
        grad_n = grad_hidden * (1 - z) * (1 - n.square())
        grad_r = grad_n * n_hidden * r * (1 - r)
        grad_z = grad_hidden * (hidden - n) * z * (1 - z)
        return CellGradients(
            torch.cat([grad_r, grad_z, grad_n], dim=-1),
            torch.cat([grad_r, grad_z, grad_n * r], dim=-1),
            grad_hidden * z,
            grad_cell_state,
        )


def unroll_lstm(
    inputs: Float[Tensor, "B T E"],
    hidden: Hidden,
    cell_state: Hidden,
    weights: Sequence[Tensor],
    lengths: Lengths | None = None,
) -> tuple[Outputs, Hidden]:
    """Return the outputs and the cell state after the last input of each row.

    In padding the input gate is closed and the forget gate open, so that the cell state stays.
    """
    weight_ih, weight_hh, bias_ih, bias_hh = weights
    is_padding = None
    if lengths is not None:
        positions = torch.arange(inputs.size(1), device=inputs.device)
        is_padding = (positions >= lengths[:, None]).unsqueeze(-1)  # (B, T, 1)
        inputs = inputs.masked_fill(is_padding, 0)
    gates = linear(inputs.transpose(0, 1), weight_ih, bias_ih + bias_hh)  # (T, B, 4 D)
    if is_padding is not None:
        values = -1e4, 1e4, 0, 0  # of the gates i, f, g, o
        added = torch.cat([gates.new_full((hidden.size(-1),), value) for value in values])
        gates = gates + is_padding.transpose(0, 1) * added
    outputs, last = _unroll(FusedLSTM, gates, weight=weight_hh, states=(hidden, cell_state))
    return outputs.transpose(0, 1), last


def unroll_gru(
    inputs: Float[Tensor, "B T E"], hidden: Hidden, weights: Sequence[Tensor]
) -> Outputs:
    """Return the outputs."""
    weight_ih, weight_hh, bias_ih, bias_hh = weights
    gates = linear(inputs.transpose(0, 1), weight_ih, bias_ih)  # (T, B, 3 D)
    states = hidden, hidden.new_zeros(0)
    outputs, _ = _unroll(FusedGRU, gates, weight=weight_hh, bias=bias_hh, states=states)
    return outputs.transpose(0, 1)


def _unroll(
    cell: Any,
    gates: Float[Tensor, "T B G"],
    *,
    weight: Float[Tensor, "G D"],
    bias: Float[Tensor, "G"] | None = None,
    states: tuple[Hidden, Hidden],
) -> tuple[Float[Tensor, "T B D"], Hidden]:
    """Run all steps in the precision of the gates, which is that of autocast if there is one."""
    parts = (None if part is None else part.to(gates.dtype) for part in (weight, bias))
    with torch.autocast(gates.device.type, enabled=False):
        return _Unrolled.apply(cell, gates, *parts, *(state.to(gates.dtype) for state in states))


class _Unrolled(torch.autograd.Function):
    """All steps of a cell; the gradients of weight and bias are one product over all steps."""

    @staticmethod
    def forward(  # noqa: PLR0917
        ctx: Any,
        cell: Any,
        gates: Float[Tensor, "T B G"],
        weight: Float[Tensor, "G D"],
        bias: Float[Tensor, "G"] | None,
        hidden: Hidden,
        cell_state: Hidden,
    ) -> tuple[Float[Tensor, "T B D"], Hidden]:
        transposed, states, saved = weight.T, [hidden], []
        for step_gates in gates.unbind():
            hidden_gates = _add_product(bias, hidden, transposed)
            hidden, cell_state, parts = cell.forward(step_gates, hidden_gates, hidden, cell_state)
            states.append(hidden)
            saved.append(parts)
        outputs = torch.stack(states[1:])
        ctx.cell, ctx.num_steps = cell, len(saved)
        ctx.save_for_backward(weight, bias, states[0], outputs, *chain.from_iterable(saved))
        return outputs, cell_state.clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_outputs: Float[Tensor, "T B D"], grad_cell_state: Hidden
    ) -> tuple[Tensor | None, ...]:
        weight, bias, first, outputs, *saved = ctx.saved_tensors
        size = len(saved) // ctx.num_steps
        grad_outputs = grad_outputs.contiguous()
        grad_hidden, steps = grad_outputs[-1], []
        for step in reversed(range(ctx.num_steps)):
            parts = saved[step * size : (step + 1) * size]
            grads = ctx.cell.backward(parts, grad_hidden, grad_cell_state)
            steps.append((grads.input_gates, grads.hidden_gates))
            grad_cell_state, carried = grads.cell_state, grads.hidden
            if step:
                output = grad_outputs[step - 1]
                carried = output if carried is None else carried + output
            grad_hidden = _add_product(carried, grads.hidden_gates, weight)
        inputs, hiddens = (torch.stack(part[::-1]) for part in zip(*steps, strict=True))
        before = torch.cat([first.unsqueeze(0), outputs[:-1]])
        grad_weight = hiddens.flatten(0, 1).T @ before.flatten(0, 1)
        grad_bias = None if bias is None else hiddens.sum(dim=(0, 1))
        return None, inputs, grad_weight, grad_bias, grad_hidden, grad_cell_state


def _add_product(term: Tensor | None, left: Tensor, right: Tensor) -> Tensor:
    return left @ right if term is None else torch.addmm(term, left, right)
