"""The engine: learning in `update`, time in `fit`, everything else in observers.

Observers see what happened and cannot steer it; what ends training is asked of `until`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from heedful.data.collate import Batch
from heedful.errors import HeedfulError


class Report(NamedTuple):
    """What one update did."""

    step: int
    loss: float  # per real target token
    grad_norm: float  # before clipping
    learning_rate: float
    num_tokens: int  # real tokens of both sides


class NonFiniteError(HeedfulError):
    """A loss or gradient that is not a number; nothing was learned from it."""

    exit_code = 1


class Learner:
    """A model, and how it learns from a group of batches."""

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[nn.Module, Batch], Tensor],
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
        num_targets = sum(batch.num_targets for batch in group)
        total = 0.0
        for batch in group:
            loss = self.loss(self.model, batch) / num_targets
            loss.backward()
            total += loss.item()
        grad_norm = clip_grad_norm_(self.model.parameters(), self.max_grad_norm).item()
        self._refuse_non_finite(total, grad_norm)
        rate = self.learning_rate(self.step + 1)
        for parameters in self.optimizer.param_groups:
            parameters["lr"] = rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        num_tokens = sum(batch.num_tokens for batch in group)
        return Report(self.step, total, grad_norm, rate, num_tokens)

    def _refuse_non_finite(self, loss: float, grad_norm: float) -> None:
        if math.isfinite(loss) and math.isfinite(grad_norm):
            return
        bad = [
            name
            for name, weight in self.model.named_parameters()
            if weight.grad is not None and not weight.grad.isfinite().all()
        ]
        where = f"the first bad gradient is that of {bad[0]}" if bad else "gradients are finite"
        raise NonFiniteError(
            f"training step {self.step + 1}",
            f"the loss is {loss} and the gradient's norm {grad_norm}; {where}",
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
