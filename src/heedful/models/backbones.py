"""Readers: what reads vectors from left to right, and can go on later from where it stopped.

Law: what comes out at a place knows nothing of the places after it, and a text read piece by
piece, each from the state the last one left, is read as if it were whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, cast

from pydantic import Field, PositiveInt
from torch import Tensor, nn

from heedful.attention.auxiliary_losses import NO_AUXILIARY_LOSSES
from heedful.config import BaseConfig
from heedful.config.base import with_default_type
from heedful.errors import ConfigError
from heedful.layers.rnn import CellConfig, RecurrentLayer
from heedful.layers.rnn_cells import LSTMCellConfig, RecurrentCell, RecurrentState
from heedful.layers.transformer import (
    TransformerConfigBase,
    TransformerStack,
    TransformerStackState,
)
from heedful.shapes import Float, Int


class BackboneOutput(NamedTuple):
    """Vectors that have been read."""

    outputs: Float[Tensor, "B T D"]  # one for every place; past a row's end they mean nothing
    state: Any  # a nested value: what is needed to go on after each row's own end
    auxiliary_losses: Mapping[str, Float[Tensor, ""]] = (
        NO_AUXILIARY_LOSSES  # by name, to be added to the loss
    )
    weights: Float[Tensor, "B T S"] | None = None  # where was looked, of all places so far


class CausalBackbone(nn.Module, ABC):
    """What reads vectors from left to right."""

    output_size: int
    """Width of what comes out."""

    @abstractmethod
    def initial_state(self, inputs: Float[Tensor, "B T E"]) -> Any:
        """Make the state of having read nothing, for as many rows as these."""

    @abstractmethod
    def forward(
        self,
        inputs: Float[Tensor, "B T E"],
        lengths: Int[Tensor, "B"],
        state: Any,
        *,
        need_state: bool = True,
        need_weights: bool = False,
    ) -> BackboneOutput:
        """Read on from a state; of each row only the first `lengths` vectors are there.

        Where no state is needed to go on from, and no weights, they may not be made. A reader
        that looks nowhere has no weights.
        """


# Recurrent readers: what has been read is what the state remembers.

RecurrentBackboneState = tuple[RecurrentState, ...]


class RecurrentBackbone(CausalBackbone):
    """Recurrent layers on top of one another, with dropout between them."""

    def __init__(self, layers: Sequence[RecurrentLayer], *, size: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.output_size = size
        self.dropout = nn.Dropout(dropout)

    @property
    def _layers(self) -> Iterable[RecurrentLayer]:
        return cast(Iterable[RecurrentLayer], self.layers)

    def initial_state(self, inputs: Float[Tensor, "B T E"]) -> RecurrentBackboneState:
        """Make the state of having read nothing, for as many rows as these."""
        return tuple(layer.initial_state(inputs)[0] for layer in self._layers)

    def forward(
        self,
        inputs: Float[Tensor, "B T E"],
        lengths: Int[Tensor, "B"],
        state: RecurrentBackboneState,
        *,
        need_state: bool = True,
        need_weights: bool = False,
    ) -> BackboneOutput:
        """Read on from a state; nothing is looked at."""
        outputs, final_states = inputs, list[RecurrentState]()
        for number, (layer, before) in enumerate(zip(self._layers, state, strict=True)):
            below = self.dropout(outputs) if number else outputs
            if need_state:
                outputs, (end,) = layer.forward_with_states(below, lengths, [before])
                final_states.append(end)
            else:
                outputs = layer(below, lengths, [before])
        return BackboneOutput(outputs, tuple(final_states) if need_state else None)


class RecurrentBackboneConfig(BaseConfig):
    """Read from left to right with recurrent layers."""

    type: Literal["recurrent"] = "recurrent"
    cell: CellConfig = LSTMCellConfig()
    """The recurrent cell."""
    hidden_size: PositiveInt = 256
    """Width of a state."""
    num_layers: PositiveInt = 1
    """Layers on top of one another."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped between layers."""

    def build(self, *, input_size: int) -> RecurrentBackbone:
        """Make the reader for vectors of this width."""
        inputs = [input_size] + [self.hidden_size] * (self.num_layers - 1)
        layers = [RecurrentLayer(forward_cell=self._build_cell(size)) for size in inputs]
        return RecurrentBackbone(layers, size=self.hidden_size, dropout=self.dropout)

    def _build_cell(self, input_size: int) -> RecurrentCell:
        return self.cell.build(input_size=input_size, hidden_size=self.hidden_size)


# Transformer readers: every place looks at itself and back (Liu et al. 2018; GPT).


class TransformerBackbone(CausalBackbone):
    """A stack of Transformer layers that see nothing of what comes after."""

    def __init__(self, stack: TransformerStack, *, size: int) -> None:
        super().__init__()
        self.stack = stack
        self.output_size = size

    def initial_state(self, inputs: Float[Tensor, "B T E"]) -> TransformerStackState:
        """Make the state of having read nothing, for as many rows as these."""
        return self.stack.initial_state(inputs)

    def forward(
        self,
        inputs: Float[Tensor, "B T E"],
        lengths: Int[Tensor, "B"],
        state: TransformerStackState,
        *,
        need_state: bool = True,
        need_weights: bool = False,
    ) -> BackboneOutput:
        """Read on from a state."""
        stack_output = self.stack(inputs, lengths, state, need_weights=need_weights)
        return BackboneOutput(
            stack_output.outputs,
            stack_output.state,
            stack_output.auxiliary_losses,
            stack_output.weights,
        )


class TransformerBackboneConfig(TransformerConfigBase):
    """Read from left to right with Transformer layers."""

    type: Literal["transformer"] = "transformer"

    def build(self, *, input_size: int) -> TransformerBackbone:
        """Make the reader for vectors of this width."""
        if input_size != self.hidden_size:
            raise ConfigError(
                "backbone.hidden_size",
                f"layers of width {self.hidden_size} cannot read vectors of width {input_size}",
                f"set it to {input_size}, or embedding_size to {self.hidden_size}",
            )
        stack = self.build_stack(config_path="backbone")
        if stack.is_stateful:
            raise ConfigError(
                "backbone.attention",
                "a text that is read piece by piece cannot be looked at by a mechanism that goes "
                "by where it looked before",
                "choose an alignment such as 'softmax', and a score without features",
            )
        return TransformerBackbone(stack, size=self.hidden_size)


# The readers, as a configuration names them.

BackboneConfig = Annotated[
    RecurrentBackboneConfig | TransformerBackboneConfig,
    Field(discriminator="type"),
    with_default_type("recurrent"),
]
