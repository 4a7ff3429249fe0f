"""The engine: learning in `update`, time in `fit`, everything else in observers.

Observers see what happened and cannot steer it; what ends training is asked of `until`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from heedful.errors import HeedfulError
from heedful.nested import map_tensors
from heedful.training.averaging import MovingAverage
from heedful.training.clipping import Clipping
from heedful.training.objectives import Objective
from heedful.training.observers import Observer, Report
from heedful.training.precision import Precision
from heedful.training.random_states import random_states
from heedful.training.ranks import ALONE, Ranks

SHORT = Clipping(max_norm=1.0)


class NonFiniteError(HeedfulError):
    """Too many losses or gradients in a row that are not numbers; nothing was learned from them."""

    exit_code = 3


class _Found(NamedTuple):
    """What a group of batches gave, beside gradients: all per unit of the objective."""

    error: float
    penalties: Mapping[str, float]
    grad_norm: float

    @property
    def has_sound_loss(self) -> bool:
        return all(map(math.isfinite, [self.error, *self.penalties.values()]))

    @property
    def is_finite(self) -> bool:
        return self.has_sound_loss and math.isfinite(self.grad_norm)


class Learner:
    """A model, and how it learns from a group of batches."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        optimizer: Optimizer,
        learning_rate: Callable[[int], float],
        *,
        clipping: Clipping = SHORT,
        precision: Precision | None = None,
        average: MovingAverage | None = None,
        ranks: Ranks = ALONE,
        device: torch.device | str = "cpu",
    ) -> None:
        """`learning_rate` is a function of the step; groups of weights take a share of it."""
        self.model = model
        self.objective = objective
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.clipping = clipping
        self.precision = precision or Precision("fp32", "cpu")
        self.average = average
        self.ranks = ranks
        self.device = device
        self.step = 0
        self.random_before = random_states()
        self._spread = ranks.spread(model)
        self._weights = [weight for weight in model.parameters() if weight.requires_grad]

    def update(self, group: Sequence[Any]) -> Report:
        """Learn once from a group of batches, or say why nothing was learned.

        The loss is divided by the real targets of the whole group, on all ranks: two half batches
        give the gradient of the whole one, whatever their padding.
        """
        self.step += 1
        self.random_before = random_states()
        found = self._differentiate(group)
        rate = self.learning_rate(self.step)
        skipped = "" if found.is_finite else self._why_skipped(found)
        if not skipped:
            for weights in self.optimizer.param_groups:
                weights["lr"] = rate * weights.get("scale", 1.0)
            self.precision.step(self.optimizer)
            if self.average is not None:
                self.average.update(self.step)
        self.optimizer.zero_grad(set_to_none=True)
        return Report(
            self.step,
            found.error,
            found.grad_norm,
            rate,
            num_tokens=sum(batch.num_tokens for batch in group),
            num_targets=sum(batch.num_targets for batch in group),
            penalties=found.penalties,
            skipped=skipped,
        )

    def averaged(self) -> AbstractContextManager[None]:
        """Let the model have the weights it is used with: their average, if one is kept."""
        return self.average.applied() if self.average is not None else nullcontext()

    def _differentiate(self, group: Sequence[Any]) -> _Found:
        """Add up the gradients of a group, over its batches and over the ranks."""
        count = sum(self.objective.count(batch) for batch in group)
        names, numbers = list[str](), list[Tensor]()
        for number, batch in enumerate(group, start=1):
            is_last = number == len(group)
            with nullcontext() if is_last else self.ranks.apart(self._spread):
                named = self._learn_from(batch, count)
            names, numbers = list(named), [*numbers, torch.stack(list(named.values()))]
        self.precision.unscale(self.optimizer)
        norm = self.clipping(self._weights)
        total = self.ranks.total(torch.stack(numbers).sum(dim=0))
        # One list of everything: each question put to a GPU waits for all it has been told to do.
        error, *penalties, grad_norm = torch.cat([total, norm.to(total).view(1)]).tolist()
        return _Found(error, dict(zip(names[1:], penalties, strict=True)), grad_norm)

    def _learn_from(self, batch: Any, count: int) -> dict[str, Tensor]:
        """Add the gradient of one batch; give its error and its penalties, divided by the count."""
        rows, weight = self.ranks.portion(batch)
        rows = map_tensors(lambda tensor: tensor.to(self.device, non_blocking=True), rows)
        with self.precision.computing():
            loss = self.objective(self._spread, rows, self.step, self.model)
        share = weight / count
        total = sum(loss.penalties.values(), loss.error) * share
        # Ranks divide the gradient among them; the sum is wanted.
        self.precision.differentiate(total * self.ranks.world)
        named = {"": loss.error, **loss.penalties}
        return {name: number.detach().float() * share for name, number in named.items()}

    def _why_skipped(self, found: _Found) -> str:
        """Say what is not a number, and where it was first."""
        if found.has_sound_loss and self.precision.is_overflow(norm_is_finite=False):
            return "overflow"
        named = "".join(
            f", the penalty '{name}' {value}" for name, value in found.penalties.items()
        )
        bad = [
            name
            for name, weight in self.model.named_parameters()
            if weight.grad is not None and not weight.grad.isfinite().all()
        ]
        where = f"the first bad gradient is that of {bad[0]}" if bad else "gradients are finite"
        return (
            f"the loss is {found.error}{named} and the gradient's norm {found.grad_norm}; {where}"
        )


def fit(
    learner: Learner,
    batches: Iterable[Any],
    *,
    until: Callable[[Report, Sequence[Any]], bool],
    accumulate: int = 1,
    observers: Sequence[Observer] = (),
) -> None:
    """Learn until told to stop or the batches run out; `until` is also shown the batches."""
    stream = iter(batches)
    while group := list(islice(stream, accumulate)):
        learner.model.train()
        report = learner.update(group)
        for observer in observers:
            observer.updated(report)
        if until(report, group):
            return
