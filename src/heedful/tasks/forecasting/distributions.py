"""Output distributions of forecasters: Gaussian, Student-t and negative binomial.

A head turns hidden states into parameters in the units of the series, given its location m and
scale nu (Salinas et al. 2020, sections 3.1 and 3.3). Invariant: scaling a series by c and its scale
by c scales a Gaussian or Student-t distribution by c.
"""

import math
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import softplus
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type
from heedful.pytree import widest_float
from heedful.shapes import Float

Parameters = tuple[Float[Tensor, "*B"], ...]
"""The parameters of a distribution, one tensor for each."""
_MIN_SCALE = 1e-5  # of a distribution, in units of the scale of its series
_MIN_DISPERSION = 1e-6


class SeriesScale(NamedTuple):
    """Location and scale of a series, from its context."""

    location: Float[Tensor, "B"]
    scale: Float[Tensor, "B"]


class DistributionHead(nn.Module, ABC):
    """p(z_t | h_t), a distribution whose parameters are computed from a hidden state."""

    num_parameters: ClassVar[int]
    is_count: ClassVar[bool] = False
    """Whether values are 0, 1, 2, ..."""

    def __init__(self, input_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(input_size, self.num_parameters)

    def forward(self, hidden: Float[Tensor, "B T D"], scale: SeriesScale) -> Parameters:
        """Return the parameters at each position, each (B, T)."""
        outputs = self.projection(hidden).float().unbind(dim=-1)
        return self.transform(outputs, *(part.unsqueeze(-1) for part in scale))

    @abstractmethod
    def transform(
        self, outputs: tuple[Tensor, ...], location: Float[Tensor, "B 1"], scale: Tensor
    ) -> Parameters:
        """Return the parameters for unbounded numbers."""

    @abstractmethod
    def log_prob(self, values: Float[Tensor, "*B"], parameters: Parameters) -> Float[Tensor, "*B"]:
        """Return the log-density, or log-probability, of values."""

    @abstractmethod
    def sample(self, parameters: Parameters, generator: torch.Generator) -> Float[Tensor, "*B"]:
        """Draw one value from each distribution, all on the CPU."""


class GaussianHead(DistributionHead):
    """mu = m + nu o_1, sigma = nu log(1 + exp(o_2))  (Salinas et al. 2020, section 3.1)."""

    num_parameters = 2

    @override
    def transform(self, outputs: tuple[Tensor, ...], location: Tensor, scale: Tensor) -> Parameters:
        mean, deviation = outputs
        return location + scale * mean, scale * (softplus(deviation) + _MIN_SCALE)

    @override
    def log_prob(self, values: Tensor, parameters: Parameters) -> Tensor:
        mean, deviation = parameters
        standardized = (values - mean) / deviation
        return -0.5 * (standardized.square() + math.log(2 * math.pi)) - deviation.log()

    @override
    def sample(self, parameters: Parameters, generator: torch.Generator) -> Tensor:
        mean, deviation = parameters
        return mean + deviation * torch.randn(mean.shape, generator=generator)


class StudentTHead(DistributionHead):
    """Location m + nu o_1, scale nu log(1 + exp(o_2)), 2 + log(1 + exp(o_3)) degrees of freedom.

    Above 2 the variance is finite; the paper names the choice of other likelihoods, GluonTS has
    this one.
    """

    num_parameters = 3

    @override
    def transform(self, outputs: tuple[Tensor, ...], location: Tensor, scale: Tensor) -> Parameters:
        center, deviation, freedom = outputs
        deviation = scale * (softplus(deviation) + _MIN_SCALE)
        return location + scale * center, deviation, 2 + softplus(freedom)

    @override
    def log_prob(self, values: Tensor, parameters: Parameters) -> Tensor:
        center, deviation, freedom = parameters
        standardized = (values - center) / deviation
        normalizer = torch.lgamma((freedom + 1) / 2) - torch.lgamma(freedom / 2)
        normalizer = normalizer - 0.5 * (math.pi * freedom).log() - deviation.log()
        return normalizer - (freedom + 1) / 2 * torch.log1p(standardized.square() / freedom)

    @override
    def sample(self, parameters: Parameters, generator: torch.Generator) -> Tensor:
        center, deviation, freedom = parameters
        normal = torch.randn(center.shape, generator=generator)
        chi_square = 2 * torch._standard_gamma(freedom / 2, generator=generator)
        return center + deviation * normal * (freedom / chi_square).sqrt()


class NegativeBinomialHead(DistributionHead):
    """mu = nu log(1 + exp(o_1)), alpha = log(1 + exp(o_2)) / sqrt(nu)  (Salinas et al. 2020, 3.3).

    p(z) = G(z + 1/a) / (G(z + 1) G(1/a)) (1 / (1 + a mu))^(1/a) (a mu / (1 + a mu))^z, whose
    variance is mu + a mu^2. The location is not used: counts are not negative.
    """

    num_parameters = 2
    is_count = True

    @override
    def transform(self, outputs: tuple[Tensor, ...], location: Tensor, scale: Tensor) -> Parameters:
        mean, dispersion = outputs
        mean = scale * (softplus(mean) + _MIN_SCALE)
        return mean, softplus(dispersion) / scale.sqrt() + _MIN_DISPERSION

    @override
    def log_prob(self, values: Tensor, parameters: Parameters) -> Tensor:
        # float64: 1/a may be 10^6, where the two lgammas of float32 differ by noise.
        float_type = widest_float(values.device) if not values.is_meta else values.dtype
        mean, dispersion = (parameter.to(float_type) for parameter in parameters)
        counts, inverse = values.to(float_type), 1 / dispersion
        log_odds = torch.log1p(dispersion * mean)
        coefficient = torch.lgamma(counts + inverse) - torch.lgamma(inverse)
        coefficient = coefficient - torch.lgamma(counts + 1)
        log_prob = coefficient - inverse * log_odds
        return (log_prob + counts * ((dispersion * mean).log() - log_odds)).to(values.dtype)

    @override
    def sample(self, parameters: Parameters, generator: torch.Generator) -> Tensor:
        mean, dispersion = parameters
        gamma = torch._standard_gamma(1 / dispersion, generator=generator)
        return torch.poisson(gamma * dispersion * mean, generator=generator)


class GaussianHeadConfig(BaseConfig):
    """A normal distribution, for real values."""

    type: Literal["gaussian"] = "gaussian"

    def build(self, *, input_size: int) -> DistributionHead:
        return GaussianHead(input_size)


class StudentTHeadConfig(BaseConfig):
    """Student's t distribution, for real values with outliers."""

    type: Literal["student-t"] = "student-t"

    def build(self, *, input_size: int) -> DistributionHead:
        return StudentTHead(input_size)


class NegativeBinomialHeadConfig(BaseConfig):
    """A negative binomial distribution, for counts."""

    type: Literal["negative-binomial"] = "negative-binomial"

    def build(self, *, input_size: int) -> DistributionHead:
        return NegativeBinomialHead(input_size)


_Heads = GaussianHeadConfig | StudentTHeadConfig | NegativeBinomialHeadConfig
DistributionHeadConfig = Annotated[_Heads, Field(discriminator="type"), allow_bare_type(_Heads)]
