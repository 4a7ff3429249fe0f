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

from heedful.config import Choice
from heedful.errors import ConfigError
from heedful.layers.encoded import Encoded
from heedful.shapes import Float


class Ends(NamedTuple):
    """How wide what an encoder shows at its ends is; the empty one tells of none."""

    sizes: tuple[int, ...] = ()  # of each layer, bottom first: the widths of Encoded.ends
    backward_size: int = 0  # how many of the top layer's values, the last ones, came backwards


class Bridge(nn.Module, ABC):
    """What is to be seen of each layer before the first token is read."""

    takes_memories: ClassVar[bool] = False
    """Whether memory cells begin with what the encoder's hold at the ends."""

    @abstractmethod
    def forward(self, encoded: Encoded) -> list[Float[Tensor, "B D"]]:
        """Make the first hidden states, bottom first."""

    def memories(self, encoded: Encoded) -> Sequence[Float[Tensor, "B D"]]:
        """What memory cells hold first, bottom first; none where they begin empty."""
        return encoded.end_memories if self.takes_memories else ()


class ProjectedBridge(Bridge):
    """tanh(W summary + b) for each layer, or without the tanh.

    Given `backward_size`, the last so many values of the top layer's end stand in place of the
    summary: s_0 = tanh(W_s h_1), h_1 being what the backward reading shows at the first word
    (Bahdanau et al. 2015, section A.2.2).
    """

    def __init__(
        self, layers: Sequence[nn.Linear], *, squashes: bool, backward_size: int | None = None
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.squashes = squashes
        self.backward_size = backward_size

    def forward(self, encoded: Encoded) -> list[Float[Tensor, "B D"]]:
        """Make the first hidden states, bottom first."""
        seen = encoded.summary
        if self.backward_size is not None:
            seen = encoded.ends[-1][:, -self.backward_size :]
        hidden = [layer(seen) for layer in self.layers]
        return [each.tanh() for each in hidden] if self.squashes else hidden


class CopyBridge(Bridge):
    """Each layer begins in the state in which the encoder's layer ended, memory cell and all."""

    takes_memories = True

    def forward(self, encoded: Encoded) -> list[Float[Tensor, "B D"]]:
        """Make the first hidden states, bottom first."""
        return list(encoded.ends)


class ZerosBridge(Bridge):
    """Nothing is taken over."""

    def __init__(self, num_layers: int, hidden_size: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.hidden_size = hidden_size

    def forward(self, encoded: Encoded) -> list[Float[Tensor, "B D"]]:
        """Make the first hidden states, bottom first."""
        nothing = encoded.summary.new_zeros(len(encoded.summary), self.hidden_size)
        return [nothing] * self.num_layers


class Banks(NamedTuple):
    """What lies on both sides of a bridge."""

    summary_size: int
    ends: Ends
    hidden_size: int  # of the decoder
    num_layers: int  # of the decoder

    def layers(self, input_size: int) -> list[nn.Linear]:
        """Make a layer from something of this width into every layer of the decoder."""
        return [nn.Linear(input_size, self.hidden_size) for _ in range(self.num_layers)]


class TanhBridgeConfig(Choice):
    """Let one layer and a tanh turn the source's summary into each first state."""

    kind: Literal["tanh"] = "tanh"

    def build(self, banks: Banks) -> Bridge:
        """Make the bridge."""
        return ProjectedBridge(banks.layers(banks.summary_size), squashes=True)


class LinearBridgeConfig(Choice):
    """Let one layer turn the source's summary into each first state."""

    kind: Literal["linear"] = "linear"

    def build(self, banks: Banks) -> Bridge:
        """Make the bridge."""
        return ProjectedBridge(banks.layers(banks.summary_size), squashes=False)


class BackwardBridgeConfig(Choice):
    """Begin from what the backward reading shows at the first word (Bahdanau et al. 2015)."""

    kind: Literal["backward"] = "backward"

    def build(self, banks: Banks) -> Bridge:
        """Make the bridge."""
        size = banks.ends.backward_size
        if not size:
            raise ConfigError(
                "bridge.kind",
                "'backward' begins where a backward reading of the source ends, but the encoder "
                "has none in its last layer",
                "choose 'tanh', or let the encoder read both ways",
            )
        return ProjectedBridge(banks.layers(size), squashes=True, backward_size=size)


class CopyBridgeConfig(Choice):
    """Begin each layer where the encoder's ended, memory cells too (Sutskever et al. 2014)."""

    kind: Literal["copy"] = "copy"

    def build(self, banks: Banks) -> Bridge:
        """Make the bridge."""
        found, wanted = banks.ends.sizes, (banks.hidden_size,) * banks.num_layers
        if found != wanted:
            raise ConfigError(
                "bridge.kind",
                "'copy' begins each layer where the encoder's layer ended, but the widths of the "
                f"encoder's layers are {_listed(found)} and those of the decoder's are "
                f"{_listed(wanted)}",
                "give both as many layers, of one hidden_size, or choose 'tanh'",
            )
        return CopyBridge()


class ZerosBridgeConfig(Choice):
    """Begin with nothing: what is known of the source is heard later."""

    kind: Literal["zeros"] = "zeros"

    def build(self, banks: Banks) -> Bridge:
        """Make the bridge."""
        return ZerosBridge(banks.num_layers, banks.hidden_size)


BridgeConfig = Annotated[
    TanhBridgeConfig
    | LinearBridgeConfig
    | BackwardBridgeConfig
    | CopyBridgeConfig
    | ZerosBridgeConfig,
    Field(discriminator="kind"),
]


def _listed(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes)) or "not known"
