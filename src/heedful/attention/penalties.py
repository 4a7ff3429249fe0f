"""Penalties: what is wrong with where attention went, as a number to be added to the loss?

A penalty is a value returned, never hidden in a module: a sum over the real targets of a batch,
times its weight. Padding, of targets and of sources, adds nothing. Where places were chosen, a
penalty is put on the probabilities they were chosen from: a choice has no gradient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from heedful.attention.alignments import Looked
from heedful.shapes import Float


class Penalty(nn.Module, ABC):
    """What is wrong with where attention went."""

    name: str
    """What reports call it."""

    @abstractmethod
    def forward(self, looked: Looked) -> Float[Tensor, ""]:
        """Add up what is wrong."""


class DoublyStochastic(Penalty):
    """weight * sum_s (1 - sum_t a_ts)^2: each place wants one unit too.

    (Xu et al. 2015, section 4.2.1.) A sum over the places of each source, as the paper has it.
    Well-known code departs here: the authors' own takes the mean over the places, others the mean
    over the batch as well.
    """

    name = "doubly-stochastic"

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, looked: Looked) -> Float[Tensor, ""]:
        """Add up how far the places are from one unit each."""
        missing = 1 - _shares(looked).sum(dim=-2)  # (*B, S)
        return self.weight * missing.square().masked_fill(~looked.visible, 0).sum()


class CoverageLoss(Penalty):
    """weight * sum_t sum_s min(a_ts, c_ts), c_t = sum of a_u over u < t.

    (See et al. 2017, equation 12.) It is wrong to look again where attention has been before.
    """

    name = "coverage"

    def __init__(self, weight: float = 1.0) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, looked: Looked) -> Float[Tensor, ""]:
        """Add up what overlaps with what was looked at before."""
        shares = _shares(looked)
        before = shares.cumsum(dim=-2) - shares
        return self.weight * shares.minimum(before).sum()


class EntropyPenalty(Penalty):
    """weight * sum_t H(a_t): a positive weight sharpens attention, a negative one evens it out."""

    name = "entropy"

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, looked: Looked) -> Float[Tensor, ""]:
        """Add up how undecided attention was."""
        return self.weight * entropy(_shares(looked)).sum()


def entropy(shares: Float[Tensor, "*B T S"]) -> Float[Tensor, "*B T"]:
    """-sum_s a_s log a_s; a place without any share adds nothing, in value and in gradient."""
    return -(shares * shares.masked_fill(shares == 0, 1).log()).sum(dim=-1)


def _shares(looked: Looked) -> Float[Tensor, "*B T S"]:
    aligned = looked.aligned
    shares = aligned.weights if aligned.probabilities is None else aligned.probabilities
    return shares.masked_fill(~looked.real.unsqueeze(-1), 0)
