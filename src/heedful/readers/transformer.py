"""Transformer readers: every place looks at itself and back (Liu et al. 2018; GPT)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from heedful.errors import ConfigError
from heedful.layers.reader import Read, Reader
from heedful.layers.transformer import StackState, TransformerStack
from heedful.layers.transformer_choices import TransformerParts
from heedful.shapes import Float, Int


class TransformerReader(Reader):
    """A stack of Transformer layers that see nothing of what comes after."""

    def __init__(self, stack: TransformerStack, *, size: int) -> None:
        super().__init__()
        self.stack = stack
        self.size = size

    def begin(self, inputs: Float[Tensor, "B T E"]) -> StackState:
        """Make the state of having read nothing, for as many rows as these."""
        return self.stack.begin(inputs)

    def forward(
        self,
        inputs: Float[Tensor, "B T E"],
        lengths: Int[Tensor, "B"],
        state: StackState,
        *,
        need_state: bool = True,
        need_weights: bool = False,
    ) -> Read:
        """Read on from a state."""
        read = self.stack(inputs, lengths, state, need_weights=need_weights)
        return Read(read.outputs, read.state, read.penalties, read.weights)


class TransformerReaderConfig(TransformerParts):
    """Read from left to right with Transformer layers."""

    kind: Literal["transformer"] = "transformer"

    def build(self, *, input_size: int) -> TransformerReader:
        """Make the reader for vectors of this width."""
        if input_size != self.size:
            raise ConfigError(
                "reader.size",
                f"layers of width {self.size} cannot read vectors of width {input_size}",
                f"set it to {input_size}, or embedding_size to {self.size}",
            )
        stack = self.stack(at="reader")
        if stack.has_history:
            raise ConfigError(
                "reader.attention",
                "a text that is read piece by piece cannot be looked at by a mechanism that goes "
                "by where it looked before",
                "choose an alignment such as 'softmax', and a score without features",
            )
        return TransformerReader(stack, size=self.size)
