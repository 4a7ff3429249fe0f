"""Connections: what does one layer of an encoder pass on to the next?

A connection joins what a layer has read and what it shows. That of the top layer makes the states
of the encoder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from heedful.config import Choice
from heedful.config.choice import naming
from heedful.errors import ConfigError
from heedful.shapes import Float


class Connection(nn.Module, ABC):
    """What is passed on."""

    @abstractmethod
    def forward(
        self, read: Float[Tensor, "B S E"], shown: Float[Tensor, "B S D"]
    ) -> Float[Tensor, "B S X"]:
        """Join what was read and what is shown."""


class Plain(Connection):
    """What is shown, and nothing else."""

    def forward(
        self, read: Float[Tensor, "B S E"], shown: Float[Tensor, "B S D"]
    ) -> Float[Tensor, "B S D"]:
        """Pass on what is shown."""
        return shown


class Residual(Connection):
    """x^i = m^i + x^(i-1): the sum of both  (Wu et al. 2016, section 3.1)."""

    def forward(
        self, read: Float[Tensor, "B S D"], shown: Float[Tensor, "B S D"]
    ) -> Float[Tensor, "B S D"]:
        """Add what is shown to what was read."""
        return shown + read


class FastForward(Connection):
    """f^(k+1) = W [half of f^k; dropout(h^k)], with neither squashing nor recurrence on the way.

    (Zhou et al. 2016, section 3.1.) f is what a layer reads and h what it shows. Gradients pass
    from the top to the words along f alone, however many layers there are.
    """

    def __init__(
        self, read_size: int, hidden_size: int, output_size: int, *, halved: bool, dropout: float
    ) -> None:
        super().__init__()
        self.passed_size = read_size // 2 if halved else read_size
        self.dropout = nn.Dropout(dropout)
        self.join = nn.Linear(self.passed_size + hidden_size, output_size, bias=False)

    def forward(
        self, read: Float[Tensor, "B S E"], shown: Float[Tensor, "B S D"]
    ) -> Float[Tensor, "B S X"]:
        """Join the straight path and what is shown."""
        return self.join(torch.cat([read[..., : self.passed_size], self.dropout(shown)], dim=-1))


class ConnectionChoice(Choice):
    """What one layer passes on to the next."""

    kind: str

    @property
    def least_layers(self) -> int:
        """How many layers there must be, for it to make a difference."""
        return 1

    def entry(self, embedding_size: int, hidden_size: int) -> nn.Module:
        """Make what stands before the first layer."""
        return nn.Identity()

    def read_size(self, layer: int, *, embedding_size: int, hidden_size: int) -> int:
        """Say how wide that is which a layer reads; the lowest is layer 1."""
        return embedding_size if layer == 1 else hidden_size

    def read_dropout(self, layer: int, dropout: float) -> float:
        """Say what share of what a layer reads is dropped on its way into the cells."""
        return dropout if layer > 1 else 0.0  # embeddings have dropped theirs

    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        """Make the connection above a layer."""
        return Plain()


class PlainConfig(ConnectionChoice):
    """Pass on what a layer shows, and nothing else."""

    kind: Literal["plain"] = "plain"


class ResidualConfig(ConnectionChoice):
    """Pass on the sum of what a layer shows and what it has read (Wu et al. 2016)."""

    kind: Literal["residual"] = "residual"
    from_layer: int = Field(default=3, ge=2)
    """The first layer that does so, counted from 1: the paper's is the third. The first reads
    embeddings, which are of another kind than states."""

    @property
    def least_layers(self) -> int:
        """How many layers there must be, for it to make a difference."""
        return self.from_layer

    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        """Make the connection above a layer."""
        return Residual() if layer >= self.from_layer else Plain()


class FastForwardConfig(ConnectionChoice):
    """Keep a straight path beside the layers, from the words to the top (Zhou et al. 2016).

    In the paper a cell has no product for its input: the straight path is four times as wide, and
    is what the gates are summed from. Here it may lead past any cell, which reads it as any input.
    """

    kind: Literal["fast-forward"] = "fast-forward"
    size: PositiveInt | None = None
    """Width of the straight path; if not given, that of a state."""
    halved: bool = True
    """Whether half of the straight path goes on from layer to layer, as in the paper, or all."""

    def entry(self, embedding_size: int, hidden_size: int) -> nn.Module:
        """Make what stands before the first layer: f^1 = W x."""
        return nn.Linear(embedding_size, self._size(hidden_size), bias=False)

    def read_size(self, layer: int, *, embedding_size: int, hidden_size: int) -> int:
        """Say how wide that is which a layer reads."""
        return self._size(hidden_size)

    def read_dropout(self, layer: int, dropout: float) -> float:
        """Drop nothing: what was shown has been dropped, and the straight path is whole."""
        return 0.0

    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        """Make the connection above a layer; the top one brings both parts to a state's width."""
        size = self._size(hidden_size)
        output_size, halved = (hidden_size, False) if is_top else (size, self.halved)
        share = 0.0 if is_top else dropout
        return FastForward(size, hidden_size, output_size, halved=halved, dropout=share)

    def _size(self, hidden_size: int) -> int:
        size = self.size or hidden_size
        if self.halved and size % 2:
            raise ConfigError(
                "connection.size",
                f"a straight path of width {size} cannot be halved",
                "choose an even width, or set `halved: false`",
            )
        return size


_Kinds = Literal["plain", "residual", "fast-forward"]
_Connections = PlainConfig | ResidualConfig | FastForwardConfig
ConnectionConfig = Annotated[
    _Connections,
    Field(discriminator="kind"),
    naming(_Kinds | _Connections),
]
