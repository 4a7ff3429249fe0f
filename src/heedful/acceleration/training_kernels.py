"""Kernels of training steps on a GPU with Triton: attention, residual sums and norms, the loss.

They compute in the precision of autocast where the plain code would cast before the next product.
The loss is that of deferred log-probabilities (`heedful.acceleration.cpu_training`). Invariant: a
kernel matches its reference up to the rounding of that precision.
"""

from typing import Any

import torch
from torch import Tensor, nn

from heedful.acceleration import tuning
from heedful.acceleration.cpu_training import (
    DeferredLogProbs,
    can_be_deferred,
    defer_log_softmax,
    get_product_dtype,
    has_hooks,
)
from heedful.attention.attention import softmax_context
from heedful.attention.memory import Memory
from heedful.layers.feed_forward import project_and_activate
from heedful.layers.sublayers import add_and_normalize, apply_norm
from heedful.models.output_heads import linear_log_softmax, smoothed_cross_entropy
from heedful.shapes import Context, Float, Queries, Scalar, TokenIds

Vectors = Float[Tensor, "*B D"]

TRITON_DEVICE_TYPE = "cuda"
DTYPES = {torch.float32, torch.float16, torch.bfloat16}
MAX_ELEMENTS = 2**31 - 1  # indices have 32 bits


def _can_run(*tensors: Tensor) -> bool:
    """Whether Triton can compute with tensors; it is not traced by compilers."""
    return not torch.compiler.is_compiling() and all(
        tensor.device.type == TRITON_DEVICE_TYPE
        and tensor.dtype in DTYPES
        and 0 < tensor.numel() <= MAX_ELEMENTS
        for tensor in tensors
    )


def can_attend(queries: Queries, memory: Memory, *_: object) -> bool:
    """Whether there is a kernel for these heads.

    A single query of a long memory would leave most of a GPU idle.
    """
    values, keys, mask = memory
    return (
        queries.dim() == keys.dim() == values.dim() == 4
        and mask.dim() <= 4
        and (keys.size(-2) <= tuning.MAX_TRITON_KEYS or queries.size(-2) > 1)
        and max(keys.size(-1), values.size(-1)) * keys.itemsize <= tuning.MAX_TRITON_HEAD_BYTES
        and queries.dtype == keys.dtype == values.dtype
        and _can_run(queries, keys, values)
    )


def triton_context(queries: Queries, memory: Memory, temperature: float, dropout: float) -> Context:
    """Kernel of `softmax_context`."""
    from heedful.acceleration.triton_attention import triton_attention

    values, keys, mask = memory
    return triton_attention(queries, keys, values, mask, scale=1 / temperature, dropout=dropout)


def _is_plain_norm(norm: nn.Module | None) -> bool:
    """Whether a norm is LayerNorm of the last dimension with weight and bias, or None."""
    if norm is None:
        return True
    if type(norm) is not nn.LayerNorm or norm.bias is None or has_hooks(norm):
        return False
    return len(norm.normalized_shape) == 1


def can_normalize(inputs: Vectors, norm: nn.Module | None) -> bool:
    """Whether there is a kernel for the norm."""
    is_narrow = inputs.dim() > 0 and inputs.size(-1) <= tuning.MAX_TRITON_NORM_SIZE
    return _is_plain_norm(norm) and is_narrow and _can_run(inputs)


def normalize(inputs: Vectors, norm: nn.Module) -> Vectors:
    """Kernel of `apply_norm`."""
    return _residual_norm(inputs, None, norm, 0.0)


def can_add_and_normalize(
    inputs: Vectors, update: Vectors, dropout: nn.Dropout, norm: nn.Module | None
) -> bool:
    """Whether there is a kernel for the sum and its norm."""
    is_plain = type(dropout) is nn.Dropout and not dropout.inplace and not has_hooks(dropout)
    is_equal = inputs.shape == update.shape
    return is_plain and is_equal and can_normalize(inputs, norm) and _can_run(update)


def dropout_add_and_normalize(
    inputs: Vectors, update: Vectors, dropout: nn.Dropout, norm: nn.Module | None
) -> Vectors:
    """Kernel of `add_and_normalize`."""
    return _residual_norm(inputs, update, norm, dropout.p if dropout.training else 0.0)


def _residual_norm(inputs: Vectors, update: Vectors | None, norm: Any, dropout: float) -> Vectors:
    from heedful.acceleration.triton_layer_norm import triton_residual_norm

    sum_dtype = inputs.dtype if update is None else torch.promote_types(inputs.dtype, update.dtype)
    if norm is None:
        return triton_residual_norm(inputs, update, None, None, dropout=dropout, dtype=sum_dtype)
    # What is normalized has one scale everywhere, so it may have the precision of the next product.
    is_cast = torch.is_autocast_enabled(inputs.device.type)
    dtype = get_product_dtype(inputs) if is_cast else sum_dtype
    return triton_residual_norm(
        inputs, update, norm.weight, norm.bias, eps=norm.eps, dropout=dropout, dtype=dtype
    )


def can_activate(inputs: Tensor, projection: nn.Module, activation: nn.Module) -> bool:
    """Whether the activation is ReLU of a linear layer with a bias, and has a gradient."""
    if type(projection) is not nn.Linear or type(activation) is not nn.ReLU:
        return False
    is_plain = projection.bias is not None and not has_hooks(projection, activation)
    is_training = torch.is_grad_enabled() and projection.weight.requires_grad
    return is_plain and is_training and _can_run(inputs)


def project_and_relu(
    inputs: Float[Tensor, "*B D"], projection: nn.Module, activation: nn.Module
) -> Float[Tensor, "*B F"]:
    """Kernel of `project_and_activate`."""
    from heedful.acceleration.triton_feed_forward import linear_relu

    assert isinstance(projection, nn.Linear), type(projection)
    dtype = get_product_dtype(inputs)
    return linear_relu(inputs, projection.weight, projection.bias, dtype=dtype)


def can_defer(inputs: Vectors, projection: nn.Module) -> bool:
    """Whether log-probabilities can be deferred, and Triton can compute the loss."""
    return can_be_deferred(inputs, projection) and _can_run(inputs)


def can_use_deferred(log_probs: Tensor, *_: object) -> bool:
    """Whether log-probabilities were deferred, and nothing has needed them."""
    is_deferred = isinstance(log_probs, DeferredLogProbs) and not log_probs.is_computed
    return is_deferred and log_probs.device.type == TRITON_DEVICE_TYPE


def deferred_cross_entropy(log_probs: Tensor, targets: TokenIds, label_smoothing: float) -> Scalar:
    """Kernel of `smoothed_cross_entropy` for deferred log-probabilities."""
    from heedful.acceleration.triton_cross_entropy import linear_cross_entropy

    assert isinstance(log_probs, DeferredLogProbs), type(log_probs)
    projection = log_probs.projection
    return linear_cross_entropy(
        log_probs.inputs,
        projection.weight,
        projection.bias,
        targets,
        label_smoothing=label_smoothing,
        dtype=log_probs.product_dtype,
    )


def register() -> None:
    """Register all kernels in front of those of other modules."""
    softmax_context.register("triton", triton_context, can_attend)
    apply_norm.register("triton", normalize, can_normalize)
    add_and_normalize.register("triton", dropout_add_and_normalize, can_add_and_normalize)
    project_and_activate.register("triton", project_and_relu, can_activate)
    linear_log_softmax.register("deferred", defer_log_softmax, can_defer)
    smoothed_cross_entropy.register("triton", deferred_cross_entropy, can_use_deferred)
