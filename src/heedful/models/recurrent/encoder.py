"""Memories: what did a layer keep in memory cells, beside what it showed?

Cells that write memory cells on a tape give away those of all positions for nothing; of others
that have one it can be asked what it holds where a row ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, cast

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from heedful.attention.attention import Attention
from heedful.attention.auxiliary_losses import sum_losses
from heedful.attention.config import AttentionConfig, build_self_attention
from heedful.attention.masks import padding_mask
from heedful.attention.positional_encoding import PositionalEncodingConfig
from heedful.config import BaseConfig
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.mixture_of_experts import MoESublayer, MoESublayerConfig
from heedful.layers.pooling import LastStatePoolingConfig, Pooling, PoolingConfig
from heedful.layers.rnn import CellConfig, RecurrentLayer, reverse_padded
from heedful.layers.rnn_cells import GRUCellConfig, RecurrentCell
from heedful.layers.self_attentive_cells import SelfAttentiveLSTMCell, StateHistory
from heedful.models.base import Encoder, EncoderOutput
from heedful.models.recurrent.encoder_layers import (
    BidirectionalConfig,
    ConnectionConfig,
    DirectionConfig,
    PlainConnectionConfig,
    RecurrentLayerWrapper,
)
from heedful.shapes import Bool, Float, Int


class CellStatesOutput(NamedTuple):
    """What a layer showed, and what it kept."""

    outputs: Float[Tensor, "B S D"]
    cell_states: Float[Tensor, "B S D"] | None = None  # at each position, from a tape
    final_cell_states: Float[Tensor, "B D"] | None = None  # of each direction after its last input


def run_with_cell_states(
    layer: RecurrentLayer,
    inputs: Float[Tensor, "B S E"],
    lengths: Int[Tensor, "B"],
    *,
    return_final_cell_state: bool,
) -> CellStatesOutput:
    """Run a layer along sequences; tell also its memory cells: on a tape, or asked for at ends."""
    if all(isinstance(cell, SelfAttentiveLSTMCell) for cell in layer.cells):
        return _from_histories(layer, inputs, lengths)
    memory_cell_indices = [
        cell.cell_state_index for cell in layer.cells if cell.cell_state_index is not None
    ]
    if not (return_final_cell_state and memory_cell_indices):
        return CellStatesOutput(layer(inputs, lengths))
    shown, ends = layer.forward_with_states(inputs, lengths)
    final_memory = [end[place] for place, end in zip(memory_cell_indices, ends, strict=True)]
    return CellStatesOutput(shown, final_cell_states=torch.cat(final_memory, dim=-1))


def _from_histories(
    layer: RecurrentLayer, inputs: Float[Tensor, "B S E"], lengths: Int[Tensor, "B"]
) -> CellStatesOutput:
    shown, ends = layer.forward_with_states(inputs, lengths)
    kept = []
    for cell, (_, _, *tape) in zip(layer.cells, ends, strict=True):
        memories = StateHistory(*tape).values[..., cell.hidden_size :]  # behind the hidden states
        kept.append(reverse_padded(memories, lengths) if cell is layer.backward_cell else memories)
    return CellStatesOutput(shown, cell_states=torch.cat(kept, dim=-1))


# Recurrent encoders: a source read word by word, by layers on top of one another.
#
# Law: padding has no influence, and a state stands where its word stands, whichever way was read.


class RecurrentEncoder(Encoder):
    """Recurrent layers on top of one another, each on its own floor.

    Without a pooling the summary is what is seen of the top layer where it ends.
    """

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
    def final_state_sizes(self) -> tuple[int, ...]:
        """How wide what is seen of each layer at its end is."""
        layers = cast(Iterable[RecurrentLayer], self.layers)
        return tuple(sum(cell.hidden_size for cell in layer.cells) for layer in layers)

    @property
    def backward_size(self) -> int:
        """How many of the last values seen at the top layer's end a backward reading made."""
        backwards = cast(RecurrentLayer, self.layers[-1]).backward_cell
        return 0 if backwards is None else backwards.hidden_size

    def forward(self, tokens: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> EncoderOutput:
        """Read a batch of sources."""
        mask = padding_mask(lengths, tokens.size(1)).squeeze(1)  # (B, S)
        layer_output = layer_input = self.input_projection(self.embedding(tokens))
        final_states, runs, auxiliary_losses = (
            [],
            list[CellStatesOutput](),
            list[Mapping[str, Tensor]](),
        )
        layers = cast(Iterable[RecurrentLayer], self.layers)
        for layer, floor in zip(
            layers, cast(Iterable[RecurrentLayerWrapper], self.layer_wrappers), strict=True
        ):
            cell_input = floor.prepare_input(layer_input, layer_output, mask)
            runs.append(
                run_with_cell_states(
                    layer, cell_input, lengths, return_final_cell_state=self.returns_cell_states
                )
            )
            layer_output = runs[-1].outputs
            final_states.append(layer.final_outputs(layer_output, lengths))
            layer_input, found = floor.connect_output(layer_input, layer_output, mask)
            auxiliary_losses.append(found)
        states = _zero_padding(layer_input, mask)
        summary = final_states[-1] if self.pooling is None else self.pooling(states, mask)
        memories = runs[-1].cell_states
        return EncoderOutput(
            states,
            lengths,
            summary,
            tuple(final_states),
            None if memories is None else _zero_padding(memories, mask),
            sum_losses(*auxiliary_losses),
            final_cell_states=tuple(
                each.final_cell_states for each in runs if each.final_cell_states is not None
            ),
        )


def _zero_padding(
    values: Float[Tensor, "B S D"], mask: Bool[Tensor, "B S"]
) -> Float[Tensor, "B S D"]:
    """Make zeros of what lies past the end."""
    return values.masked_fill(~mask.unsqueeze(-1), 0)


class RecurrentEncoderConfig(BaseConfig):
    """Read the source with recurrent layers."""

    type: Literal["recurrent"] = "recurrent"
    cell: CellConfig = GRUCellConfig()
    """The recurrent cell."""
    embedding_size: PositiveInt = 256
    """Width of a word's vector."""
    hidden_size: PositiveInt = 256
    """Width of a state, both directions together."""
    num_layers: PositiveInt = 1
    """Layers on top of one another."""
    direction: DirectionConfig = BidirectionalConfig()
    """Which way each layer reads."""
    connection: ConnectionConfig = PlainConnectionConfig()
    """What a layer passes on to the next."""
    lower_attention: AttentionConfig | None = None
    """How each layer but the first looks at all that the layer below showed; if not given, it does
    not."""
    experts: MoESublayerConfig | None = None
    """Small networks between layers, of which each word sees a few; if not given, none."""
    pooling: PoolingConfig = LastStatePoolingConfig()
    """How the whole source becomes one vector."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped from embeddings and between layers."""
    positional_encoding: PositionalEncodingConfig | None = None
    """How words are told their places; if not given, the recurrence alone knows."""

    @model_validator(mode="after")
    def _check_even_hidden_size(self) -> RecurrentEncoderConfig:
        directions = [
            sum(self.direction.layer_directions(number)) for number in self._layer_numbers
        ]
        if max(directions) > 1 and self.hidden_size % 2:
            raise ValueError(f"hidden_size, for both directions, must be even: {self.hidden_size}")
        return self

    @model_validator(mode="after")
    def _check_num_layers(self) -> RecurrentEncoderConfig:
        wanted = {
            "lower_attention": 2 if self.lower_attention else 1,
            "experts": self.experts.min_layers if self.experts else 1,
            "connection": self.connection.min_layers,
        }
        for name, least in wanted.items():
            if least > self.num_layers:
                raise ValueError(f"{name} needs num_layers of {least} or more: {self.num_layers}")
        return self

    @property
    def _layer_numbers(self) -> range:
        return range(1, self.num_layers + 1)

    def build(self, *, vocab_size: int) -> RecurrentEncoder:
        """Make the encoder for a vocabulary."""
        size, places = self.embedding_size, self.positional_encoding
        placing = places.build(embedding_size=size) if places else None
        embedding = TokenEmbedding(
            vocab_size, size, dropout=self.dropout, position_combiner=placing
        )
        sizes = {
            number: self._layer_input_size(number, embedding.embedding_size)
            for number in self._layer_numbers
        }
        return RecurrentEncoder(
            embedding,
            [self._build_layer(number, layer_input) for number, layer_input in sizes.items()],
            [
                self._build_layer_wrapper(number, layer_input)
                for number, layer_input in sizes.items()
            ],
            input_projection=self.connection.build_input_projection(
                embedding.embedding_size, self.hidden_size
            ),
            pooling=self.pooling.build(size=self.hidden_size),
            size=self.hidden_size,
        )

    def _layer_input_size(self, layer_number: int, embedding_size: int) -> int:
        return self.connection.layer_input_size(
            layer_number, embedding_size=embedding_size, hidden_size=self.hidden_size
        )

    def _build_layer(self, layer_number: int, read_size: int) -> RecurrentLayer:
        directions = self.direction.layer_directions(layer_number)
        lower_context_size = self.hidden_size if self._has_lower_attention(layer_number) else 0

        def cell() -> RecurrentCell:
            return self.cell.build(
                input_size=read_size + lower_context_size,
                hidden_size=self.hidden_size // sum(directions),
            )

        return RecurrentLayer(
            forward_cell=cell() if directions.is_forward else None,
            backward_cell=cell() if directions.is_backward else None,
        )

    def _build_layer_wrapper(self, layer_number: int, read_size: int) -> RecurrentLayerWrapper:
        is_top = layer_number == self.num_layers
        passing = self.connection.build(
            layer_number, is_top=is_top, hidden_size=self.hidden_size, dropout=self.dropout
        )
        return RecurrentLayerWrapper(
            passing,
            dropout=self.connection.layer_input_dropout(layer_number, self.dropout),
            lower_attention=self._build_lower_attention(read_size)
            if self._has_lower_attention(layer_number)
            else None,
            experts=None if is_top else self._build_experts(layer_number),
        )

    def _build_experts(self, layer_number: int) -> MoESublayer | None:
        if self.experts is None or not self.experts.is_after(layer_number):
            return None
        size = self._layer_input_size(layer_number + 1, self.embedding_size)
        return self.experts.build(size=size, dropout=self.dropout)

    def _has_lower_attention(self, layer_number: int) -> bool:
        return self.lower_attention is not None and layer_number > 1

    def _build_lower_attention(self, read_size: int) -> Attention:
        assert self.lower_attention is not None
        return build_self_attention(
            self.lower_attention,
            query_size=read_size,
            memory_size=self.hidden_size,
            config_path="lower_attention",
        )
