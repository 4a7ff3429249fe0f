"""Validation: how well does the model do on what it has not seen?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import nn

from heedful.data.collate import Batch
from heedful.training.objectives import negative_log_likelihood, num_correct


class Validated(NamedTuple):
    """How a model did on held-out targets that it was told word by word."""

    loss: float  # -log p per real target token, without smoothing
    accuracy: float  # share of real target tokens held the likeliest


@torch.no_grad()
def validate(model: nn.Module, batches: Iterable[Batch]) -> Validated:
    """Measure a model on held-out batches."""
    model.eval()
    loss, correct, num_targets = 0.0, 0, 0
    for batch in batches:
        log_probs = model(batch, need_weights=False).log_probs
        loss += negative_log_likelihood(log_probs, batch.targets).item()
        correct += int(num_correct(log_probs, batch.targets))
        num_targets += batch.num_targets
    return Validated(loss / num_targets, correct / num_targets)
