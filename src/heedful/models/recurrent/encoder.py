"""The recurrent encoder: stacked recurrent layers over the source.

Invariant: padding has no influence, and a state belongs to the token at its position, whichever
direction a layer has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, cast

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.auxiliary_losses import sum_losses
from heedful.attention.config import AttentionConfig, build_self_attention
from heedful.attention.memory import padding_mask
from heedful.attention.positional_encoding import PositionalEncodingConfig
from heedful.config import BaseConfig
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.mixture_of_experts import MoESublayerConfig
from heedful.layers.pooling import LastStatePoolingConfig, Pooling, PoolingConfig
from heedful.layers.rnn import RecurrentLayer, reverse_padded
from heedful.layers.rnn_cell_config import CellConfig, GRUCellConfig
from heedful.layers.rnn_cells import RecurrentCell
from heedful.layers.self_attentive_cells import SelfAttentiveLSTMCell, StateHistory
from heedful.models.base import Encoder, EncoderOutput
from heedful.models.recurrent.encoder_layers import (
    BidirectionalConfig,
    ConnectionConfig,
    DirectionConfig,
    PlainConnectionConfig,
    RecurrentLayerWrapper,
)
from heedful.shapes import Hidden, Int, LayerInputs, LayerOutputs, Lengths, SourceMask


class CellStatesOutput(NamedTuple):
    """Outputs of a layer and, where it has them, its cell states."""

    outputs: LayerOutputs
    cell_states: LayerOutputs | None = None  # at each position, from a history
    final_cell_states: Hidden | None = None  # of each direction after its last input


def run_with_cell_states(
    layer: RecurrentLayer, inputs: LayerInputs, lengths: Lengths, *, return_final_cell_state: bool
) -> CellStatesOutput:
    """Run a layer; return also its cell states: those in a history, or the final ones."""
    if all(isinstance(cell, SelfAttentiveLSTMCell) for cell in layer.cells):
        outputs, final_states = layer.forward_with_states(inputs, lengths)
        cell_states = []
        for cell, (_, _, *history) in zip(layer.cells, final_states, strict=True):
            values = StateHistory(*history).values[..., cell.hidden_size :]  # after hidden states
            is_reversed = cell is layer.backward_cell
            cell_states.append(reverse_padded(values, lengths) if is_reversed else values)
        return CellStatesOutput(outputs, cell_states=torch.cat(cell_states, dim=-1))
    indices = [cell.cell_state_index for cell in layer.cells if cell.cell_state_index is not None]
    if not (return_final_cell_state and indices):
        return CellStatesOutput(layer(inputs, lengths))
    outputs, final_states = layer.forward_with_states(inputs, lengths)
    parts = [state[index] for index, state in zip(indices, final_states, strict=True)]
    return CellStatesOutput(outputs, final_cell_states=torch.cat(parts, dim=-1))


class RecurrentEncoder(Encoder):
    """Stacked recurrent layers; without a pooling the summary is the top layer's final state."""

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[RecurrentLayer],
        layer_wrappers: Sequence[RecurrentLayerWrapper],
        *,
        input_projection: nn.Module,
        pooling: Pooling | None,
        size: int,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.input_projection = input_projection
        self.layers = nn.ModuleList(layers)
        self.layer_wrappers = nn.ModuleList(layer_wrappers)
        self.pooling = pooling
        self.output_size = size

    @property
    def _layers(self) -> Iterable[RecurrentLayer]:
        return cast(Iterable[RecurrentLayer], self.layers)

    @property
    @override
    def final_state_sizes(self) -> tuple[int, ...]:
        return tuple(sum(cell.hidden_size for cell in layer.cells) for layer in self._layers)

    @property
    @override
    def backward_size(self) -> int:
        backward_cell = cast(RecurrentLayer, self.layers[-1]).backward_cell
        return 0 if backward_cell is None else backward_cell.hidden_size

    @override
    def forward(self, tokens: Int[Tensor, "B S"], lengths: Lengths) -> EncoderOutput:
        mask = padding_mask(lengths, tokens.size(1)).squeeze(1)  # (B, S)
        layer_output = layer_input = self.input_projection(self.embedding(tokens))
        outputs: list[CellStatesOutput] = []
        final_states: list[Tensor] = []
        auxiliary_losses: list[Mapping[str, Tensor]] = []
        wrappers = cast(Iterable[RecurrentLayerWrapper], self.layer_wrappers)
        for layer, wrapper in zip(self._layers, wrappers, strict=True):
            cell_input = wrapper.prepare_input(layer_input, layer_output, mask)
            output = run_with_cell_states(
                layer, cell_input, lengths, return_final_cell_state=self.returns_cell_states
            )
            outputs.append(output)
            layer_output = output.outputs
            final_states.append(layer.final_outputs(layer_output, lengths))
            layer_input, losses = wrapper.connect_output(layer_input, layer_output, mask)
            auxiliary_losses.append(losses)
        states = _zero_padding(layer_input, mask)
        cell_states = outputs[-1].cell_states
        final_cell_states = [output.final_cell_states for output in outputs]
        return EncoderOutput(
            states,
            lengths,
            final_states[-1] if self.pooling is None else self.pooling(states, mask),
            tuple(final_states),
            None if cell_states is None else _zero_padding(cell_states, mask),
            sum_losses(*auxiliary_losses),
            final_cell_states=tuple(part for part in final_cell_states if part is not None),
        )


def _zero_padding(values: LayerOutputs, mask: SourceMask) -> LayerOutputs:
    return values.masked_fill(~mask.unsqueeze(-1), 0)


class RecurrentEncoderConfig(BaseConfig):
    """Encode the source with recurrent layers."""

    type: Literal["recurrent"] = "recurrent"
    cell: CellConfig = GRUCellConfig()
    """The recurrent cell."""
    embedding_size: PositiveInt = 256
    """Size of a token embedding."""
    hidden_size: PositiveInt = 256
    """Size of a layer's output, both directions together."""
    num_layers: PositiveInt = 1
    """Number of layers."""
    direction: DirectionConfig = BidirectionalConfig()
    """The directions of each layer."""
    connection: ConnectionConfig = PlainConnectionConfig()
    """What a layer passes on to the next."""
    lower_attention: AttentionConfig | None = None
    """Attention of each layer but the first to all outputs of the layer below; null for none."""
    experts: MoESublayerConfig | None = None
    """Mixture of experts between layers; null for none."""
    pooling: PoolingConfig = LastStatePoolingConfig()
    """How the states become one vector, the source summary."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on embeddings and between layers."""
    positional_encoding: PositionalEncodingConfig | None = None
    """Positional encoding of the embeddings; null for none."""

    @model_validator(mode="after")
    def _check_even_hidden_size(self) -> RecurrentEncoderConfig:
        directions = [sum(self.direction.layer_directions(layer)) for layer in self._layer_numbers]
        if max(directions) > 1 and self.hidden_size % 2:
            raise ValueError(f"hidden_size, for both directions, must be even: {self.hidden_size}")
        return self

    @model_validator(mode="after")
    def _check_num_layers(self) -> RecurrentEncoderConfig:
        min_layers = {
            "lower_attention": 2 if self.lower_attention else 1,
            "experts": self.experts.min_layers if self.experts else 1,
            "connection": self.connection.min_layers,
        }
        for name, minimum in min_layers.items():
            if minimum > self.num_layers:
                raise ValueError(f"{name} needs num_layers of {minimum} or more: {self.num_layers}")
        return self

    @property
    def _layer_numbers(self) -> range:
        return range(1, self.num_layers + 1)

    def build(self, *, vocab_size: int) -> RecurrentEncoder:
        size, positions = self.embedding_size, self.positional_encoding
        embedding = TokenEmbedding(
            vocab_size,
            size,
            dropout=self.dropout,
            position_combiner=positions.build(embedding_size=size) if positions else None,
        )
        input_sizes = {
            layer: self._layer_input_size(layer, embedding.embedding_size)
            for layer in self._layer_numbers
        }
        return RecurrentEncoder(
            embedding,
            [self._build_layer(layer, size) for layer, size in input_sizes.items()],
            [self._build_layer_wrapper(layer, size) for layer, size in input_sizes.items()],
            input_projection=self.connection.build_input_projection(
                embedding.embedding_size, self.hidden_size
            ),
            pooling=self.pooling.build(size=self.hidden_size),
            size=self.hidden_size,
        )

    def _layer_input_size(self, layer: int, embedding_size: int) -> int:
        return self.connection.layer_input_size(
            layer, embedding_size=embedding_size, hidden_size=self.hidden_size
        )

    def _build_layer(self, layer: int, input_size: int) -> RecurrentLayer:
        directions = self.direction.layer_directions(layer)
        context_size = self.hidden_size if self.lower_attention and layer > 1 else 0

        def build_cell() -> RecurrentCell:
            return self.cell.build(
                input_size=input_size + context_size,
                hidden_size=self.hidden_size // sum(directions),
            )

        return RecurrentLayer(
            forward_cell=build_cell() if directions.is_forward else None,
            backward_cell=build_cell() if directions.is_backward else None,
        )

    def _build_layer_wrapper(self, layer: int, input_size: int) -> RecurrentLayerWrapper:
        is_top = layer == self.num_layers
        hidden_size, dropout = self.hidden_size, self.dropout
        connection = self.connection.build(
            layer, is_top=is_top, hidden_size=hidden_size, dropout=dropout
        )
        lower_attention = experts = None
        if self.lower_attention is not None and layer > 1:
            lower_attention = build_self_attention(
                self.lower_attention,
                query_size=input_size,
                memory_size=hidden_size,
                config_path="lower_attention",
            )
        if self.experts is not None and self.experts.is_after(layer) and not is_top:
            size = self._layer_input_size(layer + 1, self.embedding_size)
            experts = self.experts.build(size=size, dropout=dropout)
        return RecurrentLayerWrapper(
            connection,
            dropout=self.connection.layer_input_dropout(layer, dropout),
            lower_attention=lower_attention,
            experts=experts,
        )
