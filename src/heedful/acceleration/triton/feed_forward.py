"""ReLU of a linear layer: one product with its bias and activation, one kernel for the gradient.

The kernel masks the gradient and sums it over positions for the bias, in float32 and without
atomics: the same inputs give the same bits. Imported only where there is Triton;
`TRITON_INTERPRET=1` runs it on a CPU.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful.acceleration import tuning
from heedful.shapes import Float


@triton.jit(do_not_specialize=["num_rows"])
def _gradient_kernel(
    grads, hidden, outputs, partial_sums, num_rows, size,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Mask every n-th tile of rows of some columns, and write its share of the sum over rows."""
    columns = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    is_column = columns < size
    total = tl.zeros([COLUMNS], tl.float32)
    for start in range(tl.program_id(0) * ROWS, num_rows, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        mask = (rows < num_rows)[:, None] & is_column[None, :]
        offsets = rows[:, None] * size + columns[None, :]
        grad = tl.load(grads + offsets, mask=mask, other=0.0)
        is_active = tl.load(hidden + offsets, mask=mask, other=0.0) > 0.0
        grad = tl.where(is_active, grad, 0.0)
        tl.store(outputs + offsets, grad, mask=mask)
        total += tl.sum(grad.to(tl.float32), axis=0)
    tl.store(partial_sums + tl.program_id(0) * size + columns, total, mask=is_column)


def linear_relu(
    inputs: Float[Tensor, "*B D"],
    weight: Float[Tensor, "F D"],
    bias: Float[Tensor, "F"],
    *,
    dtype: torch.dtype,
) -> Float[Tensor, "*B F"]:
    """Return max(0, W x + b), computed in `dtype`."""
    hidden: Tensor = _LinearReLU.apply(inputs.flatten(0, -2), weight, bias, dtype)
    return hidden.view(*inputs.shape[:-1], len(weight))


class _LinearReLU(torch.autograd.Function):
    """max(0, W x + b); saves inputs, weight and outputs in the precision of the product."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Float[Tensor, "N D"],
        weight: Float[Tensor, "F D"],
        bias: Float[Tensor, "F"],
        dtype: torch.dtype,
    ) -> Float[Tensor, "N F"]:
        narrow_inputs, narrow_weight, narrow_bias = (x.to(dtype) for x in (inputs, weight, bias))
        with torch.autocast(inputs.device.type, enabled=False):
            hidden = torch._addmm_activation(narrow_bias, narrow_inputs, narrow_weight.T)
        ctx.save_for_backward(narrow_inputs, narrow_weight, hidden)
        ctx.dtypes = inputs.dtype, weight.dtype, bias.dtype
        return hidden

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_hidden: Float[Tensor, "N F"]) -> tuple[Tensor | None, ...]:
        inputs, weight, hidden = ctx.saved_tensors
        input_dtype, weight_dtype, bias_dtype = ctx.dtypes
        grad_hidden, grad_bias = _mask_gradient(grad_hidden.contiguous(), hidden)
        grad_inputs = (grad_hidden @ weight).to(input_dtype) if ctx.needs_input_grad[0] else None
        grad_weight = (grad_hidden.T @ inputs).to(weight_dtype)
        return grad_inputs, grad_weight, grad_bias.to(bias_dtype), None


def _mask_gradient(
    grad_hidden: Float[Tensor, "N F"], hidden: Float[Tensor, "N F"]
) -> tuple[Float[Tensor, "N F"], Float[Tensor, "F"]]:
    """Return the gradient before the activation, and its sum over rows."""
    num_rows, size = hidden.shape
    rows, columns = tuning.TRITON_RELU_TILE
    num_tiles = max(1, -(-num_rows // rows))
    num_programs = min(num_tiles, tuning.TRITON_RELU_PROGRAMS)
    outputs = torch.empty_like(grad_hidden)
    sums = hidden.new_zeros(num_programs, size, dtype=torch.float32)
    if num_rows:
        _gradient_kernel[(num_programs, -(-size // columns))](
            grad_hidden, hidden, outputs, sums, num_rows, size, ROWS=rows, COLUMNS=columns
        )
    return outputs, sums.sum(dim=0)
