"""Kernels of training steps on a GPU with Triton: attention, residual sums and norms, the loss.

They compute in the precision of autocast where the plain code would cast before the next product.
Invariant: a kernel matches the plain code up to the rounding of that precision.
"""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.acceleration import tuning
from heedful.acceleration.deferred_log_probs import (
    DeferredLogProbs,
    are_deferred_on,
    can_be_deferred,
    has_hooks,
    product_dtype,
)
from heedful.attention.attention import softmax_context
from heedful.attention.memory import Memory
from heedful.layers.sublayers import FeedForward, FeedForwardOutput, SublayerConnection
from heedful.models.output_heads import smoothed_cross_entropy
from heedful.shapes import AnyMask, Context, Float, HiddenStates, Queries, Scalar, TokenIds

Vectors = Float[Tensor, "*B D"]

TRITON_DEVICE_TYPE = "cuda"
HAS_TRITON = find_spec("triton") is not None
DTYPES = {torch.float32, torch.float16, torch.bfloat16}
MAX_ELEMENTS = 2**31 - 1  # indices have 32 bits


def _can_run(*tensors: Tensor) -> bool:
    """Whether Triton can compute with tensors; it is not traced by compilers."""
    return (
        HAS_TRITON
        and not torch.compiler.is_compiling()
        and all(
            tensor.device.type == TRITON_DEVICE_TYPE
            and tensor.dtype in DTYPES
            and 0 < tensor.numel() <= MAX_ELEMENTS
            for tensor in tensors
        )
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
    from heedful.acceleration.triton.attention import triton_attention

    values, keys, mask = memory
    return triton_attention(queries, keys, values, mask, scale=1 / temperature, dropout=dropout)


def has_affine_vectors(norm: nn.LayerNorm) -> bool:
    """Whether there is a kernel for a norm: of the last dimension, with weight and bias."""
    return norm.bias is not None and len(norm.normalized_shape) == 1


class FusedLayerNorm(nn.LayerNorm):
    """LayerNorm by one kernel in each direction, in the precision of the next product."""

    @override
    def forward(self, inputs: Vectors) -> Vectors:
        if not _can_normalize(inputs):
            return super().forward(inputs)
        return _residual_norm(inputs, None, self, 0.0)


class FusedSublayerConnection(SublayerConnection):
    """A residual connection by one kernel in each direction: dropout, sum and norm."""

    @override
    def add_residual(self, inputs: Vectors, update: Vectors) -> Vectors:
        norm = self.norm if self.norm_order == "post" else None
        if not self._can_fuse(norm) or not self._can_add(inputs, update):
            return super().add_residual(inputs, update)
        return _residual_norm(inputs, update, norm, self.dropout.p if self.dropout.training else 0)

    def _can_fuse(self, norm: nn.Module | None) -> bool:
        if norm is not None and (type(norm) is not FusedLayerNorm or has_hooks(norm)):
            return False
        return not (self.training and self.drop_path) and not has_hooks(self.dropout)

    def _can_add(self, inputs: Vectors, update: Vectors) -> bool:
        return inputs.shape == update.shape and _can_normalize(inputs) and _can_run(update)


def _can_normalize(inputs: Vectors) -> bool:
    is_narrow = inputs.dim() > 0 and inputs.size(-1) <= tuning.MAX_TRITON_NORM_SIZE
    return is_narrow and _can_run(inputs)


def _residual_norm(inputs: Vectors, update: Vectors | None, norm: Any, dropout: float) -> Vectors:
    from heedful.acceleration.triton.layer_norm import triton_residual_norm

    sum_dtype = inputs.dtype if update is None else torch.promote_types(inputs.dtype, update.dtype)
    if norm is None:
        return triton_residual_norm(inputs, update, None, None, dropout=dropout, dtype=sum_dtype)
    # What is normalized has one scale everywhere, so it may have the precision of the next product.
    is_cast = torch.is_autocast_enabled(inputs.device.type)
    dtype = product_dtype(inputs) if is_cast else sum_dtype
    return triton_residual_norm(
        inputs, update, norm.weight, norm.bias, eps=norm.eps, dropout=dropout, dtype=dtype
    )


class FusedFeedForward(FeedForward):
    """A feed-forward network whose ReLU is part of the first product, with one gradient kernel."""

    @override
    def forward(self, inputs: HiddenStates, mask: AnyMask = None) -> FeedForwardOutput:
        if not self._can_fuse(inputs):
            return super().forward(inputs, mask)
        from heedful.acceleration.triton.feed_forward import linear_relu

        projection, dtype = self.input_projection, product_dtype(inputs)
        hidden = linear_relu(inputs, projection.weight, projection.bias, dtype=dtype)
        return FeedForwardOutput(self.output_projection(self.dropout(hidden)))

    def _can_fuse(self, inputs: HiddenStates) -> bool:
        """Whether the activation is ReLU of a linear layer with a bias, and has a gradient."""
        projection, activation = self.input_projection, self.activation
        is_relu = type(projection) is nn.Linear and type(activation) is nn.ReLU
        is_plain = projection.bias is not None and not has_hooks(projection, activation)
        is_training = torch.is_grad_enabled() and projection.weight.requires_grad
        return is_relu and is_plain and self.gate is None and is_training and _can_run(inputs)


def can_defer_on_gpu(inputs: Vectors, projection: nn.Module) -> bool:
    """Whether log-probabilities can be deferred, and Triton can compute the loss."""
    return can_be_deferred(inputs, projection) and _can_run(inputs)


def deferred_cross_entropy(log_probs: Tensor, targets: TokenIds, label_smoothing: float) -> Scalar:
    """Kernel of `smoothed_cross_entropy` for deferred log-probabilities."""
    from heedful.acceleration.triton.cross_entropy import linear_cross_entropy

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


def are_deferred(log_probs: Tensor, *_: object) -> bool:
    """Whether log-probabilities were deferred for the kernel, and nothing has used them."""
    return are_deferred_on(TRITON_DEVICE_TYPE, log_probs)


def register() -> None:
    """Register all kernels in front of those of other modules."""
    softmax_context.register("triton", triton_context, can_attend)
    smoothed_cross_entropy.register("triton", deferred_cross_entropy, are_deferred)
