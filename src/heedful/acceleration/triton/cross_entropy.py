"""Cross-entropy of a linear layer in Triton, without log-probabilities of the whole vocabulary.

Logits are computed for some rows at a time, and one kernel replaces them by their gradient, from
which those of inputs and weights follow at once. So the largest tensor is one chunk of logits, in
the precision of the product, whatever the vocabulary. Sums are in float32. Imported only where
there is Triton; `TRITON_INTERPRET=1` runs it on a CPU.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from heedful.acceleration import tuning
from heedful.shapes import Float, Int, Scalar
from heedful.tokenization.vocabulary import PAD

LOG2_E = tl.constexpr(1.4426950408889634)
PADDING = tl.constexpr(PAD)


@triton.jit
def _cross_entropy_kernel(
    logits, targets, losses, num_tokens, smoothing, COLUMNS: tl.constexpr, NEEDS_GRAD: tl.constexpr
):
    """Write the loss of a row, and replace its logits by its gradient."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * num_tokens
    target = tl.load(targets + row)
    is_real = target != PADDING
    chosen = tl.load(logits + target).to(tl.float32)
    columns = tl.arange(0, COLUMNS)
    largest = tl.full([COLUMNS], float("-inf"), tl.float32)
    total = tl.zeros([COLUMNS], tl.float32)
    logit_sum = tl.zeros([COLUMNS], tl.float32)
    for start in range(0, num_tokens, COLUMNS):
        is_token = start + columns < num_tokens
        z = tl.load(logits + start + columns, mask=is_token, other=float("-inf")).to(tl.float32)
        new_largest = tl.maximum(largest, z)
        shift = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        total = total * tl.exp2((largest - shift) * LOG2_E) + tl.exp2((z - shift) * LOG2_E)
        largest = new_largest
        logit_sum += tl.where(is_token, z, 0.0)
    row_largest = tl.max(largest, axis=0)
    row_total = tl.sum(total * tl.exp2((largest - row_largest) * LOG2_E), axis=0)
    normalizer = row_largest + tl.log2(row_total) / LOG2_E
    mean = tl.sum(logit_sum, axis=0) / num_tokens
    loss = normalizer - (1.0 - smoothing) * chosen - smoothing * mean
    tl.store(losses + row, tl.where(is_real, loss, 0.0))
    if NEEDS_GRAD:
        for start in range(0, num_tokens, COLUMNS):
            is_token = start + columns < num_tokens
            z = tl.load(logits + start + columns, mask=is_token, other=0.0).to(tl.float32)
            grad = tl.exp2((z - normalizer) * LOG2_E) - smoothing / num_tokens
            grad -= tl.where(start + columns == target, 1.0 - smoothing, 0.0)
            grad = tl.where(is_real, grad, 0.0)
            tl.store(logits + start + columns, grad.to(logits.dtype.element_ty), mask=is_token)


def linear_cross_entropy(
    inputs: Float[Tensor, "*B D"],
    weight: Float[Tensor, "V D"],
    bias: Float[Tensor, "V"] | None,
    targets: Int[Tensor, "*B"],
    *,
    label_smoothing: float,
    dtype: torch.dtype,
) -> Scalar:
    """Return the cross-entropy of softmax(W x + b), with products in `dtype`.

    It is summed over all targets but padding.
    """
    loss: Tensor = _LinearCrossEntropy.apply(
        inputs.flatten(0, -2), weight, bias, targets.flatten(), label_smoothing, dtype
    )
    return loss


class _LinearCrossEntropy(torch.autograd.Function):
    """The cross-entropy of a linear layer; computes its gradients in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        inputs: Float[Tensor, "N D"],
        weight: Float[Tensor, "V D"],
        bias: Float[Tensor, "V"] | None,
        targets: Int[Tensor, "N"],
        label_smoothing: float,
        dtype: torch.dtype,
    ) -> Scalar:
        num_rows, vocab_size = len(inputs), len(weight)
        losses = inputs.new_empty(num_rows, dtype=torch.float32)
        narrow_inputs, narrow_weight = inputs.to(dtype), weight.to(dtype)
        narrow_bias = None if bias is None else bias.to(dtype)
        grads = _Gradients(ctx.needs_input_grad[:3], inputs, weight, bias)
        chunk_size = max(1, tuning.MAX_LOGITS // vocab_size)
        chunk_size -= chunk_size % 16 if chunk_size > 16 else 0  # so that chunks stay aligned
        columns = min(tuning.TRITON_LOGITS_BLOCK, 1 << (vocab_size - 1).bit_length())
        with torch.autocast(inputs.device.type, enabled=False):
            for start in range(0, num_rows, chunk_size):
                rows = slice(start, start + chunk_size)
                logits = functional.linear(narrow_inputs[rows], narrow_weight, narrow_bias)
                _cross_entropy_kernel[(len(logits),)](
                    logits, targets[rows], losses[rows], vocab_size, label_smoothing,
                    COLUMNS=columns, NEEDS_GRAD=grads.are_needed, num_warps=8,
                )  # fmt: skip
                grads.add(rows, logits, narrow_inputs, narrow_weight)
        ctx.save_for_backward(*grads.tensors)
        return losses.sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Scalar) -> tuple[Tensor | None, ...]:
        grads = (
            None if grad is None else grad * grad_loss.to(grad.dtype) for grad in ctx.saved_tensors
        )
        return *grads, None, None, None


class _Gradients:
    """Gradients of inputs, weight and bias, added up from those of chunks of logits."""

    def __init__(
        self, needs: tuple[bool, ...], inputs: Tensor, weight: Tensor, bias: Tensor | None
    ) -> None:
        needs_inputs, self._needs_weight, self._needs_bias = needs
        self.are_needed = any(needs)
        self.inputs = torch.empty_like(inputs) if needs_inputs else None
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None
        self._dtypes = weight.dtype, weight.dtype if bias is None else bias.dtype

    def add(self, rows: slice, grad: Tensor, inputs: Tensor, weight: Tensor) -> None:
        """Add the gradients that follow from those of the logits of some rows."""
        if self.inputs is not None:
            self.inputs[rows] = grad @ weight
        weight_dtype, bias_dtype = self._dtypes
        if self._needs_weight:
            part = (grad.mT @ inputs[rows]).to(weight_dtype)
            self.weight = part if self.weight is None else self.weight.add_(part)
        if self._needs_bias:
            part = grad.sum(dim=0, dtype=bias_dtype)
            self.bias = part if self.bias is None else self.bias.add_(part)

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """The gradients that are needed."""
        return self.inputs, self.weight, self.bias
