"""Objectives: how wrong was the model?

An objective is a sum over real target tokens, never a mean: who divides, and by how many, is
the learner's business, so that no grouping of batches changes the gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.shapes import Float, Int
from heedful.text.vocabulary import PAD


class Loss(NamedTuple):
    """What is made small: how wrong the model was, and what else was wrong, by name.

    Apart, because models are compared by the first alone.
    """

    error: Float[Tensor, ""]
    penalties: Mapping[str, Float[Tensor, ""]]


def negative_log_likelihood(
    log_probs: Float[Tensor, "B T N"], targets: Int[Tensor, "B T"], *, smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Sum -log p over real targets, a share of it spread evenly over the vocabulary.

    (1 - e) * -log p(y) + e * mean over v of -log p(v)  (Szegedy et al. 2016, section 7).
    """
    real = targets != PAD
    chosen = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1)  # (B, T)
    if smoothing:
        chosen = torch.lerp(chosen, log_probs.mean(dim=-1), smoothing)
    return -(chosen * real).sum()


def num_correct(log_probs: Float[Tensor, "B T N"], targets: Int[Tensor, "B T"]) -> Int[Tensor, ""]:
    """Count the real targets that the model held the likeliest."""
    return ((log_probs.argmax(dim=-1) == targets) & (targets != PAD)).sum()
