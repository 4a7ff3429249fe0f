"""Callbacks and the values they receive; the metrics log.

Invariant: a callback observes training and cannot change it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.layers.mixture_of_experts import MixtureOfExperts, MoEOutput

LOG_EVERY_STEPS = 10  # steps between two logged ones; the first is logged too


class StepMetrics(NamedTuple):
    """Metrics of an optimizer step."""

    step: int
    loss: float  # per target token, without auxiliary losses
    grad_norm: float  # before clipping
    learning_rate: float
    num_tokens: int  # source and target, without padding
    num_targets: int  # without padding
    auxiliary_losses: Mapping[str, float]  # by name, per target token
    skip_reason: str = ""  # empty if the step was taken


class LoggedSample(NamedTuple):
    """A prediction for a dev example."""

    source: list[str]  # tokens
    reference: str
    output: list[str]  # tokens
    text: str
    attention: Sequence[Sequence[float]]  # (output, source); empty without attention
    source_text: str = ""
    copy_probs: Sequence[float] = ()  # of each output token; empty if the model does not copy
    grid: Sequence[int] = ()  # rows and columns, if the source is the cells of an image


class ValidationResult(NamedTuple):
    """Metrics and samples of a validation."""

    step: int
    elapsed_seconds: float  # since training started
    scores: Mapping[str, float]  # by metric, "loss" first
    is_best: bool
    samples: Sequence[LoggedSample] = ()


class Callback:
    """Is called after each step and validation, and at the end; does nothing by default."""

    def on_step_end(self, metrics: StepMetrics) -> None:
        """Handle an optimizer step."""

    def on_validation_end(self, result: ValidationResult) -> None:
        """Handle a validation."""

    def on_train_end(self) -> None:
        """Handle the end of training, also when it was interrupted or failed."""


class PeriodicLogger(Callback):
    """Logs one step in ten, with the mean speed since the last one, and each validation."""

    def __init__(self) -> None:
        self._num_tokens, self._since = 0, time.monotonic()

    def log_step(self, metrics: StepMetrics, tokens_per_second: float) -> None:
        """Log an optimizer step."""

    def log_validation(self, result: ValidationResult) -> None:
        """Log a validation."""

    @override
    def on_step_end(self, metrics: StepMetrics) -> None:
        self._num_tokens += metrics.num_tokens
        if metrics.step % LOG_EVERY_STEPS == 0 or metrics.step == 1:
            seconds = max(time.monotonic() - self._since, 1e-9)
            self.log_step(metrics, self._num_tokens / seconds)
            self._num_tokens, self._since = 0, time.monotonic()

    @override
    def on_validation_end(self, result: ValidationResult) -> None:
        self.log_validation(result)
        # The time of a validation is not training time.
        self._num_tokens, self._since = 0, time.monotonic()


class ExpertOverflowCounter:
    """Counts the tokens that experts with a capacity drop, by forward hooks on a model."""

    def __init__(self, model: nn.Module) -> None:
        self._routed_and_dropped: list[tuple[Tensor, Tensor]] = []
        for module in model.modules():
            if isinstance(module, MixtureOfExperts) and module.capacity_factor is not None:
                module.register_forward_hook(self._count)

    def pop_drop_rate(self) -> float | None:
        """Return the fraction dropped since the last call; None if no tokens were routed."""
        counts, self._routed_and_dropped = self._routed_and_dropped, []
        if not counts:
            return None
        columns = zip(*counts, strict=True)
        num_routed, num_dropped = (torch.stack(column).sum().item() for column in columns)
        return num_dropped / max(num_routed, 1)

    def _count(self, module: nn.Module, _: Any, output: MoEOutput) -> None:
        if module.training:
            self._routed_and_dropped.append((output.num_routed, output.num_dropped))


class MetricsLogger(PeriodicLogger):
    """Writes metrics.jsonl: a line for one step in ten, and for each validation."""

    def __init__(
        self,
        write: Callable[[Mapping[str, Any]], None],
        model: nn.Module,
        extra_fields: Callable[[], Mapping[str, Any]],
    ) -> None:
        """`extra_fields` returns further fields of a training line, after the step metrics."""
        super().__init__()
        self._write = write
        self._overflow_counter = ExpertOverflowCounter(model)
        self._extra_fields = extra_fields

    @override
    def log_step(self, metrics: StepMetrics, tokens_per_second: float) -> None:
        fields = {name: value for name, value in metrics._asdict().items() if value not in ({}, "")}
        drop_rate = self._overflow_counter.pop_drop_rate()
        if drop_rate is not None:
            fields["dropped_by_experts"] = round(drop_rate, 6)
        fields["tokens_per_second"] = round(tokens_per_second, 1)
        self._write({"type": "training", **fields, **self._extra_fields()})

    @override
    def log_validation(self, result: ValidationResult) -> None:
        seconds = round(result.elapsed_seconds, 3)
        fields = {"step": result.step, **result.scores, "seconds": seconds}
        self._write({"type": "validation", **fields})
