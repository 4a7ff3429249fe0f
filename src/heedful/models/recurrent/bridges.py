"""Bridges: the initial decoder states from the encoder's output.

A bridge returns the first hidden state of every decoder layer. Cell states of LSTMs start at zero
unless the bridge copies those of the encoder; any other part of a state starts empty.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field
from torch import nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.errors import check
from heedful.models.base import EncoderOutput, EncoderStateSizes
from heedful.shapes import Hidden


class Bridge(nn.Module, ABC):
    """The first hidden states of a decoder."""

    copies_cell_states: ClassVar[bool] = False
    """Whether cell states start with the encoder's final cell states."""

    @abstractmethod
    def forward(self, encoder_output: EncoderOutput) -> list[Hidden]:
        """Return the first hidden states, bottom layer first."""

    def initial_cell_states(self, encoder_output: EncoderOutput) -> Sequence[Hidden]:
        """Return the first cell states, bottom layer first; an empty sequence stands for zeros."""
        return encoder_output.final_cell_states if self.copies_cell_states else ()


class ProjectedBridge(Bridge):
    """tanh(W summary + b) for each layer, or without the tanh.

    With `backward_size`, that many last values of the top layer's final state replace the summary:
    s_0 = tanh(W_s h_1), h_1 the backward state at the first token (Bahdanau et al. 2015, A.2.2).
    """

    def __init__(
        self, layers: Sequence[nn.Linear], *, uses_tanh: bool, backward_size: int | None = None
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.uses_tanh = uses_tanh
        self.backward_size = backward_size

    @override
    def forward(self, encoder_output: EncoderOutput) -> list[Hidden]:
        if self.backward_size is None:
            source_vector = encoder_output.summary
        else:
            source_vector = encoder_output.final_states[-1][:, -self.backward_size :]
        projected = [layer(source_vector) for layer in self.layers]
        return [hidden.tanh() for hidden in projected] if self.uses_tanh else projected


class CopyBridge(Bridge):
    """The final hidden and cell state of the encoder layer at the same height."""

    copies_cell_states = True

    @override
    def forward(self, encoder_output: EncoderOutput) -> list[Hidden]:
        return list(encoder_output.final_states)


class ZerosBridge(Bridge):
    """Zeros."""

    def __init__(self, num_layers: int, hidden_size: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.hidden_size = hidden_size

    @override
    def forward(self, encoder_output: EncoderOutput) -> list[Hidden]:
        states = encoder_output.states
        return [states.new_zeros(len(states), self.hidden_size)] * self.num_layers


class BridgeSizes(NamedTuple):
    """Sizes on both sides of a bridge."""

    summary_size: int
    encoder_sizes: EncoderStateSizes
    hidden_size: int  # of the decoder
    num_layers: int  # of the decoder

    def build_projections(self, input_size: int) -> list[nn.Linear]:
        """Build one linear layer for every layer of the decoder."""
        return [nn.Linear(input_size, self.hidden_size) for _ in range(self.num_layers)]


class TanhBridgeConfig(BaseConfig):
    """A tanh layer from the source summary to each first state."""

    type: Literal["tanh"] = "tanh"

    def build(self, sizes: BridgeSizes) -> Bridge:
        return ProjectedBridge(sizes.build_projections(sizes.summary_size), uses_tanh=True)


class LinearBridgeConfig(BaseConfig):
    """A linear layer from the source summary to each first state."""

    type: Literal["linear"] = "linear"

    def build(self, sizes: BridgeSizes) -> Bridge:
        return ProjectedBridge(sizes.build_projections(sizes.summary_size), uses_tanh=False)


class BackwardBridgeConfig(BaseConfig):
    """A tanh layer from the backward state at the first token (Bahdanau et al. 2015)."""

    type: Literal["backward"] = "backward"

    def build(self, sizes: BridgeSizes) -> Bridge:
        size = sizes.encoder_sizes.backward_size
        check(
            size,
            "bridge.type",
            "'backward' needs a backward cell in the encoder's last layer, but there is none",
            "choose 'tanh', or set encoder.direction to 'bidirectional'",
        )
        return ProjectedBridge(sizes.build_projections(size), uses_tanh=True, backward_size=size)


class CopyBridgeConfig(BaseConfig):
    """The encoder's final hidden and cell states, layer by layer (Sutskever et al. 2014)."""

    type: Literal["copy"] = "copy"

    def build(self, sizes: BridgeSizes) -> Bridge:
        encoder_sizes = sizes.encoder_sizes.final_state_sizes
        decoder_sizes = (sizes.hidden_size,) * sizes.num_layers
        check(
            encoder_sizes == decoder_sizes,
            "bridge.type",
            "'copy' needs layers of equal sizes, but those of the encoder are "
            f"{_format_sizes(encoder_sizes)} and those of the decoder "
            f"{_format_sizes(decoder_sizes)}",
            "give both the same num_layers and hidden_size, or choose 'tanh'",
        )
        return CopyBridge()


class ZerosBridgeConfig(BaseConfig):
    """Zeros; the decoder sees the source only through attention or a context."""

    type: Literal["zeros"] = "zeros"

    def build(self, sizes: BridgeSizes) -> Bridge:
        return ZerosBridge(sizes.num_layers, sizes.hidden_size)


BridgeConfig = Annotated[
    TanhBridgeConfig
    | LinearBridgeConfig
    | BackwardBridgeConfig
    | CopyBridgeConfig
    | ZerosBridgeConfig,
    Field(discriminator="type"),
]


def _format_sizes(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) or "unknown"
