"""What surrounds the layers of a recurrent encoder: connections between layers, and directions.

Whichever direction a layer has, its output at a position belongs to the token at that position,
and it starts each row at the row's own first or last token.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.attention import Attention
from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type
from heedful.errors import check
from heedful.layers.mixture_of_experts import MoEOutput, MoESublayer
from heedful.shapes import Float, LayerInputs, LayerOutputs, Scalar, SourceMask

NextInputs = Float[Tensor, "B S X"]


class Connection(nn.Module, ABC):
    """The input of the next layer; above the top layer, the encoder's states."""

    @abstractmethod
    def forward(self, layer_input: LayerInputs, layer_output: LayerOutputs) -> NextInputs:
        """Combine the input and the output of a layer."""


class PlainConnection(Connection):
    """The layer's output."""

    @override
    def forward(self, layer_input: LayerInputs, layer_output: LayerOutputs) -> NextInputs:
        return layer_output


class ResidualConnection(Connection):
    """x^i = m^i + x^(i-1)  (Wu et al. 2016, section 3.1)."""

    @override
    def forward(self, layer_input: LayerInputs, layer_output: LayerOutputs) -> NextInputs:
        return layer_output + layer_input


class FastForwardConnection(Connection):
    """f^(k+1) = W [half of f^k; dropout(h^k)]  (Zhou et al. 2016, section 3.1).

    f is the input of a layer and h its output. The path along f is linear and not recurrent, so
    that gradients reach the embeddings through any number of layers.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        output_size: int,
        *,
        halve_shortcut: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.shortcut_size = input_size // 2 if halve_shortcut else input_size
        self.dropout = nn.Dropout(dropout)
        self.projection = nn.Linear(self.shortcut_size + hidden_size, output_size, bias=False)

    @override
    def forward(self, layer_input: LayerInputs, layer_output: LayerOutputs) -> NextInputs:
        shortcut = layer_input[..., : self.shortcut_size]
        return self.projection(torch.cat([shortcut, self.dropout(layer_output)], dim=-1))


class ConnectionConfigBase(BaseConfig):
    """What a layer passes on to the next; layers are counted from 1."""

    type: str

    @property
    def min_layers(self) -> int:
        """Number of layers below which the setting has no effect."""
        return 1

    def build_input_projection(self, embedding_size: int, hidden_size: int) -> nn.Module:
        """Build the module before the first layer."""
        return nn.Identity()

    def layer_input_size(self, layer: int, *, embedding_size: int, hidden_size: int) -> int:
        """Return the input size of a layer."""
        return embedding_size if layer == 1 else hidden_size

    def layer_input_dropout(self, layer: int, dropout: float) -> float:
        """Return the dropout on the input of a layer; the first layer's embeddings have theirs."""
        return dropout if layer > 1 else 0.0

    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        return PlainConnection()


class PlainConnectionConfig(ConnectionConfigBase):
    """Pass on the layer's output."""

    type: Literal["plain"] = "plain"


class ResidualConnectionConfig(ConnectionConfigBase):
    """Pass on the sum of input and output (Wu et al. 2016)."""

    type: Literal["residual"] = "residual"
    first_residual_layer: int = Field(default=3, ge=2)
    """First layer with a residual connection, counted from 1; the paper's is the third. Never the
    first, whose input is embeddings."""

    @property
    @override
    def min_layers(self) -> int:
        return self.first_residual_layer

    @override
    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        return ResidualConnection() if layer >= self.first_residual_layer else PlainConnection()


class FastForwardConnectionConfig(ConnectionConfigBase):
    """A linear path beside the layers, from the embeddings to the top (Zhou et al. 2016).

    In the paper the path is four times as wide and replaces the input product of the cells. Here
    it is the input of any cell.
    """

    type: Literal["fast-forward"] = "fast-forward"
    shortcut_size: PositiveInt | None = None
    """Size of the linear path; by default hidden_size."""
    halve_shortcut: bool = True
    """Pass on half of the path from layer to layer, as in the paper, or all of it."""

    @override
    def build_input_projection(self, embedding_size: int, hidden_size: int) -> nn.Module:
        return nn.Linear(embedding_size, self._size(hidden_size), bias=False)  # f^1 = W x

    @override
    def layer_input_size(self, layer: int, *, embedding_size: int, hidden_size: int) -> int:
        return self._size(hidden_size)

    @override
    def layer_input_dropout(self, layer: int, dropout: float) -> float:
        return 0.0  # the connection drops from layer outputs, never from the path

    @override
    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        size = self._size(hidden_size)
        return FastForwardConnection(
            size,
            hidden_size,
            hidden_size if is_top else size,
            halve_shortcut=self.halve_shortcut and not is_top,
            dropout=0.0 if is_top else dropout,
        )

    def _size(self, hidden_size: int) -> int:
        size = self.shortcut_size or hidden_size
        check(
            not self.halve_shortcut or size % 2 == 0,
            "connection.shortcut_size",
            f"a path of size {size} cannot be halved",
            "choose an even size, or set `halve_shortcut: false`",
        )
        return size


_Connections = PlainConnectionConfig | ResidualConnectionConfig | FastForwardConnectionConfig
ConnectionConfig = Annotated[
    _Connections,
    Field(discriminator="type"),
    allow_bare_type(Literal["plain", "residual", "fast-forward"] | _Connections),
]


class LayerDirections(NamedTuple):
    """The directions of a layer."""

    is_forward: bool
    is_backward: bool


BIDIRECTIONAL = LayerDirections(is_forward=True, is_backward=True)


class DirectionConfigBase(BaseConfig):
    """The directions of each layer."""

    type: str

    @abstractmethod
    def layer_directions(self, layer: int) -> LayerDirections:
        """Return the directions of a layer, counted from 1."""


class BidirectionalConfig(DirectionConfigBase):
    """Bidirectional layers; both directions are concatenated (Schuster & Paliwal 1997)."""

    type: Literal["bidirectional"] = "bidirectional"

    @override
    def layer_directions(self, layer: int) -> LayerDirections:
        return BIDIRECTIONAL


class ReversibleDirectionConfigBase(DirectionConfigBase):
    """One direction per layer, which can be swapped."""

    reverse_source: bool = False
    """Read the source from its end: swap forward and backward (Sutskever et al. 2014)."""

    @override
    def layer_directions(self, layer: int) -> LayerDirections:
        is_forward = self.is_forward(layer) != self.reverse_source
        return LayerDirections(is_forward, not is_forward)

    def is_forward(self, layer: int) -> bool:
        """Whether a layer is forward, if the source is not reversed."""
        return True


class ForwardConfig(ReversibleDirectionConfigBase):
    """Forward layers."""

    type: Literal["forward"] = "forward"


class AlternatingConfig(ReversibleDirectionConfigBase):
    """Forward in the first layer, backward in the second, and so on (Zhou et al. 2016)."""

    type: Literal["alternating"] = "alternating"

    @override
    def is_forward(self, layer: int) -> bool:
        return layer % 2 == 1


class BidirectionalThenForwardConfig(ReversibleDirectionConfigBase):
    """Bidirectional bottom layers, forward layers above (Wu et al. 2016)."""

    type: Literal["bidirectional-then-forward"] = "bidirectional-then-forward"
    num_bidirectional: PositiveInt = 1
    """Number of bidirectional layers."""

    @override
    def layer_directions(self, layer: int) -> LayerDirections:
        if layer <= self.num_bidirectional:
            return BIDIRECTIONAL
        return super().layer_directions(layer)


_DirectionTypes = Literal["bidirectional", "forward", "alternating", "bidirectional-then-forward"]
_Directions = (
    BidirectionalConfig | ForwardConfig | AlternatingConfig | BidirectionalThenForwardConfig
)
DirectionConfig = Annotated[
    _Directions, Field(discriminator="type"), allow_bare_type(_DirectionTypes | _Directions)
]


class RecurrentLayerWrapper(nn.Module):
    """What happens before and after the cells of one layer.

    With `lower_attention`, the cells also read a context of the outputs of the layer below; its
    queries are the layer's input.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        dropout: float,
        lower_attention: Attention | None = None,
        experts: MoESublayer | None = None,
    ) -> None:
        super().__init__()
        self.connection = connection
        self.dropout = nn.Dropout(dropout)
        self.lower_attention = lower_attention
        self.experts = experts

    def prepare_input(
        self, layer_input: LayerInputs, lower_outputs: LayerOutputs, mask: SourceMask
    ) -> NextInputs:
        """Return the input of the cells."""
        cell_input = self.dropout(layer_input)
        if self.lower_attention is None:
            return cell_input
        memory = self.lower_attention.build_memory(lower_outputs, mask.unsqueeze(1))
        context = self.lower_attention(cell_input, memory, need_weights=False).context
        return torch.cat([cell_input, context], dim=-1)

    def connect_output(
        self, layer_input: LayerInputs, layer_output: LayerOutputs, mask: SourceMask
    ) -> tuple[NextInputs, Mapping[str, Scalar]]:
        """Return the input of the next layer and its auxiliary losses."""
        connected = self.connection(layer_input, layer_output)
        if self.experts is None:
            return connected, {}
        moe_output: MoEOutput = self.experts(connected, mask)
        return moe_output.outputs, moe_output.auxiliary_losses
