"""Feed-forward sublayers: what does each place make of itself, whatever stands beside it?

Law: places have no influence on one another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal, NamedTuple

from torch import Tensor, nn

from heedful.layers.encoded import NO_PENALTIES
from heedful.shapes import Bool, Float

Activation = Literal["relu", "gelu", "swish"]
ACTIVATIONS: Mapping[Activation, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "swish": nn.SiLU,
}


class Fed(NamedTuple):
    """What places made of themselves."""

    outputs: Float[Tensor, "B T D"]
    penalties: Mapping[str, Float[Tensor, ""]] = NO_PENALTIES  # by name, to be added to the loss


class PlaceWise(nn.Module, ABC):
    """A sublayer in which every place is by itself."""

    @abstractmethod
    def forward(self, inputs: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Fed:
        """Change every place; those where the mask is False are not there."""


class FeedForward(PlaceWise):
    """W_2 a(W_1 x + b_1) + b_2  (Vaswani et al. 2017, equation 2, a = max(0, .)).

    Gated, it is W_2 (a(W_1 x) * W_3 x) with biases likewise (Shazeer 2020): with "gelu" that is
    GEGLU, with "swish" SwiGLU.
    """

    def __init__(
        self,
        size: int,
        hidden_size: int,
        *,
        activation: Activation = "relu",
        gated: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.into = nn.Linear(size, hidden_size, bias=bias)
        self.gate = nn.Linear(size, hidden_size, bias=bias) if gated else None
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.out = nn.Linear(hidden_size, size, bias=bias)

    def forward(self, inputs: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]) -> Fed:
        """Change every place, and those that are not there alike."""
        hidden = self.activation(self.into(inputs))
        if self.gate is not None:
            hidden = hidden * self.gate(inputs)
        return Fed(self.out(self.dropout(hidden)))
