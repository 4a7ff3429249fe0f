"""Kernels of training steps on a CPU: dropout from 16-bit random numbers, the loss.

torch draws 64 random bits for each element of dropout, in one thread; here they serve four
elements. The loss of a linear layer is computed with its gradients, only for real targets.
Invariants: dropout draws from torch's generator, keeps its expectation exactly, and drops with a
probability within 2^-17 of that asked for; all else matches its reference up to rounding.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from typing_extensions import override

from heedful.acceleration import tuning
from heedful.acceleration.deferred_log_probs import (
    DeferredLogProbs,
    are_deferred_on,
    can_be_deferred,
)
from heedful.attention.alignments import mask_scores
from heedful.attention.attention import softmax_context
from heedful.attention.memory import Memory
from heedful.models.output_heads import smoothed_cross_entropy
from heedful.shapes import Context, Float, Queries, Scalar, TokenIds
from heedful.tokenization.vocabulary import PAD

NUM_VALUES = 2**16
DTYPES = {torch.float32, torch.float64}


def _can_run(*tensors: Tensor) -> bool:
    return not torch.compiler.is_compiling() and all(
        tensor.device.type == "cpu" and tensor.dtype in DTYPES for tensor in tensors
    )


def _can_draw(probability: float, num_elements: int) -> bool:
    is_large = num_elements >= tuning.MIN_DROPOUT_ELEMENTS
    return is_large and 1 / NUM_VALUES <= probability <= 1 - 1 / NUM_VALUES


def dropout_noise(inputs: Float[Tensor, "*B"], probability: float) -> Float[Tensor, "*B"]:
    """Return 0 with this probability p, else 1 / (1 - p)."""
    num_dropped = round(probability * NUM_VALUES)
    words = torch.empty(-(-inputs.numel() // 4), dtype=torch.long)
    words.random_(-(2**63), None)  # all 64 bits
    values = words.view(torch.int16)[: inputs.numel()].view(inputs.shape)
    noise = torch.empty(inputs.shape, dtype=inputs.dtype)
    torch.ge(values, num_dropped - NUM_VALUES // 2, out=noise)
    return noise.mul_(NUM_VALUES / (NUM_VALUES - num_dropped))


class FastDropout(nn.Dropout):
    """Dropout from 16-bit random numbers, where there are enough elements to gain."""

    @override
    def forward(self, inputs: Float[Tensor, "*B"]) -> Float[Tensor, "*B"]:
        if not (self.training and _can_draw(self.p, inputs.numel()) and _can_run(inputs)):
            return super().forward(inputs)
        return inputs * dropout_noise(inputs, self.p)


def can_attend_with_dropout(
    queries: Queries, memory: Memory, temperature: float, dropout: float
) -> bool:
    """Whether there is dropout, with which torch's SDPA holds all weights on a CPU."""
    values, keys, _ = memory
    if queries.shape[:-2] != keys.shape[:-2]:
        return False
    num_weights = math.prod(queries.shape[:-1]) * keys.size(-2)
    return _can_draw(dropout, num_weights) and _can_run(queries, keys, values)


def context_with_dropout(
    queries: Queries, memory: Memory, temperature: float, dropout: float
) -> Context:
    """Kernel of `softmax_context`."""
    values, keys, mask = memory
    scores = mask_scores(queries / temperature @ keys.mT, mask)
    # A row that is masked everywhere has equal weights, which must be zero.
    weights = scores.softmax(dim=-1) * mask
    return (weights * dropout_noise(weights, dropout)) @ values


def can_defer_on_cpu(inputs: Tensor, projection: nn.Module) -> bool:
    """Whether log-probabilities are likely to be used only by the loss, and are many."""
    if not can_be_deferred(inputs, projection) or torch.is_autocast_enabled("cpu"):
        return False
    assert isinstance(projection, nn.Linear), type(projection)
    num_logits = math.prod(inputs.shape[:-1]) * projection.out_features
    return num_logits >= tuning.MIN_DEFERRED_LOGITS and _can_run(inputs, projection.weight)


def cross_entropy_on_cpu(log_probs: Tensor, targets: TokenIds, label_smoothing: float) -> Scalar:
    """Kernel of `smoothed_cross_entropy` for deferred log-probabilities."""
    assert isinstance(log_probs, DeferredLogProbs), type(log_probs)
    inputs, projection, targets = log_probs.inputs, log_probs.projection, targets.flatten()
    inputs, is_real = inputs.flatten(0, -2), targets != PAD
    if not is_real.all():
        rows = is_real.nonzero().squeeze(1)
        inputs, targets = inputs.index_select(0, rows), targets.index_select(0, rows)
    weight, bias = projection.weight, projection.bias
    return _LinearCrossEntropy.apply(inputs, weight, bias, targets, label_smoothing)


class _LinearCrossEntropy(torch.autograd.Function):
    """Loss and gradients of a linear layer with softmax and label smoothing.

    -sum over rows of (1 - e) z_y + e mean(z) - log sum exp z, z = W x + b, has the gradient
    softmax(z) - (1 - e) onehot(y) - e / N. The last term, and mean(z), need no pass over the
    logits: both follow from the sum of the rows of W.
    """

    @staticmethod
    def forward(  # noqa: PLR0917 - autograd passes by position
        ctx: Any,
        inputs: Float[Tensor, "R D"],
        weight: Float[Tensor, "N D"],
        bias: Float[Tensor, "N"] | None,
        targets: Float[Tensor, "R"],
        label_smoothing: float,
    ) -> Scalar:
        vocab_size = len(weight)
        smoothing, target_weight = label_smoothing / vocab_size, 1 - label_smoothing
        weight_sum = weight.sum(dim=0)
        loss = -smoothing * (inputs @ weight_sum).sum()
        if bias is not None:
            loss = loss - smoothing * len(inputs) * bias.sum()
        grad_inputs = torch.empty_like(inputs)
        grad_weight = (-smoothing * inputs.sum(dim=0)).repeat(vocab_size, 1)
        grad_bias = None if bias is None else torch.full_like(bias, -smoothing * len(inputs))
        chunk_size = max(1, tuning.MAX_CPU_LOGITS // vocab_size)
        for start in range(0, len(inputs), chunk_size):
            rows = slice(start, start + chunk_size)
            chunk, index = inputs[rows], targets[rows].unsqueeze(1)
            logits = functional.linear(chunk, weight, bias)  # (R, N)
            grad = logits.softmax(dim=-1)
            # The largest probability is 1 / sum exp(z - max z), and never underflows.
            normalizers = logits.amax(dim=-1) - grad.amax(dim=-1).log()
            loss = loss + normalizers.sum() - target_weight * logits.gather(1, index).sum()
            grad.scatter_add_(1, index, grad.new_full(index.shape, -target_weight))
            torch.addmm(-smoothing * weight_sum, grad, weight, out=grad_inputs[rows])
            grad_weight.addmm_(grad.mT, chunk)
            if grad_bias is not None:
                grad_bias += grad.sum(dim=0)
        ctx.save_for_backward(grad_inputs, grad_weight, grad_bias)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_loss: Scalar) -> tuple[Tensor | None, ...]:
        grads = zip(ctx.saved_tensors, ctx.needs_input_grad, strict=False)
        scaled = [grad * grad_loss if grad is not None and need else None for grad, need in grads]
        return *scaled, None, None


def register() -> None:
    """Register the kernels; those of Triton take precedence, which are for other devices."""
    softmax_context.register("16-bit", context_with_dropout, can_attend_with_dropout)
    smoothed_cross_entropy.register(
        "deferred on CPU", cross_entropy_on_cpu, partial(are_deferred_on, "cpu")
    )
