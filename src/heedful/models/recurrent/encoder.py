"""The recurrent encoder: stacked recurrent layers over the source.

Invariant: padding has no influence, and a state belongs to the token at its position, whichever
direction a layer has.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, cast

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.config import AttentionConfig, build_self_attention
from heedful.attention.masks import padding_mask
from heedful.attention.positional_encoding import PositionalEncodingConfig
from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.mixture_of_experts import MoESublayerConfig
from heedful.layers.pooling import (
    AttentionPoolingConfig,
    MaxPoolingConfig,
    MeanPoolingConfig,
    Pooling,
)
from heedful.layers.rnn import (
    ConnectionConfig,
    PlainConnectionConfig,
    RecurrentLayer,
    RecurrentLayerWrapper,
    ResidualConnectionConfig,
    reverse_padded,
)
from heedful.layers.rnn_cell_config import CellConfig, GRUCellConfig
from heedful.layers.self_attentive_cells import SelfAttentiveLSTMCell, StateHistory
from heedful.models.base import Encoder, EncoderOutput, EncoderStateSizes
from heedful.pytree import map_pairs, sum_losses
from heedful.shapes import LayerInputs, LayerOutputs, Lengths, SourceTokens


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
        summary_layer: nn.Module,
        layer_input_sizes: Sequence[int],
        size: int,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.input_projection = input_projection
        self.layers = cast(Sequence[RecurrentLayer], nn.ModuleList(layers))
        self.layer_wrappers = cast(Sequence[RecurrentLayerWrapper], nn.ModuleList(layer_wrappers))
        self.pooling = pooling
        self.summary_layer = summary_layer
        self.layer_input_sizes = tuple(layer_input_sizes)
        self.output_size = size
        final_sizes = tuple(sum(cell.hidden_size for cell in layer.cells) for layer in layers)
        backward_cell = layers[-1].backward_cell
        backward_size = 0 if backward_cell is None else backward_cell.hidden_size
        has_history = all(isinstance(cell, SelfAttentiveLSTMCell) for cell in layers[-1].cells)
        cell_sizes = tuple(sum(cell.cell_state_size for cell in layer.cells) for layer in layers)
        self.state_sizes = EncoderStateSizes(final_sizes, backward_size, has_history, cell_sizes)

    @override
    def forward(self, tokens: SourceTokens, lengths: Lengths) -> EncoderOutput:
        return self.encode(self.embedding(tokens), lengths, self.returns_cell_states)

    def encode(
        self, embedded: LayerInputs, lengths: Lengths, need_cell_states: bool = False
    ) -> EncoderOutput:
        """Encode embeddings."""
        mask = padding_mask(lengths, embedded.size(1)).squeeze(1)  # (B, S)
        is_padding = ~mask.unsqueeze(-1)
        layer_output = layer_input = self.input_projection(embedded)
        cell_states: Tensor | None = None
        layer_inputs: list[Tensor] = []
        final_states: list[Tensor] = []
        final_cell_states: list[Tensor] = []
        auxiliary_losses: list[Mapping[str, Tensor]] = []
        for layer, wrapper in zip(self.layers, self.layer_wrappers, strict=True):
            if self.returns_layer_inputs:
                layer_inputs.append(layer_input)
            cell_input = wrapper.prepare_input(layer_input, layer_output, mask)
            layer_output, cell_states, final_cell_state = _run_with_cell_states(
                layer, cell_input, lengths, need_final=need_cell_states
            )
            final_states.append(layer.final_outputs(layer_output, lengths))
            if final_cell_state is not None:
                final_cell_states.append(final_cell_state)
            layer_input, losses = wrapper.connect_output(layer_input, layer_output, mask)
            auxiliary_losses.append(losses)
        states = layer_input.masked_fill(is_padding, 0)
        pooled = final_states[-1] if self.pooling is None else self.pooling(states, mask)
        return EncoderOutput(
            states,
            lengths,
            self.summary_layer(pooled),
            tuple(final_states),
            None if cell_states is None else cell_states.masked_fill(is_padding, 0),
            sum_losses(*auxiliary_losses),
            final_cell_states=tuple(final_cell_states),
            layer_inputs=tuple(layer_inputs),
        )


def _run_with_cell_states(
    layer: RecurrentLayer, inputs: LayerInputs, lengths: Lengths, *, need_final: bool
) -> tuple[LayerOutputs, LayerOutputs | None, Tensor | None]:
    """Return outputs, the cell states in a history, and those after each direction's last input."""
    if all(isinstance(cell, SelfAttentiveLSTMCell) for cell in layer.cells):
        outputs, final_states = layer.forward_with_states(inputs, lengths)
        cell_states = []
        for cell, (_, _, *history) in zip(layer.cells, final_states, strict=True):
            values = StateHistory(*history).values[..., cell.hidden_size :]  # after hidden states
            is_reversed = cell is layer.backward_cell
            cell_states.append(reverse_padded(values, lengths) if is_reversed else values)
        return outputs, torch.cat(cell_states, dim=-1), None
    indices = [cell.cell_state_index for cell in layer.cells if cell.cell_state_index is not None]
    if not (need_final and indices):
        return layer(inputs, lengths), None, None
    outputs, final_states = layer.forward_with_states(inputs, lengths)
    parts = [state[index] for index, state in zip(indices, final_states, strict=True)]
    return outputs, None, torch.cat(parts, dim=-1)


class TwoColumnEncoder(Encoder):
    """Two encoders of the same embeddings, whose outputs are concatenated.

    [h^1_t; h^2_t]; the layers of the second column have the opposite directions, so that the top
    ones of alternating layers have read both sides of a position last  (Zhou et al. 2016).
    """

    def __init__(self, columns: Sequence[RecurrentEncoder]) -> None:
        super().__init__()
        self.columns = cast(Sequence[RecurrentEncoder], nn.ModuleList(columns))
        self.embedding = columns[0].embedding
        self.output_size = 2 * columns[0].output_size
        sizes, backward_size = columns[0].state_sizes, columns[1].state_sizes.backward_size
        final_sizes = tuple(2 * size for size in sizes.final_state_sizes)
        cell_sizes = tuple(2 * size for size in sizes.final_cell_state_sizes)
        self.state_sizes = EncoderStateSizes(final_sizes, backward_size, False, cell_sizes)

    @override
    def forward(self, tokens: SourceTokens, lengths: Lengths) -> EncoderOutput:
        embedded = self.embedding(tokens)
        need = self.returns_cell_states
        outputs = [column.encode(embedded, lengths, need) for column in self.columns]
        parts = [
            (out.states, out.summary, out.final_states, out.cell_states, out.final_cell_states)
            for out in outputs
        ]
        states, summary, final_states, cell_states, final_cell_states = map_pairs(
            lambda first, second: torch.cat([first, second], dim=-1), *parts
        )
        losses = sum_losses(*(output.auxiliary_losses for output in outputs))
        output = EncoderOutput(states, lengths, summary, final_states, cell_states, losses)
        return output._replace(final_cell_states=final_cell_states)


class BidirectionalConfig(BaseConfig):
    """Bidirectional layers; both directions are concatenated (Schuster & Paliwal 1997)."""

    type: Literal["bidirectional"] = "bidirectional"

    def layer_directions(self, layer: int) -> tuple[bool, bool]:
        """Return whether a layer, counted from 1, reads forward, and whether backward."""
        return True, True


class ReversibleDirectionConfigBase(BaseConfig):
    """Forward layers, which can be reversed."""

    type: str
    reverse_source: bool = False
    """Read the source from its end: swap forward and backward (Sutskever et al. 2014)."""

    def layer_directions(self, layer: int) -> tuple[bool, bool]:
        """Return whether a layer, counted from 1, reads forward, and whether backward."""
        return not self.reverse_source, self.reverse_source


class ForwardConfig(ReversibleDirectionConfigBase):
    """Forward layers."""

    type: Literal["forward"] = "forward"


class AlternatingConfig(ReversibleDirectionConfigBase):
    """Forward in the first layer, backward in the second, and so on (Zhou et al. 2016)."""

    type: Literal["alternating"] = "alternating"

    @override
    def layer_directions(self, layer: int) -> tuple[bool, bool]:
        is_forward = (layer % 2 == 1) != self.reverse_source
        return is_forward, not is_forward


class BidirectionalThenForwardConfig(ReversibleDirectionConfigBase):
    """Bidirectional bottom layers, forward layers above (Wu et al. 2016)."""

    type: Literal["bidirectional-then-forward"] = "bidirectional-then-forward"
    num_bidirectional: PositiveInt = 1
    """Number of bidirectional layers."""

    @override
    def layer_directions(self, layer: int) -> tuple[bool, bool]:
        is_bidirectional = layer <= self.num_bidirectional
        return (True, True) if is_bidirectional else super().layer_directions(layer)


_Directions = (
    BidirectionalConfig | ForwardConfig | AlternatingConfig | BidirectionalThenForwardConfig
)
DirectionConfig = Annotated[_Directions, Field(discriminator="type"), allow_bare_type(_Directions)]


class LastStatePoolingConfig(BaseConfig):
    """The final hidden state of each direction."""

    type: Literal["last"] = "last"

    def build(self, *, size: int) -> None:
        """Return None: the encoder selects its final states itself."""


_Poolings = LastStatePoolingConfig | MeanPoolingConfig | MaxPoolingConfig | AttentionPoolingConfig
PoolingConfig = Annotated[_Poolings, Field(discriminator="type"), allow_bare_type(_Poolings)]


class RecurrentEncoderConfig(BaseConfig):
    """Encode the source with recurrent layers."""

    type: Literal["recurrent"] = "recurrent"
    cell: CellConfig = GRUCellConfig()
    """The recurrent cell."""
    embedding_size: PositiveInt = 256
    """Size of a token embedding."""
    hidden_size: PositiveInt = 256
    """Size of a layer's output, both directions and columns together."""
    num_layers: PositiveInt = Field(default=1, le=1000)
    """Number of layers."""
    num_columns: Literal[1, 2] = 1
    """Stacks of `num_layers` layers over the same embeddings; the second has the opposite
    directions (Zhou et al. 2016)."""
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
    summary_layer: bool = False
    """Pass the source summary through a tanh layer, c = tanh(V h) (Cho et al. 2014, A.1.1)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on embeddings and between layers."""
    positional_encoding: PositionalEncodingConfig | None = None
    """Positional encoding of the embeddings; null for none."""

    @model_validator(mode="after")
    def _check_sizes(self) -> "RecurrentEncoderConfig":
        layers = range(1, self.num_layers + 1)
        is_bidirectional = any(all(self.direction.layer_directions(layer)) for layer in layers)
        num_parts = self.num_columns * (2 if is_bidirectional else 1)
        if self.hidden_size % num_parts:
            raise ValueError(
                f"hidden_size, for all directions and columns of a layer, must be divisible by "
                f"{num_parts}: {self.hidden_size}"
            )
        if self.num_columns == 2 and isinstance(self.direction, BidirectionalConfig):
            raise ValueError("num_columns 2 needs directions to reverse, such as 'alternating'")
        min_layers = {
            "lower_attention": 2 if self.lower_attention else 1,
            "experts": self.experts.min_layers if self.experts else 1,
        }
        if isinstance(self.connection, ResidualConnectionConfig):
            min_layers["connection"] = self.connection.first_residual_layer
        for name, minimum in min_layers.items():
            if minimum > self.num_layers:
                raise ValueError(f"{name} needs num_layers of {minimum} or more: {self.num_layers}")
        return self

    def build(self, *, vocab_size: int) -> RecurrentEncoder | TwoColumnEncoder:
        size, positions = self.embedding_size, self.positional_encoding
        embedding = TokenEmbedding(
            vocab_size,
            size,
            dropout=self.dropout,
            position_combiner=positions.build(embedding_size=size) if positions else None,
        )
        direction = self.direction
        if self.num_columns == 1 or isinstance(direction, BidirectionalConfig):
            return self._build_column(embedding)
        reverse = {"reverse_source": not direction.reverse_source}
        column = self.model_copy(update={"hidden_size": self.hidden_size // 2})
        opposite = column.model_copy(update={"direction": direction.model_copy(update=reverse)})
        columns = [column._build_column(embedding), opposite._build_column(embedding)]
        return TwoColumnEncoder(columns)

    def _build_column(self, embedding: TokenEmbedding) -> RecurrentEncoder:
        path_size = self.connection.path_size(self.hidden_size)
        upper_sizes = [path_size or self.hidden_size] * (self.num_layers - 1)
        input_sizes = [path_size or embedding.embedding_size, *upper_sizes]
        layers = [self._build_layer(*item) for item in enumerate(input_sizes, start=1)]
        wrappers = [self._build_wrapper(*item) for item in enumerate(input_sizes, start=1)]
        input_projection: nn.Module = nn.Identity()
        if path_size is not None:  # f^1 = W x
            input_projection = nn.Linear(embedding.embedding_size, path_size, bias=False)
        size, pooling = self.hidden_size, self.pooling.build(size=self.hidden_size)
        tanh_layer = [nn.Linear(size, size), nn.Tanh()] if self.summary_layer else []
        return RecurrentEncoder(
            embedding,
            layers,
            wrappers,
            input_projection=input_projection,
            pooling=pooling,
            summary_layer=nn.Sequential(*tanh_layer),
            layer_input_sizes=input_sizes,
            size=size,
        )

    def _build_layer(self, layer: int, input_size: int) -> RecurrentLayer:
        directions = self.direction.layer_directions(layer)
        if self.lower_attention and layer > 1:
            input_size += self.hidden_size  # the context
        cell_size = self.hidden_size // sum(directions)
        forward_cell, backward_cell = (
            self.cell.build(input_size=input_size, hidden_size=cell_size) if is_used else None
            for is_used in directions
        )
        return RecurrentLayer(forward_cell=forward_cell, backward_cell=backward_cell)

    def _build_wrapper(self, layer: int, input_size: int) -> RecurrentLayerWrapper:
        size, dropout, is_top = self.hidden_size, self.dropout, layer == self.num_layers
        connection = self.connection.build(layer, is_top=is_top, hidden_size=size, dropout=dropout)
        path_size = self.connection.path_size(size)
        lower_attention = experts = None
        if self.lower_attention is not None and layer > 1:
            lower_attention = build_self_attention(
                self.lower_attention, input_size, size, "lower_attention"
            )
        if self.experts is not None:
            experts = self.experts.build_after(
                layer, self.num_layers, size=path_size or size, dropout=dropout
            )
        # Embeddings have their own dropout; with a path, the connection drops from layer outputs.
        dropout = dropout if layer > 1 and path_size is None else 0.0
        return RecurrentLayerWrapper(connection, dropout, lower_attention, experts)
