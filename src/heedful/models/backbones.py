"""Causal backbones: recurrent or Transformer layers of language models.

Invariant: an output does not depend on later inputs, and a sequence read in pieces, each from the
state that the last one left, is read as if it were whole.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, cast

from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.auxiliary_losses import NO_AUXILIARY_LOSSES
from heedful.config import BaseConfig
from heedful.config.base import with_default_type
from heedful.errors import check
from heedful.layers.rnn import RecurrentLayer
from heedful.layers.rnn_cell_config import CellConfig, LSTMCellConfig
from heedful.layers.rnn_cells import RecurrentState
from heedful.layers.transformer import (
    TransformerConfigBase,
    TransformerStack,
    TransformerStackState,
)
from heedful.shapes import Float, HiddenStates, Lengths, Losses


class BackboneOutput(NamedTuple):
    """Output of a causal backbone."""

    outputs: HiddenStates  # undefined in padding
    state: Any  # after the last real input of each row
    auxiliary_losses: Losses = NO_AUXILIARY_LOSSES
    weights: Float[Tensor, "B T S"] | None = None  # attention to all positions so far


class CausalBackbone(nn.Module, ABC):
    """Interface of causal backbones."""

    output_size: int
    """Size of the outputs."""

    @abstractmethod
    def initial_state(self, inputs: Float[Tensor, "B T E"]) -> Any:
        """Return the state before the first input, for as many rows as the inputs have."""

    @abstractmethod
    def forward(
        self,
        inputs: Float[Tensor, "B T E"],
        lengths: Lengths,
        state: Any,
        *,
        need_state: bool = True,
        need_weights: bool = False,
    ) -> BackboneOutput:
        """Read the next inputs; the first `lengths` of each row are real.

        State and weights may be None if they are not needed; a backbone without attention has no
        weights.
        """


RecurrentBackboneState = tuple[RecurrentState, ...]


class RecurrentBackbone(CausalBackbone):
    """Recurrent layers with dropout between them."""

    def __init__(self, layers: Sequence[RecurrentLayer], *, size: int, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.output_size = size
        self.dropout = nn.Dropout(dropout)

    @property
    def _layers(self) -> Iterable[RecurrentLayer]:
        return cast(Iterable[RecurrentLayer], self.layers)

    @override
    def initial_state(self, inputs: Float[Tensor, "B T E"]) -> RecurrentBackboneState:
        return tuple(layer.initial_state(inputs)[0] for layer in self._layers)

    @override
    def forward(
        self,
        inputs: Float[Tensor, "B T E"],
        lengths: Lengths,
        state: RecurrentBackboneState,
        *,
        need_state: bool = True,
        need_weights: bool = False,
    ) -> BackboneOutput:
        outputs: Tensor = inputs
        final_states: list[RecurrentState] = []
        for index, (layer, layer_state) in enumerate(zip(self._layers, state, strict=True)):
            layer_inputs = self.dropout(outputs) if index else outputs
            if need_state:
                outputs, (final_state,) = layer.forward_with_states(
                    layer_inputs, lengths, [layer_state]
                )
                final_states.append(final_state)
            else:
                outputs = layer(layer_inputs, lengths, [layer_state])
        return BackboneOutput(outputs, tuple(final_states) if need_state else None)


class RecurrentBackboneConfig(BaseConfig):
    """Recurrent layers, from left to right."""

    type: Literal["recurrent"] = "recurrent"
    cell: CellConfig = LSTMCellConfig()
    """Recurrent cell of all layers."""
    hidden_size: PositiveInt = 256
    """Size of the hidden states."""
    num_layers: PositiveInt = 1
    """Number of layers."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout probability between layers."""

    def build(self, *, input_size: int) -> RecurrentBackbone:
        input_sizes = [input_size] + [self.hidden_size] * (self.num_layers - 1)
        cells = [
            self.cell.build(input_size=size, hidden_size=self.hidden_size) for size in input_sizes
        ]
        layers = [RecurrentLayer(forward_cell=cell) for cell in cells]
        return RecurrentBackbone(layers, size=self.hidden_size, dropout=self.dropout)


class TransformerBackbone(CausalBackbone):
    """A causal stack of Transformer layers (Liu et al. 2018; Radford et al. 2018)."""

    def __init__(self, stack: TransformerStack, *, size: int) -> None:
        super().__init__()
        self.stack = stack
        self.output_size = size

    @override
    def initial_state(self, inputs: Float[Tensor, "B T E"]) -> TransformerStackState:
        return self.stack.initial_state(inputs)

    @override
    def forward(
        self,
        inputs: Float[Tensor, "B T E"],
        lengths: Lengths,
        state: TransformerStackState,
        *,
        need_state: bool = True,
        need_weights: bool = False,
    ) -> BackboneOutput:
        output = self.stack(inputs, lengths, state, need_weights=need_weights)
        return BackboneOutput(output.outputs, output.state, output.auxiliary_losses, output.weights)


class TransformerBackboneConfig(TransformerConfigBase):
    """Causal Transformer layers."""

    type: Literal["transformer"] = "transformer"

    def build(self, *, input_size: int) -> TransformerBackbone:
        check(
            input_size == self.hidden_size,
            "backbone.hidden_size",
            f"must equal the size of the embeddings, {input_size}, but is {self.hidden_size}",
            f"set it to {input_size}, or embedding_size to {self.hidden_size}",
        )
        stack = self.build_stack(config_path="backbone")
        check(
            not stack.is_stateful,
            "backbone.attention",
            "attention that depends on earlier alignments cannot read a text in pieces",
            "use an alignment such as 'softmax', and a score without features",
        )
        return TransformerBackbone(stack, size=self.hidden_size)


BackboneConfig = Annotated[
    RecurrentBackboneConfig | TransformerBackboneConfig,
    Field(discriminator="type"),
    with_default_type("recurrent"),
]
