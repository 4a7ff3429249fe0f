"""The engine: learning in `update`, time in `fit`, everything else in observers.

Observers see what happened and cannot steer it; what ends training is asked of `until`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from heedful.data.collate import Batch
from heedful.errors import HeedfulError
from heedful.training.objectives import Loss


class Report(NamedTuple):
    """What one update did."""

    step: int
    loss: float  # per real target token, without penalties
    grad_norm: float  # before clipping
    learning_rate: float
    num_tokens: int  # real tokens of both sides
    penalties: Mapping[str, float]  # what was added to the loss, by name, per real target token


class NonFiniteError(HeedfulError):
    """A loss or gradient that is not a number; nothing was learned from it."""

    exit_code = 1


class Learner:
    """A model, and how it learns from a group of batches."""

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[nn.Module, Batch], Loss],
        optimizer: Optimizer,
        learning_rate: Callable[[int], float],
        *,
        max_grad_norm: float,
    ) -> None:
        """`loss` sums over real target tokens; `learning_rate` is a function of the step."""
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.max_grad_norm = max_grad_norm
        self.step = 0

    def update(self, group: Sequence[Batch]) -> Report:
        """Learn once from a group of batches.

        The loss is divided by the real targets of the whole group: two half batches give the
        gradient of the whole one, whatever their padding.
        """
        error, penalties = self._differentiate(group)
        grad_norm = clip_grad_norm_(self.model.parameters(), self.max_grad_norm).item()
        self._refuse_non_finite(error, penalties, grad_norm)
        rate = self.learning_rate(self.step + 1)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        num_tokens = sum(batch.num_tokens for batch in group)
        return Report(self.step, error, grad_norm, rate, num_tokens, penalties)

    def _differentiate(self, group: Sequence[Batch]) -> tuple[float, dict[str, float]]:
        """Add up the gradients of a group; give its error and its penalties, per real target."""
        num_targets = sum(batch.num_targets for batch in group)
        error, penalties = 0.0, dict[str, float]()
        for batch in group:
            loss = self.loss(self.model, batch)
            total = sum(loss.penalties.values(), loss.error)
            (total / num_targets).backward()
            error += loss.error.item() / num_targets
            for name, penalty in loss.penalties.items():
                penalties[name] = penalties.get(name, 0.0) + penalty.item() / num_targets
        return error, penalties

    def _refuse_non_finite(
        self, error: float, penalties: Mapping[str, float], grad_norm: float
    ) -> None:
        if all(map(math.isfinite, [error, *penalties.values(), grad_norm])):
            return
        named = "".join(f", the penalty '{name}' {value}" for name, value in penalties.items())
        bad = [
            name
            for name, weight in self.model.named_parameters()
            if weight.grad is not None and not weight.grad.isfinite().all()
        ]
        where = f"the first bad gradient is that of {bad[0]}" if bad else "gradients are finite"
        raise NonFiniteError(
            f"training step {self.step + 1}",
            f"the loss is {error}{named} and the gradient's norm {grad_norm}; {where}",
            "nothing was learned from this step; lower training.optimizer.learning_rate "
            "or training.max_grad_norm",
        )


Observer = Callable[[Report], None]


def fit(
    learner: Learner,
    batches: Iterable[Batch],
    *,
    until: Callable[[Report], bool],
    accumulate: int = 1,
    observers: Sequence[Observer] = (),
) -> None:
    """Learn until told to stop or the batches run out."""
    stream = iter(batches)
    while group := list(islice(stream, accumulate)):
        learner.model.train()
        report = learner.update(group)
        for observe in observers:
            observe(report)
        if until(report):
            return
