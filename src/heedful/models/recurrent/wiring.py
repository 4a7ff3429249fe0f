"""Wirings: when a recurrent decoder attends, and where the context goes.

A wiring takes one embedded token and a state, and returns the next state and the input of the
pre-output layer. It keeps nothing between calls. A wiring without attention returns zero weights
and no alignment.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.alignments import AlignmentOutput
from heedful.attention.attention import Attention, AttentionOutput
from heedful.attention.config import AttentionConfig
from heedful.attention.memory import AttentionState, Memory, padding_mask
from heedful.config import BaseConfig
from heedful.errors import check
from heedful.layers.rnn_cell_config import CellConfig, GRUCellConfig
from heedful.layers.rnn_cells import RecurrentState, StackedCells
from heedful.models.base import EncoderOutput
from heedful.models.recurrent.pre_output import (
    PreOutputConfig,
    PreOutputLayer,
    PreOutputParts,
    StepVectors,
    TanhPreOutputConfig,
)
from heedful.shapes import Embedded, Float, Hidden

CellStates = tuple[RecurrentState, ...]


class WiringState(NamedTuple):
    """What a recurrent decoder carries from one token to the next."""

    cells: CellStates
    input_feed: Hidden | None = None  # the last features, with input feeding
    attention_state: AttentionState | None = None
    summary: Float[Tensor, "B V"] | None = None  # the source, for a constant context


class WiringOutput(NamedTuple):
    """Output of one decoder step."""

    pre_output_input: Float[Tensor, "B X"] | Float[Tensor, "B S X"]
    weights: Float[Tensor, "B 1 S"]
    alignment: AlignmentOutput | None
    state: WiringState


class Wiring(nn.Module, ABC):
    """One step of a recurrent decoder."""

    pre_output_parts: ClassVar[PreOutputParts]

    def __init__(self, cells: StackedCells, pre_output: PreOutputLayer) -> None:
        super().__init__()
        self.cells = cells
        self.pre_output = pre_output

    @property
    def uses_history(self) -> bool:
        """Whether the attention of a step depends on that of earlier steps."""
        return False

    def build_memory(self, encoder_output: EncoderOutput) -> Memory:
        """Prepare the source for attention; without attention there are no keys."""
        mask = padding_mask(encoder_output.lengths, encoder_output.states.size(1))
        return Memory(encoder_output.states, (), mask)

    def initial_state(
        self, cells: CellStates, memory: Memory, encoder_output: EncoderOutput
    ) -> WiringState:
        """Return the first state, given the first states of the cells."""
        return WiringState(cells)

    @abstractmethod
    def forward(self, embedded: Embedded, state: WiringState, memory: Memory) -> WiringOutput:
        """Take one token and return the next state."""

    def compute_features(
        self, pre_output_input: Float[Tensor, "B T *S X"]
    ) -> Float[Tensor, "B T *S D"]:
        """Compute the features of any number of steps at once."""
        return self.pre_output(pre_output_input)


class AttentionWiring(Wiring):
    """A wiring that attends once per step."""

    def __init__(
        self, attention: Attention, cells: StackedCells, pre_output: PreOutputLayer
    ) -> None:
        super().__init__(cells, pre_output)
        self.attention = attention

    @property
    @override
    def uses_history(self) -> bool:
        return self.attention.is_stateful

    @override
    def build_memory(self, encoder_output: EncoderOutput) -> Memory:
        mask = padding_mask(encoder_output.lengths, encoder_output.states.size(1))
        return self.attention.build_memory(encoder_output.states, mask)

    @override
    def initial_state(
        self, cells: CellStates, memory: Memory, encoder_output: EncoderOutput
    ) -> WiringState:
        return WiringState(cells, attention_state=self.attention.initial_state(memory))


class AttendThenStep(AttentionWiring):
    """Attend with the last state, then step with token and context (Bahdanau et al. 2015).

    c_t = attend(s_{t-1}); s_t = cell([y_{t-1}; c_t], s_{t-1}); output from s_t, c_t and y_{t-1}
    """

    pre_output_parts = PreOutputParts(
        ("state", "context", "token_embedding"),
        deep=("previous_state", "token_embedding", "context"),
    )

    @override
    def forward(self, embedded: Embedded, state: WiringState, memory: Memory) -> WiringOutput:
        previous = state.cells[-1][0]
        attention_output = self.attention(previous.unsqueeze(1), memory, state.attention_state)
        context = attention_output.context.squeeze(1)
        cells = self.cells(torch.cat([embedded, context], dim=-1), state.cells)
        vectors = StepVectors(previous, cells[-1][0], embedded, context)
        return wiring_output(self.pre_output.concat_parts(vectors), attention_output, cells)


class StepThenAttend(AttentionWiring):
    """Step with the token, then attend with the new state (Luong et al. 2015).

    s_t = cell([y_{t-1}; f_{t-1}], s_{t-1}); c_t = attend(s_t); features f_t from c_t and s_t

    Without input feeding (section 3.3) the cell reads y_{t-1} alone.
    """

    pre_output_parts = PreOutputParts(
        ("context", "state"), deep=("state", "token_embedding", "context")
    )

    def __init__(
        self,
        attention: Attention,
        cells: StackedCells,
        pre_output: PreOutputLayer,
        *,
        input_feeding: bool,
    ) -> None:
        super().__init__(attention, cells, pre_output)
        self.input_feeding = input_feeding
        # Features per position may be needed a second time, once the token is known: computed
        # twice, they would differ by dropout.
        self.computes_features_in_step = input_feeding or attention.readout.is_per_position

    @override
    def initial_state(
        self, cells: CellStates, memory: Memory, encoder_output: EncoderOutput
    ) -> WiringState:
        state = super().initial_state(cells, memory, encoder_output)
        if not self.input_feeding:
            return state
        hidden = cells[0][0]
        return state._replace(input_feed=hidden.new_zeros(len(hidden), self.pre_output.size))

    @override
    def forward(self, embedded: Embedded, state: WiringState, memory: Memory) -> WiringOutput:
        input_feed = [] if state.input_feed is None else [state.input_feed]
        cells = self.cells(torch.cat([embedded, *input_feed], dim=-1), state.cells)
        previous, hidden = state.cells[-1][0], cells[-1][0]
        attention_output = self.attention(hidden.unsqueeze(1), memory, state.attention_state)
        vectors = StepVectors(previous, hidden, embedded, attention_output.context.squeeze(1))
        features = self.pre_output.concat_parts(vectors)
        if self.computes_features_in_step:
            features = self.pre_output(features)
        next_feed = features if self.input_feeding else None
        return wiring_output(features, attention_output, cells, input_feed=next_feed)

    @override
    def compute_features(
        self, pre_output_input: Float[Tensor, "B T *S X"]
    ) -> Float[Tensor, "B T *S D"]:
        if self.computes_features_in_step:
            return pre_output_input
        return self.pre_output(pre_output_input)


def wiring_output(
    pre_output_input: Tensor,
    attention_output: AttentionOutput,
    cells: CellStates,
    *,
    input_feed: Tensor | None = None,
) -> WiringOutput:
    """Assemble the output of a step that attended."""
    _, weights, alignment, attention_state = attention_output
    assert weights is not None
    assert alignment is not None
    assert attention_state is not None
    state = WiringState(cells, input_feed, attention_state)
    return WiringOutput(pre_output_input, weights, alignment, state)


class BottomLayerAttention(AttentionWiring):
    """Attend with the bottom layer's last state; every layer reads the context (Wu et al. 2016).

    c_t = attend(s1_{t-1}); s1_t = cell([y_{t-1}; c_t], s1_{t-1}); sk_t = cell([s(k-1)_t; c_t],
    sk_{t-1})  (section 3). Attention need not wait for the top layer, so layers of neighboring
    steps can run in parallel. The paper predicts from the top state alone: `state-only`.
    """

    pre_output_parts = PreOutputParts(
        ("context", "state"), deep=("state", "token_embedding", "context")
    )

    @override
    def forward(self, embedded: Embedded, state: WiringState, memory: Memory) -> WiringOutput:
        bottom, top = state.cells[0][0], state.cells[-1][0]
        attention_output = self.attention(bottom.unsqueeze(1), memory, state.attention_state)
        context = attention_output.context.squeeze(1)
        cells = self.cells(embedded, state.cells, context)
        vectors = StepVectors(top, cells[-1][0], embedded, context)
        return wiring_output(self.pre_output.concat_parts(vectors), attention_output, cells)


class NoAttentionWiring(Wiring):
    """A wiring that never attends: its weights are zero."""

    @override
    def forward(self, embedded: Embedded, state: WiringState, memory: Memory) -> WiringOutput:
        cells = self.cells(embedded, state.cells, state.summary)
        vectors = StepVectors(state.cells[-1][0], cells[-1][0], embedded, state.summary)
        features = self.pre_output.concat_parts(vectors)
        zero_weights = torch.zeros_like(memory.mask, dtype=vectors.state.dtype)  # (B, 1, S)
        return WiringOutput(features, zero_weights, None, state._replace(cells=cells))


class FinalStateWiring(NoAttentionWiring):
    """The source is in the first state and nowhere else (Sutskever et al. 2014).

    s_t = cell(y_{t-1}, s_{t-1}); output from s_t
    """

    pre_output_parts = PreOutputParts(("state",), deep=("state", "token_embedding"))


class ConstantContextWiring(NoAttentionWiring):
    """Every layer reads the source summary at every step (Cho et al. 2014).

    h_t = g(y_{t-1}, h_{t-1}, c) (section 2.2); output from h_t, c and y_{t-1}
    """

    pre_output_parts = PreOutputParts(
        ("state", "context", "token_embedding"), deep=("state", "token_embedding", "context")
    )

    @override
    def initial_state(
        self, cells: CellStates, memory: Memory, encoder_output: EncoderOutput
    ) -> WiringState:
        return WiringState(cells, summary=encoder_output.summary)


class RecurrentDecoderConfigBase(BaseConfig):
    """The parts of a recurrent decoder that its wiring assembles."""

    cell: CellConfig = GRUCellConfig()
    """The recurrent cell."""
    embedding_size: PositiveInt = 256
    """Size of a token embedding."""
    hidden_size: PositiveInt = 256
    """Size of a hidden state."""
    num_layers: PositiveInt = 1
    """Number of layers."""
    first_residual_layer: Annotated[int, Field(gt=1)] | None = None
    """First layer, counted from 1, with a residual connection, as have all above it (Wu et al.
    2016); null for none."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on embeddings, between layers and before the output head."""
    attention: AttentionConfig = AttentionConfig()
    """The attention mechanism."""
    pre_output: PreOutputConfig = TanhPreOutputConfig()
    """How state, context and token embedding become the features of the output head."""

    def build_attention(self, memory_size: int) -> Attention:
        """Build attention with hidden states as queries."""
        return self.attention.build(query_size=self.hidden_size, memory_size=memory_size)

    def build_cells(self, input_size: int, context_size: int = 0) -> StackedCells:
        """Build the cells; every layer reads a context of this size besides its input."""
        check(
            self.first_residual_layer is None or self.first_residual_layer <= self.num_layers,
            "first_residual_layer",
            f"there is no layer {self.first_residual_layer}: num_layers is {self.num_layers}",
            "choose a layer from 2 to num_layers, or remove the setting",
        )
        input_sizes = [input_size] + [self.hidden_size] * (self.num_layers - 1)
        cells = [
            self.cell.build(input_size=size + context_size, hidden_size=self.hidden_size)
            for size in input_sizes
        ]
        return StackedCells(cells, self.dropout, first_residual_layer=self.first_residual_layer)

    def build_pre_output(self, parts: PreOutputParts, memory_size: int) -> PreOutputLayer:
        """Build the pre-output layer for the vectors that a wiring uses."""
        return self.pre_output.build(
            parts,
            {
                "previous_state": self.hidden_size,
                "state": self.hidden_size,
                "context": memory_size,
                "token_embedding": self.embedding_size,
            },
            dropout=self.dropout,
        )


class AttendThenStepConfig(BaseConfig):
    """Attend with the last state, then step (Bahdanau et al. 2015)."""

    type: Literal["attend-then-step"] = "attend-then-step"

    def build(self, decoder: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        return AttendThenStep(
            decoder.build_attention(memory_size),
            decoder.build_cells(decoder.embedding_size + memory_size),
            decoder.build_pre_output(AttendThenStep.pre_output_parts, memory_size),
        )


class StepThenAttendConfig(BaseConfig):
    """Step, then attend with the new state (Luong et al. 2015)."""

    type: Literal["step-then-attend"] = "step-then-attend"
    input_feeding: bool = True
    """Feed the features of a step into the next one, with the token."""

    def build(self, decoder: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        pre_output = decoder.build_pre_output(StepThenAttend.pre_output_parts, memory_size)
        input_feed_size = pre_output.size if self.input_feeding else 0
        return StepThenAttend(
            decoder.build_attention(memory_size),
            decoder.build_cells(decoder.embedding_size + input_feed_size),
            pre_output,
            input_feeding=self.input_feeding,
        )


class BottomLayerAttentionConfig(BaseConfig):
    """Attend with the bottom layer; every layer reads the context (Wu et al. 2016, GNMT)."""

    type: Literal["bottom-layer-attention"] = "bottom-layer-attention"

    def build(self, decoder: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        return BottomLayerAttention(
            decoder.build_attention(memory_size),
            decoder.build_cells(decoder.embedding_size, memory_size),
            decoder.build_pre_output(BottomLayerAttention.pre_output_parts, memory_size),
        )


class ConstantContextWiringConfig(BaseConfig):
    """No attention: every step reads the source summary (Cho et al. 2014)."""

    type: Literal["constant-context"] = "constant-context"

    def build(self, decoder: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        return ConstantContextWiring(
            decoder.build_cells(decoder.embedding_size, memory_size),
            decoder.build_pre_output(ConstantContextWiring.pre_output_parts, memory_size),
        )


class FinalStateWiringConfig(BaseConfig):
    """No attention: the source is in the first state alone (Sutskever et al. 2014)."""

    type: Literal["final-state"] = "final-state"

    def build(self, decoder: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        return FinalStateWiring(
            decoder.build_cells(decoder.embedding_size),
            decoder.build_pre_output(FinalStateWiring.pre_output_parts, memory_size),
        )
