"""Emission: how is a token said?

An emission turns features, and what attention saw, into log-probabilities of tokens. It is not
part of the recurrence, so a known target is emitted all at once. Once a token is known, an
emission may know better where it came from: that is hindsight, and the next step may ask for it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.acceleration.packed_weights import log_softmax_inplace, packed_linear
from heedful.attention import Memory
from heedful.config import BaseConfig
from heedful.shapes import Float, Int


class OutputHead(nn.Module, ABC):
    """How a token is said."""

    projection: nn.Linear
    """From features to a number for every word of the vocabulary."""

    is_per_position = False
    """Whether features are wanted for every place, (B, T, S, D), and not one for all."""

    has_alignment_posterior = False
    """Whether a token, once known, tells where it came from."""

    needs_weights = False
    """Whether tokens cannot be said without knowing where was looked."""

    needs_memory = False
    """Whether tokens cannot be said without the source."""

    @abstractmethod
    def forward(
        self,
        features: Float[Tensor, "B T *S D"],
        weights: Float[Tensor, "B T S"] | None,
        memory: Memory,
    ) -> Float[Tensor, "B T N"]:
        """Give the log-probability of every token."""

    def alignment_posterior(
        self,
        features: Float[Tensor, "B T *S D"],
        weights: Float[Tensor, "B T S"],
        tokens: Int[Tensor, "B T"],
    ) -> Float[Tensor, "B T S"]:
        """Say where known tokens came from; as far as most can tell, from where it was looked."""
        return weights


class SoftmaxHead(OutputHead):
    """log softmax(W f + b): every token is chosen from the vocabulary."""

    def __init__(self, feature_size: int, vocab_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(feature_size, vocab_size)

    def forward(
        self,
        features: Float[Tensor, "B T *S D"],
        weights: Float[Tensor, "B T S"] | None,
        memory: Memory,
    ) -> Float[Tensor, "B T N"]:
        """Give the log-probability of every token."""
        del weights, memory  # a vocabulary knows no source
        return log_softmax_inplace(packed_linear(self.projection, features))


class MarginalHead(OutputHead):
    """log sum_s weights_s softmax(W f_s + b): each place says a token, the chances are mixed.

    Hard attention made exact: the place is summed out, not sampled (Wu et al. 2018). It costs a
    softmax over the vocabulary for every place. A place without weight says nothing and gets no
    gradient.
    """

    is_per_position = True
    has_alignment_posterior = True
    needs_weights = True

    def __init__(self, feature_size: int, vocab_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(feature_size, vocab_size)

    def forward(
        self,
        features: Float[Tensor, "B T S D"],
        weights: Float[Tensor, "B T S"] | None,
        memory: Memory,
    ) -> Float[Tensor, "B T N"]:
        """Give the log-probability of every token."""
        del memory  # its places have spoken through the features
        assert weights is not None, "the chances of places are needed to mix what they say"
        log_probs = self.projection(features).log_softmax(dim=-1)  # (B, T, S, N)
        return (log_probs + _safe_log(weights).unsqueeze(-1)).logsumexp(dim=-2)

    def alignment_posterior(
        self,
        features: Float[Tensor, "B T S D"],
        weights: Float[Tensor, "B T S"],
        tokens: Int[Tensor, "B T"],
    ) -> Float[Tensor, "B T S"]:
        """Say where tokens came from: weights_s p(token | s) / sum of the same (Bayes)."""
        logits = self.projection(features)  # (B, T, S, N)
        token_index = tokens[..., None, None].expand(*weights.shape, 1)  # (B, T, S, 1)
        log_probs = logits.gather(-1, token_index).squeeze(-1) - logits.logsumexp(dim=-1)
        return (log_probs + _safe_log(weights)).softmax(dim=-1) * (weights != 0)


def _safe_log(weights: Float[Tensor, "B T S"]) -> Float[Tensor, "B T S"]:
    """Take the logarithm; of nothing, the least there is."""
    # As in hiding scores: -inf would make a row without any weight NaN. And 1 stands in for
    # zero, since the gradient of its logarithm is infinite even where it is not taken.
    nothing = weights == 0
    logs = weights.masked_fill(nothing, 1).log()
    # Half of the least: a log-probability is still to be added.
    return logs.masked_fill(nothing, torch.finfo(weights.dtype).min / 2)


class SoftmaxHeadConfig(BaseConfig):
    """Choose every token from the vocabulary."""

    type: Literal["softmax"] = "softmax"

    def build(self, *, feature_size: int, vocab_size: int) -> OutputHead:
        """Make the emission."""
        return SoftmaxHead(feature_size, vocab_size)


class MarginalHeadConfig(BaseConfig):
    """Let every place choose a token, and mix their chances exactly (Wu et al. 2018)."""

    type: Literal["marginal"] = "marginal"

    def build(self, *, feature_size: int, vocab_size: int) -> OutputHead:
        """Make the emission."""
        return MarginalHead(feature_size, vocab_size)


OutputHeadConfig = Annotated[SoftmaxHeadConfig | MarginalHeadConfig, Field(discriminator="type")]
