"""Feed-forward sublayers: what does each place make of itself, whatever stands beside it?

Law: places have no influence on one another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal, NamedTuple

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from heedful.attention.auxiliary_losses import NO_AUXILIARY_LOSSES
from heedful.config import BaseConfig
from heedful.shapes import Bool, Float

Activation = Literal["relu", "gelu", "swish"]
ACTIVATIONS: Mapping[Activation, type[nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "swish": nn.SiLU,
}


class FeedForwardOutput(NamedTuple):
    """What places made of themselves."""

    outputs: Float[Tensor, "B T D"]
    auxiliary_losses: Mapping[str, Float[Tensor, ""]] = (
        NO_AUXILIARY_LOSSES  # by name, to be added to the loss
    )


class PositionwiseLayer(nn.Module, ABC):
    """A sublayer in which every place is by itself."""

    @abstractmethod
    def forward(
        self, inputs: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]
    ) -> FeedForwardOutput:
        """Change every place; those where the mask is False are not there."""


class FeedForward(PositionwiseLayer):
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
        self.input_projection = nn.Linear(size, hidden_size, bias=bias)
        self.gate = nn.Linear(size, hidden_size, bias=bias) if gated else None
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.output_projection = nn.Linear(hidden_size, size, bias=bias)

    def forward(
        self, inputs: Float[Tensor, "B T D"], mask: Bool[Tensor, "B T"]
    ) -> FeedForwardOutput:
        """Change every place, and those that are not there alike."""
        hidden = self.activation(self.input_projection(inputs))
        if self.gate is not None:
            hidden = hidden * self.gate(inputs)
        return FeedForwardOutput(self.output_projection(self.dropout(hidden)))


# The feed-forward sublayers, as a configuration names them.


class FeedForwardConfig(BaseConfig):
    """Change each place by a network with one hidden layer (Vaswani et al. 2017)."""

    type: Literal["plain"] = "plain"
    intermediate_size: PositiveInt = 2048
    """Width of the hidden layer; that of the paper's base model."""
    activation: Activation = "relu"
    """What bends the hidden layer."""
    gated: bool = False
    """Whether the hidden layer is multiplied by another, which nothing bends (Shazeer 2020)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of hidden values dropped in training."""
    bias: bool = True
    """Whether something is added to each product."""

    def build(self, *, size: int) -> PositionwiseLayer:
        """Make the sublayer for places of this width."""
        return FeedForward(
            size,
            self.intermediate_size,
            activation=self.activation,
            gated=self.gated,
            dropout=self.dropout,
            bias=self.bias,
        )
