"""Dropout, residual sum and LayerNorm in Triton, one kernel in each direction.

y = norm(x + dropout(u)), without any of the three parts. Statistics and sums are in float32. The
dropout mask is a hash of an element's index and of a seed that is read from a tensor, so that each
replay of a CUDA graph has its own; it is computed again for the gradient. There are no atomics: the
same inputs and seed give the same bits. Imported only where there is Triton; `TRITON_INTERPRET=1`
runs it on a CPU.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from heedful.acceleration import tuning
from heedful.shapes import Float, Int


@triton.jit
def _mix(x):
    """A bijection of 32 bits in which each input bit changes half of the output bits.

    (Wellons 2018, "lowbias32".)
    """
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def dropout_scale(seed, offsets, p):
    """Return 1 / (1 - p) with probability 1 - p, else 0, from a pointer to 64 bits and indices."""
    bits = tl.load(seed)
    low, high = bits.to(tl.uint32), (bits >> 32).to(tl.uint32)
    random = _mix(_mix(offsets.to(tl.uint32) + low) ^ high)
    uniform = (random >> 8).to(tl.float32) * 5.9604644775390625e-08  # 2**-24
    return tl.where(uniform >= p, 1.0 / (1.0 - p), 0.0)


@triton.jit
def _load_sum(
    inputs, update, seed, offsets, mask, p,
    HAS_UPDATE: tl.constexpr, HAS_DROPOUT: tl.constexpr,
):  # fmt: skip
    """Return x + dropout(u), and the factor of u."""
    total = tl.load(inputs + offsets, mask=mask, other=0.0).to(tl.float32)
    scale = tl.full(total.shape, 1.0, tl.float32)
    if HAS_DROPOUT:
        scale = dropout_scale(seed, offsets, p)
    if HAS_UPDATE:
        total += tl.load(update + offsets, mask=mask, other=0.0).to(tl.float32) * scale
    return total, scale


@triton.jit(do_not_specialize=["num_rows"])
def _forward_kernel(
    inputs, update, weight, bias, seed, outputs, means, rstds, num_rows, size, eps, p,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, HAS_UPDATE: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, HAS_NORM: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, COLUMNS)
    is_column = columns < size
    mask = (rows < num_rows)[:, None] & is_column[None, :]
    offsets = rows[:, None] * size + columns[None, :]
    total, _ = _load_sum(inputs, update, seed, offsets, mask, p, HAS_UPDATE, HAS_DROPOUT)
    if HAS_NORM:
        mean = tl.sum(total, axis=1) / size
        centered = tl.where(is_column[None, :], total - mean[:, None], 0.0)
        rstd = 1.0 / tl.sqrt(tl.sum(centered * centered, axis=1) / size + eps)
        tl.store(means + rows, mean, mask=rows < num_rows)
        tl.store(rstds + rows, rstd, mask=rows < num_rows)
        w = tl.load(weight + columns, mask=is_column, other=0.0).to(tl.float32)
        b = tl.load(bias + columns, mask=is_column, other=0.0).to(tl.float32)
        total = centered * rstd[:, None] * w[None, :] + b[None, :]
    tl.store(outputs + offsets, total.to(outputs.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["num_rows"])
def _backward_kernel(
    grads, inputs, update, weight, seed, means, rstds, grad_inputs, grad_update, partial_sums,
    num_rows, size, p, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HAS_UPDATE: tl.constexpr,
    HAS_DROPOUT: tl.constexpr, HAS_NORM: tl.constexpr,
):  # fmt: skip
    """Write the gradients of every n-th tile of rows, and their share of those of the norm."""
    columns = tl.arange(0, COLUMNS)
    is_column = columns < size
    weight_sum = tl.zeros([COLUMNS], tl.float32)
    bias_sum = tl.zeros([COLUMNS], tl.float32)
    if HAS_NORM:
        w = tl.load(weight + columns, mask=is_column, other=0.0).to(tl.float32)
    for start in range(tl.program_id(0) * ROWS, num_rows, tl.num_programs(0) * ROWS):
        rows = start + tl.arange(0, ROWS)
        mask = (rows < num_rows)[:, None] & is_column[None, :]
        offsets = rows[:, None] * size + columns[None, :]
        grad = tl.load(grads + offsets, mask=mask, other=0.0).to(tl.float32)
        scale = tl.full(grad.shape, 1.0, tl.float32)
        if HAS_NORM:
            total, scale = _load_sum(
                inputs, update, seed, offsets, mask, p, HAS_UPDATE, HAS_DROPOUT
            )
            mean = tl.load(means + rows, mask=rows < num_rows, other=0.0)
            rstd = tl.load(rstds + rows, mask=rows < num_rows, other=0.0)
            normalized = tl.where(mask, (total - mean[:, None]) * rstd[:, None], 0.0)
            weight_sum += tl.sum(grad * normalized, axis=0)
            bias_sum += tl.sum(grad, axis=0)
            grad *= w[None, :]
            mean_grad = tl.sum(grad, axis=1) / size
            projection = tl.sum(grad * normalized, axis=1) / size
            grad -= mean_grad[:, None] + normalized * projection[:, None]
            grad *= rstd[:, None]
        elif HAS_DROPOUT:
            scale = dropout_scale(seed, offsets, p)
        if HAS_NORM:
            tl.store(grad_inputs + offsets, grad.to(grad_inputs.dtype.element_ty), mask=mask)
        if HAS_UPDATE:
            grad *= scale
            tl.store(grad_update + offsets, grad.to(grad_update.dtype.element_ty), mask=mask)
    if HAS_NORM:
        sums = partial_sums + tl.program_id(0) * 2 * size + columns
        tl.store(sums, weight_sum, mask=is_column)
        tl.store(sums + size, bias_sum, mask=is_column)


def triton_residual_norm(
    inputs: Float[Tensor, "*B D"],
    update: Float[Tensor, "*B D"] | None,
    weight: Float[Tensor, "D"] | None,
    bias: Float[Tensor, "D"] | None,
    *,
    eps: float = 0.0,
    dropout: float = 0.0,
    dtype: torch.dtype,
) -> Float[Tensor, "*B D"]:
    """Return layer_norm(inputs + dropout(update)) in `dtype`; without weight and bias no norm."""
    seed = None
    if dropout:
        seed = torch.randint(-(2**63), 2**63 - 1, (1,), device=inputs.device)
    outputs: Tensor = _ResidualNorm.apply(inputs, update, weight, bias, seed, eps, dropout, dtype)
    return outputs


class _ResidualNorm(torch.autograd.Function):
    """layer_norm(x + dropout(u)); saves its inputs, two statistics per row and the seed."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        update: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        seed: Int[Tensor, "1"] | None,
        eps: float,
        dropout: float,
        dtype: torch.dtype,
    ) -> Tensor:
        inputs = inputs.contiguous()
        update = None if update is None else update.contiguous()
        num_rows, size = inputs.numel() // inputs.size(-1), inputs.size(-1)
        mean, rstd = (inputs.new_empty(num_rows, dtype=torch.float32) for _ in range(2))
        outputs = torch.empty_like(inputs, dtype=dtype)
        ctx.dropout = dropout
        ctx.options = {
            "HAS_UPDATE": update is not None,
            "HAS_DROPOUT": dropout > 0,
            "HAS_NORM": weight is not None,
        }
        tile = _tile(size, tuning.TRITON_NORM_ELEMENTS)
        if num_rows:
            _forward_kernel[(-(-num_rows // tile["ROWS"]),)](
                inputs, update, weight, bias, seed,
                outputs, mean, rstd, num_rows, size, eps, dropout, **tile, **ctx.options,
            )  # fmt: skip
        ctx.save_for_backward(inputs, update, weight, seed, mean, rstd)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_outputs: Tensor) -> tuple[Tensor | None, ...]:
        """With z = x + dropout(u), n = (z - mean) rstd and g = dy w:

        dz = rstd (g - mean(g) - n mean(g n)),  dw = sum dy n,  db = sum dy,  du = dropout(dz).
        """
        inputs, update, weight, seed, mean, rstd = ctx.saved_tensors
        grad_outputs = grad_outputs.contiguous()
        num_rows, size = inputs.numel() // inputs.size(-1), inputs.size(-1)
        has_norm = weight is not None
        # Without a norm the gradient of the inputs is that of the outputs.
        grad_inputs = torch.empty_like(inputs) if has_norm else grad_outputs.to(inputs.dtype)
        grad_update = None if update is None else torch.empty_like(update)
        tile = _tile(size, tuning.TRITON_NORM_GRADIENT_ELEMENTS)
        num_tiles = -(-num_rows // tile["ROWS"])
        num_programs = max(1, min(num_tiles, _num_backward_programs(inputs)))
        allocate = inputs.new_empty if num_rows else inputs.new_zeros
        sums = allocate(num_programs if has_norm else 0, 2, size, dtype=torch.float32)
        if num_rows and (has_norm or update is not None):
            _backward_kernel[(num_programs,)](
                grad_outputs, inputs, update, weight, seed,
                mean, rstd, grad_inputs, grad_update, sums, num_rows, size,
                ctx.dropout, **tile, **ctx.options,
            )  # fmt: skip
        grad_weight = grad_bias = None
        if has_norm:
            grad_weight, grad_bias = sums.sum(dim=0).to(weight.dtype)
        return grad_inputs, grad_update, grad_weight, grad_bias, None, None, None, None


def _tile(size: int, num_elements: int) -> dict[str, int]:
    """Return rows and columns of a tile of whole rows, and warps."""
    columns = 1 << (size - 1).bit_length()
    rows = max(1, num_elements // columns)
    return {"ROWS": rows, "COLUMNS": columns, "num_warps": max(1, min(16, rows * columns // 512))}


def _num_backward_programs(inputs: Tensor) -> int:
    if not inputs.is_cuda:
        return 2
    num_processors = torch.cuda.get_device_properties(inputs.device).multi_processor_count
    return tuning.TRITON_NORM_PROGRAMS * num_processors
