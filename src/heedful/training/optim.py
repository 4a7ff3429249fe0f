"""Optimizers and learning-rate schedules.

Invariants: each optimizer follows the update rule of its paper, also while the learning rate
changes; a schedule is a pure function of the step, the number of steps that training will take and
the scores so far, with no state to save.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import nn
from torch.optim import Optimizer
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.config.base import with_default_type
from heedful.errors import check, choices_hint, did_you_mean

Fraction = Annotated[float, Field(ge=0, lt=1)]
ParamGroups = list[dict[str, Any]]


class ParamGroupConfig(BaseConfig):
    """Learning rate and weight decay of the parameters that match a pattern."""

    pattern: str
    """Parameter names; `*` matches anything, so `encoder.*` is the whole encoder."""
    lr_scale: PositiveFloat = 1.0
    """Factor of the learning rate."""
    weight_decay: NonNegativeFloat | None = None
    """Weight decay; the optimizer's if null."""
    frozen: bool = False
    """Whether the parameters are not trained."""

    @model_validator(mode="after")
    def _check_frozen(self) -> Self:
        values = {"lr_scale": self.lr_scale != 1, "weight_decay": self.weight_decay is not None}
        conflicting = [name for name, is_set in values.items() if is_set]
        location = f"training.optimizer.param_groups, pattern {self.pattern!r}"
        message = f"frozen parameters have no {''.join(conflicting[:1])}"
        is_valid = not (self.frozen and conflicting)
        check(is_valid, location, message, "remove one of the two settings")
        return self

    def matches(self, names: Iterable[str]) -> bool:
        """Return whether one of the names of a parameter matches."""
        return any(fnmatchcase(name, self.pattern) for name in names)


class OptimizerConfigBase(BaseConfig):
    """An optimizer and its parameter groups."""

    type: str
    learning_rate: PositiveFloat
    """Peak learning rate; the schedule gives each step a fraction of it."""
    weight_decay: NonNegativeFloat = 0.0
    """L2 penalty added to the gradient of matrices; biases and norm gains have none."""
    param_groups: tuple[ParamGroupConfig, ...] = ()
    """Parameters with settings of their own; the first pattern that matches a name applies."""

    def build(self, model: nn.Module) -> Optimizer:
        """Build the optimizer of a model; frozen parameters lose `requires_grad`."""
        return self.build_for_groups(self.group_parameters(model))

    def group_parameters(self, model: nn.Module) -> ParamGroups:
        """Return the parameters of a model by their settings; frozen ones lose `requires_grad`."""
        names: dict[nn.Parameter, list[str]] = {}
        for name, parameter in model.named_parameters(remove_duplicate=False):
            names.setdefault(parameter, []).append(name)  # a tied parameter has several names
        self._check_patterns_match([name for aliases in names.values() for name in aliases])
        configs = [ParamGroupConfig(pattern="*"), *self.param_groups]  # the first: all others
        members: list[list[nn.Parameter]] = [[] for _ in configs]
        for parameter, aliases in names.items():
            if parameter.requires_grad:
                matching = (i for i, config in enumerate(configs) if i and config.matches(aliases))
                index = next(matching, 0)
                parameter.requires_grad_(not configs[index].frozen)
                members[index].append(parameter)
        groups: ParamGroups = []
        for config, parameters in zip(configs, members, strict=True):
            decay = self.weight_decay if config.weight_decay is None else config.weight_decay
            trainable = [parameter for parameter in parameters if parameter.requires_grad]
            matrices = [parameter for parameter in trainable if parameter.dim() > 1]
            others = [parameter for parameter in trainable if parameter.dim() <= 1]
            groups += [
                {"params": matrices, "weight_decay": decay, "lr_scale": config.lr_scale},
                {"params": others, "weight_decay": 0.0, "lr_scale": config.lr_scale},
            ]
        groups = [group for group in groups if group["params"]]
        location, message = "training.optimizer.param_groups", "all parameters are frozen"
        check(groups, location, message, "leave some of them trainable")
        return groups

    def _check_patterns_match(self, names: Sequence[str]) -> None:
        paths = [name.split(".") for name in names]
        patterns = {".".join([*path[:end], "*"]) for path in paths for end in range(1, len(path))}
        for index, group in enumerate(self.param_groups):
            location = f"training.optimizer.param_groups.{index}.pattern"
            suggestion = did_you_mean(group.pattern, {*names, *patterns})
            message = f"no parameter matches {group.pattern!r}{suggestion}"
            hint = choices_hint({pattern for pattern in patterns if pattern.count(".") == 1})
            check(group.matches(names), location, message, hint)

    @abstractmethod
    def build_for_groups(self, groups: ParamGroups) -> Optimizer:
        """Build the torch optimizer of these parameter groups."""


class AdamConfigBase(OptimizerConfigBase):
    """Decay rates of Adam and AdamW."""

    learning_rate: PositiveFloat = 1e-3
    """Peak learning rate; the schedule gives each step a fraction of it."""
    beta1: Fraction = 0.9
    """Decay rate of the mean gradient."""
    beta2: Fraction = 0.999
    """Decay rate of the mean squared gradient."""
    eps: PositiveFloat = 1e-8
    """Added to the root of the mean squared gradient."""

    @override
    def build_for_groups(self, groups: ParamGroups) -> Optimizer:
        optimizer_class = torch.optim.AdamW if self.type == "adamw" else torch.optim.Adam
        betas = (self.beta1, self.beta2)
        return optimizer_class(groups, self.learning_rate, betas, self.eps, fused=True)


class AdamWConfig(AdamConfigBase):
    """Adam with decoupled weight decay (Kingma & Ba 2015; Loshchilov & Hutter 2019)."""

    type: Literal["adamw"] = "adamw"
    weight_decay: NonNegativeFloat = 0.0
    """Decoupled weight decay of matrices, times the learning rate; none for biases and norms."""
    beta2: Fraction = 0.98
    """Decay rate of the mean squared gradient."""
    eps: PositiveFloat = 1e-9
    """Added to the root of the mean squared gradient."""


class AdamConfig(AdamConfigBase):
    """Adam (Kingma & Ba 2015)."""

    type: Literal["adam"] = "adam"


class SGDConfig(OptimizerConfigBase):
    """Stochastic gradient descent, with momentum if set (Sutskever et al. 2013)."""

    type: Literal["sgd"] = "sgd"
    learning_rate: PositiveFloat = 1.0
    """Peak learning rate; the schedule gives each step a fraction of it."""
    momentum: Fraction = 0.0
    """Fraction of the last update that is kept."""
    nesterov: bool = False
    """Whether to use Nesterov momentum."""

    @model_validator(mode="after")
    def _check_nesterov(self) -> Self:
        message = "needs momentum, but training.optimizer.momentum is 0"
        hint = "set training.optimizer.momentum, for example to 0.9, or remove nesterov"
        check(self.momentum or not self.nesterov, "training.optimizer.nesterov", message, hint)
        return self

    @override
    def build_for_groups(self, groups: ParamGroups) -> Optimizer:
        if self.momentum:
            return MomentumSGD(groups, self.learning_rate, self.momentum, nesterov=self.nesterov)
        return torch.optim.SGD(groups, lr=self.learning_rate)


class MomentumSGD(Optimizer):
    """v' = m v - lr g(w), w' = w + v'; Nesterov: g(w + m v)  (Sutskever et al. 2013, eq. 1 to 4).

    With Nesterov momentum the parameters hold w + m v, where the next gradient is taken.
    torch.optim.SGD keeps a sum of gradients and multiplies it by the current learning rate, so a
    falling rate also scales down updates that are already in the velocity.
    """

    def __init__(self, groups: ParamGroups, lr: float, momentum: float, *, nesterov: bool) -> None:
        self.momentum = momentum
        self.nesterov = nesterov
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})

    @override
    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        del closure
        for group in self.param_groups:
            params = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not params:
                continue
            updates = torch._foreach_mul([parameter.grad for parameter in params], -group["lr"])
            if group["weight_decay"]:
                torch._foreach_add_(updates, params, alpha=-group["lr"] * group["weight_decay"])
            for parameter in params:
                if "velocity" not in self.state[parameter]:
                    self.state[parameter]["velocity"] = torch.zeros_like(parameter)
            velocities = [self.state[parameter]["velocity"] for parameter in params]
            torch._foreach_mul_(velocities, self.momentum)
            torch._foreach_add_(velocities, updates)
            if self.nesterov:
                torch._foreach_add_(updates, velocities, alpha=self.momentum)
            torch._foreach_add_(params, updates if self.nesterov else velocities)


class AdadeltaConfig(OptimizerConfigBase):
    """Adadelta (Zeiler 2012), the optimizer of Bahdanau et al. 2015."""

    type: Literal["adadelta"] = "adadelta"
    learning_rate: PositiveFloat = 1.0
    """Peak learning rate, 1 in the paper; the schedule gives each step a fraction of it."""
    rho: Fraction = 0.95
    """Decay rate of the mean squared gradients and updates."""
    eps: PositiveFloat = 1e-6
    """Added to both before their roots are taken."""

    @override
    def build_for_groups(self, groups: ParamGroups) -> Optimizer:
        return torch.optim.Adadelta(groups, lr=self.learning_rate, rho=self.rho, eps=self.eps)


class AdagradConfig(OptimizerConfigBase):
    """Adagrad (Duchi et al. 2011), the optimizer of See et al. 2017."""

    type: Literal["adagrad"] = "adagrad"
    learning_rate: PositiveFloat = 0.15
    """Peak learning rate; the schedule gives each step a fraction of it."""
    initial_accumulator_value: NonNegativeFloat = 0.1
    """Initial value of the sum of squared gradients."""

    @override
    def build_for_groups(self, groups: ParamGroups) -> Optimizer:
        initial = self.initial_accumulator_value
        return torch.optim.Adagrad(groups, self.learning_rate, initial_accumulator_value=initial)


OptimizerConfig = Annotated[
    AdamWConfig | AdamConfig | SGDConfig | AdadeltaConfig | AdagradConfig,
    Field(discriminator="type"),
    with_default_type("adamw"),
]


class LRScheduleConfigBase(BaseConfig):
    """Linear warmup, then decay. Steps count from 1; factors are relative to the peak rate."""

    type: str
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the learning rate rises linearly from 0."""
    warmup_ratio: Annotated[float | None, Field(gt=0, lt=1)] = None
    """Warmup as a fraction of the steps that training takes, in place of `warmup_steps`."""

    def num_warmup_steps(self, max_steps: int) -> int:
        """Return the steps of the warmup; at least 1 if there is a `warmup_ratio`."""
        if self.warmup_ratio is None:
            return self.warmup_steps
        return max(1, round(self.warmup_ratio * max_steps))

    def lr_factor(self, step: int, max_steps: int, scores: Sequence[float] = ()) -> float:
        """Return the fraction of the peak rate; `scores` of validations so far, lower is better."""
        warmup_steps = self.num_warmup_steps(max_steps)
        warmup = min(1.0, step / warmup_steps) if warmup_steps else 1.0
        return warmup * self.decay_factor(step, max_steps, scores)

    @abstractmethod
    def decay_factor(self, step: int, max_steps: int, scores: Sequence[float]) -> float:
        """Return the factor without warmup."""

    def decay_progress(self, step: int, max_steps: int) -> float:
        """Return the fraction of the decay that is done; less than 1 at the last step."""
        warmup_steps = self.num_warmup_steps(max_steps)
        decay_steps = max(1, max_steps + 1 - warmup_steps)
        return min(1.0, max(0, step - warmup_steps) / decay_steps)


class ConstantScheduleConfig(LRScheduleConfigBase):
    """Constant learning rate after warmup."""

    type: Literal["constant"] = "constant"

    @override
    def decay_factor(self, step: int, max_steps: int, scores: Sequence[float]) -> float:
        return 1.0


class InverseSqrtScheduleConfig(LRScheduleConfigBase):
    """min(step / warmup, sqrt(warmup / step))  (Vaswani et al. 2017, equation 3, peak at 1)."""

    type: Literal["inverse-sqrt"] = "inverse-sqrt"
    warmup_steps: PositiveInt = 4000
    """Steps over which the learning rate rises linearly from 0."""

    @override
    def decay_factor(self, step: int, max_steps: int, scores: Sequence[float]) -> float:
        return min(1.0, math.sqrt(self.num_warmup_steps(max_steps) / step))


class LinearScheduleConfig(LRScheduleConfigBase):
    """Linear decay to 0 after the last step."""

    type: Literal["linear"] = "linear"

    @override
    def decay_factor(self, step: int, max_steps: int, scores: Sequence[float]) -> float:
        return 1 - self.decay_progress(step, max_steps)


class CosineScheduleConfig(LRScheduleConfigBase):
    """Half a cosine, down to 0 after the last step."""

    type: Literal["cosine"] = "cosine"

    @override
    def decay_factor(self, step: int, max_steps: int, scores: Sequence[float]) -> float:
        return (1 + math.cos(math.pi * self.decay_progress(step, max_steps))) / 2


class StepDecayScheduleConfig(LRScheduleConfigBase):
    """Lower the learning rate at regular intervals; halve it in Sutskever et al. 2014."""

    type: Literal["step-decay"] = "step-decay"
    start_decay_step: PositiveInt
    """Last step at the peak rate."""
    decay_steps: PositiveInt
    """Steps between reductions."""
    factor: float = Field(default=0.5, gt=0, lt=1)
    """Factor that the learning rate is multiplied by; 1 / 1.2 in Zaremba et al. 2014."""

    @override
    def decay_factor(self, step: int, max_steps: int, scores: Sequence[float]) -> float:
        return self.factor ** max(0, math.ceil((step - self.start_decay_step) / self.decay_steps))


class PlateauScheduleConfig(LRScheduleConfigBase):
    """Lower the learning rate when the validation score stops improving.

    Gehring et al. 2017 (section 4.2) divide it by 10 after one validation without improvement.
    """

    type: Literal["plateau"] = "plateau"
    factor: float = Field(default=0.5, gt=0, lt=1)
    """Factor that the learning rate is multiplied by."""
    patience: PositiveInt = 3
    """Validations without improvement before each reduction."""
    min_lr_ratio: float = Field(default=0.0, ge=0, le=1)
    """Lower bound, as a fraction of the peak rate."""

    @override
    def decay_factor(self, step: int, max_steps: int, scores: Sequence[float]) -> float:
        best, num_bad, num_reductions = math.inf, 0, 0
        for score in scores:
            improved = score < best  # False for NaN
            best, num_bad = (score, 0) if improved else (best, num_bad + 1)
            if num_bad == self.patience:
                num_reductions, num_bad = num_reductions + 1, 0
        return max(self.min_lr_ratio, self.factor**num_reductions)


LRScheduleConfig = Annotated[
    ConstantScheduleConfig
    | InverseSqrtScheduleConfig
    | LinearScheduleConfig
    | CosineScheduleConfig
    | StepDecayScheduleConfig
    | PlateauScheduleConfig,
    Field(discriminator="type"),
]


@dataclass
class LRSchedule:
    """Learning rate of each step; whoever validates appends to `scores` (lower is better).

    `planned_steps` returns, before each step, how many training will take; with a limit of time or
    FLOPs this is an estimate.
    """

    config: LRScheduleConfigBase
    peak_learning_rate: float
    planned_steps: Callable[[int], int]
    scores: Sequence[float] = ()

    def __call__(self, step: int) -> float:
        factor = self.config.lr_factor(step, self.planned_steps(step), self.scores)
        return self.peak_learning_rate * factor
