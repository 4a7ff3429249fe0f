"""One optimizer step: gradients, clipping, mixed precision, moving average.

Invariants: the loss of a step is divided by the targets of all its micro-batches on all ranks, so
2 x 8 sentences give the gradient of 1 x 16; the average of the parameters does not influence
training; a step whose loss or gradient is not finite changes nothing but the step counter.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal, NamedTuple, Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim import Optimizer

from heedful.acceleration.registry import accelerate_for_training
from heedful.config import BaseConfig
from heedful.pytree import map_tensors
from heedful.shapes import Float
from heedful.storage.state_dict import unique_weights
from heedful.training.callbacks import StepMetrics
from heedful.training.distributed import SINGLE_PROCESS, DistributedContext, get_rng_states
from heedful.training.objectives import Objective


class ExponentialMovingAverage:
    """a = d a + (1 - d) w after each step n, with d = min(decay, (1 + n) / (10 + n)).

    The second term, TensorFlow's with `num_updates`, soon drops the random initial parameters.
    Polyak & Juditsky 1992 average all steps equally.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        state = model.state_dict(keep_vars=True)
        # The parameters themselves: if the model is moved, updating fails, where a view would lag.
        self._parameters: dict[str, Tensor] = {name: state[name] for name in unique_weights(model)}
        self._shadow = {name: tensor.detach().clone() for name, tensor in self._parameters.items()}

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Add the parameters after a step, counted from 1."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, tensor in self._parameters.items():
            if tensor.is_floating_point():
                self._shadow[name].lerp_(tensor, 1 - decay)
            else:  # counters have no mean
                self._shadow[name].copy_(tensor)

    @contextmanager
    def average_parameters(self, barrier: Callable[[], None] = lambda: None) -> Iterator[None]:
        """Give the model the averaged parameters inside the context; ranks may share them."""
        saved = {name: tensor.detach().clone() for name, tensor in self._parameters.items()}
        barrier()
        self._copy_into_model(self._shadow)
        barrier()
        try:
            yield
        finally:
            barrier()
            self._copy_into_model(saved)
            barrier()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the average by parameter name; the tensors are not copied."""
        return dict(self._shadow)

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Load a saved average; an empty one starts from the current parameters."""
        source = tensors or self._parameters
        for name, tensor in self._shadow.items():
            tensor.copy_(source[name].detach())

    @torch.no_grad()
    def _copy_into_model(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self._parameters.items():
            tensor.copy_(tensors[name])


class EMAConfig(BaseConfig):
    """Exponential moving average of the parameters."""

    decay: float = Field(default=0.999, gt=0, lt=1)
    """Fraction of the average that each step keeps; less during the first steps."""

    def build(self, model: nn.Module) -> ExponentialMovingAverage:
        return ExponentialMovingAverage(model, self.decay)


class GradientClipper(NamedTuple):
    """Clip by value, g = min(max(g, -max_value), max_value), then by norm, g = g max_norm / |g|.

    (Pascanu et al. 2013, algorithm 1, for the norm.) A gradient within both limits is unchanged; so
    is one that is not finite, so that its first bad entry can be reported.
    """

    max_norm: float | None = None
    max_value: float | None = None

    def __call__(
        self,
        parameters: Sequence[nn.Parameter],
        total_norm: Callable[[Sequence[Tensor]], Tensor] = SINGLE_PROCESS.total_norm,
    ) -> Float[Tensor, ""]:
        """Clip the gradients in place and return their norm before clipping."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = total_norm(gradients)
        # No synchronization with the GPU: an infinite limit changes nothing.
        is_finite = norm.isfinite()
        if self.max_value is not None:
            limit = torch.where(is_finite, self.max_value, torch.inf)
            for gradient in gradients:
                gradient.clamp_(-limit, limit)
        if self.max_norm is not None and gradients:
            clamped_norm = norm if self.max_value is None else total_norm(gradients)
            factor = torch.where(is_finite, (self.max_norm / clamped_norm).clamp(max=1), 1)
            torch._foreach_mul_(gradients, factor)
        return norm


PrecisionName = Literal["fp32", "bf16", "fp16"]

_AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_INIT_SCALE = 2.0**15  # the largest power of two in fp16, so that an fp16 loss can be scaled
_GROWTH_INTERVAL = 2000  # as in torch.amp.GradScaler
# At 1 the scale no longer explains an overflow; beyond 2^32 no gradient is that small.
_SCALE_RANGE = 1.0, 2.0**32


def choose_precision(gpu_precision: PrecisionName, device: torch.device) -> PrecisionName:
    """Return the precision of training where none is set: that for GPUs on one that has bf16."""
    has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    return gpu_precision if has_bf16 else "fp32"


class MixedPrecision:
    """Autocast and, in fp16, loss scaling (Micikevicius et al. 2018).

    Parameters, gradients and optimizer state are fp32. In fp16 small gradients underflow, so the
    loss is multiplied by a scale and the gradients are divided by it. The scale is a power of two,
    so it rounds nothing; scale and counter are all there is to save.
    """

    def __init__(self, name: PrecisionName, device_type: str) -> None:
        self.name = name
        self.device_type = device_type
        self._uses_loss_scaling = name == "fp16"
        self._scale = _INIT_SCALE if self._uses_loss_scaling else 1.0
        self._steps_since_rescale = 0

    def autocast(self) -> AbstractContextManager[Any]:
        """Return the context in which the forward pass runs."""
        if self.name not in _AUTOCAST_DTYPES:
            return nullcontext()
        return torch.autocast(self.device_type, dtype=_AUTOCAST_DTYPES[self.name])

    def backward(self, loss: Float[Tensor, ""]) -> None:
        """Accumulate the gradients of the scaled loss."""
        fp32_loss = loss.to(torch.promote_types(loss.dtype, torch.float32))  # fp16 overflows
        (fp32_loss * self._scale if self._uses_loss_scaling else fp32_loss).backward()

    def unscale_gradients(self, optimizer: Optimizer) -> None:
        """Divide the accumulated gradients by the scale."""
        if not self._uses_loss_scaling:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.mul_(1 / self._scale)

    def optimizer_step(self, optimizer: Optimizer) -> None:
        """Run the optimizer; double the scale after many steps without overflow."""
        optimizer.step()
        self._steps_since_rescale += 1
        if self._uses_loss_scaling and self._steps_since_rescale >= _GROWTH_INTERVAL:
            self._update_scale(2.0)

    def handle_overflow(self) -> bool:
        """Halve the scale after an overflow; return False if it is 1, so it cannot be the cause."""
        if self._scale <= _SCALE_RANGE[0]:
            return False
        self._update_scale(0.5)
        return True

    def state_dict(self) -> dict[str, float]:
        """Return the state for a checkpoint; empty without loss scaling."""
        state = {"scale": self._scale, "steps": float(self._steps_since_rescale)}
        return state if self._uses_loss_scaling else {}

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Restore a saved state; an empty one keeps the initial scale."""
        if self._uses_loss_scaling and state:
            self._scale, self._steps_since_rescale = state["scale"], int(state["steps"])

    def _update_scale(self, factor: float) -> None:
        low, high = _SCALE_RANGE
        self._scale, self._steps_since_rescale = min(high, max(low, self._scale * factor)), 0


class StepLosses(NamedTuple):
    """Losses of a step, divided by its targets, and the norm of the gradient before clipping."""

    main_loss: float
    auxiliary_losses: dict[str, float]
    grad_norm: float

    @classmethod
    def from_values(cls, names: Sequence[str], values: Sequence[float]) -> Self:
        """Return the losses from the output of `Trainer.compute_gradients`."""
        main_loss, *auxiliary, grad_norm = values
        return cls(main_loss, dict(zip(names, auxiliary, strict=True)), grad_norm)

    @property
    def are_finite(self) -> bool:
        """Whether all losses are finite."""
        return all(map(math.isfinite, [self.main_loss, *self.auxiliary_losses.values()]))

    def describe(self) -> str:
        """Return all values in words."""
        named = self.auxiliary_losses.items()
        auxiliary = "".join(f", auxiliary loss {name!r} is {value}" for name, value in named)
        return f"loss is {self.main_loss}{auxiliary}, gradient norm is {self.grad_norm}"


UpdateResult = tuple[StepLosses, str]
"""The losses of a step, and why it was skipped; empty if it was not."""
UpdateFunction = Callable[[Sequence[Any], float], Callable[[], UpdateResult]]
"""Starts a step on micro-batches with a learning rate; what it returns waits for the result."""


class PendingStep(NamedTuple):
    """An optimizer step that a GPU may still be busy with."""

    step: int
    learning_rate: float
    micro_batches: Sequence[Any]
    rng_states: Mapping[str, Tensor]  # before the step
    wait_for_result: Callable[[], UpdateResult]  # waits for the GPU

    @property
    def num_targets(self) -> int:
        """Targets without padding."""
        return sum(batch.num_targets for batch in self.micro_batches)

    def finish(self) -> StepMetrics:
        """Wait for the step and return its metrics."""
        losses, skip_reason = self.wait_for_result()
        return StepMetrics(
            self.step,
            losses.main_loss,
            losses.grad_norm,
            self.learning_rate,
            num_tokens=sum(batch.num_tokens for batch in self.micro_batches),
            num_targets=self.num_targets,
            auxiliary_losses=losses.auxiliary_losses,
            skip_reason=skip_reason,
        )


DEFAULT_CLIPPER = GradientClipper(max_norm=1.0)


class Trainer:
    """A model, its objective and its optimizer."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: Optimizer,
        learning_rate: Callable[[int], float],
        *,
        clipping: GradientClipper = DEFAULT_CLIPPER,
        precision: MixedPrecision | None = None,
        ema: ExponentialMovingAverage | None = None,
        dist_context: DistributedContext = SINGLE_PROCESS,
        device: torch.device | str = "cpu",
    ) -> None:
        """`learning_rate` maps a step, counted from 1, to the rate; param groups scale it."""
        self.model = model
        self.objective = objective
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.gradient_clipper = clipping
        self.precision = precision or MixedPrecision("fp32", "cpu")
        self.ema = ema
        self.dist_context = dist_context
        self.device = device
        self.step = 0
        self.captured_update: UpdateFunction | None = None  # instead of `update`: step_capture.py
        self.loss_sync_interval = 1
        """Steps after which losses are read: a GPU waits while they are."""
        self.prepare_batch: Callable[[Any], Any] = lambda batch: batch
        """Applied to batches before they are needed; see `training.prefetching`."""
        # Wrappers of sharded models look for the modules that they wrapped.
        is_sharded = dist_context.is_sharded
        self._training_model = model if is_sharded else accelerate_for_training(model, device)
        self._wrapped_model = dist_context.wrap_model(self._training_model)
        self._trainable_parameters = [p for p in model.parameters() if p.requires_grad]

    def train_step(self, micro_batches: Sequence[Any]) -> StepMetrics:
        """Run one optimizer step on a list of micro-batches, or skip it and say why."""
        return self.start_step(micro_batches).finish()

    def start_step(self, micro_batches: Sequence[Any]) -> PendingStep:
        """Start a step; further ones may be started before it is finished."""
        self.step += 1
        rng_states, learning_rate = get_rng_states(), self.learning_rate(self.step)
        update = self.captured_update or self._update_at_once
        wait_for_result = update(micro_batches, learning_rate)
        if self.ema is not None and not wait_for_result()[1]:
            self.ema.update(self.step)
        return PendingStep(self.step, learning_rate, micro_batches, rng_states, wait_for_result)

    def averaged_parameters(self) -> AbstractContextManager[None]:
        """Give the model the parameters it is evaluated with: their average, if there is one."""
        barrier = self.dist_context.barrier
        return self.ema.average_parameters(barrier) if self.ema is not None else nullcontext()

    def _update_at_once(
        self, micro_batches: Sequence[Any], learning_rate: float
    ) -> Callable[[], UpdateResult]:
        result = self.update(micro_batches, learning_rate)
        return lambda: result

    def update(self, micro_batches: Sequence[Any], learning_rate: float) -> UpdateResult:
        """Update the parameters, or return why not."""
        normalizer = sum(self.objective.normalizer(batch) for batch in micro_batches)
        names, values = self.compute_gradients(micro_batches, normalizer)
        losses = StepLosses.from_values(names, values.tolist())  # the only synchronization
        skip_reason = self._skip_reason(losses)
        if not skip_reason:
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate * group.get("lr_scale", 1.0)
            self.precision.optimizer_step(self.optimizer)
        self._clear_gradients()
        return losses, skip_reason

    def _clear_gradients(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        for parameter in self._trainable_parameters:  # where ranks share them, it has others
            parameter.grad = None

    def compute_gradients(
        self, micro_batches: Sequence[Any], normalizer: float | Tensor
    ) -> tuple[list[str], Float[Tensor, "losses"]]:
        """Add and clip the gradients of all micro-batches.

        Return the names of the auxiliary losses, and one tensor for everything: the main loss, the
        auxiliary losses and the norm of the gradient before clipping.
        """
        names: list[str] = []
        values: list[Tensor] = []
        for index, batch in enumerate(micro_batches, start=1):
            is_last = index == len(micro_batches)
            with nullcontext() if is_last else self.dist_context.no_sync(self._wrapped_model):
                losses = self._backward_micro_batch(batch, normalizer)
            names, values = list(losses), [*values, torch.stack(list(losses.values()))]
        parameters = self.dist_context.sum_gradients(self._trainable_parameters)
        self.precision.unscale_gradients(self.optimizer)
        norm = self.gradient_clipper(parameters, self.dist_context.total_norm)
        total = self.dist_context.all_reduce(torch.stack(values).sum(dim=0))
        return names[1:], torch.cat([total, norm.to(total).view(1)])

    def _backward_micro_batch(self, batch: Any, normalizer: float | Tensor) -> dict[str, Tensor]:
        """Add the gradients of a micro-batch; return its main loss (named "") and the others."""
        rows, weight = self.dist_context.shard_batch(batch)
        rows = map_tensors(lambda tensor: tensor.to(self.device, non_blocking=True), rows)
        if self._training_model.training != self.model.training:
            self._training_model.train(self.model.training)
        with self.precision.autocast():
            loss = self.objective(self._wrapped_model, rows, self.step, self._training_model)
        factor = weight / normalizer
        total = sum(loss.auxiliary_losses.values(), loss.main_loss) * factor
        self.precision.backward(total * self.dist_context.loss_factor)
        losses = {"": loss.main_loss, **loss.auxiliary_losses}
        return {name: value.detach().float() * factor for name, value in losses.items()}

    def _skip_reason(self, losses: StepLosses) -> str:
        """Describe the nonfinite losses and the first such gradient; empty if all are finite."""
        if losses.are_finite and math.isfinite(losses.grad_norm):
            return ""
        if losses.are_finite and self.precision.handle_overflow():
            return "overflow"
        named = dict(self.model.named_parameters())
        flags = (
            parameter.grad is not None and not bool(parameter.grad.isfinite().all())
            for parameter in named.values()
        )
        is_nonfinite = zip(named, self.dist_context.all_reduce_any(*flags), strict=True)
        nonfinite = (f"first in {name}" for name, flag in is_nonfinite if flag)
        return f"{losses.describe()} ({next(nonfinite, 'all gradients are finite')})"
