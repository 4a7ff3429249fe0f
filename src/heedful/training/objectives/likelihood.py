"""Likelihood: how unlikely did the model find what should have been said?

A sum over real target tokens.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from heedful.shapes import Float, Int
from heedful.text.vocabulary import PAD
from heedful.training.objectives.objective import Loss, Objective
from heedful.training.sampling import SamplingConfig, TeacherForcingConfig

_TAUGHT = TeacherForcingConfig()


class Likelihood(Objective):
    """-log p(y | x), token by token, told the known tokens before it or some of the model's own."""

    def __init__(self, *, smoothing: float = 0.0, sampling: SamplingConfig = _TAUGHT) -> None:
        self.smoothing = smoothing
        self.sampling = sampling

    def count(self, batch: Any) -> int:
        """Count the real target tokens."""
        return batch.num_targets

    def __call__(self, model: nn.Module, batch: Any, step: int, bare: nn.Module) -> Loss:
        """Say how unlikely a batch is."""
        del bare  # the model's own tokens are taken as it reads
        share = self.sampling.teacher_share(step)
        log_probs, _, penalties = model(batch, share, self.sampling.own, need_weights=False)
        error = negative_log_likelihood(log_probs, batch.targets, smoothing=self.smoothing)
        return Loss(error, penalties)


def negative_log_likelihood(
    log_probs: Float[Tensor, "B T N"], targets: Int[Tensor, "B T"], *, smoothing: float = 0.0
) -> Float[Tensor, ""]:
    """Sum -log p over real targets, a share of it spread evenly over the vocabulary.

    (1 - e) * -log p(y) + e * mean over v of -log p(v)  (Szegedy et al. 2016, section 7).
    """
    real = targets != PAD
    wide = torch.promote_types(log_probs.dtype, torch.float32)  # 16 bits cannot add up a batch
    chosen = log_probs.gather(-1, targets.unsqueeze(-1)).squeeze(-1).to(wide)  # (B, T)
    if smoothing:
        chosen = torch.lerp(chosen, log_probs.mean(dim=-1, dtype=wide), smoothing)
    return -(chosen * real).sum()


def num_correct(log_probs: Float[Tensor, "B T N"], targets: Int[Tensor, "B T"]) -> Int[Tensor, ""]:
    """Count the real targets that the model held the likeliest."""
    return ((log_probs.argmax(dim=-1) == targets) & (targets != PAD)).sum()
