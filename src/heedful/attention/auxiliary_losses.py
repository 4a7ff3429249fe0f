"""Auxiliary losses on attention weights: doubly stochastic, coverage and entropy.

A loss is a sum over the real targets of a batch times its weight; padding adds nothing. For hard
attention it is computed on the probabilities, which have a gradient.
"""

from abc import ABC, abstractmethod
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.alignments import AlignmentLossInputs
from heedful.config import ModuleConfig
from heedful.shapes import Bool, Losses, PerQuery, Scalar, Weights

NO_AUXILIARY_LOSSES: Losses = MappingProxyType({})


class AttentionLoss(nn.Module, ABC):
    """A loss on the attention weights of whole targets."""

    name: str
    """Name in logs and reports."""

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight

    @abstractmethod
    def compute(self, weights: Weights, source_mask: Bool[Tensor, "*B S"]) -> Scalar:
        """Return the unweighted loss of weights that are zero for padded targets."""

    def forward(self, loss_inputs: AlignmentLossInputs) -> Scalar:
        """Return the loss, summed over the batch."""
        alignment, target_mask = loss_inputs.alignment, loss_inputs.target_mask
        weights = alignment.weights if alignment.probabilities is None else alignment.probabilities
        masked = weights.masked_fill(~target_mask.unsqueeze(-1), 0)
        return self.weight * self.compute(masked, loss_inputs.source_mask)


class DoublyStochasticLoss(AttentionLoss):
    """weight * sum_s (1 - sum_t a_ts)^2  (Xu et al. 2015, section 4.2.1).

    A sum over positions of each target, as in the paper. Its code adds to the mean loss of a batch
    the sum over the batch of the mean over positions: B / S times as much.
    """

    name = "doubly-stochastic"

    @override
    def compute(self, weights: Weights, source_mask: Bool[Tensor, "*B S"]) -> Scalar:
        deficit = 1 - weights.sum(dim=-2)  # (*B, S)
        return deficit.square().masked_fill(~source_mask, 0).sum()


class DoublyStochasticLossConfig(ModuleConfig):
    """Penalty unless each source position gets a total weight of one (Xu et al. 2015)."""

    module_class = DoublyStochasticLoss
    type: Literal["doubly-stochastic"] = "doubly-stochastic"
    weight: PositiveFloat = 1.0
    """Factor of the loss, which is summed over source positions."""


class CoverageLoss(AttentionLoss):
    """weight * sum_t sum_s min(a_ts, sum of a_us over u < t)  (See et al. 2017, equation 12)."""

    name = "coverage"

    @override
    def compute(self, weights: Weights, source_mask: Bool[Tensor, "*B S"]) -> Scalar:
        coverage = weights.cumsum(dim=-2) - weights
        return weights.minimum(coverage).sum()


class CoverageLossConfig(ModuleConfig):
    """Penalty for attending to the same position again (See et al. 2017)."""

    module_class = CoverageLoss
    type: Literal["coverage"] = "coverage"
    weight: PositiveFloat = 1.0
    """Factor of the loss."""


class EntropyLoss(AttentionLoss):
    """weight * sum_t H(a_t): a positive weight makes attention sharper, a negative one flatter."""

    name = "entropy"

    @override
    def compute(self, weights: Weights, source_mask: Bool[Tensor, "*B S"]) -> Scalar:
        return entropy(weights).sum()


class EntropyLossConfig(ModuleConfig):
    """Entropy of the attention weights."""

    module_class = EntropyLoss
    type: Literal["entropy"] = "entropy"
    weight: float
    """Factor of the loss: above 0 makes attention sharper, below 0 flatter."""


AttentionLossConfig = Annotated[
    DoublyStochasticLossConfig | CoverageLossConfig | EntropyLossConfig, Field(discriminator="type")
]


def entropy(weights: Weights) -> PerQuery:
    """Return -sum_s a_s log a_s; zero weights add nothing, in value and in gradient."""
    return -(weights * weights.masked_fill(weights == 0, 1).log()).sum(dim=-1)
