"""Modules between the layers of a recurrent encoder: connections, lower attention, experts.

Connections are plain, residual or fast-forward. Invariant: one sees a single position at a time.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.attention import Attention
from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type
from heedful.errors import check
from heedful.layers.mixture_of_experts import MoESublayer
from heedful.layers.sublayers import apply_dropout
from heedful.shapes import Float, LayerInputs, LayerOutputs, SourceMask

NextInputs = Float[Tensor, "B S X"]


class Connection(nn.Module):
    """The input of the next layer, or the encoder's states: by default the layer's output."""

    @override
    def forward(self, layer_input: LayerInputs, layer_output: LayerOutputs) -> NextInputs:
        return layer_output


class ResidualConnection(Connection):
    """x^i = m^i + x^(i-1)  (Wu et al. 2016, section 3.1)."""

    @override
    def forward(self, layer_input: LayerInputs, layer_output: LayerOutputs) -> NextInputs:
        return layer_output + layer_input


class FastForwardConnection(Connection):
    """f^(k+1) = W [first values of f^k; dropout(h^k)]  (Zhou et al. 2016, section 3.1).

    f is the input of a layer, of which the paper passes on one half, and h its output. The path
    along f is linear and not recurrent, so that gradients reach the embeddings through any number
    of layers.
    """

    def __init__(
        self, shortcut_size: int, hidden_size: int, output_size: int, *, dropout: float
    ) -> None:
        super().__init__()
        self.shortcut_size = shortcut_size
        self.dropout = nn.Dropout(dropout)
        self.projection = nn.Linear(shortcut_size + hidden_size, output_size, bias=False)

    @override
    def forward(self, layer_input: LayerInputs, layer_output: LayerOutputs) -> NextInputs:
        shortcut = layer_input[..., : self.shortcut_size]
        return self.projection(torch.cat([shortcut, self.dropout(layer_output)], dim=-1))


class ConnectionConfigBase(BaseConfig):
    """Connection of a layer to the next; layers are numbered from 1."""

    type: str

    def path_size(self, hidden_size: int) -> int | None:
        """Return the size of the linear path parallel to the layers, None without one."""
        return None

    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        return Connection()


class PlainConnectionConfig(ConnectionConfigBase):
    """Pass on the layer's output."""

    type: Literal["plain"] = "plain"


class ResidualConnectionConfig(ConnectionConfigBase):
    """Pass on the sum of input and output (Wu et al. 2016)."""

    type: Literal["residual"] = "residual"
    first_residual_layer: int = Field(default=3, ge=2)
    """First layer with a residual connection, counted from 1; the paper's is the third. Never the
    first, whose input is embeddings."""

    @override
    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        return ResidualConnection() if layer >= self.first_residual_layer else Connection()


class FastForwardConnectionConfig(ConnectionConfigBase):
    """A linear path parallel to the layers, from the embeddings to the top (Zhou et al. 2016).

    In the paper the path is four times as wide and replaces the input product of the cells. Here
    it is the input of any cell.
    """

    type: Literal["fast-forward"] = "fast-forward"
    shortcut_size: PositiveInt | None = None
    """Size of the linear path; by default hidden_size."""
    halve_shortcut: bool = True
    """Pass on half of the path from layer to layer, as in the paper, or all of it."""

    @override
    def path_size(self, hidden_size: int) -> int:
        size = self.shortcut_size or hidden_size
        message = f"a path of size {size} cannot be halved"
        hint = "choose an even size, or set `halve_shortcut: false`"
        check(not self.halve_shortcut or size % 2 == 0, "connection.shortcut_size", message, hint)
        return size

    @override
    def build(self, layer: int, *, is_top: bool, hidden_size: int, dropout: float) -> Connection:
        size = self.path_size(hidden_size)
        if is_top:
            return FastForwardConnection(size, hidden_size, hidden_size, dropout=0.0)
        shortcut_size = size // 2 if self.halve_shortcut else size
        return FastForwardConnection(shortcut_size, hidden_size, size, dropout=dropout)


_Connections = PlainConnectionConfig | ResidualConnectionConfig | FastForwardConnectionConfig
ConnectionConfig = Annotated[
    _Connections,
    Field(discriminator="type"),
    allow_bare_type(Literal["plain", "residual", "fast-forward"] | _Connections),
]


class RecurrentLayerWrapper(nn.Module):
    """A recurrent layer with the modules before and after its cells.

    With `lower_attention`, the cells also read a context of the outputs of the layer below; its
    queries are the layer's input.
    """

    def __init__(
        self,
        connection: Connection,
        dropout: float,
        lower_attention: Attention | None,
        experts: MoESublayer | None,
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
        cell_input = apply_dropout(layer_input, self.dropout)
        if self.lower_attention is None:
            return cell_input
        memory = self.lower_attention.build_memory(lower_outputs, mask.unsqueeze(1))
        context = self.lower_attention(cell_input, memory, need_weights=False).context
        return torch.cat([cell_input, context], dim=-1)

    def connect_output(
        self, layer_input: LayerInputs, layer_output: LayerOutputs, mask: SourceMask
    ) -> tuple[NextInputs, Mapping[str, Tensor]]:
        """Return the input of the next layer and its auxiliary losses."""
        connected = self.connection(layer_input, layer_output)
        if self.experts is None:
            return connected, {}
        moe_output = self.experts(connected, mask)
        return moe_output.outputs, moe_output.auxiliary_losses
