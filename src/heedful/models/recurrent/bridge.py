"""Bridges: the first hidden state of each decoder layer, from the encoder's output.

Cell states of LSTMs start at zero unless the bridge computes them or copies those of the encoder;
other parts of a state are empty.
"""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, PositiveInt
from torch import nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.errors import check
from heedful.layers.rnn_cells import CellState
from heedful.models.base import EncoderOutput, EncoderStateSizes
from heedful.models.recurrent.wiring import AttentionWiring, RecurrentDecoderConfigBase, Wiring
from heedful.shapes import Embedded, Hidden, Summary


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
        """Return what the decoder reads before its first token, or None."""
        return None


class MLPBridge(Bridge):
    """h_0 = tanh(W_h f + b), c_0 = tanh(W_c f + b), f = relu(W summary + b)  (Xu et al. 2015).

    (Section 3.1.2.) The summary is the mean of the annotations. As in the authors' code, the ReLU
    layers, all but one of `num_layers`, have the size of the summary and serve both.
    """

    def __init__(
        self, input_size: int, hidden_size: int, cell_state_sizes: Sequence[int], num_layers: int
    ) -> None:
        super().__init__("mlp", input_size, hidden_size, len(cell_state_sizes))
        relu_layers = [nn.Linear(input_size, input_size) for _ in range(num_layers - 1)]
        self.relu_layers = nn.ModuleList(relu_layers)
        cell_layers = [nn.Linear(input_size, size) for size in cell_state_sizes if size]
        self.cell_layers = nn.ModuleList(cell_layers)

    @override
    def forward(self, encoder_output: EncoderOutput) -> list[Hidden]:
        features = self._compute_features(encoder_output.summary)
        return [layer(features).tanh() for layer in self.layers]

    @override
    def cell_states(self, encoder_output: EncoderOutput) -> Sequence[CellState]:
        features = self._compute_features(encoder_output.summary)
        return [layer(features).tanh() for layer in self.cell_layers]

    def _compute_features(self, summary: Summary) -> Summary:
        for layer in self.relu_layers:
            summary = layer(summary).relu()
        return summary


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
        actual = ", ".join(map(str, encoder.final_state_sizes)) or "unknown"
        needed = ", ".join([str(decoder.hidden_size)] * decoder.num_layers)
        message = f"'copy' needs encoder layers of sizes {needed}, but they are {actual}"
        hint = "give both the same num_layers and hidden_size, or choose 'tanh'"
        check(actual == needed, "bridge.type", message, hint)
        return super().build(summary_size, encoder, decoder, wiring)


class ZerosBridgeConfig(BridgeConfigBase):
    """Zeros; the decoder sees the source only through attention or a context."""

    type: Literal["zeros"] = "zeros"


class MLPBridgeConfig(BridgeConfigBase):
    """A multilayer perceptron from the source summary to each first hidden and cell state.

    This is how Show, attend and tell starts from the mean annotation of an image (Xu et al. 2015).
    """

    type: Literal["mlp"] = "mlp"
    num_layers: PositiveInt = 2
    """Number of layers: the last has tanh, the others ReLU and the size of the summary."""

    @override
    def build(
        self,
        summary_size: int,
        encoder: EncoderStateSizes,
        decoder: RecurrentDecoderConfigBase,
        wiring: Wiring,
    ) -> Bridge:
        sizes = [cell.cell_state_size for cell in wiring.cells.cells]
        return MLPBridge(summary_size, decoder.hidden_size, sizes, self.num_layers)


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
    | FirstInputBridgeConfig,
    Field(discriminator="type"),
]
