"""Log-probabilities of a vocabulary that are computed only if something uses them.

The loss of a linear layer with softmax does not need them; any other use computes them. Invariant:
what is computed equals log softmax(W x + b).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from heedful.models.output_heads import log_softmax
from heedful.shapes import Float


def has_hooks(*modules: nn.Module) -> bool:
    """Whether a forward hook of one of the modules would miss a call."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in modules)


def product_dtype(inputs: Tensor) -> torch.dtype:
    """Return the precision of products with these inputs."""
    device_type = inputs.device.type
    if device_type != "meta" and torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return inputs.dtype


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
        deferred.is_autocast, deferred.product_dtype = is_cast, product_dtype(inputs)
        deferred._log_probs = None
        return deferred

    def __init__(self, inputs: Tensor, projection: nn.Linear) -> None:
        super().__init__()

    def compute(self) -> Float[Tensor, "*B N"]:
        """Return the log-probabilities; they are computed once."""
        if self._log_probs is None:
            device_type, dtype = self.inputs.device.type, self.product_dtype
            with torch.autocast(device_type, dtype=dtype, enabled=self.is_autocast):
                self._log_probs = log_softmax(self.projection(self.inputs))
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


def are_deferred_on(device_type: str, log_probs: Tensor, *_: object) -> bool:
    """Whether log-probabilities were deferred on this type of device, and nothing has used them."""
    is_deferred = isinstance(log_probs, DeferredLogProbs) and not log_probs.is_computed
    return is_deferred and log_probs.device.type == device_type


def can_be_deferred(inputs: Float[Tensor, "*B D"], projection: nn.Module) -> bool:
    """Whether log-probabilities are likely to be used only by the loss.

    Wrappers of distributed training look into the outputs of a model. In float16 gradients have to
    be scaled before they are computed.
    """
    is_plain = type(projection) is nn.Linear and not has_hooks(projection)
    is_training = projection.training and torch.is_grad_enabled() and inputs.requires_grad
    is_alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
    if not (is_plain and is_training and is_alone):
        return False
    return product_dtype(inputs) != torch.float16
