"""Attention, cells and pre-output layer: the parts of a recurrent decoder for its wiring."""

from typing import Annotated

from pydantic import Field, PositiveInt

from heedful.attention.attention import Attention
from heedful.attention.config import AttentionConfig, build_self_attention
from heedful.config import BaseConfig
from heedful.errors import check
from heedful.layers.mixture_of_experts import MoESublayer, MoESublayerConfig
from heedful.layers.rnn import StackedCells
from heedful.layers.rnn_cell_config import CellConfig, GRUCellConfig
from heedful.layers.rnn_cells import RecurrentCell
from heedful.layers.self_attention import FullSelfAttention
from heedful.layers.self_attentive_cells import LowerAttentionCell
from heedful.models.recurrent.pre_output import (
    PartSizes,
    PreOutput,
    PreOutputConfig,
    PreOutputParts,
    TanhPreOutputConfig,
)


class RecurrentDecoderConfigBase(BaseConfig):
    """The parts of a recurrent decoder that its wiring assembles."""

    cell: CellConfig = GRUCellConfig()
    """The recurrent cell."""
    embedding_size: PositiveInt = 256
    """Size of a token embedding."""
    hidden_size: PositiveInt = 256
    """Size of a hidden state."""
    num_layers: PositiveInt = Field(default=1, le=1000)
    """Number of layers."""
    first_residual_layer: Annotated[int, Field(gt=1)] | None = None
    """First layer, counted from 1, with a residual connection, as have all above it (Wu et al.
    2016); null for none."""
    lower_attention: AttentionConfig | None = None
    """Attention of each layer but the first to what the layer below has passed on so far; null for
    none."""
    experts: MoESublayerConfig | None = None
    """Mixture of experts between layers; null for none. Needs a wiring in which attention does not
    wait for them, such as `bottom-layer-attention`."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on embeddings, between layers and before the output head."""
    attention: AttentionConfig = AttentionConfig()
    """The attention mechanism."""
    pre_output: PreOutputConfig = TanhPreOutputConfig()
    """How state, context and token embedding become the features of the output head."""

    def input_size(self, memory_size: int) -> int:
        """Return the size of the decoder's input for a token."""
        return self.embedding_size

    def build_attention(self, memory_size: int) -> Attention:
        """Build attention with hidden states as queries."""
        return self.attention.build(query_size=self.hidden_size, memory_size=memory_size)

    def build_cells(self, input_size: int, context_size: int = 0) -> StackedCells:
        """Build the cells; each layer reads a context of this size besides its input."""
        message = f"there is no layer {self.first_residual_layer}: num_layers is {self.num_layers}"
        hint = "choose a layer from 2 to num_layers, or remove the setting"
        is_valid = (self.first_residual_layer or 1) <= self.num_layers
        check(is_valid, "first_residual_layer", message, hint)
        min_layers = {
            "lower_attention": 2 if self.lower_attention else 1,
            "experts": self.experts.min_layers if self.experts else 1,
        }
        for name, minimum in min_layers.items():
            message = f"needs num_layers of {minimum} or more, but num_layers is {self.num_layers}"
            hint = "add a layer, or remove the section"
            check(self.num_layers >= minimum, name, message, hint)
        cells = [self._build_cell(input_size, context_size)]
        cells += [self._build_upper_cell(context_size) for _ in range(1, self.num_layers)]
        return StackedCells(
            cells,
            self.dropout,
            first_residual_layer=self.first_residual_layer,
            experts=[self._build_experts(layer) for layer in range(1, self.num_layers + 1)],
        )

    def _build_experts(self, layer: int) -> MoESublayer | None:
        if self.experts is None:
            return None
        size, dropout = self.hidden_size, self.dropout
        return self.experts.build_after(layer, self.num_layers, size=size, dropout=dropout)

    def _build_cell(self, input_size: int, context_size: int) -> RecurrentCell:
        size = input_size + context_size
        return self.cell.build(
            input_size=size, hidden_size=self.hidden_size, context_size=context_size
        )

    def _build_upper_cell(self, context_size: int) -> RecurrentCell:
        size = self.hidden_size
        if self.lower_attention is None:
            return self._build_cell(size, context_size)
        attention = build_self_attention(self.lower_attention, size, size, "lower_attention")
        cell = self._build_cell(2 * size, context_size)
        return LowerAttentionCell(cell, FullSelfAttention(attention), size)

    def build_pre_output(self, parts: PreOutputParts, memory_size: int) -> PreOutput:
        """Build the pre-output layer for the vectors that a wiring uses."""
        sizes: PartSizes = {
            "previous_state": self.hidden_size,
            "state": self.hidden_size,
            "context": memory_size,
            "token_embedding": self.input_size(memory_size),
        }
        return self.pre_output.build(parts, sizes, self.dropout)
