"""Emission distributions of hidden Markov models: categorical and Gaussian.

An emission has log-probabilities, samples, and the M step of EM. Invariant: the M step maximizes
the expected log-probability under the posteriors it gets; a state without any keeps its parameters.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.errors import ArgumentError, check, format_count
from heedful.shapes import Bool, Float, Int

Observations = Int[Tensor, "B T"] | Float[Tensor, "B T D"]
Generator = torch.Generator | None


class Emission(nn.Module, ABC):
    """p(o_t | q_t) for each of `num_states` states."""

    num_states: int

    @abstractmethod
    def check_observations(self, observations: Observations, mask: Bool[Tensor, "B T"]) -> None:
        """Raise ArgumentError if an observation outside the padding is impossible to score."""

    @abstractmethod
    def log_probs(self, observations: Observations) -> Float[Tensor, "B T N"]:
        """Return log p(o_t | q_t = j)."""

    @abstractmethod
    def sample(self, states: Int[Tensor, "B T"], generator: Generator = None) -> Observations:
        """Draw an observation for each state."""

    @abstractmethod
    def maximize(self, observations: Observations, posteriors: Float[Tensor, "B T N"]) -> None:
        """Set the parameters to the M step of EM."""


class CategoricalEmission(Emission):
    """p(o_t = k | q_t = j) = B_jk; observations are the symbols 0 .. K-1."""

    def __init__(self, probs: Float[Tensor, "N K"]) -> None:
        super().__init__()
        self.logits = nn.Parameter(to_logits(probs, "emission"))
        self.num_states, self.num_symbols = probs.shape

    @override
    def check_observations(self, observations: Observations, mask: Bool[Tensor, "B T"]) -> None:
        is_integer = not (observations.is_floating_point() or observations.is_complex())
        has_shape = observations.shape == mask.shape
        message = f"have shape {tuple(observations.shape)} and dtype {observations.dtype}, but "
        message += "categorical emissions need integers of shape (B, T)"
        hint = "give one symbol for each position"
        check(is_integer and has_shape, "observations", message, hint, ArgumentError)
        real = observations[mask]
        is_symbol = (real >= 0) & (real < self.num_symbols)
        if not is_symbol.all():
            count = format_count(self.num_symbols, "symbol")
            message = f"{int(real[~is_symbol][0])} is not one of {count}"
            hint = f"number them from 0 to {self.num_symbols - 1}; padding belongs behind `lengths`"
            raise ArgumentError("observations", message, hint)

    @override
    def log_probs(self, observations: Observations) -> Float[Tensor, "B T N"]:
        symbols = observations.clamp(0, self.num_symbols - 1)  # padding may have any id
        return self.logits.log_softmax(dim=-1).T[symbols]

    @override
    @torch.no_grad()
    def sample(self, states: Int[Tensor, "B T"], generator: Generator = None) -> Observations:
        return sample_rows(self.logits, states, generator)

    @override
    @torch.no_grad()
    def maximize(self, observations: Observations, posteriors: Float[Tensor, "B T N"]) -> None:
        symbols = observations.clamp(0, self.num_symbols - 1)
        counts = torch.zeros_like(self.logits.T)  # (K, N)
        counts.index_add_(0, symbols.flatten(), posteriors.flatten(0, 1))
        set_from_counts(self.logits, counts.T)


class GaussianEmission(Emission):
    """N(o_t; mu_j, diag(sigma_j^2)): vectors of D independent numbers.

    EM would let the variance of a state that owns a single point go to zero and the likelihood to
    infinity; `min_variance` bounds it.
    """

    def __init__(
        self,
        means: Float[Tensor, "N D"],
        variances: Float[Tensor, "N D"],
        *,
        min_variance: float = 1e-4,
    ) -> None:
        super().__init__()
        is_possible = means.shape == variances.shape and bool((variances >= min_variance).all())
        message = f"shapes {tuple(means.shape)} and {tuple(variances.shape)}, "
        message += f"smallest variance {float(variances.min()):g}"
        hint = f"give a mean and a variance of at least {min_variance:g} for each state and number"
        check(is_possible, "emission", message, hint, ArgumentError)
        self.means = nn.Parameter(means.clone())
        self.log_variances = nn.Parameter(variances.log())
        self.min_variance = min_variance
        self.num_states, self.num_features = means.shape

    @override
    def check_observations(self, observations: Observations, mask: Bool[Tensor, "B T"]) -> None:
        expected = (*mask.shape, self.num_features)
        message = f"have shape {tuple(observations.shape)}, but Gaussian emissions with "
        message += f"{self.num_features} numbers need {expected}"
        hint = "give one vector for each position; numbers need a last dimension of 1"
        check(observations.shape == expected, "observations", message, hint, ArgumentError)
        is_finite = bool(observations[mask].isfinite().all())
        hint = "leave such positions out, or fill them in"
        check(is_finite, "observations", "some are NaN or infinite", hint, ArgumentError)

    @override
    def log_probs(self, observations: Observations) -> Float[Tensor, "B T N"]:
        scale = (self.log_variances / 2).exp()  # (N, D)
        return (
            torch.distributions.Normal(self.means, scale, validate_args=False)
            .log_prob(observations.unsqueeze(-2))
            .sum(dim=-1)
        )

    @override
    @torch.no_grad()
    def sample(self, states: Int[Tensor, "B T"], generator: Generator = None) -> Observations:
        means, scales = self.means[states], (self.log_variances / 2).exp()[states]
        noise = torch.empty_like(means).normal_(generator=generator)
        return means + scales * noise

    @override
    @torch.no_grad()
    def maximize(self, observations: Observations, posteriors: Float[Tensor, "B T N"]) -> None:
        vectors, weights = observations.flatten(0, 1), posteriors.flatten(0, 1).T  # (N, B T)
        is_padding = weights.sum(dim=0) == 0  # its vectors may be NaN
        vectors = vectors.masked_fill(is_padding.unsqueeze(-1), 0)
        counts = weights.sum(dim=-1, keepdim=True)  # (N, 1)
        weights = weights / counts
        means = weights @ vectors
        deviations = (vectors - means.unsqueeze(1)).square()  # (N, B T, D)
        variances = (weights.unsqueeze(1) @ deviations).squeeze(1).clamp_min(self.min_variance)
        self.means.copy_(torch.where(counts > 0, means, self.means))
        self.log_variances.copy_(torch.where(counts > 0, variances.log(), self.log_variances))


def to_logits(probs: Float[Tensor, "*B K"], name: str) -> Float[Tensor, "*B K"]:
    """Return the logarithms of probabilities, or of weights that `log_softmax` normalizes."""
    is_possible = bool((probs >= 0).all() and (probs.sum(dim=-1) > 0).all())
    message = "the probabilities must be 0 or more, and not all 0 in a row"
    check(is_possible and probs.isfinite().all(), name, message, "check the numbers", ArgumentError)
    return probs.log()


def set_from_counts(logits: nn.Parameter, counts: Float[Tensor, "*B K"]) -> None:
    """Set logits to the maximum-likelihood estimate; a row without counts keeps its own."""
    totals = counts.sum(dim=-1, keepdim=True)
    logits.copy_(torch.where(totals > 0, (counts / totals).log(), logits))


def sample_rows(
    logits: Float[Tensor, "N K"], rows: Int[Tensor, "*B"], generator: Generator
) -> Int[Tensor, "*B"]:
    """Draw from the rows of a table of distributions."""
    probs = logits.softmax(dim=-1)[rows.flatten()]
    return probs.multinomial(1, generator=generator).view(rows.shape)
