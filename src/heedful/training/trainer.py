"""Averaging: what were the weights, on the whole, of late?

The mean of the weights along the way is often a better model than the last of them (Polyak &
Juditsky 1992). Law: training goes on as if no average were kept, and the average is a function of
the weights after each step and of the steps' numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice
from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils import get_total_norm
from torch.optim import Optimizer

from heedful.config import BaseConfig
from heedful.errors import HeedfulError
from heedful.pytree import map_tensors
from heedful.shapes import Float
from heedful.storage.state_dict import unique_weights
from heedful.training.callbacks import Callback, StepMetrics
from heedful.training.distributed import SINGLE_PROCESS, DistributedContext
from heedful.training.objectives import Objective


class EMAConfig(BaseConfig):
    """Keep a moving average of the weights."""

    decay: float = Field(default=0.999, gt=0, lt=1)
    """Share of the average that each step keeps; fewer at first, when there is little to keep."""


class ExponentialMovingAverage:
    """a = d a + (1 - d) w after each step n, with d = min(decay, (1 + n) / (10 + n)).

    The second term lets the first, random weights go soon: it is that of TensorFlow's
    ExponentialMovingAverage, as its documentation gives it for `num_updates`.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        state = model.state_dict(keep_vars=True)
        # The parameters themselves: if the model is moved, updating fails, where a view would lag.
        self._parameters_by_name: dict[str, Tensor] = {
            name: state[name] for name in unique_weights(model)
        }
        self._shadow = {
            name: tensor.detach().clone() for name, tensor in self._parameters_by_name.items()
        }

    @torch.no_grad()
    def update(self, step: int) -> None:
        """Take in the weights after a step, counted from 1."""
        effective_decay = min(self.decay, (1 + step) / (10 + step))
        for name, tensor in self._parameters_by_name.items():
            if tensor.is_floating_point():
                self._shadow[name].lerp_(tensor, 1 - effective_decay)
            else:  # counts have no mean
                self._shadow[name].copy_(tensor)

    @contextmanager
    def average_parameters(self) -> Iterator[None]:
        """Let the model's weights be the average within; afterwards they are what they were."""
        before = {
            name: tensor.detach().clone() for name, tensor in self._parameters_by_name.items()
        }
        self._copy_into_model(self._shadow)
        try:
            yield
        finally:
            self._copy_into_model(before)

    def state_dict(self) -> dict[str, Tensor]:
        """The average, by the names of the model's weights; the next update changes it."""
        return dict(self._shadow)

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Go on from an average that was saved; from none, begin at the weights as they are."""
        found = tensors or self._parameters_by_name
        for name, tensor in self._shadow.items():
            tensor.copy_(found[name].detach())

    @torch.no_grad()
    def _copy_into_model(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in self._parameters_by_name.items():
            tensor.copy_(tensors[name])


# Clipping: how large may a gradient be?
#
# Law: afterwards no number lies further from zero than `max_value` and the whole is no longer than
# `max_norm`; what was within both is unchanged. A gradient that is not finite is left as it is, so
# that it can be said where it came from.


class GradientClipper(NamedTuple):
    """Keeps each number of a gradient, and then its length, within bounds.

    The numbers first: g = min(max(g, -max_value), max_value). Then, if what is left of it is too
    long, it is shortened: g = g max_norm / |g|  (Pascanu et al. 2013, algorithm 1).
    """

    max_norm: float | None = None
    max_value: float | None = None

    def __call__(self, parameters: Sequence[nn.Parameter]) -> Float[Tensor, ""]:
        """Clip the gradients of weights; give the norm they had before."""
        gradients = [weight.grad for weight in parameters if weight.grad is not None]
        norm = _gradient_norm(gradients)
        # Nothing here asks a GPU for an answer: a bound that is infinite changes nothing.
        is_finite = norm.isfinite()
        if self.max_value is not None:
            bound = torch.where(is_finite, self.max_value, torch.inf)
            for gradient in gradients:
                gradient.clamp_(-bound, bound)
        if self.max_norm is not None and gradients:
            left = norm if self.max_value is None else _gradient_norm(gradients)
            share = torch.where(is_finite, (self.max_norm / left).clamp(max=1), 1)
            torch._foreach_mul_(gradients, share)
        return norm


@torch.no_grad()
def _gradient_norm(gradients: Sequence[Tensor]) -> Float[Tensor, ""]:
    norm = get_total_norm(list(gradients))
    # Each rank holds a part of a sharded gradient, and of its norm.
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


# Precision: in which numbers are products computed?
#
# Weights, their gradients and what the optimizer keeps are fp32 always. In bf16 and fp16 the products
# of a forward pass, and so of its gradient, are computed in 16 bits where that is safe
# (Micikevicius et al. 2018). bf16 has the range of fp32; fp16 has not, so its loss is multiplied by a
# scale first and gradients are divided by it again: small ones are then not lost.
#
# Law: the scale is a power of two, so it rounds nothing, and it is a function of which updates
# overflowed: it and a count are all that must be saved.

PrecisionName = Literal["fp32", "bf16", "fp16"]

_AUTOCAST_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}

_INIT_SCALE = 2.0**15  # the largest that fp16 holds, so that a loss in fp16 can be scaled too
_GROWTH_INTERVAL = 2000  # as torch.amp.GradScaler has it
# The scale alone cannot explain an overflow once it is 1; beyond 2^32 no gradient is that small.
_SCALE_RANGE = 1.0, 2.0**32


class MixedPrecision:
    """How a forward pass is computed and differentiated."""

    def __init__(self, name: PrecisionName, device_type: str) -> None:
        self.name = name
        self.device_type = device_type
        self._uses_loss_scaling = name == "fp16"
        self._scale = _INIT_SCALE if self._uses_loss_scaling else 1.0
        self._steps_since_rescale = 0  # since the scale was last changed

    def autocast(self) -> AbstractContextManager[Any]:
        """Compute what is done within in this precision."""
        if self.name not in _AUTOCAST_DTYPES:
            return nullcontext()
        return torch.autocast(self.device_type, dtype=_AUTOCAST_DTYPES[self.name])

    def backward(self, loss: Float[Tensor, ""]) -> None:
        """Add the gradient of a loss to those of the weights, times the scale."""
        wide = loss.to(torch.promote_types(loss.dtype, torch.float32))  # a scale overflows fp16
        (wide * self._scale if self._uses_loss_scaling else wide).backward()

    def unscale_gradients(self, optimizer: Optimizer) -> None:
        """Divide the gradients by the scale, once all of a group have been added up."""
        if not self._uses_loss_scaling:
            return
        for group in optimizer.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    weight.grad.mul_(1 / self._scale)

    def optimizer_step(self, optimizer: Optimizer) -> None:
        """Move the weights; after many moves without an overflow the scale is doubled."""
        optimizer.step()
        self._steps_since_rescale += 1
        if self._uses_loss_scaling and self._steps_since_rescale >= _GROWTH_INTERVAL:
            self._update_scale(2.0)

    def handle_overflow(self, norm_is_finite: bool) -> bool:
        """Whether the scale explains that a gradient is not finite; if so, it is halved.

        To be asked once for an update, in place of the step that is then not taken. A scale that
        has come down to 1 explains nothing any more.
        """
        if norm_is_finite or self._scale <= _SCALE_RANGE[0]:
            return False
        self._update_scale(0.5)
        return True

    def state_dict(self) -> dict[str, float]:
        """What must be saved to go on; nothing where there is no scale."""
        return (
            {"scale": self._scale, "steps": float(self._steps_since_rescale)}
            if self._uses_loss_scaling
            else {}
        )

    def load_state_dict(self, state: Mapping[str, float]) -> None:
        """Go on from facts that were saved; from none, as at the beginning."""
        if self._uses_loss_scaling and state:
            self._scale, self._steps_since_rescale = state["scale"], int(state["steps"])

    def _update_scale(self, factor: float) -> None:
        least, most = _SCALE_RANGE
        self._scale, self._steps_since_rescale = min(most, max(least, self._scale * factor)), 0


# Random states: where the generators that dropout and sampling draw from stand.


def get_rng_states() -> dict[str, Tensor]:
    """Take down where the generators stand, that of the CPU and that of the GPU in use."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def set_rng_states(states: Mapping[str, Tensor]) -> None:
    """Put the generators where they stood."""
    torch.set_rng_state(states["cpu"])
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"])


# The engine: learning in `train_step`, time in `fit`, everything else in observers.
#
# Observers see what happened and cannot steer it; what ends training is asked of `until`.

DEFAULT_CLIPPER = GradientClipper(max_norm=1.0)


class NonFiniteError(HeedfulError):
    """Too many losses or gradients in a row that are not numbers; nothing was learned from them."""

    exit_code = 3


class _GradientStats(NamedTuple):
    """What a group of batches gave, beside gradients: all per unit of the objective."""

    loss: float
    auxiliary_losses: Mapping[str, float]
    grad_norm: float

    @property
    def has_finite_loss(self) -> bool:
        return all(map(math.isfinite, [self.loss, *self.auxiliary_losses.values()]))

    @property
    def is_finite(self) -> bool:
        return self.has_finite_loss and math.isfinite(self.grad_norm)


class Trainer:
    """A model, and how it learns from a group of batches."""

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
        """`learning_rate` is a function of the step; groups of weights take a share of it."""
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
        self.rng_states_before_step = get_rng_states()
        self._wrapped_model = dist_context.wrap_model(model)
        self._trainable_parameters = [
            weight for weight in model.parameters() if weight.requires_grad
        ]

    def train_step(self, micro_batches: Sequence[Any]) -> StepMetrics:
        """Learn once from a group of batches, or say why nothing was learned.

        The loss is divided by the real targets of the whole group, on all ranks: two half batches
        give the gradient of the whole one, whatever their padding.
        """
        self.step += 1
        self.rng_states_before_step = get_rng_states()
        found = self._accumulate_gradients(micro_batches)
        rate = self.learning_rate(self.step)
        skipped = "" if found.is_finite else self._skip_reason(found)
        if not skipped:
            for weights in self.optimizer.param_groups:
                weights["lr"] = rate * weights.get("lr_scale", 1.0)
            self.precision.optimizer_step(self.optimizer)
            if self.ema is not None:
                self.ema.update(self.step)
        self.optimizer.zero_grad(set_to_none=True)
        return StepMetrics(
            self.step,
            found.loss,
            found.grad_norm,
            rate,
            num_tokens=sum(batch.num_tokens for batch in micro_batches),
            num_targets=sum(batch.num_targets for batch in micro_batches),
            auxiliary_losses=found.auxiliary_losses,
            skip_reason=skipped,
        )

    def averaged_parameters(self) -> AbstractContextManager[None]:
        """Let the model have the weights it is used with: their average, if one is kept."""
        return self.ema.average_parameters() if self.ema is not None else nullcontext()

    def _accumulate_gradients(self, micro_batches: Sequence[Any]) -> _GradientStats:
        """Add up the gradients of a group, over its batches and over the ranks."""
        count = sum(self.objective.normalizer(batch) for batch in micro_batches)
        names, numbers = list[str](), list[Tensor]()
        for number, batch in enumerate(micro_batches, start=1):
            is_last = number == len(micro_batches)
            with nullcontext() if is_last else self.dist_context.no_sync(self._wrapped_model):
                named = self._backward_micro_batch(batch, count)
            names, numbers = list(named), [*numbers, torch.stack(list(named.values()))]
        self.precision.unscale_gradients(self.optimizer)
        norm = self.gradient_clipper(self._trainable_parameters)
        total = self.dist_context.all_reduce(torch.stack(numbers).sum(dim=0))
        # One list of everything: each question put to a GPU waits for all it has been told to do.
        error, *auxiliary_losses, grad_norm = torch.cat([total, norm.to(total).view(1)]).tolist()
        return _GradientStats(error, dict(zip(names[1:], auxiliary_losses, strict=True)), grad_norm)

    def _backward_micro_batch(self, batch: Any, count: int) -> dict[str, Tensor]:
        """Add the gradient of one batch; give its error and its penalties, divided by the count."""
        rows, weight = self.dist_context.shard_batch(batch)
        rows = map_tensors(lambda tensor: tensor.to(self.device, non_blocking=True), rows)
        with self.precision.autocast():
            loss = self.objective(self._wrapped_model, rows, self.step, self.model)
        share = weight / count
        total = sum(loss.auxiliary_losses.values(), loss.main_loss) * share
        # Ranks divide the gradient among them; the sum is wanted.
        self.precision.backward(total * self.dist_context.world_size)
        named = {"": loss.main_loss, **loss.auxiliary_losses}
        return {name: number.detach().float() * share for name, number in named.items()}

    def _skip_reason(self, found: _GradientStats) -> str:
        """Say what is not a number, and where it was first."""
        if found.has_finite_loss and self.precision.handle_overflow(norm_is_finite=False):
            return "overflow"
        named = "".join(
            f", the penalty '{name}' {value}" for name, value in found.auxiliary_losses.items()
        )
        bad = [
            name
            for name, weight in self.model.named_parameters()
            if weight.grad is not None and not weight.grad.isfinite().all()
        ]
        where = f"the first bad gradient is that of {bad[0]}" if bad else "gradients are finite"
        return f"the loss is {found.loss}{named} and the gradient's norm {found.grad_norm}; {where}"


def fit(
    trainer: Trainer,
    batches: Iterable[Any],
    *,
    should_stop: Callable[[StepMetrics, Sequence[Any]], bool],
    gradient_accumulation_steps: int = 1,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Learn until told to stop or the batches run out; `until` is also shown the batches."""
    stream = iter(batches)
    while group := list(islice(stream, gradient_accumulation_steps)):
        trainer.model.train()
        report = trainer.train_step(group)
        for observer in callbacks:
            observer.on_step_end(report)
        if should_stop(report, group):
            return
