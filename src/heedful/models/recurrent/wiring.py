"""Wirings: when a recurrent decoder attends, if at all, and where the context goes.

Invariant: a wiring keeps nothing between calls; its pre-output layer runs for all steps of a known
target at once, unless features are fed back.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.alignments import AlignmentOutput, concat_alignments
from heedful.attention.attention import Attention, AttentionOutput
from heedful.attention.memory import AttentionState, Memory
from heedful.config import BaseConfig
from heedful.layers.rnn import StackedCells
from heedful.layers.rnn_cells import RecurrentState
from heedful.models.base import EncoderOutput
from heedful.models.recurrent.decoder_parts import (
    Features,
    PreOutput,
    PreOutputInput,
    PreOutputParts,
    RecurrentDecoderConfigBase,
    StepVectors,
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
    """Whether the attention of a step depends on earlier attention."""
    computes_features_in_step: bool = False
    """Whether a step runs the pre-output layer, because a later one needs the features: computed
    again, they would differ by dropout."""
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
        """Return the first state, given the first states of the cells and the source summary."""
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

    def pre_output_input(self, vectors: StepVectors) -> PreOutputInput:
        """Return the input of `compute_features` for one step."""
        concatenated = self.pre_output.concat_parts(vectors)
        return self.pre_output(concatenated) if self.computes_features_in_step else concatenated

    def compute_features(self, pre_output_input: PreOutputInput) -> Features:
        """Compute the features of any number of steps at once."""
        is_done = self.computes_features_in_step
        return pre_output_input if is_done else self.pre_output(pre_output_input)


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

    def step_output(
        self, attended: AttentionOutput, vectors: StepVectors, state: WiringState
    ) -> WiringOutput:
        """Return the output of a step with this attention and state."""
        features, weights = self.pre_output_input(vectors), attended.weights
        assert weights is not None
        return WiringOutput(features, weights, attended.alignment, state, vectors)


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
        return self.step_output(attended, vectors, WiringState(cells, None, attended.state))


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
        # Features per position may be needed a second time, once the token is known.
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
        output = self.step_output(attended, vectors, WiringState(cells, None, attended.state))
        if not self.input_feeding:
            return output
        return output._replace(state=output.state._replace(input_feed=output.pre_output_input))

    @override
    def unroll(
        self, embedded: LayerInputs, state: WiringState, memory: Memory, mask: TargetMask
    ) -> UnrolledWiringOutput:
        states, losses = self.cells.unroll(embedded, state.cells, mask)
        attended = self.attention(states, memory, state.attention_state)
        vectors = self.unrolled_vectors(states, state, embedded, attended.context)
        return UnrolledWiringOutput(vectors, attended.weights, attended.alignment, losses)


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
        return self.step_output(attended, vectors, WiringState(cells, None, attended.state))

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


class FinalStateWiring(Wiring):
    """No attention: the source is in the first state and nowhere else (Sutskever et al. 2014).

    s_t = cell(y_{t-1}, s_{t-1}); output from s_t
    """

    pre_output_parts = PreOutputParts(("state",), deep=("state", "token_embedding"))
    can_unroll = True

    @override
    def forward(self, embedded: Embedded, state: WiringState, memory: Memory) -> WiringOutput:
        cells = self.cells(embedded, state.cells, state.summary)
        vectors = StepVectors(state.cells[-1][0], cells[-1][0], embedded, state.summary)
        features = self.pre_output_input(vectors)
        zero_weights = torch.zeros_like(memory.mask, dtype=vectors.state.dtype)  # (B, 1, S)
        return WiringOutput(features, zero_weights, None, state._replace(cells=cells), vectors)

    @override
    def unroll(
        self, embedded: LayerInputs, state: WiringState, memory: Memory, mask: TargetMask
    ) -> UnrolledWiringOutput:
        context = state.summary
        if context is not None:
            context = context.unsqueeze(1).expand(-1, embedded.size(1), -1)
        states, losses = self.cells.unroll(embedded, state.cells, mask, context)
        vectors = self.unrolled_vectors(states, state, embedded, context)
        zero_weights = states.new_zeros(*embedded.shape[:2], memory.mask.size(-1))
        return UnrolledWiringOutput(vectors, zero_weights, None, losses)


class FinalStateWiringConfig(BaseConfig):
    """No attention: the source is only in the first state (Sutskever et al. 2014)."""

    type: Literal["final-state"] = "final-state"

    def build(self, decoder: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        return FinalStateWiring(
            decoder.build_cells(decoder.embedding_size),
            decoder.build_pre_output(FinalStateWiring.pre_output_parts, memory_size),
        )


class ConstantContextWiring(FinalStateWiring):
    """No attention: each layer reads the source summary at each step (Cho et al. 2014).

    h_t = g(y_{t-1}, h_{t-1}, c) (section 2.2); output from h_t, c and y_{t-1}. The paper's c and g
    are the encoder's `summary_layer` and GRU cells with `reset: after-with-context`.
    """

    pre_output_parts = PreOutputParts(
        ("state", "context", "token_embedding"), deep=("state", "token_embedding", "context")
    )

    @override
    def initial_state(self, cells: CellStates, memory: Memory, summary: Summary) -> WiringState:
        return WiringState(cells, summary=summary)


class ConstantContextWiringConfig(BaseConfig):
    """No attention: each step reads the source summary (Cho et al. 2014)."""

    type: Literal["constant-context"] = "constant-context"

    def build(self, decoder: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        return ConstantContextWiring(
            decoder.build_cells(decoder.embedding_size, memory_size),
            decoder.build_pre_output(ConstantContextWiring.pre_output_parts, memory_size),
        )
