"""Connections: what does one layer of an encoder pass on to the next?

A connection joins what a layer has read and what it shows. That of the top layer makes the states
of the encoder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from heedful.attention.attention import Attention
from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type
from heedful.errors import ConfigError
from heedful.layers.mixture_of_experts import MoEOutput, MoESublayer
from heedful.shapes import Bool, Float


class Connection(nn.Module, ABC):
    """What is passed on."""

    @abstractmethod
    def forward(
        self, layer_input: Float[Tensor, "B S E"], layer_output: Float[Tensor, "B S D"]
    ) -> Float[Tensor, "B S X"]:
        """Join what was read and what is shown."""


class PlainConnection(Connection):
    """What is shown, and nothing else."""

    def forward(
        self, layer_input: Float[Tensor, "B S E"], layer_output: Float[Tensor, "B S D"]
    ) -> Float[Tensor, "B S D"]:
        """Pass on what is shown."""
        return layer_output


class ResidualConnection(Connection):
    """x^i = m^i + x^(i-1): the sum of both  (Wu et al. 2016, section 3.1)."""

    def forward(
        self, layer_input: Float[Tensor, "B S D"], layer_output: Float[Tensor, "B S D"]
    ) -> Float[Tensor, "B S D"]:
        """Add what is shown to what was read."""
        return layer_output + layer_input


class FastForwardConnection(Connection):
    """f^(k+1) = W [half of f^k; dropout(h^k)], with neither squashing nor recurrence on the way.

    (Zhou et al. 2016, section 3.1.) f is what a layer reads and h what it shows. Gradients pass
    from the top to the words along f alone, however many layers there are.
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

    def forward(
        self, layer_input: Float[Tensor, "B S E"], layer_output: Float[Tensor, "B S D"]
    ) -> Float[Tensor, "B S X"]:
        """Join the straight path and what is shown."""
        return self.projection(
            torch.cat([layer_input[..., : self.shortcut_size], self.dropout(layer_output)], dim=-1)
        )


class ConnectionConfigBase(BaseConfig):
    """What one layer passes on to the next."""

    type: str

    @property
    def min_layers(self) -> int:
        """How many layers there must be, for it to make a difference."""
        return 1

    def build_input_projection(self, embedding_size: int, hidden_size: int) -> nn.Module:
        """Make what stands before the first layer."""
        return nn.Identity()

    def layer_input_size(self, layer: int, *, embedding_size: int, hidden_size: int) -> int:
        """Say how wide that is which a layer reads; the lowest is layer 1."""
        return embedding_size if layer == 1 else hidden_size

    def layer_input_dropout(self, layer: int, dropout: float) -> float:
        """Say what share of what a layer reads is dropped on its way into the cells."""
        return dropout if layer > 1 else 0.0  # embeddings have dropped theirs

    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        """Make the connection above a layer."""
        return PlainConnection()


class PlainConnectionConfig(ConnectionConfigBase):
    """Pass on what a layer shows, and nothing else."""

    type: Literal["plain"] = "plain"


class ResidualConnectionConfig(ConnectionConfigBase):
    """Pass on the sum of what a layer shows and what it has read (Wu et al. 2016)."""

    type: Literal["residual"] = "residual"
    first_residual_layer: int = Field(default=3, ge=2)
    """The first layer that does so, counted from 1: the paper's is the third. The first reads
    embeddings, which are of another kind than states."""

    @property
    def min_layers(self) -> int:
        """How many layers there must be, for it to make a difference."""
        return self.first_residual_layer

    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        """Make the connection above a layer."""
        return ResidualConnection() if layer >= self.first_residual_layer else PlainConnection()


class FastForwardConnectionConfig(ConnectionConfigBase):
    """Keep a straight path beside the layers, from the words to the top (Zhou et al. 2016).

    In the paper a cell has no product for its input: the straight path is four times as wide, and
    is what the gates are summed from. Here it may lead past any cell, which reads it as any input.
    """

    type: Literal["fast-forward"] = "fast-forward"
    shortcut_size: PositiveInt | None = None
    """Width of the straight path; if not given, that of a state."""
    halve_shortcut: bool = True
    """Whether half of the straight path goes on from layer to layer, as in the paper, or all."""

    def build_input_projection(self, embedding_size: int, hidden_size: int) -> nn.Module:
        """Make what stands before the first layer: f^1 = W x."""
        return nn.Linear(embedding_size, self._size(hidden_size), bias=False)

    def layer_input_size(self, layer: int, *, embedding_size: int, hidden_size: int) -> int:
        """Say how wide that is which a layer reads."""
        return self._size(hidden_size)

    def layer_input_dropout(self, layer: int, dropout: float) -> float:
        """Drop nothing: what was shown has been dropped, and the straight path is whole."""
        return 0.0

    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        """Make the connection above a layer; the top one brings both parts to a state's width."""
        size = self._size(hidden_size)
        output_size, halved = (hidden_size, False) if is_top else (size, self.halve_shortcut)
        share = 0.0 if is_top else dropout
        return FastForwardConnection(
            size, hidden_size, output_size, halve_shortcut=halved, dropout=share
        )

    def _size(self, hidden_size: int) -> int:
        size = self.shortcut_size or hidden_size
        if self.halve_shortcut and size % 2:
            raise ConfigError(
                "connection.shortcut_size",
                f"a straight path of width {size} cannot be halved",
                "choose an even width, or set `halved: false`",
            )
        return size


_ConnectionTypes = Literal["plain", "residual", "fast-forward"]
_Connections = PlainConnectionConfig | ResidualConnectionConfig | FastForwardConnectionConfig
ConnectionConfig = Annotated[
    _Connections,
    Field(discriminator="type"),
    allow_bare_type(_ConnectionTypes | _Connections),
]


# Directions: which way does each layer of an encoder read?
#
# Whichever way it is, a state stands at the position of the word it was made from, and a row is
# begun at its own first or last word: padding is never read on the way.


class LayerDirections(NamedTuple):
    """Which ways a layer reads."""

    is_forward: bool
    is_backward: bool


BIDIRECTIONAL = LayerDirections(is_forward=True, is_backward=True)


class DirectionConfigBase(BaseConfig):
    """Which way each layer reads."""

    type: str

    @abstractmethod
    def layer_directions(self, layer: int) -> LayerDirections:
        """Say which ways a layer reads; the lowest is layer 1."""


class BidirectionalConfig(DirectionConfigBase):
    """Read both ways in every layer, and set the two side by side (Schuster & Paliwal 1997)."""

    type: Literal["bidirectional"] = "bidirectional"

    def layer_directions(self, layer: int) -> LayerDirections:
        """Say which ways a layer reads."""
        return BIDIRECTIONAL


class ReversibleDirectionConfigBase(DirectionConfigBase):
    """Which way each layer reads, or the other way round."""

    reverse_source: bool = False
    """Whether the source is read from its end: what would be forwards is backwards, and the other
    way round (Sutskever et al. 2014)."""

    def single_direction(self, *, is_forward: bool) -> LayerDirections:
        """Read one way, or the other if all is reversed."""
        is_forward = is_forward != self.reverse_source
        return LayerDirections(is_forward, not is_forward)


class ForwardConfig(ReversibleDirectionConfigBase):
    """Read forwards in every layer."""

    type: Literal["forward"] = "forward"

    def layer_directions(self, layer: int) -> LayerDirections:
        """Say which ways a layer reads."""
        return self.single_direction(is_forward=True)


class AlternatingConfig(ReversibleDirectionConfigBase):
    """Read forwards in the first layer, backwards in the next, and so on (Zhou et al. 2016)."""

    type: Literal["alternating"] = "alternating"

    def layer_directions(self, layer: int) -> LayerDirections:
        """Say which ways a layer reads."""
        return self.single_direction(is_forward=layer % 2 == 1)


class BidirectionalThenForwardConfig(ReversibleDirectionConfigBase):
    """Read both ways in the lowest layers and forwards in those above (Wu et al. 2016)."""

    type: Literal["bidirectional-then-forward"] = "bidirectional-then-forward"
    num_bidirectional: PositiveInt = 1
    """Layers that read both ways."""

    def layer_directions(self, layer: int) -> LayerDirections:
        """Say which ways a layer reads."""
        return (
            BIDIRECTIONAL
            if layer <= self.num_bidirectional
            else self.single_direction(is_forward=True)
        )


_DirectionTypes = Literal["bidirectional", "forward", "alternating", "bidirectional-then-forward"]
_Directions = (
    BidirectionalConfig | ForwardConfig | AlternatingConfig | BidirectionalThenForwardConfig
)
DirectionConfig = Annotated[
    _Directions,
    Field(discriminator="type"),
    allow_bare_type(_DirectionTypes | _Directions),
]


# Floors: what surrounds one layer of a stack, below it and above?


class RecurrentLayerWrapper(nn.Module):
    """What surrounds one recurrent layer: what it hears, and what it passes on.

    It hears what it reads and, where it looks down, what it finds in all that the layer below
    showed, asking with what it reads.
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
        self,
        layer_input: Float[Tensor, "B S E"],
        lower_outputs: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B S"],
    ) -> Float[Tensor, "B S X"]:
        """Make what the cells are told."""
        cell_input = self.dropout(layer_input)
        if self.lower_attention is None:
            return cell_input
        memory = self.lower_attention.build_memory(lower_outputs, mask.unsqueeze(1))
        found = self.lower_attention(cell_input, memory, need_weights=False).context
        return torch.cat([cell_input, found], dim=-1)

    def connect_output(
        self,
        layer_input: Float[Tensor, "B S E"],
        layer_output: Float[Tensor, "B S D"],
        mask: Bool[Tensor, "B S"],
    ) -> tuple[Float[Tensor, "B S X"], Mapping[str, Float[Tensor, ""]]]:
        """Make what the next layer reads, and say what is to be added to the loss for it."""
        connected = self.connection(layer_input, layer_output)
        if self.experts is None:
            return connected, {}
        mixed: MoEOutput = self.experts(connected, mask)
        return mixed.outputs, mixed.auxiliary_losses
