"""Wirings: when a recurrent decoder attends, and where the context goes.

Invariant: a wiring keeps nothing between calls; its pre-output layer runs for all steps of a known
target at once, unless features are fed back.
"""

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.alignments import AlignmentOutput, concat_alignments
from heedful.attention.attention import Attention
from heedful.attention.config import AttentionConfig, build_self_attention
from heedful.attention.memory import AttentionState, Memory
from heedful.config import BaseConfig
from heedful.errors import check
from heedful.layers.mixture_of_experts import MoESublayer, MoESublayerConfig
from heedful.layers.rnn import StackedCells
from heedful.layers.rnn_cell_config import CellConfig, GRUCellConfig
from heedful.layers.rnn_cells import RecurrentCell, RecurrentState
from heedful.layers.self_attention import FullSelfAttention
from heedful.layers.self_attentive_cells import LowerAttentionCell
from heedful.models.base import EncoderOutput
from heedful.models.recurrent.pre_output import (
    Features,
    PartSizes,
    PreOutput,
    PreOutputConfig,
    PreOutputInput,
    PreOutputParts,
    StepVectors,
    TanhPreOutputConfig,
)
from heedful.shapes import (
    Embedded,
    Float,
    Hidden,
    HiddenStates,
    LayerInputs,
    Losses,
    Summary,
    TargetMask,
)

CellStates = tuple[RecurrentState, ...]


class RecurrentDecoderConfigBase(BaseConfig):
    """The parts of a recurrent decoder that its wiring assembles."""

    cell: CellConfig = GRUCellConfig()
    """The recurrent cell."""
    embedding_size: PositiveInt = 256
    """Size of a token embedding."""
    hidden_size: PositiveInt = 256
    """Size of a hidden state."""
    num_layers: PositiveInt = Field(default=1, le=1000)
    """Number of layers."""
    first_residual_layer: Annotated[int, Field(gt=1)] | None = None
    """First layer, counted from 1, with a residual connection, as have all above it (Wu et al.
    2016); null for none."""
    lower_attention: AttentionConfig | None = None
    """Attention of each layer but the first to what the layer below has passed on so far; null for
    none."""
    experts: MoESublayerConfig | None = None
    """Mixture of experts between layers; null for none. Needs a wiring in which attention does not
    wait for them, such as `bottom-layer-attention`."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on embeddings, between layers and before the output head."""
    attention: AttentionConfig = AttentionConfig()
    """The attention mechanism."""
    pre_output: PreOutputConfig = TanhPreOutputConfig()
    """How state, context and token embedding become the features of the output head."""

    def input_size(self, memory_size: int) -> int:
        """Return the size of the decoder's input for a token."""
        return self.embedding_size

    def build_attention(self, memory_size: int) -> Attention:
        """Build attention with hidden states as queries."""
        return self.attention.build(query_size=self.hidden_size, memory_size=memory_size)

    def build_cells(self, input_size: int, context_size: int = 0) -> StackedCells:
        """Build the cells; each layer reads a context of this size besides its input."""
        message = f"there is no layer {self.first_residual_layer}: num_layers is {self.num_layers}"
        hint = "choose a layer from 2 to num_layers, or remove the setting"
        is_valid = (self.first_residual_layer or 1) <= self.num_layers
        check(is_valid, "first_residual_layer", message, hint)
        min_layers = {
            "lower_attention": 2 if self.lower_attention else 1,
            "experts": self.experts.min_layers if self.experts else 1,
        }
        for name, minimum in min_layers.items():
            message = f"needs num_layers of {minimum} or more, but num_layers is {self.num_layers}"
            hint = "add a layer, or remove the section"
            check(self.num_layers >= minimum, name, message, hint)
        cells = [self._build_cell(input_size, context_size)]
        cells += [self._build_upper_cell(context_size) for _ in range(1, self.num_layers)]
        return StackedCells(
            cells,
            self.dropout,
            first_residual_layer=self.first_residual_layer,
            experts=[self._build_experts(layer) for layer in range(1, self.num_layers + 1)],
        )

    def _build_experts(self, layer: int) -> MoESublayer | None:
        if self.experts is None:
            return None
        size, dropout = self.hidden_size, self.dropout
        return self.experts.build_after(layer, self.num_layers, size=size, dropout=dropout)

    def _build_cell(self, input_size: int, context_size: int) -> RecurrentCell:
        size = input_size + context_size
        return self.cell.build(
            input_size=size, hidden_size=self.hidden_size, context_size=context_size
        )

    def _build_upper_cell(self, context_size: int) -> RecurrentCell:
        size = self.hidden_size
        if self.lower_attention is None:
            return self._build_cell(size, context_size)
        attention = build_self_attention(self.lower_attention, size, size, "lower_attention")
        cell = self._build_cell(2 * size, context_size)
        return LowerAttentionCell(cell, FullSelfAttention(attention), size)

    def build_pre_output(self, parts: PreOutputParts, memory_size: int) -> PreOutput:
        """Build the pre-output layer for the vectors that a wiring uses."""
        sizes: PartSizes = {
            "previous_state": self.hidden_size,
            "state": self.hidden_size,
            "context": memory_size,
            "token_embedding": self.input_size(memory_size),
        }
        return self.pre_output.build(parts, sizes, self.dropout)


class WiringState(NamedTuple):
    """State of a recurrent decoder between tokens."""

    cells: CellStates
    input_feed: Hidden | None = None  # the last features, with input feeding
    attention_state: AttentionState | None = None
    summary: Summary | None = None  # the source, for a constant context


class WiringOutput(NamedTuple):
    """Output of a decoder step; without attention, zero weights and no alignment."""

    pre_output_input: Float[Tensor, "B X"] | Float[Tensor, "B S X"]
    weights: Float[Tensor, "B 1 S"]
    alignment: AlignmentOutput | None
    state: WiringState
    vectors: StepVectors


class UnrolledWiringOutput(NamedTuple):
    """Output of all steps of a decoder."""

    vectors: StepVectors
    weights: Float[Tensor, "B T S"]
    alignment: AlignmentOutput | None
    auxiliary_losses: Losses


class Wiring(nn.Module, ABC):
    """One step of a recurrent decoder."""

    pre_output_parts: ClassVar[PreOutputParts]
    uses_history: bool = False
    """Whether the attention of a step depends on that of earlier steps."""
    can_unroll: bool = False
    """Whether no layer but the bottom one has an influence on the inputs of later steps."""

    def __init__(self, cells: StackedCells, pre_output: PreOutput) -> None:
        super().__init__()
        self.cells = cells
        self.pre_output = pre_output

    def build_memory(self, encoder_output: EncoderOutput) -> Memory:
        """Prepare the source for attention; without attention there are no keys."""
        return Memory(encoder_output.states, (), encoder_output.mask)

    def initial_state(self, cells: CellStates, memory: Memory, summary: Summary) -> WiringState:
        """Return the first state, given those of the cells and the source in one vector."""
        return WiringState(cells)

    @abstractmethod
    def forward(self, embedded: Embedded, state: WiringState, memory: Memory) -> WiringOutput:
        """Take one token and return the next state."""

    def unroll(
        self, embedded: LayerInputs, state: WiringState, memory: Memory, mask: TargetMask
    ) -> UnrolledWiringOutput:
        """Take all tokens, layer by layer: equal to steps, unless experts are balanced."""
        raise TypeError(f"{type(self).__name__} runs step by step: see `can_unroll`")

    def unrolled_vectors(
        self,
        states: HiddenStates,
        state: WiringState,
        embedded: LayerInputs,
        context: Float[Tensor, "B T V"] | None,
    ) -> StepVectors:
        """Return the vectors of all steps, given the top layer's states and first one."""
        previous = torch.cat([state.cells[-1][0].unsqueeze(1), states[:, :-1]], dim=1)
        return StepVectors(previous, states, embedded, context)

    def compute_features(self, pre_output_input: PreOutputInput) -> Features:
        """Compute the features of any number of steps at once."""
        return self.pre_output(pre_output_input)


class AttentionWiring(Wiring):
    """A wiring that attends once per step."""

    def __init__(self, attention: Attention, cells: StackedCells, pre_output: PreOutput) -> None:
        super().__init__(cells, pre_output)
        self.attention = attention
        self.uses_history = attention.is_stateful

    @override
    def build_memory(self, encoder_output: EncoderOutput) -> Memory:
        return self.attention.build_memory(encoder_output.states, encoder_output.mask)

    @override
    def initial_state(self, cells: CellStates, memory: Memory, summary: Summary) -> WiringState:
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
        attended = self.attention(previous.unsqueeze(1), memory, state.attention_state)
        context = attended.context.squeeze(1)
        cells = self.cells(torch.cat([embedded, context], dim=-1), state.cells)
        vectors = StepVectors(previous, cells[-1][0], embedded, context)
        next_state = WiringState(cells, attention_state=attended.state)
        features = self.pre_output.concat_parts(vectors)
        return WiringOutput(features, attended.weights, attended.alignment, next_state, vectors)


class AttendThenStepConfig(BaseConfig):
    """Attend with the last state, then step (Bahdanau et al. 2015)."""

    type: Literal["attend-then-step"] = "attend-then-step"

    def build(self, decoder: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        return AttendThenStep(
            decoder.build_attention(memory_size),
            decoder.build_cells(decoder.input_size(memory_size) + memory_size),
            decoder.build_pre_output(AttendThenStep.pre_output_parts, memory_size),
        )


class StepThenAttend(AttentionWiring):
    """Step with the token, then attend with the new state (Luong et al. 2015).

    s_t = cell([y_{t-1}; f_{t-1}], s_{t-1}); c_t = attend(s_t); features f_t from c_t and s_t

    Without input feeding (section 3.3) the cell reads only y_{t-1}.
    """

    pre_output_parts = PreOutputParts(
        ("context", "state"), deep=("state", "token_embedding", "context")
    )

    def __init__(
        self, attention: Attention, cells: StackedCells, pre_output: PreOutput, input_feeding: bool
    ) -> None:
        super().__init__(attention, cells, pre_output)
        self.input_feeding = input_feeding
        # Features per position may be needed a second time, once the token is known: computed
        # twice, they would differ by dropout.
        self.computes_features_in_step = input_feeding or attention.readout.is_per_position
        self.can_unroll = not self.computes_features_in_step

    @override
    def initial_state(self, cells: CellStates, memory: Memory, summary: Summary) -> WiringState:
        state = super().initial_state(cells, memory, summary)
        if not self.input_feeding:
            return state
        hidden = cells[0][0]
        return state._replace(input_feed=hidden.new_zeros(len(hidden), self.pre_output.size))

    @override
    def forward(self, embedded: Embedded, state: WiringState, memory: Memory) -> WiringOutput:
        input_feed = [] if state.input_feed is None else [state.input_feed]
        cells = self.cells(torch.cat([embedded, *input_feed], dim=-1), state.cells)
        previous, hidden = state.cells[-1][0], cells[-1][0]
        attended = self.attention(hidden.unsqueeze(1), memory, state.attention_state)
        vectors = StepVectors(previous, hidden, embedded, attended.context.squeeze(1))
        features = self.pre_output.concat_parts(vectors)
        if self.computes_features_in_step:
            features = self.pre_output(features)
        next_state = WiringState(cells, features if self.input_feeding else None, attended.state)
        return WiringOutput(features, attended.weights, attended.alignment, next_state, vectors)

    @override
    def unroll(
        self, embedded: LayerInputs, state: WiringState, memory: Memory, mask: TargetMask
    ) -> UnrolledWiringOutput:
        states, losses = self.cells.unroll(embedded, state.cells, mask)
        attended = self.attention(states, memory, state.attention_state)
        vectors = self.unrolled_vectors(states, state, embedded, attended.context)
        return UnrolledWiringOutput(vectors, attended.weights, attended.alignment, losses)

    @override
    def compute_features(self, pre_output_input: PreOutputInput) -> Features:
        is_done = self.computes_features_in_step
        return pre_output_input if is_done else self.pre_output(pre_output_input)


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
            decoder.build_cells(decoder.input_size(memory_size) + input_feed_size),
            pre_output,
            self.input_feeding,
        )


class BottomLayerAttention(AttentionWiring):
    """Attend with the bottom layer's last state; each layer reads the context (Wu et al. 2016).

    c_t = attend(s1_{t-1}); s1_t = cell([y_{t-1}; c_t], s1_{t-1}); sk_t = cell([s(k-1)_t; c_t],
    sk_{t-1})  (section 3). Attention need not wait for the top layer, so layers of neighboring
    steps can run in parallel. The paper predicts only from the top state: `state-only`.
    """

    pre_output_parts = StepThenAttend.pre_output_parts
    can_unroll = True

    @override
    def forward(self, embedded: Embedded, state: WiringState, memory: Memory) -> WiringOutput:
        bottom, top = state.cells[0][0], state.cells[-1][0]
        attended = self.attention(bottom.unsqueeze(1), memory, state.attention_state)
        context = attended.context.squeeze(1)
        cells = self.cells(embedded, state.cells, context)
        vectors = StepVectors(top, cells[-1][0], embedded, context)
        next_state = WiringState(cells, attention_state=attended.state)
        features = self.pre_output.concat_parts(vectors)
        return WiringOutput(features, attended.weights, attended.alignment, next_state, vectors)

    @override
    def unroll(
        self, embedded: LayerInputs, state: WiringState, memory: Memory, mask: TargetMask
    ) -> UnrolledWiringOutput:
        cell, cell_state = self.cells.cells[0], state.cells[0]
        attention_state, bottom, outputs = state.attention_state, [], []
        for inputs in embedded.unbind(dim=1):
            output = self.attention(cell_state[0].unsqueeze(1), memory, attention_state)
            attention_state = output.state
            cell_state = cell(torch.cat([inputs, output.context.squeeze(1)], dim=-1), cell_state)
            bottom.append(cell_state[0])
            outputs.append(output)
        context = torch.cat([output.context for output in outputs], dim=1)
        states, losses = self.cells.unroll(
            torch.stack(bottom, dim=1), state.cells, mask, context, num_done=1
        )
        vectors = self.unrolled_vectors(states, state, embedded, context)
        weights = torch.cat([output.weights for output in outputs], dim=1)
        alignment = concat_alignments([output.alignment for output in outputs])
        return UnrolledWiringOutput(vectors, weights, alignment, losses)


class BottomLayerAttentionConfig(BaseConfig):
    """Attend with the bottom layer; each layer reads the context (Wu et al. 2016, GNMT)."""

    type: Literal["bottom-layer-attention"] = "bottom-layer-attention"

    def build(self, decoder: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        return BottomLayerAttention(
            decoder.build_attention(memory_size),
            decoder.build_cells(decoder.input_size(memory_size), memory_size),
            decoder.build_pre_output(BottomLayerAttention.pre_output_parts, memory_size),
        )
