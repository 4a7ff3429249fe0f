"""Validation: how well does the model do on what it has not seen?"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import nn

from heedful.training.objectives import negative_log_likelihood, num_correct
from heedful.training.ranks import ALONE, Ranks


class Validated(NamedTuple):
    """How a model did on held-out targets that it was told word by word."""

    loss: float  # -log p per real target token, without smoothing
    accuracy: float  # share of real target tokens held the likeliest


@torch.no_grad()
def validate(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    place: Callable[[Any], Any] = lambda batch: batch,
    ranks: Ranks = ALONE,
) -> Validated:
    """Measure a model on held-out batches, each of which is first put in its place."""
    model.eval()
    sums = torch.zeros(3, dtype=torch.float64)
    for batch in batches:
        rows, weight = ranks.portion(batch)
        rows = place(rows)
        log_probs = model(rows, need_weights=False).log_probs
        numbers = (
            negative_log_likelihood(log_probs, rows.targets).item(),
            num_correct(log_probs, rows.targets).item(),
            rows.num_targets,
        )
        sums += weight * torch.tensor(numbers, dtype=torch.float64)
    loss, correct, num_targets = ranks.total(sums).tolist()
    return Validated(loss / num_targets, correct / num_targets)
