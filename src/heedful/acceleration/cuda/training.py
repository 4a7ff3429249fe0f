"""Kernels of training steps on a GPU with Triton: attention, residual sums and norms, the loss.

They compute in the precision of autocast where the plain code would cast before the next product.
Log-probabilities of a vocabulary are deferred: the loss does not need them, and any other use
computes them. Invariant: a kernel matches its reference up to the rounding of that precision.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from heedful.acceleration import tuning
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


def has_hooks(*modules: nn.Module) -> bool:
    """Whether a forward hook of one of the modules would miss a call."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in modules)


def _product_dtype(inputs: Tensor) -> torch.dtype:
    """Return the precision of products with these inputs."""
    device_type = inputs.device.type
    if device_type != "meta" and torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return inputs.dtype


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
    from heedful.acceleration.triton.layer_norm import triton_residual_norm

    sum_dtype = inputs.dtype if update is None else torch.promote_types(inputs.dtype, update.dtype)
    if norm is None:
        return triton_residual_norm(inputs, update, None, None, dropout=dropout, dtype=sum_dtype)
    # What is normalized has one scale everywhere, so it may have the precision of the next product.
    is_cast = torch.is_autocast_enabled(inputs.device.type)
    dtype = _product_dtype(inputs) if is_cast else sum_dtype
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
    from heedful.acceleration.triton.feed_forward import linear_relu

    assert isinstance(projection, nn.Linear), type(projection)
    dtype = _product_dtype(inputs)
    return linear_relu(inputs, projection.weight, projection.bias, dtype=dtype)


class DeferredLogProbs(Tensor):
    """Log-probabilities of a linear layer that are computed when they are first used."""

    inputs: Tensor
    projection: nn.Linear
    is_autocast: bool
    product_dtype: torch.dtype
    _log_probs: Tensor | None

    @staticmethod
    def __new__(cls: type[Self], inputs: Float[Tensor, "*B D"], projection: nn.Linear) -> Self:
        shape = (*inputs.shape[:-1], projection.out_features)
        is_cast = torch.is_autocast_enabled(inputs.device.type)
        dtype = torch.float32 if is_cast else inputs.dtype
        deferred = Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=inputs.device)
        deferred.inputs, deferred.projection = inputs, projection
        deferred.is_autocast, deferred.product_dtype = is_cast, _product_dtype(inputs)
        deferred._log_probs = None
        return deferred

    def __init__(self, inputs: Tensor, projection: nn.Linear) -> None:
        super().__init__()

    def compute(self) -> Float[Tensor, "*B N"]:
        """Return the log-probabilities; they are computed once."""
        if self._log_probs is None:
            device_type, dtype = self.inputs.device.type, self.product_dtype
            with torch.autocast(device_type, dtype=dtype, enabled=self.is_autocast):
                self._log_probs = linear_log_softmax.reference(self.inputs, self.projection)
        return self._log_probs

    @property
    def is_computed(self) -> bool:
        """Whether something has used them."""
        return self._log_probs is not None

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call the function on the log-probabilities, unless it reads only shape or type."""
        if func in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        args, kwargs = tree_map(_computed, (args, dict(kwargs or {})))
        return func(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(cls, func: object, *_: object) -> Any:
        """Raise for calls that bypass `__torch_function__`: there are no values to compute with."""
        raise TypeError(f"{func} cannot use deferred log-probabilities: compute() them")


_METADATA = {
    Tensor.shape.__get__,  # type: ignore[attr-defined]
    Tensor.dtype.__get__,  # type: ignore[attr-defined]
    Tensor.device.__get__,
    Tensor.size,
    Tensor.dim,
}


def _computed(value: Any) -> Any:
    return value.compute() if isinstance(value, DeferredLogProbs) else value


def can_defer(inputs: Vectors, projection: nn.Module) -> bool:
    """Whether log-probabilities can be deferred, and Triton can compute the loss."""
    return can_be_deferred(inputs, projection) and _can_run(inputs)


def can_be_deferred(inputs: Vectors, projection: nn.Module) -> bool:
    """Whether log-probabilities are likely to be used only by the loss.

    Wrappers of distributed training look into the outputs of a model. In float16 gradients have to
    be scaled before they are computed.
    """
    is_plain = type(projection) is nn.Linear and not has_hooks(projection)
    is_training = projection.training and torch.is_grad_enabled() and inputs.requires_grad
    is_alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
    if not (is_plain and is_training and is_alone):
        return False
    return _product_dtype(inputs) != torch.float16


def defer_log_softmax(
    inputs: Float[Tensor, "*B D"], projection: nn.Module
) -> Float[Tensor, "*B N"]:
    """Kernel of `linear_log_softmax`."""
    assert isinstance(projection, nn.Linear), type(projection)
    return DeferredLogProbs(inputs, projection)


def can_use_deferred(log_probs: Tensor, *_: object) -> bool:
    """Whether log-probabilities were deferred, and nothing has needed them."""
    is_deferred = isinstance(log_probs, DeferredLogProbs) and not log_probs.is_computed
    return is_deferred and log_probs.device.type == TRITON_DEVICE_TYPE


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


def register() -> None:
    """Register all kernels in front of those of other modules."""
    softmax_context.register("triton", triton_context, can_attend)
    apply_norm.register("triton", normalize, can_normalize)
    add_and_normalize.register("triton", dropout_add_and_normalize, can_add_and_normalize)
    project_and_activate.register("triton", project_and_relu, can_activate)
    linear_log_softmax.register("deferred", defer_log_softmax, can_defer)
    smoothed_cross_entropy.register("triton", deferred_cross_entropy, can_use_deferred)
