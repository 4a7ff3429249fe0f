"""Optimizers: how gradients move the weights."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import nn

from heedful.config import Choice
from heedful.config.choice import assuming

Share = Annotated[float, Field(ge=0, lt=1)]


class OptimizerChoice(Choice):
    """How gradients move the weights."""

    kind: str
    learning_rate: PositiveFloat
    """The largest rate; the schedule says which share of it a step takes."""
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
        return self.over(groups)

    @abstractmethod
    def over(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Make the optimizer of groups of weights."""


class AdamWConfig(OptimizerChoice):
    """Adam with decoupled weight decay (Kingma & Ba 2015; Loshchilov & Hutter 2019)."""

    kind: Literal["adamw"] = "adamw"
    learning_rate: PositiveFloat = 1e-3
    """The largest rate; the schedule says which share of it a step takes."""
    beta1: Share = 0.9
    """Memory of the mean gradient."""
    beta2: Share = 0.98
    """Memory of the squared gradient."""
    epsilon: PositiveFloat = 1e-9
    """Added to the root of the squared gradient."""

    def over(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Make the optimizer of groups of weights."""
        betas = (self.beta1, self.beta2)
        return torch.optim.AdamW(
            groups, lr=self.learning_rate, betas=betas, eps=self.epsilon, fused=True
        )


class SgdConfig(OptimizerChoice):
    """Straight down the gradient, with momentum if wanted (Sutskever et al. 2013)."""

    kind: Literal["sgd"] = "sgd"
    learning_rate: PositiveFloat = 1.0
    """The largest rate; the schedule says which share of it a step takes."""
    momentum: Share = 0.0
    """Share of the last move that is kept."""
    nesterov: bool = False
    """Whether the gradient is taken where the momentum leads."""

    def over(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Make the optimizer of groups of weights."""
        return torch.optim.SGD(
            groups, lr=self.learning_rate, momentum=self.momentum, nesterov=self.nesterov
        )


class AdadeltaConfig(OptimizerChoice):
    """Moves in units of the weights themselves (Zeiler 2012); Bahdanau et al. 2015 use it."""

    kind: Literal["adadelta"] = "adadelta"
    learning_rate: PositiveFloat = 1.0
    """The largest rate, 1 in the paper; the schedule says which share of it a step takes."""
    rho: Share = 0.95
    """Memory of squared gradients and squared moves."""
    epsilon: PositiveFloat = 1e-6
    """Added to both before their roots are taken."""

    def over(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Make the optimizer of groups of weights."""
        return torch.optim.Adadelta(groups, lr=self.learning_rate, rho=self.rho, eps=self.epsilon)


class AdagradConfig(OptimizerChoice):
    """Rates that fall with the sum of squared gradients (Duchi et al. 2011); See et al. 2017."""

    kind: Literal["adagrad"] = "adagrad"
    learning_rate: PositiveFloat = 0.15
    """The largest rate; the schedule says which share of it a step takes."""
    accumulated: NonNegativeFloat = 0.1
    """What the sum of squared gradients begins with."""

    def over(self, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        """Make the optimizer of groups of weights."""
        return torch.optim.Adagrad(
            groups, lr=self.learning_rate, initial_accumulator_value=self.accumulated
        )


OptimizerConfig = Annotated[
    AdamWConfig | SgdConfig | AdadeltaConfig | AdagradConfig,
    Field(discriminator="kind"),
    assuming("adamw"),
]
