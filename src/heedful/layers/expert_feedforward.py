"""Expert feed-forward sublayers: what do a few of many networks make of each place?

Law: places that are not there are sent to nobody and come out as zeros. Those that are have no
influence on one another, but for training with a capacity: there the places of a batch compete,
and what finds an expert full goes past it by the residual path alone.
"""

from __future__ import annotations

from torch import Tensor

from heedful.layers.experts import Experts, Mixed
from heedful.layers.feedforward import Fed, PlaceWise
from heedful.shapes import Bool, Float


class ExpertFeedForward(PlaceWise):
    """sum over the chosen i of G(x)_i E_i(x), in place of one network for all.

    (Shazeer et al. 2017; in a Transformer, Liu et al. 2018.)
    """

    def __init__(self, experts: Experts) -> None:
        super().__init__()
        self.experts = experts

    def forward(self, inputs: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Fed:
        """Let experts see the places where the mask is True."""
        mixed: Mixed = self.experts(inputs, mask)
        return Fed(mixed.outputs, mixed.penalties)
