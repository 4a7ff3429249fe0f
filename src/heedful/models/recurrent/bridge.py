"""Bridges: the first hidden state of each decoder layer, from the encoder's output.

LSTM cell states start at zero unless the bridge computes them or copies the encoder's; other parts
of a state are empty.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.errors import check
from heedful.layers.rnn_cells import CellState
from heedful.models.base import EncoderOutput, EncoderStateSizes
from heedful.models.recurrent.decoder_parts import RecurrentDecoderConfigBase
from heedful.models.recurrent.wiring import AttentionWiring, Wiring
from heedful.shapes import Embedded, Hidden, Summary

Activation = Literal["tanh", "linear"]


class Bridge(nn.Module, ABC):
    """Interface of bridges."""

    uses_cell_states = False
    """Whether it reads the final cell states of the encoder."""

    @abstractmethod
    def forward(self, encoder_output: EncoderOutput) -> list[Hidden]:
        """Return the first hidden states, bottom layer first."""

    def cell_states(self, encoder_output: EncoderOutput) -> Sequence[CellState]:
        """Return the first cell state of each LSTM layer; none means zeros."""
        return ()

    def first_input(self, encoder_output: EncoderOutput) -> Embedded | None:
        """Return the input of the decoder before its first token, or None."""
        return None


class BridgeContext(NamedTuple):
    """The encoder and the decoder that a bridge connects."""

    summary_size: int
    encoder: EncoderStateSizes
    decoder: RecurrentDecoderConfigBase
    wiring: Wiring


class ProjectionBridge(Bridge):
    """tanh(W summary + b), or without the tanh."""

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int, activation: Activation = "tanh"
    ) -> None:
        super().__init__()
        self.input_size = input_size
        layers = [nn.Linear(input_size, hidden_size) for _ in range(num_layers)]
        self.layers = nn.ModuleList(layers)
        self.activation = nn.Tanh() if activation == "tanh" else nn.Identity()

    @override
    def forward(self, encoder_output: EncoderOutput) -> list[Hidden]:
        features = self.compute_features(encoder_output)
        return [self.activation(layer(features)) for layer in self.layers]

    def compute_features(self, encoder_output: EncoderOutput) -> Summary:
        """Return the vector that is projected."""
        return encoder_output.summary


class ProjectionBridgeConfig(BaseConfig):
    """A layer from the source summary to each first state."""

    type: Activation

    def build(self, context: BridgeContext) -> Bridge:
        sizes = context.summary_size, context.decoder.hidden_size, context.decoder.num_layers
        return ProjectionBridge(*sizes, activation=self.type)


class TanhBridgeConfig(ProjectionBridgeConfig):
    """A tanh layer from the source summary to each first state."""

    type: Literal["tanh"] = "tanh"


class LinearBridgeConfig(ProjectionBridgeConfig):
    """A linear layer from the source summary to each first state."""

    type: Literal["linear"] = "linear"


class BackwardBridge(ProjectionBridge):
    """tanh(W h_1), h_1 the backward state at the first token  (Bahdanau et al. 2015, A.2.2).

    It is the end of the top layer's final state.
    """

    @override
    def compute_features(self, encoder_output: EncoderOutput) -> Summary:
        return encoder_output.final_states[-1][:, -self.input_size :]


class BackwardBridgeConfig(BaseConfig):
    """A tanh layer from the backward state at the first token (Bahdanau et al. 2015)."""

    type: Literal["backward"] = "backward"

    def build(self, context: BridgeContext) -> Bridge:
        size, decoder = context.encoder.backward_size, context.decoder
        message = "'backward' needs a backward cell in the encoder's last layer, but there is none"
        hint = "choose 'tanh', or set encoder.direction to 'bidirectional'"
        check(size, "bridge.type", message, hint)
        return BackwardBridge(size, decoder.hidden_size, decoder.num_layers)


class MLPBridge(ProjectionBridge):
    """h_0 = tanh(W_h f + b), c_0 = tanh(W_c f + b), f = relu(W summary + b)  (Xu et al. 2015).

    (Section 3.1.2.) The summary is the mean of the annotations. As in the authors' code, the ReLU
    layers, all but one of `num_layers`, have the size of the summary and serve both. The last layer
    can be linear instead.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        cell_state_sizes: Sequence[int],
        num_layers: int,
        *,
        activation: Activation = "tanh",
    ) -> None:
        super().__init__(input_size, hidden_size, len(cell_state_sizes), activation)
        relu_layers = [nn.Linear(input_size, input_size) for _ in range(num_layers - 1)]
        self.relu_layers = nn.ModuleList(relu_layers)
        cell_layers = [nn.Linear(input_size, size) for size in cell_state_sizes if size]
        self.cell_layers = nn.ModuleList(cell_layers)

    @override
    def cell_states(self, encoder_output: EncoderOutput) -> Sequence[CellState]:
        features = self.compute_features(encoder_output)
        return [self.activation(layer(features)) for layer in self.cell_layers]

    @override
    def compute_features(self, encoder_output: EncoderOutput) -> Summary:
        features = encoder_output.summary
        for layer in self.relu_layers:
            features = layer(features).relu()
        return features


class MLPBridgeConfig(BaseConfig):
    """A multilayer perceptron from the source summary to each first hidden and cell state.

    This is how Show, attend and tell starts from the mean annotation of an image (Xu et al. 2015).
    """

    type: Literal["mlp"] = "mlp"
    num_layers: PositiveInt = Field(default=2, le=1000)
    """Number of layers: the others but the last have ReLU and the size of the summary."""
    activation: Activation = "tanh"
    """Activation of the last layer; `linear` for none."""

    def build(self, context: BridgeContext) -> Bridge:
        sizes = [cell.cell_state_size for cell in context.wiring.cells.cells]
        input_size, hidden_size = context.summary_size, context.decoder.hidden_size
        return MLPBridge(
            input_size, hidden_size, sizes, self.num_layers, activation=self.activation
        )


class CopyBridge(Bridge):
    """The final state of the encoder layer at the same height."""

    uses_cell_states = True

    @override
    def forward(self, encoder_output: EncoderOutput) -> list[Hidden]:
        return list(encoder_output.final_states)

    @override
    def cell_states(self, encoder_output: EncoderOutput) -> Sequence[CellState]:
        return encoder_output.final_cell_states


class CopyBridgeConfig(BaseConfig):
    """The encoder's final hidden and cell states, layer by layer (Sutskever et al. 2014)."""

    type: Literal["copy"] = "copy"

    def build(self, context: BridgeContext) -> Bridge:
        _check_equal_layers(self.type, context)
        return CopyBridge()


def _check_equal_layers(bridge_type: str, context: BridgeContext) -> None:
    actual = ", ".join(map(str, context.encoder.final_state_sizes)) or "unknown"
    needed = ", ".join([str(context.decoder.hidden_size)] * context.decoder.num_layers)
    message = f"{bridge_type!r} needs encoder layers of sizes {needed}, but they are {actual}"
    hint = "give both the same num_layers and hidden_size, or choose 'tanh'"
    check(actual == needed, "bridge.type", message, hint)


class AllLayersBridge(Bridge):
    """[h_0^1; ...; h_0^L] = relu(W [h^1; ...; h^L] + b), and the cell states likewise.

    h^l is the final state of encoder layer l, both directions together. This is OpenNMT-py's
    `bridge`, which splits the concatenated states of a bidirectional encoder into two halves and
    applies one matrix, of half the size, to each: `num_parts` 2.
    """

    uses_cell_states = True

    def __init__(self, hidden_size: int, num_layers: int, num_parts: int, has_cells: bool) -> None:
        super().__init__()
        self.part_size = size = hidden_size * num_layers // num_parts
        self.num_layers = num_layers
        self.hidden_projection = nn.Linear(size, size)
        self.cell_projection = nn.Linear(size, size) if has_cells else None

    @override
    def forward(self, encoder_output: EncoderOutput) -> list[Hidden]:
        return self._project(encoder_output.final_states, self.hidden_projection)

    @override
    def cell_states(self, encoder_output: EncoderOutput) -> Sequence[CellState]:
        if self.cell_projection is None or not encoder_output.final_cell_states:
            return ()
        return self._project(encoder_output.final_cell_states, self.cell_projection)

    def _project(self, states: Sequence[Hidden], projection: nn.Module) -> list[Hidden]:
        parts = torch.cat(list(states), dim=-1).unflatten(-1, (-1, self.part_size))
        projected = projection(parts).relu().flatten(-2)
        return list(projected.chunk(self.num_layers, dim=-1))


class AllLayersBridgeConfig(BaseConfig):
    """A ReLU layer from the final states of all encoder layers to the first decoder states."""

    type: Literal["all-layers"] = "all-layers"
    num_parts: PositiveInt = Field(default=1, le=1000)
    """Parts of the concatenated states that the layer is applied to one by one; OpenNMT-py has as
    many as the encoder has directions."""

    def build(self, context: BridgeContext) -> Bridge:
        _check_equal_layers(self.type, context)
        hidden_size, num_layers = context.decoder.hidden_size, context.decoder.num_layers
        size, has_cells = hidden_size * num_layers, context.wiring.cells.has_cell_states
        message = f"must divide {size}, the size of all states, but is {self.num_parts}"
        check(size % self.num_parts == 0, "bridge.num_parts", message, "choose 1 or 2")
        return AllLayersBridge(hidden_size, num_layers, self.num_parts, has_cells)


class ZerosBridge(Bridge):
    """Zeros."""

    def __init__(self, hidden_size: int, num_layers: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.num_layers = num_layers

    @override
    def forward(self, encoder_output: EncoderOutput) -> list[Hidden]:
        states = encoder_output.states
        return [states.new_zeros(len(states), self.hidden_size)] * self.num_layers


class ZerosBridgeConfig(BaseConfig):
    """Zeros; the decoder sees the source only through attention or a context."""

    type: Literal["zeros"] = "zeros"

    def build(self, context: BridgeContext) -> Bridge:
        return ZerosBridge(context.decoder.hidden_size, context.decoder.num_layers)


class FirstInputBridge(ZerosBridge):
    """x_{-1} = W summary + b, read before the first token from zero states.

    (Vinyals et al. 2015, Show and tell, equation 10.) What is predicted after it is not used.
    """

    def __init__(self, context: BridgeContext) -> None:
        decoder = context.decoder
        super().__init__(decoder.hidden_size, decoder.num_layers)
        self.projection = nn.Linear(context.summary_size, decoder.embedding_size)
        self.dropout = nn.Dropout(decoder.dropout)

    @override
    def first_input(self, encoder_output: EncoderOutput) -> Embedded:
        return self.dropout(self.projection(encoder_output.summary))


class FirstInputBridgeConfig(BaseConfig):
    """The source summary as an input before the first token (Vinyals et al. 2015, Show and tell).

    States are zero before it. Needs a wiring without attention.
    """

    type: Literal["first-input"] = "first-input"

    def build(self, context: BridgeContext) -> Bridge:
        message = "'first-input' reads the source before the first step, but this wiring attends"
        hint = "choose the bridge 'tanh' or 'mlp', or the wiring 'final-state'"
        check(not isinstance(context.wiring, AttentionWiring), "bridge.type", message, hint)
        return FirstInputBridge(context)


BridgeConfig = Annotated[
    TanhBridgeConfig
    | LinearBridgeConfig
    | BackwardBridgeConfig
    | CopyBridgeConfig
    | ZerosBridgeConfig
    | MLPBridgeConfig
    | AllLayersBridgeConfig
    | FirstInputBridgeConfig,
    Field(discriminator="type"),
]
