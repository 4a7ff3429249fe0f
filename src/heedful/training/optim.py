"""Optimizers: how do gradients move the weights?

Law: each moves them by the rule of its paper, also while the learning rate changes. Groups of
weights carry a `scale`: the share of the learning rate that they take.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, model_validator
from torch import nn
from torch.optim import Optimizer

from heedful.config import Choice
from heedful.config.choice import assuming
from heedful.errors import ConfigError, choose_from, did_you_mean

Share = Annotated[float, Field(ge=0, lt=1)]
Groups = list[dict[str, Any]]


class LayerConfig(Choice):
    """How weights of certain names learn, where that is not as all others do."""

    match: str
    """Names of weights; `*` stands for anything, so `encoder.*` is the whole encoder."""
    scale: PositiveFloat = 1.0
    """Share of the learning rate that they take."""
    weight_decay: NonNegativeFloat | None = None
    """Their weight decay, if not the optimizer's."""
    frozen: bool = False
    """Whether they stay as they are."""

    @model_validator(mode="after")
    def _is_of_one_mind(self) -> LayerConfig:
        said = self.model_fields_set & {"scale", "weight_decay"}
        if self.frozen and said:
            raise ConfigError(
                f"training.optimizer.layers, match '{self.match}'",
                f"weights that are frozen have no {sorted(said)[0]}",
                "leave out one of the two",
            )
        return self


class OptimizerChoice(Choice):
    """How gradients move the weights."""

    kind: str
    learning_rate: PositiveFloat
    """The largest rate; the schedule says which share of it a step takes."""
    weight_decay: NonNegativeFloat = 0.0
    """Share of each matrix added to its gradient (biases and gains are left alone)."""
    layers: tuple[LayerConfig, ...] = ()
    """Weights that learn otherwise; of several that match a name the first holds."""

    def build(self, model: nn.Module) -> Optimizer:
        """Make the optimizer of a model; weights to be frozen stop asking for gradients."""
        places = _places(model, self.layers)
        for weight, place in places.items():
            if place is not None and self.layers[place].frozen:
                weight.requires_grad_(False)
        learning = {each: place for each, place in places.items() if each.requires_grad}
        if not learning:
            raise ConfigError(
                "training.optimizer.layers",
                "every weight of the model is frozen",
                "leave some of them to learn",
            )
        groups = self._of_place(learning, None)
        for place in range(len(self.layers)):
            groups += [group for group in self._of_place(learning, place) if group["params"]]
        return self.over(groups)

    def _of_place(self, places: Mapping[nn.Parameter, int | None], place: int | None) -> Groups:
        """The matrices among the weights of a place, which decay, and the rest."""
        weights = [weight for weight, found in places.items() if found == place]
        layer = LayerConfig(match="*") if place is None else self.layers[place]
        decay = self.weight_decay if layer.weight_decay is None else layer.weight_decay
        matrices = [weight for weight in weights if weight.dim() > 1]
        others = [weight for weight in weights if weight.dim() <= 1]
        return [
            {"params": matrices, "weight_decay": decay, "scale": layer.scale},
            {"params": others, "weight_decay": 0.0, "scale": layer.scale},
        ]

    @abstractmethod
    def over(self, groups: Groups) -> Optimizer:
        """Make the optimizer of groups of weights."""


def _places(model: nn.Module, layers: Sequence[LayerConfig]) -> dict[nn.Parameter, int | None]:
    """For each weight that can learn, the first of the layers that it belongs to."""
    names = dict[nn.Parameter, list[str]]()
    for name, weight in model.named_parameters(remove_duplicate=False):
        names.setdefault(weight, []).append(name)  # a weight in two places has two names
    every = [name for each in names.values() for name in each]
    for number, layer in enumerate(layers):
        if not _matches(layer, every):
            raise _nothing_matches(number, layer.match, every)
    return {
        weight: next((n for n, layer in enumerate(layers) if _matches(layer, named)), None)
        for weight, named in names.items()
        if weight.requires_grad
    }


def _matches(layer: LayerConfig, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, layer.match) for name in names)


def _nothing_matches(number: int, pattern: str, names: Sequence[str]) -> ConfigError:
    parts = [name.split(".") for name in names]
    wholes = {".".join([*part[:depth], "*"]) for part in parts for depth in range(1, len(part))}
    return ConfigError(
        f"training.optimizer.layers.{number}.match",
        f"no weight is called {pattern!r}{did_you_mean(pattern, {*names, *wholes})}",
        choose_from({whole for whole in wholes if whole.count(".") == 1}),
    )


class AdamWConfig(OptimizerChoice):
    """Adam with decoupled weight decay (Kingma & Ba 2015; Loshchilov & Hutter 2019)."""

    kind: Literal["adamw"] = "adamw"
    learning_rate: PositiveFloat = 1e-3
    """The largest rate; the schedule says which share of it a step takes."""
    weight_decay: NonNegativeFloat = 0.0
    """Share of each matrix taken away, times the rate; biases and gains are left alone."""
    beta1: Share = 0.9
    """Memory of the mean gradient."""
    beta2: Share = 0.98
    """Memory of the squared gradient."""
    epsilon: PositiveFloat = 1e-9
    """Added to the root of the squared gradient."""

    def over(self, groups: Groups) -> Optimizer:
        """Make the optimizer of groups of weights."""
        betas = (self.beta1, self.beta2)
        return torch.optim.AdamW(
            groups, lr=self.learning_rate, betas=betas, eps=self.epsilon, fused=True
        )


class AdamConfig(OptimizerChoice):
    """Steps of the mean gradient over the root of the mean squared one (Kingma & Ba 2015)."""

    kind: Literal["adam"] = "adam"
    learning_rate: PositiveFloat = 1e-3
    """The largest rate; the schedule says which share of it a step takes."""
    beta1: Share = 0.9
    """Memory of the mean gradient."""
    beta2: Share = 0.999
    """Memory of the squared gradient."""
    epsilon: PositiveFloat = 1e-8
    """Added to the root of the squared gradient."""

    def over(self, groups: Groups) -> Optimizer:
        """Make the optimizer of groups of weights."""
        betas = (self.beta1, self.beta2)
        return torch.optim.Adam(
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

    @model_validator(mode="after")
    def _leads_somewhere(self) -> SgdConfig:
        if self.nesterov and not self.momentum:
            raise ConfigError(
                "training.optimizer.nesterov",
                "without momentum there is nowhere that it leads",
                "set training.optimizer.momentum, for example to 0.9, or leave nesterov out",
            )
        return self

    def over(self, groups: Groups) -> Optimizer:
        """Make the optimizer of groups of weights."""
        if self.momentum:
            return Momentum(groups, self.learning_rate, self.momentum, nesterov=self.nesterov)
        return torch.optim.SGD(groups, lr=self.learning_rate)


class Momentum(Optimizer):
    """v' = m v - rate g(w), w' = w + v'; Nesterov's takes g(w + m v) (Sutskever et al. 2013).

    With Nesterov's, what is held as weights is w + m v: there is where the next gradient is taken.
    torch.optim.SGD keeps a sum of gradients instead and multiplies it by the rate of today, so that
    a rate that falls also takes back moves already under way; with momentum 0.99 that is a hundred.
    """

    def __init__(
        self, groups: Groups, learning_rate: float, momentum: float, *, nesterov: bool
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
            moves = [self._move(weight) for weight in weights]
            torch._foreach_mul_(moves, self.momentum)
            torch._foreach_add_(moves, pushes)
            if self.nesterov:
                torch._foreach_add_(pushes, moves, alpha=self.momentum)
            torch._foreach_add_(weights, pushes if self.nesterov else moves)

    def _move(self, weight: nn.Parameter) -> torch.Tensor:
        """The last move of a weight; none at first."""
        state = self.state[weight]
        if "move" not in state:
            state["move"] = torch.zeros_like(weight)
        return state["move"]


class AdadeltaConfig(OptimizerChoice):
    """Moves in units of the weights themselves (Zeiler 2012); Bahdanau et al. 2015 use it."""

    kind: Literal["adadelta"] = "adadelta"
    learning_rate: PositiveFloat = 1.0
    """The largest rate, 1 in the paper; the schedule says which share of it a step takes."""
    rho: Share = 0.95
    """Memory of squared gradients and squared moves."""
    epsilon: PositiveFloat = 1e-6
    """Added to both before their roots are taken."""

    def over(self, groups: Groups) -> Optimizer:
        """Make the optimizer of groups of weights."""
        return torch.optim.Adadelta(groups, lr=self.learning_rate, rho=self.rho, eps=self.epsilon)


class AdagradConfig(OptimizerChoice):
    """Rates that fall with the sum of squared gradients (Duchi et al. 2011); See et al. 2017."""

    kind: Literal["adagrad"] = "adagrad"
    learning_rate: PositiveFloat = 0.15
    """The largest rate; the schedule says which share of it a step takes."""
    accumulated: NonNegativeFloat = 0.1
    """What the sum of squared gradients begins with."""

    def over(self, groups: Groups) -> Optimizer:
        """Make the optimizer of groups of weights."""
        return torch.optim.Adagrad(
            groups, lr=self.learning_rate, initial_accumulator_value=self.accumulated
        )


OptimizerConfig = Annotated[
    AdamWConfig | AdamConfig | SgdConfig | AdadeltaConfig | AdagradConfig,
    Field(discriminator="kind"),
    assuming("adamw"),
]
