"""Feed-forward sublayers. Invariant: positions have no influence on one another."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

from pydantic import Field, PositiveInt
from torch import nn
from typing_extensions import override

from heedful.attention.auxiliary_losses import NO_AUXILIARY_LOSSES
from heedful.config import BaseConfig
from heedful.shapes import AnyMask, HiddenStates, Losses

Activation = Literal["relu", "gelu", "gelu-tanh", "swish"]
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "gelu-tanh": partial(nn.GELU, approximate="tanh"),
    "swish": nn.SiLU,
}


class FeedForwardOutput(NamedTuple):
    """Output of a feed-forward sublayer."""

    outputs: HiddenStates
    auxiliary_losses: Losses = NO_AUXILIARY_LOSSES


class PositionwiseLayer(nn.Module, ABC):
    """Interface of sublayers that process each position by itself."""

    @abstractmethod
    def forward(self, inputs: HiddenStates, mask: AnyMask = None) -> FeedForwardOutput:
        """Process all positions; the mask is False in padding."""


class FeedForward(PositionwiseLayer):
    """W_2 a(W_1 x + b_1) + b_2  (Vaswani et al. 2017, equation 2, a = max(0, .)).

    Gated, it is W_2 (a(W_1 x) * W_3 x) with biases likewise (Shazeer 2020): GEGLU with "gelu",
    SwiGLU with "swish".
    """

    def __init__(
        self,
        size: int,
        intermediate_size: int,
        *,
        activation: Activation = "relu",
        gated: bool = False,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.input_projection = nn.Linear(size, intermediate_size, bias=bias)
        self.gate = nn.Linear(size, intermediate_size, bias=bias) if gated else None
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.output_projection = nn.Linear(intermediate_size, size, bias=bias)

    @override
    def forward(self, inputs: HiddenStates, mask: AnyMask = None) -> FeedForwardOutput:
        hidden = self.activation(self.input_projection(inputs))
        if self.gate is not None:
            hidden = hidden * self.gate(inputs)
        return FeedForwardOutput(self.output_projection(self.dropout(hidden)))


class FeedForwardConfig(BaseConfig):
    """A network with one hidden layer (Vaswani et al. 2017)."""

    type: Literal["plain"] = "plain"
    intermediate_size: PositiveInt = 2048
    """Size of the hidden layer; 2048 in the paper's base model."""
    activation: Activation = "relu"
    """Activation of the hidden layer; gelu-tanh is the approximation of GELU by a tanh, as in the
    code of GPT (Radford et al. 2018)."""
    gated: bool = False
    """Multiply the hidden layer by a linear gate (Shazeer 2020)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout probability of the hidden layer."""
    bias: bool = True
    """Add a bias in all projections."""

    def build(self, *, size: int) -> PositionwiseLayer:
        return FeedForward(size, **self.options())
