"""The penalties on where attention went, as a configuration names them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat
from torch import Tensor, nn

from heedful.attention.outputs import AlignmentLossInputs
from heedful.config import BaseConfig
from heedful.shapes import Float

# Penalties: what is wrong with where attention went, as a number to be added to the loss?
#
# A penalty is a value returned, never hidden in a module: a sum over the real targets of a batch,
# times its weight. Padding, of targets and of sources, adds nothing. Where places were chosen, a
# penalty is put on the probabilities they were chosen from: a choice has no gradient.


class AttentionLoss(nn.Module, ABC):
    """What is wrong with where attention went."""

    name: str
    """What reports call it."""

    @abstractmethod
    def forward(self, loss_inputs: AlignmentLossInputs) -> Float[Tensor, ""]:
        """Add up what is wrong."""


class DoublyStochasticLoss(AttentionLoss):
    """weight * sum_s (1 - sum_t a_ts)^2: each place wants one unit too.

    (Xu et al. 2015, section 4.2.1.) A sum over the places of each source, as the paper has it.
    Well-known code departs here: the authors' own takes the mean over the places, others the mean
    over the batch as well.
    """

    name = "doubly-stochastic"

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, loss_inputs: AlignmentLossInputs) -> Float[Tensor, ""]:
        """Add up how far the places are from one unit each."""
        deficit = 1 - _masked_weights(loss_inputs).sum(dim=-2)  # (*B, S)
        return self.weight * deficit.square().masked_fill(~loss_inputs.source_mask, 0).sum()


class CoverageLoss(AttentionLoss):
    """weight * sum_t sum_s min(a_ts, c_ts), c_t = sum of a_u over u < t.

    (See et al. 2017, equation 12.) It is wrong to look again where attention has been before.
    """

    name = "coverage"

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, loss_inputs: AlignmentLossInputs) -> Float[Tensor, ""]:
        """Add up what overlaps with what was looked at before."""
        shares = _masked_weights(loss_inputs)
        before = shares.cumsum(dim=-2) - shares
        return self.weight * shares.minimum(before).sum()


def entropy(weights: Float[Tensor, "*B T S"]) -> Float[Tensor, "*B T"]:
    """-sum_s a_s log a_s; a place without any share adds nothing, in value and in gradient."""
    return -(weights * weights.masked_fill(weights == 0, 1).log()).sum(dim=-1)


class EntropyLoss(AttentionLoss):
    """weight * sum_t H(a_t): a positive weight sharpens attention, a negative one evens it out."""

    name = "entropy"

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, loss_inputs: AlignmentLossInputs) -> Float[Tensor, ""]:
        """Add up how undecided attention was."""
        return self.weight * entropy(_masked_weights(loss_inputs)).sum()


def _masked_weights(loss_inputs: AlignmentLossInputs) -> Float[Tensor, "*B T S"]:
    alignment = loss_inputs.alignment
    shares = alignment.weights if alignment.probabilities is None else alignment.probabilities
    return shares.masked_fill(~loss_inputs.target_mask.unsqueeze(-1), 0)


class DoublyStochasticLossConfig(BaseConfig):
    """Ask that each place of the source gets one unit of attention in all (Xu et al. 2015)."""

    type: Literal["doubly-stochastic"] = "doubly-stochastic"
    weight: PositiveFloat = 1.0
    """What the sum over the places of a source is multiplied by."""

    def build(self) -> AttentionLoss:
        """Make the penalty."""
        return DoublyStochasticLoss(self.weight)


class CoverageLossConfig(BaseConfig):
    """Ask that attention does not go where it has been before (See et al. 2017)."""

    type: Literal["coverage"] = "coverage"
    weight: PositiveFloat = 1.0
    """What the overlap is multiplied by."""

    def build(self) -> AttentionLoss:
        """Make the penalty."""
        return CoverageLoss(self.weight)


class EntropyLossConfig(BaseConfig):
    """Ask that attention is decided, or undecided."""

    type: Literal["entropy"] = "entropy"
    weight: float
    """What the entropy is multiplied by: above 0 sharpens attention, below 0 evens it out."""

    def build(self) -> AttentionLoss:
        """Make the penalty."""
        return EntropyLoss(self.weight)


AttentionLossConfig = Annotated[
    DoublyStochasticLossConfig | CoverageLossConfig | EntropyLossConfig,
    Field(discriminator="type"),
]
NO_AUXILIARY_LOSSES: Mapping[str, Tensor] = MappingProxyType({})


def sum_losses(*parts: Mapping[str, Float[Tensor, ""]]) -> dict[str, Float[Tensor, ""]]:
    """Add up penalties of the same name."""
    total = dict[str, Tensor]()
    for part in parts:
        for name, penalty in part.items():
            total[name] = total[name] + penalty if name in total else penalty
    return total
