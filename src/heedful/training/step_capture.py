"""Training steps as CUDA graphs: one launch per step in place of thousands.

A step reads its batches, its normalizer and its learning rates from fixed tensors and never waits
for the GPU, so one graph holds it from the forward pass to the optimizer. There is one graph per
batch shape. Invariants: a captured step equals the plain one up to rounding; dropout differs at
every step; a step whose loss or gradient is not finite changes no parameter; a graph is replayed
only while all parameters are where it was captured.
"""

import gc
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Adam, AdamW, Optimizer
from typing_extensions import override

from heedful.acceleration.cuda.graphs import (
    StaticFunction,
    capture_stream,
    leave_capture,
    on_stream,
)
from heedful.models.scheduled_sampling import TeacherForcingConfig
from heedful.pytree import map_pairs, map_tensors, tensors_of
from heedful.shapes import Float
from heedful.training.callbacks import LOG_EVERY_STEPS
from heedful.training.config import TrainingConfig
from heedful.training.distributed import DistributedContext, get_rng_states, set_rng_states
from heedful.training.trainer import StepLosses, Trainer, UpdateResult

MAX_GRAPHS = 256  # batches of other shapes run as plain steps
STEADY_STEPS = 100  # without a new graph, after which the warm-up is over


def capture_steps(
    trainer: Trainer,
    config: TrainingConfig,
    pad_batch: Callable[[Any], Any],
    log: Callable[[str], None],
) -> None:
    """Let a trainer on a GPU run its steps as CUDA graphs, or log why it cannot.

    `pad_batch` adds empty rows to a batch, so that few shapes occur.
    """
    if reason := plain_step_reason(config, trainer.dist_context):
        log(f"training steps run without CUDA graphs: {reason}")
    else:
        trainer.prepare_batch = pad_batch
        trainer.captured_update = CapturedUpdate(trainer, log)
        trainer.loss_sync_interval = LOG_EVERY_STEPS


def plain_step_reason(config: TrainingConfig, dist_context: DistributedContext) -> str:
    """Return why steps with these settings cannot be captured; empty if they can."""
    objective, sampling, optimizer = config.objective, config.scheduled_sampling, config.optimizer
    reasons = {
        "several processes exchange gradients": dist_context.world_size > 1,
        f"the objective {objective.type!r} decodes": objective.type != "cross-entropy",
        "scheduled sampling changes with the step": not isinstance(sampling, TeacherForcingConfig),
        "guided alignment looks up links on the CPU": config.guided_alignment is not None,
        "the loss scale of fp16 changes with the step": config.precision == "fp16",
        f"the optimizer {optimizer.type!r} has no fused step": not optimizer.type.startswith(
            "adam"
        ),
    }
    return next((reason for reason, applies in reasons.items() if applies), "")


class StaticStep:
    """A training step on batches of one shape, with inputs and results in fixed tensors."""

    def __init__(self, trainer: Trainer, batches: Sequence[Any]) -> None:
        self.trainer = trainer
        device = trainer.device
        self.batches = [map_tensors(lambda tensor: tensor.to(device), batch) for batch in batches]
        num_groups = len(trainer.optimizer.param_groups)
        self.settings = torch.ones(1 + num_groups, device=device)  # normalizer, learning rates
        self.loss_names: list[str] = []
        self.losses: Float[Tensor, "losses"] = self.settings.new_empty(0)

    def load(self, batches: Sequence[Any], normalizer: float, learning_rate: float) -> None:
        """Copy the inputs of a step into place."""
        groups = self.trainer.optimizer.param_groups
        rates = [learning_rate * group.get("lr_scale", 1.0) for group in groups]
        settings = torch.tensor([normalizer, *rates], pin_memory=self.settings.is_cuda)
        self.settings.copy_(settings, non_blocking=True)
        for static, batch in zip(self.batches, batches, strict=True):
            map_pairs(lambda into, tensor: into.copy_(tensor, non_blocking=True), static, batch)

    def run(self) -> None:
        """Compute gradients and update the parameters, unless something is not finite."""
        trainer, (normalizer, *rates) = self.trainer, self.settings
        self.loss_names, self.losses = trainer.compute_gradients(self.batches, normalizer)
        is_nonfinite = (~self.losses.isfinite()).any().float()
        with _settings_on_device(trainer.optimizer, rates, is_nonfinite):
            trainer.precision.optimizer_step(trainer.optimizer)

    def warm_up(self) -> None:
        """Compute gradients and drop them: libraries allocate and compile at the first call."""
        rng_states = get_rng_states()
        buffers = [(buffer, buffer.clone()) for buffer in self.trainer.model.buffers()]
        self.trainer.compute_gradients(self.batches, self.settings[0])
        self.trainer.optimizer.zero_grad(set_to_none=True)
        for buffer, before in buffers:  # batch norms have changed theirs
            buffer.copy_(before)
        set_rng_states(rng_states)


@contextmanager
def _settings_on_device(
    optimizer: Optimizer, rates: Sequence[Tensor], is_nonfinite: Tensor
) -> Iterator[None]:
    """Let fused Adam read learning rates from tensors, and skip an update that is not finite.

    It takes the latter as `torch.amp.GradScaler` gives it.
    """
    saved = [(group["lr"], group["capturable"]) for group in optimizer.param_groups]
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"], group["capturable"] = rate, rate.is_cuda
    optimizer.found_inf = is_nonfinite  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del optimizer.found_inf  # type: ignore[attr-defined]
        for group, (rate, is_capturable) in zip(optimizer.param_groups, saved, strict=True):
            group["lr"], group["capturable"] = rate, is_capturable


class CapturedStep(StaticStep):
    """The same as a CUDA graph."""

    def __init__(self, trainer: Trainer, batches: Sequence[Any], pool: Any) -> None:
        super().__init__(trainer, batches)
        self._function = StaticFunction(super().run)
        self._function.capture(pool, self.warm_up)
        trainer.optimizer.zero_grad(set_to_none=True)

    @override
    def run(self) -> None:
        self._function.run()


class CapturedUpdate:
    """The update of a trainer: captures a step for each batch shape, and replays it from then on.

    H200, Multi30k, real target tokens per second: see docs/performance.md.
    """

    def __init__(self, trainer: Trainer, log: Callable[[str], None]) -> None:
        assert isinstance(trainer.optimizer, Adam | AdamW), trainer.optimizer
        self.trainer = trainer
        self._log = log
        self._steps: dict[object, CapturedStep] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._addresses: list[int] = []
        """Of the parameters that the graphs read."""
        self._is_capturable = True
        self._capture_seconds = 0.0
        self._num_steady_steps = 0

    def __call__(
        self, micro_batches: Sequence[Any], learning_rate: float
    ) -> Callable[[], UpdateResult]:
        """Update the parameters; return a function that waits for the losses."""
        trainer = self.trainer
        # The first step creates the state of the optimizer, which outlives every graph.
        is_captured = self._is_capturable and bool(trainer.optimizer.state)
        step = self._find_step(micro_batches) if is_captured else None
        if step is None:
            with on_stream(capture_stream(self._pool)):
                result = trainer.update(micro_batches, learning_rate)
            return lambda: result
        normalizer = sum(trainer.objective.normalizer(batch) for batch in micro_batches)
        step.load(micro_batches, normalizer, learning_rate)
        step.run()
        values = step.losses.clone()  # the next step of this shape overwrites them
        return partial(_wait_for_result, step.loss_names, values)

    def _find_step(self, batches: Sequence[Any]) -> CapturedStep | None:
        """Return the captured step for batches of these shapes; None for a plain step."""
        self._drop_outdated_steps()
        key = tuple(tensor.shape for batch in batches for tensor in tensors_of(batch))
        self._num_steady_steps += 1
        if key not in self._steps and len(self._steps) < MAX_GRAPHS:
            self._capture(key, batches)
        elif self._num_steady_steps == STEADY_STEPS and self._steps:
            shapes = f"{len(self._steps)} batch shapes were captured"
            self._log(f"{shapes} in {self._capture_seconds:.1f} s; training is at full speed")
        return self._steps.get(key)

    def _drop_outdated_steps(self) -> None:
        """Drop all graphs if parameters are elsewhere in memory than when they were captured."""
        addresses = [parameter.data_ptr() for parameter in self.trainer.model.parameters()]
        if self._steps and addresses != self._addresses:
            self._log("the parameters were moved: training steps are captured again")
            self._steps.clear()
        self._addresses = addresses

    def _capture(self, key: object, batches: Sequence[Any]) -> None:
        """Capture a step for batches like these, or log why no step can be captured."""
        trainer = self.trainer
        if not self._steps:
            self._log("training steps are captured as CUDA graphs, one per batch shape")
            gc.collect()  # of gradients on other streams, which autograd would wait for
        rng_states, start = get_rng_states(), time.monotonic()
        try:
            self._steps[key] = CapturedStep(trainer, batches, self._pool)
        except RuntimeError as error:
            self._is_capturable = False
            self._steps.clear()  # with their memory
            reason = str(error).split("\n", 1)[0]
            self._log(f"training steps run without CUDA graphs: {reason}")
            trainer.optimizer.zero_grad(set_to_none=True)
            leave_capture(trainer.device)
            set_rng_states(rng_states)
        self._capture_seconds += time.monotonic() - start
        self._num_steady_steps = 0


def _wait_for_result(names: Sequence[str], values: Float[Tensor, "losses"]) -> UpdateResult:
    losses = StepLosses.from_values(names, values.tolist())
    is_finite = losses.are_finite and math.isfinite(losses.grad_norm)
    return losses, "" if is_finite else losses.describe()
