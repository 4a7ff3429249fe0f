"""Bridges: the first hidden state of each decoder layer, from the encoder's output.

Cell states of LSTMs start at zero unless the bridge copies those of the encoder; other parts of a
state are empty.
"""

from typing import Annotated, Literal

from pydantic import Field
from torch import nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.errors import check
from heedful.models.base import EncoderOutput, EncoderStateSizes
from heedful.models.recurrent.wiring import RecurrentDecoderConfigBase
from heedful.shapes import Hidden


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


class BridgeConfigBase(BaseConfig):
    """How the encoder's output becomes the first decoder state."""

    type: str

    def build(
        self, summary_size: int, encoder: EncoderStateSizes, decoder: RecurrentDecoderConfigBase
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
        self, summary_size: int, encoder: EncoderStateSizes, decoder: RecurrentDecoderConfigBase
    ) -> Bridge:
        message = "'backward' needs a backward cell in the encoder's last layer, but there is none"
        hint = "choose 'tanh', or set encoder.direction to 'bidirectional'"
        check(encoder.backward_size, "bridge.type", message, hint)
        return super().build(encoder.backward_size, encoder, decoder)


class CopyBridgeConfig(BridgeConfigBase):
    """The encoder's final hidden and cell states, layer by layer (Sutskever et al. 2014)."""

    type: Literal["copy"] = "copy"

    @override
    def build(
        self, summary_size: int, encoder: EncoderStateSizes, decoder: RecurrentDecoderConfigBase
    ) -> Bridge:
        actual = ", ".join(map(str, encoder.final_state_sizes)) or "unknown"
        needed = ", ".join([str(decoder.hidden_size)] * decoder.num_layers)
        message = f"'copy' needs encoder layers of sizes {needed}, but they are {actual}"
        hint = "give both the same num_layers and hidden_size, or choose 'tanh'"
        check(actual == needed, "bridge.type", message, hint)
        return super().build(summary_size, encoder, decoder)


class ZerosBridgeConfig(BridgeConfigBase):
    """Zeros; the decoder sees the source only through attention or a context."""

    type: Literal["zeros"] = "zeros"


BridgeConfig = Annotated[
    TanhBridgeConfig
    | LinearBridgeConfig
    | BackwardBridgeConfig
    | CopyBridgeConfig
    | ZerosBridgeConfig,
    Field(discriminator="type"),
]
