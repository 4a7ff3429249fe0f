"""Drops: how many words found their expert full?

Experts with a capacity say so of every batch; here it is heard, without a word to the model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.layers.mixture_of_experts import MixtureOfExperts, MoEOutput


class ExpertOverflowCounter:
    """Hears the experts of a model that have a capacity, as they learn."""

    def __init__(self, model: nn.Module) -> None:
        self._dropped_and_total: list[tuple[Tensor, Tensor]] = []
        for module in model.modules():
            if isinstance(module, MixtureOfExperts) and module.capacity_factor is not None:
                module.register_forward_hook(self._forward_hook)

    def pop_drop_rate(self) -> float | None:
        """The share of sends that were dropped since this was last asked; None if none was."""
        counts, self._dropped_and_total = self._dropped_and_total, []
        if not counts:
            return None
        num_routed, dropped = (torch.stack(each).sum().item() for each in zip(*counts, strict=True))
        return dropped / max(num_routed, 1)

    def _forward_hook(self, module: nn.Module, _: Any, mixed: MoEOutput) -> None:
        if module.training:
            self._dropped_and_total.append((mixed.num_routed, mixed.num_dropped))


# Observers: who is told how training goes.
#
# An observer sees what happened and cannot steer it.


class StepMetrics(NamedTuple):
    """What one update did."""

    step: int
    loss: float  # per real target token, without penalties
    grad_norm: float  # before clipping
    learning_rate: float
    num_tokens: int  # real tokens of both sides
    num_targets: int  # real target tokens
    auxiliary_losses: Mapping[
        str, float
    ]  # what was added to the loss, by name, per real target token
    skip_reason: str = ""  # why nothing was learned; nothing if something was


class LoggedSample(NamedTuple):
    """What the model made of one held-out example, and where it looked."""

    source: list[str]  # as shown
    reference: str
    output: list[str]  # as shown
    text: str
    attention: Sequence[Sequence[float]]  # (output, source); nothing where there is no attention


class ValidationResult(NamedTuple):
    """How the model did on what it has not seen."""

    step: int
    elapsed_seconds: float  # since training began
    scores: Mapping[str, float]  # "loss", "accuracy", and those asked for, by name
    is_best: bool
    samples: Sequence[LoggedSample] = ()


class Callback:
    """Is told of every update and every validation; by itself it does nothing with that."""

    def on_step_end(self, metrics: StepMetrics) -> None:
        """Hear of an update."""

    def on_validation_end(self, result: ValidationResult) -> None:
        """Hear of a validation."""

    def on_train_end(self) -> None:
        """Hear that nothing more will come, for now."""


# The metrics log: how training went, for programs to read, a line at a time.

_LOG_EVERY_STEPS = 10  # steps between lines


class MetricsLogger(Callback):
    """Writes a line now and then as training goes, and one for every validation."""

    def __init__(
        self,
        write: Callable[[Mapping[str, Any]], None],
        overflow_counter: ExpertOverflowCounter,
        extra_fields: Callable[[], Mapping[str, Any]],
    ) -> None:
        """`beside` gives what stands in every line of training beside the report."""
        self._write = write
        self._overflow_counter = overflow_counter
        self._extra_fields = extra_fields
        self._tokens = 0
        self._since = time.monotonic()

    def on_step_end(self, metrics: StepMetrics) -> None:
        """Write of one update in ten, and of the first."""
        self._tokens += metrics.num_tokens
        if metrics.step % _LOG_EVERY_STEPS != 0 and metrics.step != 1:
            return
        facts = {name: value for name, value in metrics._asdict().items() if value not in ({}, "")}
        dropped = self._overflow_counter.pop_drop_rate()
        counted = {} if dropped is None else {"dropped_by_experts": round(dropped, 6)}
        speed = {"tokens_per_second": round(self._tokens / (time.monotonic() - self._since), 1)}
        self._write({"type": "training", **facts, **counted, **speed, **self._extra_fields()})
        self._restart()

    def on_validation_end(self, result: ValidationResult) -> None:
        """Write of a validation; its time is not counted as training."""
        _, seconds, scores, *_ = result
        facts = {"step": result.step, **scores, "seconds": round(seconds, 3)}
        self._write({"type": "validation", **facts})
        self._restart()

    def _restart(self) -> None:
        self._tokens, self._since = 0, time.monotonic()
