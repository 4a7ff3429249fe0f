"""Optimizers: how do gradients move the weights?

Law: each moves them by the rule of its paper, also while the learning rate changes. Groups of
weights carry a `lr_scale`: the share of the learning rate that they take.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)
from torch import nn
from torch.optim import Optimizer

from heedful.config import BaseConfig
from heedful.config.base import with_default_type
from heedful.errors import ConfigError, choices_hint, did_you_mean

Fraction = Annotated[float, Field(ge=0, lt=1)]
ParamGroups = list[dict[str, Any]]


class ParamGroupConfig(BaseConfig):
    """How weights of certain names learn, where that is not as all others do."""

    pattern: str
    """Names of weights; `*` stands for anything, so `encoder.*` is the whole encoder."""
    lr_scale: PositiveFloat = 1.0
    """Share of the learning rate that they take."""
    weight_decay: NonNegativeFloat | None = None
    """Their weight decay, if not the optimizer's."""
    frozen: bool = False
    """Whether they stay as they are."""

    @model_validator(mode="after")
    def _check_frozen(self) -> ParamGroupConfig:
        given = self.model_fields_set & {"lr_scale", "weight_decay"}
        if self.frozen and given:
            raise ConfigError(
                f"training.optimizer.param_groups, pattern '{self.pattern}'",
                f"weights that are frozen have no {sorted(given)[0]}",
                "leave out one of the two",
            )
        return self


class OptimizerConfigBase(BaseConfig):
    """How gradients move the weights."""

    type: str
    learning_rate: PositiveFloat
    """The largest rate; the schedule says which share of it a step takes."""
    weight_decay: NonNegativeFloat = 0.0
    """Share of each matrix added to its gradient (biases and gains are left alone)."""
    param_groups: tuple[ParamGroupConfig, ...] = ()
    """Weights that learn otherwise; of several that match a name the first holds."""

    def build(self, model: nn.Module) -> Optimizer:
        """Make the optimizer of a model; weights to be frozen stop asking for gradients."""
        places = _assign_groups(model, self.param_groups)
        for weight, place in places.items():
            if place is not None and self.param_groups[place].frozen:
                weight.requires_grad_(False)
        learning = {each: place for each, place in places.items() if each.requires_grad}
        if not learning:
            raise ConfigError(
                "training.optimizer.param_groups",
                "every weight of the model is frozen",
                "leave some of them to learn",
            )
        groups = self._groups_for(learning, None)
        for place in range(len(self.param_groups)):
            groups += [group for group in self._groups_for(learning, place) if group["params"]]
        return self.build_for_groups(groups)

    def _groups_for(
        self, group_of: Mapping[nn.Parameter, int | None], group_index: int | None
    ) -> ParamGroups:
        """The matrices among the weights of a place, which decay, and the rest."""
        weights = [weight for weight, found in group_of.items() if found == group_index]
        layer = (
            ParamGroupConfig(pattern="*") if group_index is None else self.param_groups[group_index]
        )
        decay = self.weight_decay if layer.weight_decay is None else layer.weight_decay
        matrices = [weight for weight in weights if weight.dim() > 1]
        others = [weight for weight in weights if weight.dim() <= 1]
        return [
            {"params": matrices, "weight_decay": decay, "lr_scale": layer.lr_scale},
            {"params": others, "weight_decay": 0.0, "lr_scale": layer.lr_scale},
        ]

    @abstractmethod
    def build_for_groups(self, groups: ParamGroups) -> Optimizer:
        """Make the optimizer of groups of weights."""


def _assign_groups(
    model: nn.Module, layers: Sequence[ParamGroupConfig]
) -> dict[nn.Parameter, int | None]:
    """For each weight that can learn, the first of the layers that it belongs to."""
    names = dict[nn.Parameter, list[str]]()
    for name, weight in model.named_parameters(remove_duplicate=False):
        names.setdefault(weight, []).append(name)  # a weight in two places has two names
    every = [name for each in names.values() for name in each]
    for number, layer in enumerate(layers):
        if not _matches_pattern(layer, every):
            raise _no_match_error(number, layer.pattern, every)
    return {
        weight: next((n for n, layer in enumerate(layers) if _matches_pattern(layer, named)), None)
        for weight, named in names.items()
        if weight.requires_grad
    }


def _matches_pattern(layer: ParamGroupConfig, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, layer.pattern) for name in names)


def _no_match_error(number: int, pattern: str, names: Sequence[str]) -> ConfigError:
    parts = [name.split(".") for name in names]
    wholes = {".".join([*part[:depth], "*"]) for part in parts for depth in range(1, len(part))}
    return ConfigError(
        f"training.optimizer.layers.{number}.match",
        f"no weight is called {pattern!r}{did_you_mean(pattern, {*names, *wholes})}",
        choices_hint({whole for whole in wholes if whole.count(".") == 1}),
    )


class AdamWConfig(OptimizerConfigBase):
    """Adam with decoupled weight decay (Kingma & Ba 2015; Loshchilov & Hutter 2019)."""

    type: Literal["adamw"] = "adamw"
    learning_rate: PositiveFloat = 1e-3
    """The largest rate; the schedule says which share of it a step takes."""
    weight_decay: NonNegativeFloat = 0.0
    """Share of each matrix taken away, times the rate; biases and gains are left alone."""
    beta1: Fraction = 0.9
    """Memory of the mean gradient."""
    beta2: Fraction = 0.98
    """Memory of the squared gradient."""
    eps: PositiveFloat = 1e-9
    """Added to the root of the squared gradient."""

    def build_for_groups(self, groups: ParamGroups) -> Optimizer:
        """Make the optimizer of groups of weights."""
        betas = (self.beta1, self.beta2)
        return torch.optim.AdamW(
            groups, lr=self.learning_rate, betas=betas, eps=self.eps, fused=True
        )


class AdamConfig(OptimizerConfigBase):
    """Steps of the mean gradient over the root of the mean squared one (Kingma & Ba 2015)."""

    type: Literal["adam"] = "adam"
    learning_rate: PositiveFloat = 1e-3
    """The largest rate; the schedule says which share of it a step takes."""
    beta1: Fraction = 0.9
    """Memory of the mean gradient."""
    beta2: Fraction = 0.999
    """Memory of the squared gradient."""
    eps: PositiveFloat = 1e-8
    """Added to the root of the squared gradient."""

    def build_for_groups(self, groups: ParamGroups) -> Optimizer:
        """Make the optimizer of groups of weights."""
        betas = (self.beta1, self.beta2)
        return torch.optim.Adam(
            groups, lr=self.learning_rate, betas=betas, eps=self.eps, fused=True
        )


class SGDConfig(OptimizerConfigBase):
    """Straight down the gradient, with momentum if wanted (Sutskever et al. 2013)."""

    type: Literal["sgd"] = "sgd"
    learning_rate: PositiveFloat = 1.0
    """The largest rate; the schedule says which share of it a step takes."""
    momentum: Fraction = 0.0
    """Share of the last move that is kept."""
    nesterov: bool = False
    """Whether the gradient is taken where the momentum leads."""

    @model_validator(mode="after")
    def _check_nesterov(self) -> SGDConfig:
        if self.nesterov and not self.momentum:
            raise ConfigError(
                "training.optimizer.nesterov",
                "without momentum there is nowhere that it leads",
                "set training.optimizer.momentum, for example to 0.9, or leave nesterov out",
            )
        return self

    def build_for_groups(self, groups: ParamGroups) -> Optimizer:
        """Make the optimizer of groups of weights."""
        if self.momentum:
            return MomentumSGD(groups, self.learning_rate, self.momentum, nesterov=self.nesterov)
        return torch.optim.SGD(groups, lr=self.learning_rate)


class MomentumSGD(Optimizer):
    """v' = m v - rate g(w), w' = w + v'; Nesterov's takes g(w + m v) (Sutskever et al. 2013).

    With Nesterov's, what is held as weights is w + m v: there is where the next gradient is taken.
    torch.optim.SGD keeps a sum of gradients instead and multiplies it by the rate of today, so that
    a rate that falls also takes back moves already under way; with momentum 0.99 that is a hundred.
    """

    def __init__(
        self, groups: ParamGroups, learning_rate: float, momentum: float, *, nesterov: bool
    ) -> None:
        self.momentum = momentum
        self.nesterov = nesterov
        super().__init__(groups, {"lr": learning_rate, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move the weights."""
        del closure
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            if not weights:
                continue
            pushes = torch._foreach_mul([weight.grad for weight in weights], -group["lr"])
            if group["weight_decay"]:
                torch._foreach_add_(pushes, weights, alpha=-group["lr"] * group["weight_decay"])
            moves = [self._velocity(weight) for weight in weights]
            torch._foreach_mul_(moves, self.momentum)
            torch._foreach_add_(moves, pushes)
            if self.nesterov:
                torch._foreach_add_(pushes, moves, alpha=self.momentum)
            torch._foreach_add_(weights, pushes if self.nesterov else moves)

    def _velocity(self, weight: nn.Parameter) -> torch.Tensor:
        """The last move of a weight; none at first."""
        state = self.state[weight]
        if "move" not in state:
            state["move"] = torch.zeros_like(weight)
        return state["move"]


class AdadeltaConfig(OptimizerConfigBase):
    """Moves in units of the weights themselves (Zeiler 2012); Bahdanau et al. 2015 use it."""

    type: Literal["adadelta"] = "adadelta"
    learning_rate: PositiveFloat = 1.0
    """The largest rate, 1 in the paper; the schedule says which share of it a step takes."""
    rho: Fraction = 0.95
    """Memory of squared gradients and squared moves."""
    eps: PositiveFloat = 1e-6
    """Added to both before their roots are taken."""

    def build_for_groups(self, groups: ParamGroups) -> Optimizer:
        """Make the optimizer of groups of weights."""
        return torch.optim.Adadelta(groups, lr=self.learning_rate, rho=self.rho, eps=self.eps)


class AdagradConfig(OptimizerConfigBase):
    """Rates that fall with the sum of squared gradients (Duchi et al. 2011); See et al. 2017."""

    type: Literal["adagrad"] = "adagrad"
    learning_rate: PositiveFloat = 0.15
    """The largest rate; the schedule says which share of it a step takes."""
    initial_accumulator_value: NonNegativeFloat = 0.1
    """What the sum of squared gradients begins with."""

    def build_for_groups(self, groups: ParamGroups) -> Optimizer:
        """Make the optimizer of groups of weights."""
        return torch.optim.Adagrad(
            groups, lr=self.learning_rate, initial_accumulator_value=self.initial_accumulator_value
        )


OptimizerConfig = Annotated[
    AdamWConfig | AdamConfig | SGDConfig | AdadeltaConfig | AdagradConfig,
    Field(discriminator="type"),
    with_default_type("adamw"),
]


# Schedules: how large is the learning rate at each step?
#
# A schedule is a function of the step and of how validations went before it, as a share of the
# largest rate, so that nothing of its own needs to be saved. Steps count from 1. All of them rise
# in a straight line at first.


class TrainingHistory(NamedTuple):
    """How long training goes on at most, and how it went so far."""

    max_steps: int
    scores: Sequence[float] = ()  # one per validation so far; smaller is better


class ConstantScheduleConfig(BaseConfig):
    """Stay at the largest rate after warming up."""

    type: Literal["constant"] = "constant"
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises."""

    def lr_factor(self, step: int, history: TrainingHistory) -> float:
        """The share of the largest rate at a step."""
        del history
        return _warmup_factor(step, self.warmup_steps)


class InverseSqrtScheduleConfig(BaseConfig):
    """Fall with the square root of the step (Vaswani et al. 2017, equation 3, peak at 1)."""

    type: Literal["inverse-sqrt"] = "inverse-sqrt"
    warmup_steps: PositiveInt = 4000
    """Steps over which the rate rises."""

    def lr_factor(self, step: int, history: TrainingHistory) -> float:
        """The share of the largest rate at a step."""
        del history
        return min(step / self.warmup_steps, math.sqrt(self.warmup_steps / step))


class LinearScheduleConfig(BaseConfig):
    """Fall in a straight line to nothing at the last step."""

    type: Literal["linear"] = "linear"
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises."""

    def lr_factor(self, step: int, history: TrainingHistory) -> float:
        """The share of the largest rate at a step."""
        gone = _decay_progress(step, self.warmup_steps, history.max_steps)
        return _warmup_factor(step, self.warmup_steps) * (1 - gone)


class CosineScheduleConfig(BaseConfig):
    """Fall along half a cosine to nothing at the last step."""

    type: Literal["cosine"] = "cosine"
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises."""

    def lr_factor(self, step: int, history: TrainingHistory) -> float:
        """The share of the largest rate at a step."""
        gone = _decay_progress(step, self.warmup_steps, history.max_steps)
        return _warmup_factor(step, self.warmup_steps) * (1 + math.cos(math.pi * gone)) / 2


class StepDecayScheduleConfig(BaseConfig):
    """Halve the rate again and again from some step on (Sutskever et al. 2014)."""

    type: Literal["step-decay"] = "step-decay"
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises."""
    start_decay_step: PositiveInt
    """The last step at the largest rate."""
    decay_steps: PositiveInt
    """Steps at each rate after that."""

    def lr_factor(self, step: int, history: TrainingHistory) -> float:
        """The share of the largest rate at a step."""
        del history
        halvings = max(0, math.ceil((step - self.start_decay_step) / self.decay_steps))
        return _warmup_factor(step, self.warmup_steps) * 0.5**halvings


class PlateauScheduleConfig(BaseConfig):
    """Lower the rate whenever validations have not become better for a while.

    Gehring et al. 2017 (section 4.2) divide by 10 after one validation that is no better.
    """

    type: Literal["plateau"] = "plateau"
    warmup_steps: NonNegativeInt = 0
    """Steps over which the rate rises."""
    factor: float = Field(default=0.5, gt=0, lt=1)
    """What the rate is multiplied by."""
    patience: PositiveInt = 3
    """Validations in a row without a better score after which that is done, and done again."""
    min_lr_ratio: float = Field(default=0.0, ge=0, le=1)
    """The least share of the largest rate, once it has risen."""

    def lr_factor(self, step: int, history: TrainingHistory) -> float:
        """The share of the largest rate at a step."""
        fallen = self.factor ** self._num_reductions(history.scores)
        return _warmup_factor(step, self.warmup_steps) * max(self.min_lr_ratio, fallen)

    def _num_reductions(self, scores: Sequence[float]) -> int:
        """How many times patience ran out; each time it begins anew."""
        best, waited, plateaus = math.inf, 0, 0
        for score in scores:
            is_better = score < best  # a score that is no number is not
            best, waited = (score, 0) if is_better else (best, waited + 1)
            if waited == self.patience:
                plateaus, waited = plateaus + 1, 0
        return plateaus


def _warmup_factor(step: int, warmup_steps: int) -> float:
    return min(1.0, step / warmup_steps) if warmup_steps else 1.0


def _decay_progress(step: int, warmup_steps: int, max_steps: int) -> float:
    """The share of the falling part that lies behind; the last step still learns a little."""
    falling = max(1, max_steps + 1 - warmup_steps)
    return min(1.0, max(0, step - warmup_steps) / falling)


LRScheduleConfig = Annotated[
    ConstantScheduleConfig
    | InverseSqrtScheduleConfig
    | LinearScheduleConfig
    | CosineScheduleConfig
    | StepDecayScheduleConfig
    | PlateauScheduleConfig,
    Field(discriminator="type"),
]
