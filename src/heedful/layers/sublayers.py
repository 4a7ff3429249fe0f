"""The parts around the sublayers of a Transformer: residual connections and cross-attention.

A sublayer is norm(x + f(x)) with `norm_order` "post" (Vaswani et al. 2017), x + f(norm(x)) with
"pre" (Xiong et al. 2020).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.attention import Attention, AttentionOutput
from heedful.attention.auxiliary_losses import NO_AUXILIARY_LOSSES
from heedful.attention.memory import AttentionState, Memory
from heedful.config import ModuleConfig
from heedful.shapes import AnyMask, Float, HiddenStates, Losses

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


class FeedForwardConfig(ModuleConfig):
    """A network with one hidden layer (Vaswani et al. 2017)."""

    module_class = FeedForward
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


NormOrder = Literal["pre", "post"]


class SublayerConnection(nn.Module):
    """A residual connection with a norm, and dropout on the sublayer output.

    With `drop_path` a training row skips the sublayer with that probability, drawn for each row,
    and the others are scaled to keep the mean (stochastic depth, Huang et al. 2016).
    """

    def __init__(
        self, norm: nn.Module, *, norm_order: NormOrder, dropout: float, drop_path: float = 0.0
    ) -> None:
        super().__init__()
        self.norm = norm
        self.norm_order = norm_order
        self.dropout = nn.Dropout(dropout)
        self.drop_path = drop_path

    def sublayer_input(self, inputs: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Return the input of the sublayer: normalized with pre-norm."""
        return self.norm(inputs) if self.norm_order == "pre" else inputs

    def add_residual(
        self, inputs: Float[Tensor, "*B D"], update: Float[Tensor, "*B D"]
    ) -> Float[Tensor, "*B D"]:
        """Add the sublayer output, after dropout, to its input; post-norm normalizes the sum."""
        update = self.dropout(update)
        if self.training and self.drop_path:
            is_kept = torch.rand(len(update), 1, 1, device=update.device) >= self.drop_path
            update = update * is_kept / (1 - self.drop_path)
        outputs = inputs + update
        return self.norm(outputs) if self.norm_order == "post" else outputs


class CrossAttention(nn.Module):
    """The sublayer that attends to a source."""

    def __init__(self, attention: Attention, residual: SublayerConnection) -> None:
        super().__init__()
        self.attention = attention
        self.residual = residual

    def initial_state(self, memory: Memory) -> AttentionState | None:
        """Return the state before the first query, or None if attention does not depend on it."""
        return self.attention.initial_state(memory) if self.attention.needs_positions else None

    def forward(
        self,
        inputs: HiddenStates,
        memory: Memory,
        state: AttentionState | None,
        *,
        need_weights: bool,
    ) -> tuple[HiddenStates, AttentionOutput]:
        """Attend to the memory from each position; return the residual sum and the attention."""
        queries = self.residual.sublayer_input(inputs)
        needs_weights = need_weights or self.attention.has_auxiliary_losses
        attended = self.attention(queries, memory, state, need_weights=needs_weights)
        return self.residual.add_residual(inputs, attended.context), attended
