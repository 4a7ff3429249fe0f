"""Bridges: the first hidden state of each decoder layer, from the encoder's output.

Cell states of LSTMs start at zero unless the bridge computes them or copies those of the encoder;
other parts of a state are empty.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt
from torch import nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.errors import check
from heedful.layers.rnn_cells import CellState
from heedful.models.base import EncoderOutput, EncoderStateSizes
from heedful.models.recurrent.wiring import AttentionWiring, RecurrentDecoderConfigBase, Wiring
from heedful.shapes import Embedded, Hidden, Summary

MLPActivation = Literal["tanh", "linear"]


class Bridge(nn.Module):
    """The first hidden state of each decoder layer.

    tanh: tanh(W summary + b)
    linear: W summary + b
    backward: tanh(W h_1), h_1 the backward state at the first token, which is the last values of
        the top layer's final state  (Bahdanau et al. 2015, A.2.2)
    copy: the final state of the encoder layer at the same height
    zeros: 0
    """

    def __init__(self, kind: str, input_size: int, hidden_size: int, num_layers: int) -> None:
        super().__init__()
        self.kind = kind
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        num_projections = 0 if kind in {"copy", "zeros"} else num_layers
        projections = [nn.Linear(input_size, hidden_size) for _ in range(num_projections)]
        self.layers = nn.ModuleList(projections)

    @override
    def forward(self, encoder_output: EncoderOutput) -> list[Hidden]:
        """Return the first hidden states, bottom layer first."""
        states, final_states = encoder_output.states, encoder_output.final_states
        if self.kind == "copy":
            return list(final_states)
        if self.kind == "zeros":
            return [states.new_zeros(len(states), self.hidden_size)] * self.num_layers
        is_backward = self.kind == "backward"
        source = final_states[-1][:, -self.input_size :] if is_backward else encoder_output.summary
        projected = [layer(source) for layer in self.layers]
        return projected if self.kind == "linear" else [hidden.tanh() for hidden in projected]

    def cell_states(self, encoder_output: EncoderOutput) -> Sequence[CellState]:
        """Return the first cell state of each LSTM layer; none means zeros."""
        return encoder_output.final_cell_states if self.kind == "copy" else ()

    def first_input(self, encoder_output: EncoderOutput) -> Embedded | None:
        """Return the input of the decoder before its first token, or None."""
        return None


class MLPBridge(Bridge):
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
        activation: MLPActivation = "tanh",
    ) -> None:
        super().__init__("mlp", input_size, hidden_size, len(cell_state_sizes))
        self.activation = nn.Tanh() if activation == "tanh" else nn.Identity()
        relu_layers = [nn.Linear(input_size, input_size) for _ in range(num_layers - 1)]
        self.relu_layers = nn.ModuleList(relu_layers)
        cell_layers = [nn.Linear(input_size, size) for size in cell_state_sizes if size]
        self.cell_layers = nn.ModuleList(cell_layers)

    @override
    def forward(self, encoder_output: EncoderOutput) -> list[Hidden]:
        features = self._compute_features(encoder_output.summary)
        return [self.activation(layer(features)) for layer in self.layers]

    @override
    def cell_states(self, encoder_output: EncoderOutput) -> Sequence[CellState]:
        features = self._compute_features(encoder_output.summary)
        return [self.activation(layer(features)) for layer in self.cell_layers]

    def _compute_features(self, summary: Summary) -> Summary:
        for layer in self.relu_layers:
            summary = layer(summary).relu()
        return summary


class AllLayersBridge(Bridge):
    """[h_0^1; ...; h_0^L] = relu(W [h^1; ...; h^L] + b), and the cell states likewise.

    h^l is the final state of encoder layer l, both directions together. This is OpenNMT-py's
    `bridge`, which splits the concatenated states of a bidirectional encoder into two halves and
    applies one matrix, of half the size, to each: `num_parts` 2.
    """

    def __init__(self, hidden_size: int, num_layers: int, num_parts: int, has_cells: bool) -> None:
        size = hidden_size * num_layers // num_parts
        super().__init__("all-layers", size, hidden_size, 0)
        self.num_decoder_layers = num_layers
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
        parts = torch.cat(list(states), dim=-1).unflatten(-1, (-1, self.input_size))
        projected = projection(parts).relu().flatten(-2)
        return list(projected.chunk(self.num_decoder_layers, dim=-1))


class FirstInputBridge(Bridge):
    """x_{-1} = W summary + b, read before the first token from zero states.

    (Vinyals et al. 2015, Show and tell, equation 10.) What is predicted after it is not used.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        *,
        embedding_size: int,
        dropout: float,
    ) -> None:
        super().__init__("zeros", input_size, hidden_size, num_layers)
        self.projection = nn.Linear(input_size, embedding_size)
        self.dropout = nn.Dropout(dropout)

    @override
    def first_input(self, encoder_output: EncoderOutput) -> Embedded:
        return self.dropout(self.projection(encoder_output.summary))


class BridgeConfigBase(BaseConfig):
    """How the encoder's output becomes the first decoder state."""

    type: str

    def build(
        self,
        summary_size: int,
        encoder: EncoderStateSizes,
        decoder: RecurrentDecoderConfigBase,
        wiring: Wiring,
    ) -> Bridge:
        return Bridge(self.type, summary_size, decoder.hidden_size, decoder.num_layers)


class TanhBridgeConfig(BridgeConfigBase):
    """A tanh layer from the source summary to each first state."""

    type: Literal["tanh"] = "tanh"


class LinearBridgeConfig(BridgeConfigBase):
    """A linear layer from the source summary to each first state."""

    type: Literal["linear"] = "linear"


class BackwardBridgeConfig(BridgeConfigBase):
    """A tanh layer from the backward state at the first token (Bahdanau et al. 2015)."""

    type: Literal["backward"] = "backward"

    @override
    def build(
        self,
        summary_size: int,
        encoder: EncoderStateSizes,
        decoder: RecurrentDecoderConfigBase,
        wiring: Wiring,
    ) -> Bridge:
        message = "'backward' needs a backward cell in the encoder's last layer, but there is none"
        hint = "choose 'tanh', or set encoder.direction to 'bidirectional'"
        check(encoder.backward_size, "bridge.type", message, hint)
        return super().build(encoder.backward_size, encoder, decoder, wiring)


class CopyBridgeConfig(BridgeConfigBase):
    """The encoder's final hidden and cell states, layer by layer (Sutskever et al. 2014)."""

    type: Literal["copy"] = "copy"

    @override
    def build(
        self,
        summary_size: int,
        encoder: EncoderStateSizes,
        decoder: RecurrentDecoderConfigBase,
        wiring: Wiring,
    ) -> Bridge:
        _check_equal_layers(self.type, encoder, decoder)
        return super().build(summary_size, encoder, decoder, wiring)


def _check_equal_layers(
    bridge_type: str, encoder: EncoderStateSizes, decoder: RecurrentDecoderConfigBase
) -> None:
    actual = ", ".join(map(str, encoder.final_state_sizes)) or "unknown"
    needed = ", ".join([str(decoder.hidden_size)] * decoder.num_layers)
    message = f"{bridge_type!r} needs encoder layers of sizes {needed}, but they are {actual}"
    hint = "give both the same num_layers and hidden_size, or choose 'tanh'"
    check(actual == needed, "bridge.type", message, hint)


class ZerosBridgeConfig(BridgeConfigBase):
    """Zeros; the decoder sees the source only through attention or a context."""

    type: Literal["zeros"] = "zeros"


class MLPBridgeConfig(BridgeConfigBase):
    """A multilayer perceptron from the source summary to each first hidden and cell state.

    This is how Show, attend and tell starts from the mean annotation of an image (Xu et al. 2015).
    """

    type: Literal["mlp"] = "mlp"
    num_layers: PositiveInt = Field(default=2, le=1000)
    """Number of layers: the others but the last have ReLU and the size of the summary."""
    activation: MLPActivation = "tanh"
    """Activation of the last layer; `linear` for none."""

    @override
    def build(
        self,
        summary_size: int,
        encoder: EncoderStateSizes,
        decoder: RecurrentDecoderConfigBase,
        wiring: Wiring,
    ) -> Bridge:
        sizes = [cell.cell_state_size for cell in wiring.cells.cells]
        return MLPBridge(
            summary_size,
            decoder.hidden_size,
            sizes,
            self.num_layers,
            activation=self.activation,
        )


class AllLayersBridgeConfig(BridgeConfigBase):
    """A ReLU layer from the final states of all encoder layers to those of the decoder."""

    type: Literal["all-layers"] = "all-layers"
    num_parts: PositiveInt = Field(default=1, le=1000)
    """Parts of the concatenated states that the layer is applied to one by one; OpenNMT-py has as
    many as the encoder has directions."""

    @override
    def build(
        self,
        summary_size: int,
        encoder: EncoderStateSizes,
        decoder: RecurrentDecoderConfigBase,
        wiring: Wiring,
    ) -> Bridge:
        _check_equal_layers(self.type, encoder, decoder)
        size = decoder.hidden_size * decoder.num_layers
        message = f"must divide {size}, the size of all states, but is {self.num_parts}"
        check(size % self.num_parts == 0, "bridge.num_parts", message, "choose 1 or 2")
        return AllLayersBridge(
            decoder.hidden_size, decoder.num_layers, self.num_parts, wiring.cells.has_cell_states
        )


class FirstInputBridgeConfig(BridgeConfigBase):
    """The source summary as an input before the first token (Vinyals et al. 2015, Show and tell).

    States are zero before it. Needs a wiring without attention.
    """

    type: Literal["first-input"] = "first-input"

    @override
    def build(
        self,
        summary_size: int,
        encoder: EncoderStateSizes,
        decoder: RecurrentDecoderConfigBase,
        wiring: Wiring,
    ) -> Bridge:
        message = "'first-input' reads the source before the first step, but this wiring attends"
        hint = "choose the bridge 'tanh' or 'mlp', or the wiring 'final-state'"
        check(not isinstance(wiring, AttentionWiring), "bridge.type", message, hint)
        return FirstInputBridge(
            summary_size,
            decoder.hidden_size,
            decoder.num_layers,
            embedding_size=decoder.embedding_size,
            dropout=decoder.dropout,
        )


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
