"""Stochastic policies: where to look next, and whether to stop.

A policy turns uniform random numbers into actions, so that the same numbers give the same actions
whatever the batch; without numbers it takes its most probable action. Invariant: `log_probs` are
those of the sampled action, and only they have a gradient (REINFORCE).
"""

import math
from abc import ABC, abstractmethod
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import logsigmoid
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.config.base import with_default_type
from heedful.shapes import Bool, Float, Hidden

NUM_UNIFORM = 3  # random numbers of a step: two for the location, one for stopping
_MIN_UNIFORM = 2.0**-25  # half the smallest positive number that torch.rand gives in fp32


class LocationAction(NamedTuple):
    """Where each row looks next."""

    locations: Float[Tensor, "B 2"]  # row and column from -1 to 1
    log_probs: Float[Tensor, "B"]


class LocationPolicy(nn.Module, ABC):
    """A distribution over locations, given a hidden state."""

    @abstractmethod
    def forward(self, hidden: Hidden, uniform: Float[Tensor, "B 2"] | None) -> LocationAction:
        """Sample a location for each row; take the most probable one without random numbers."""


class GaussianLocationPolicy(LocationPolicy):
    """l ~ N(tanh(W h + b), std^2), then clipped to the image  (Mnih et al. 2014, section 3).

    The paper has no tanh: a mean far outside of the image would never come back, since all its
    samples are clipped to the same border.
    """

    def __init__(self, hidden_size: int, std: float) -> None:
        super().__init__()
        self.projection = nn.Linear(hidden_size, 2)
        self.std = std

    @override
    def forward(self, hidden: Hidden, uniform: Float[Tensor, "B 2"] | None) -> LocationAction:
        means = self.projection(hidden).tanh()
        samples = means.detach()
        if uniform is not None:
            normal = torch.special.ndtri(uniform.clamp(min=_MIN_UNIFORM))
            samples = samples + self.std * normal
        densities = -((samples - means) / self.std).square() / 2
        log_probs = densities.sum(dim=-1) - 2 * math.log(self.std) - math.log(2 * math.pi)
        return LocationAction(samples.clamp(-1, 1), log_probs)


class GaussianLocationPolicyConfig(BaseConfig):
    """A Gaussian of fixed width around a predicted location."""

    type: Literal["gaussian"] = "gaussian"
    std: PositiveFloat = 0.1
    """Standard deviation; the image is 2 wide."""

    def build(self, *, hidden_size: int) -> LocationPolicy:
        return GaussianLocationPolicy(hidden_size, self.std)


class GridLocationPolicy(LocationPolicy):
    """l is the middle of a cell of a grid over the image, drawn from softmax(W h + b)."""

    def __init__(self, hidden_size: int, num_rows: int, num_columns: int) -> None:
        super().__init__()
        self.projection = nn.Linear(hidden_size, num_rows * num_columns)
        sides = ((2 * torch.arange(count) + 1) / count - 1 for count in (num_rows, num_columns))
        self.register_buffer("cells", torch.cartesian_prod(*sides), persistent=False)
        self.cells: Float[Tensor, "C 2"]

    @override
    def forward(self, hidden: Hidden, uniform: Float[Tensor, "B 2"] | None) -> LocationAction:
        log_probs = self.projection(hidden).log_softmax(dim=-1)
        if uniform is None:
            chosen = log_probs.argmax(dim=-1, keepdim=True)
        else:
            cumulative = log_probs.detach().exp().cumsum(dim=-1)
            below = (cumulative < uniform[:, :1]).sum(dim=-1, keepdim=True)
            chosen = below.clamp(max=len(self.cells) - 1)  # rounding: the last sum may be below 1
        return LocationAction(self.cells[chosen[:, 0]], log_probs.gather(1, chosen)[:, 0])


class GridLocationPolicyConfig(BaseConfig):
    """A softmax over the cells of a grid."""

    type: Literal["grid"] = "grid"
    num_rows: PositiveInt = Field(default=7, le=1000)
    """Rows of cells."""
    num_columns: PositiveInt = Field(default=7, le=1000)
    """Columns of cells."""

    def build(self, *, hidden_size: int) -> LocationPolicy:
        return GridLocationPolicy(hidden_size, self.num_rows, self.num_columns)


class RandomLocationPolicy(LocationPolicy):
    """l is uniform over the image and learns nothing: the baseline of Mnih et al. 2014, table 2."""

    @override
    def forward(self, hidden: Hidden, uniform: Float[Tensor, "B 2"] | None) -> LocationAction:
        locations = hidden.new_zeros(len(hidden), 2) if uniform is None else 2 * uniform - 1
        return LocationAction(locations, hidden.new_zeros(len(hidden)))


class RandomLocationPolicyConfig(BaseConfig):
    """Locations that are uniform over the image, whatever was seen; the middle without samples."""

    type: Literal["random"] = "random"

    def build(self, *, hidden_size: int) -> LocationPolicy:
        del hidden_size
        return RandomLocationPolicy()


LocationPolicyConfig = Annotated[
    GaussianLocationPolicyConfig | GridLocationPolicyConfig | RandomLocationPolicyConfig,
    Field(discriminator="type"),
    with_default_type("gaussian"),
]


class StopAction(NamedTuple):
    """Whether each row stops."""

    is_stopped: Bool[Tensor, "B"]
    log_probs: Float[Tensor, "B"]


class StoppingPolicy(nn.Module):
    """p(stop) = sigmoid(w h + b): an action, as the location is  (Mnih et al. 2014, section 3).

    The paper names it and a negative reward for each glimpse, `cost` here, without a formula.
    """

    def __init__(self, hidden_size: int, cost: float, initial_probability: float) -> None:
        super().__init__()
        self.projection = nn.Linear(hidden_size, 1)
        self.cost = cost
        self.initial_logit = math.log(initial_probability / (1 - initial_probability))

    def forward(self, hidden: Hidden, uniform: Float[Tensor, "B"] | None) -> StopAction:
        """Sample whether to stop; without random numbers, stop if it is the more probable."""
        logits = self.projection(hidden).squeeze(-1) + self.initial_logit
        is_stopped = logits > 0 if uniform is None else uniform < logits.detach().sigmoid()
        return StopAction(
            is_stopped, torch.where(is_stopped, logsigmoid(logits), logsigmoid(-logits))
        )


class StoppingPolicyConfig(BaseConfig):
    """A learned decision after each glimpse whether to take another one."""

    cost: NonNegativeFloat = 0.01
    """Reward that each glimpse costs; a correct answer is worth 1."""
    initial_probability: float = Field(default=0.1, gt=0, lt=1)
    """Probability of stopping after a glimpse, at first."""

    def build(self, *, hidden_size: int) -> StoppingPolicy:
        return StoppingPolicy(hidden_size, self.cost, self.initial_probability)
