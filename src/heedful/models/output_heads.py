"""Output heads: from features to log-probabilities of tokens.

A head is not part of the recurrence, so a known target passes through it at once. Given the token
that was chosen, a head may know better where in the source it came from: its alignment posterior,
which the next step can use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.memory import Memory
from heedful.config import BaseConfig
from heedful.shapes import Float, TokenIds


class OutputHead(nn.Module, ABC):
    """Interface of output heads."""

    projection: nn.Linear
    """From features to logits."""

    is_per_position = False
    """Whether it needs features for each source position, (B, T, S, D)."""

    has_alignment_posterior = False
    """Whether `alignment_posterior` differs from the attention weights."""

    needs_weights = False
    """Whether it needs the attention weights."""

    @abstractmethod
    def forward(
        self,
        features: Float[Tensor, "B T *S D"],
        weights: Float[Tensor, "B T S"] | None,
        memory: Memory,
    ) -> Float[Tensor, "B T N"]:
        """Return the log-probability of every token."""

    def alignment_posterior(
        self,
        features: Float[Tensor, "B T *S D"],
        weights: Float[Tensor, "B T S"],
        tokens: TokenIds,
    ) -> Float[Tensor, "B T S"]:
        """Return p(source position given the chosen token); by default the attention weights."""
        return weights


class SoftmaxHead(OutputHead):
    """log softmax(W f + b)."""

    def __init__(self, feature_size: int, vocab_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(feature_size, vocab_size)

    @override
    def forward(
        self,
        features: Float[Tensor, "B T *S D"],
        weights: Float[Tensor, "B T S"] | None,
        memory: Memory,
    ) -> Float[Tensor, "B T N"]:
        return self.projection(features).log_softmax(dim=-1)


class MarginalHead(OutputHead):
    """log sum_s weights_s softmax(W f_s + b): a mixture over source positions.

    Exact marginalization of hard attention: the position is summed out, not sampled (Wu et al.
    2018). It computes a softmax over the vocabulary for every source position. A position without
    weight contributes nothing and gets no gradient.
    """

    is_per_position = True
    has_alignment_posterior = True
    needs_weights = True

    def __init__(self, feature_size: int, vocab_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(feature_size, vocab_size)

    @override
    def forward(
        self,
        features: Float[Tensor, "B T S D"],
        weights: Float[Tensor, "B T S"] | None,
        memory: Memory,
    ) -> Float[Tensor, "B T N"]:
        assert weights is not None, "a mixture over positions needs their weights"
        log_probs = self.projection(features).log_softmax(dim=-1)  # (B, T, S, N)
        return (log_probs + _safe_log(weights).unsqueeze(-1)).logsumexp(dim=-2)

    @override
    def alignment_posterior(
        self,
        features: Float[Tensor, "B T S D"],
        weights: Float[Tensor, "B T S"],
        tokens: TokenIds,
    ) -> Float[Tensor, "B T S"]:
        """weights_s p(token | s), divided by its sum over s (Bayes)."""
        logits = self.projection(features)  # (B, T, S, N)
        token_index = tokens[..., None, None].expand(*weights.shape, 1)  # (B, T, S, 1)
        log_probs = logits.gather(-1, token_index).squeeze(-1) - logits.logsumexp(dim=-1)
        return (log_probs + _safe_log(weights)).softmax(dim=-1) * (weights != 0)


def _safe_log(weights: Float[Tensor, "B T S"]) -> Float[Tensor, "B T S"]:
    # -inf would turn a row without any weight into NaN. The logarithm is taken of 1 instead of 0,
    # whose gradient would be infinite even where it is masked.
    is_zero = weights == 0
    logs = weights.masked_fill(is_zero, 1).log()
    # Half of finfo.min: a log-probability is still to be added.
    return logs.masked_fill(is_zero, torch.finfo(weights.dtype).min / 2)


class OutputHeadConfigBase(BaseConfig):
    """An output head."""

    module_class: ClassVar[type[SoftmaxHead] | type[MarginalHead]]

    def build(self, *, feature_size: int, vocab_size: int) -> OutputHead:
        return self.module_class(feature_size, vocab_size)


class SoftmaxHeadConfig(OutputHeadConfigBase):
    """A softmax over the vocabulary."""

    module_class = SoftmaxHead
    type: Literal["softmax"] = "softmax"


class MarginalHeadConfig(OutputHeadConfigBase):
    """A mixture of softmaxes, one per source position, marginalized exactly (Wu et al. 2018)."""

    module_class = MarginalHead
    type: Literal["marginal"] = "marginal"


OutputHeadConfig = Annotated[SoftmaxHeadConfig | MarginalHeadConfig, Field(discriminator="type")]
