"""Kernels of training steps on a CPU: dropout from 16-bit random numbers, deferred losses.

torch draws 64 random bits for each element of dropout, in one thread; here they serve four
elements. Log-probabilities of a vocabulary are deferred, on any device: the loss does not need
them, and any other use computes them. On a CPU it is computed with its gradients, only for real
targets. Invariants: dropout draws from torch's generator, keeps its expectation exactly, and drops
with a probability within 2^-17 of that asked for; all else matches its reference up to rounding.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.utils._pytree import tree_map

from heedful.acceleration import tuning
from heedful.attention.alignments import mask_scores
from heedful.attention.attention import softmax_context
from heedful.attention.memory import Memory
from heedful.layers.sublayers import apply_dropout
from heedful.models.output_heads import linear_log_softmax, smoothed_cross_entropy
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


def can_drop(inputs: Tensor, dropout: nn.Module) -> bool:
    """Whether dropout is active, and large enough to gain."""
    if not dropout.training or type(dropout) is not nn.Dropout or dropout.inplace:
        return False
    return _can_draw(dropout.p, inputs.numel()) and _can_run(inputs) and not has_hooks(dropout)


def drop(inputs: Float[Tensor, "*B"], dropout: nn.Module) -> Float[Tensor, "*B"]:
    """Kernel of `apply_dropout`."""
    assert isinstance(dropout, nn.Dropout), type(dropout)
    return inputs * dropout_noise(inputs, dropout.p)


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


def has_hooks(*modules: nn.Module) -> bool:
    """Whether a forward hook of one of the modules would miss a call."""
    return any(module._forward_hooks or module._forward_pre_hooks for module in modules)


def get_product_dtype(inputs: Tensor) -> torch.dtype:
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
        deferred.is_autocast, deferred.product_dtype = is_cast, get_product_dtype(inputs)
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


def can_be_deferred(inputs: Tensor, projection: nn.Module) -> bool:
    """Whether log-probabilities are likely to be used only by the loss.

    Wrappers of distributed training look into the outputs of a model. In float16 gradients have to
    be scaled before they are computed.
    """
    is_plain = type(projection) is nn.Linear and not has_hooks(projection)
    is_training = projection.training and torch.is_grad_enabled() and inputs.requires_grad
    is_alone = not (torch.distributed.is_available() and torch.distributed.is_initialized())
    if not (is_plain and is_training and is_alone):
        return False
    return get_product_dtype(inputs) != torch.float16


def defer_log_softmax(
    inputs: Float[Tensor, "*B D"], projection: nn.Module
) -> Float[Tensor, "*B N"]:
    """Kernel of `linear_log_softmax`."""
    assert isinstance(projection, nn.Linear), type(projection)
    return DeferredLogProbs(inputs, projection)


def can_defer_on_cpu(inputs: Tensor, projection: nn.Module) -> bool:
    """Whether log-probabilities are likely to be used only by the loss, and are many."""
    if not can_be_deferred(inputs, projection) or torch.is_autocast_enabled("cpu"):
        return False
    assert isinstance(projection, nn.Linear), type(projection)
    num_logits = math.prod(inputs.shape[:-1]) * projection.out_features
    return num_logits >= tuning.MIN_DEFERRED_LOGITS and _can_run(inputs, projection.weight)


def can_use_deferred_on_cpu(log_probs: Tensor, *_: object) -> bool:
    """Whether log-probabilities were deferred, and nothing has needed them."""
    is_deferred = isinstance(log_probs, DeferredLogProbs) and not log_probs.is_computed
    return is_deferred and log_probs.device.type == "cpu"


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
        smoothing, kept = label_smoothing / vocab_size, 1 - label_smoothing
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
            loss = loss + normalizers.sum() - kept * logits.gather(1, index).sum()
            grad.scatter_add_(1, index, grad.new_full(index.shape, -kept))
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
    apply_dropout.register("16-bit", drop, can_drop)
    softmax_context.register("16-bit", context_with_dropout, can_attend_with_dropout)
    linear_log_softmax.register("deferred on CPU", defer_log_softmax, can_defer_on_cpu)
    smoothed_cross_entropy.register(
        "deferred on CPU", cross_entropy_on_cpu, can_use_deferred_on_cpu
    )
