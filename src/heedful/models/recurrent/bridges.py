"""Bridges: what does a decoder's first state take over from the encoder?

A bridge says what is to be seen of each layer before the first token is read, and what memory
cells hold then: nothing, unless it takes over those of the encoder. Whatever else a cell keeps, a
tape for one, it begins anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import Field
from torch import Tensor, nn

from heedful.config import BaseConfig
from heedful.errors import ConfigError
from heedful.models.base import EncoderOutput, EncoderStateSizes
from heedful.shapes import Float


class Bridge(nn.Module, ABC):
    """What is to be seen of each layer before the first token is read."""

    copies_cell_states: ClassVar[bool] = False
    """Whether memory cells begin with what the encoder's hold at the ends."""

    @abstractmethod
    def forward(self, encoder_output: EncoderOutput) -> list[Float[Tensor, "B D"]]:
        """Make the first hidden states, bottom first."""

    def initial_cell_states(self, encoder_output: EncoderOutput) -> Sequence[Float[Tensor, "B D"]]:
        """What memory cells hold first, bottom first; none where they begin empty."""
        return encoder_output.final_cell_states if self.copies_cell_states else ()


class ProjectedBridge(Bridge):
    """tanh(W summary + b) for each layer, or without the tanh.

    Given `backward_size`, the last so many values of the top layer's end stand in place of the
    summary: s_0 = tanh(W_s h_1), h_1 being what the backward reading shows at the first word
    (Bahdanau et al. 2015, section A.2.2).
    """

    def __init__(
        self, layers: Sequence[nn.Linear], *, uses_tanh: bool, backward_size: int | None = None
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.uses_tanh = uses_tanh
        self.backward_size = backward_size

    def forward(self, encoder_output: EncoderOutput) -> list[Float[Tensor, "B D"]]:
        """Make the first hidden states, bottom first."""
        source_vector = encoder_output.summary
        if self.backward_size is not None:
            source_vector = encoder_output.final_states[-1][:, -self.backward_size :]
        hidden = [layer(source_vector) for layer in self.layers]
        return [each.tanh() for each in hidden] if self.uses_tanh else hidden


class CopyBridge(Bridge):
    """Each layer begins in the state in which the encoder's layer ended, memory cell and all."""

    copies_cell_states = True

    def forward(self, encoder_output: EncoderOutput) -> list[Float[Tensor, "B D"]]:
        """Make the first hidden states, bottom first."""
        return list(encoder_output.final_states)


class ZerosBridge(Bridge):
    """Nothing is taken over."""

    def __init__(self, num_layers: int, hidden_size: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.hidden_size = hidden_size

    def forward(self, encoder_output: EncoderOutput) -> list[Float[Tensor, "B D"]]:
        """Make the first hidden states, bottom first."""
        states = encoder_output.states
        return [states.new_zeros(len(states), self.hidden_size)] * self.num_layers


class BridgeSizes(NamedTuple):
    """What lies on both sides of a bridge."""

    summary_size: int
    encoder_sizes: EncoderStateSizes
    hidden_size: int  # of the decoder
    num_layers: int  # of the decoder

    def build_projections(self, input_size: int) -> list[nn.Linear]:
        """Make a layer from something of this width into every layer of the decoder."""
        return [nn.Linear(input_size, self.hidden_size) for _ in range(self.num_layers)]


class TanhBridgeConfig(BaseConfig):
    """Let one layer and a tanh turn the source's summary into each first state."""

    type: Literal["tanh"] = "tanh"

    def build(self, sizes: BridgeSizes) -> Bridge:
        """Make the bridge."""
        return ProjectedBridge(sizes.build_projections(sizes.summary_size), uses_tanh=True)


class LinearBridgeConfig(BaseConfig):
    """Let one layer turn the source's summary into each first state."""

    type: Literal["linear"] = "linear"

    def build(self, sizes: BridgeSizes) -> Bridge:
        """Make the bridge."""
        return ProjectedBridge(sizes.build_projections(sizes.summary_size), uses_tanh=False)


class BackwardBridgeConfig(BaseConfig):
    """Begin from what the backward reading shows at the first word (Bahdanau et al. 2015)."""

    type: Literal["backward"] = "backward"

    def build(self, sizes: BridgeSizes) -> Bridge:
        """Make the bridge."""
        size = sizes.encoder_sizes.backward_size
        if not size:
            raise ConfigError(
                "bridge.type",
                "'backward' begins where a backward reading of the source ends, but the encoder "
                "has none in its last layer",
                "choose 'tanh', or let the encoder read both ways",
            )
        return ProjectedBridge(sizes.build_projections(size), uses_tanh=True, backward_size=size)


class CopyBridgeConfig(BaseConfig):
    """Begin each layer where the encoder's ended, memory cells too (Sutskever et al. 2014)."""

    type: Literal["copy"] = "copy"

    def build(self, sizes: BridgeSizes) -> Bridge:
        """Make the bridge."""
        found, wanted = (
            sizes.encoder_sizes.final_state_sizes,
            (sizes.hidden_size,) * sizes.num_layers,
        )
        if found != wanted:
            raise ConfigError(
                "bridge.type",
                "'copy' begins each layer where the encoder's layer ended, but the widths of the "
                f"encoder's layers are {_format_sizes(found)} and those of the decoder's are "
                f"{_format_sizes(wanted)}",
                "give both as many layers, of one hidden_size, or choose 'tanh'",
            )
        return CopyBridge()


class ZerosBridgeConfig(BaseConfig):
    """Begin with nothing: what is known of the source is heard later."""

    type: Literal["zeros"] = "zeros"

    def build(self, sizes: BridgeSizes) -> Bridge:
        """Make the bridge."""
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
    return ", ".join(map(str, sizes)) or "not known"
