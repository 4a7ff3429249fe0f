"""Optimizers: how gradients move the weights."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import nn

from heedful.config import Choice


class AdamWConfig(Choice):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""

    kind: Literal["adamw"] = "adamw"
    learning_rate: PositiveFloat = 1e-3
    """The largest rate; the schedule says which share of it a step takes."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Memory of the mean gradient."""
    beta2: float = Field(default=0.98, ge=0, lt=1)
    """Memory of the squared gradient."""
    epsilon: PositiveFloat = 1e-9
    """Added to the root of the squared gradient."""
    weight_decay: NonNegativeFloat = 0.0
    """Share of each matrix taken away, times the rate; biases and gains are left alone."""

    def build(self, model: nn.Module) -> torch.optim.Optimizer:
        """Make the optimizer of a model."""
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        groups = [
            {
                "params": [weight for weight in weights if weight.dim() > 1],
                "weight_decay": self.weight_decay,
            },
            {"params": [weight for weight in weights if weight.dim() <= 1], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            groups,
            lr=self.learning_rate,
            betas=(self.beta1, self.beta2),
            eps=self.epsilon,
            fused=True,
        )


OptimizerConfig = AdamWConfig
