"""Bottom asks: deep decoders in which attention need not wait for the top layer.

The bottom layer asks and every layer hears, so the layers of neighbouring steps can run side by
side, as they could not if the top layer asked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from heedful.attention import (
    AlignmentOutput,
    Attention,
    AttentionOutput,
    AttentionState,
    Memory,
    padding_mask,
)
from heedful.attention.attention import Attention
from heedful.attention.config import AttentionConfig
from heedful.config import BaseConfig
from heedful.errors import ConfigError
from heedful.layers.rnn import CellConfig, StackedCells
from heedful.layers.rnn_cells import GRUCellConfig, RecurrentState
from heedful.models.base import EncoderOutput
from heedful.models.recurrent.pre_output import (
    PartSizes,
    PreOutputConfig,
    PreOutputLayer,
    PreOutputParts,
    StepVectors,
    TanhPreOutputConfig,
)
from heedful.shapes import Float

# Wiring: when is attention asked, and where does its answer go?
#
# A wiring takes one embedded token into a recurrent state and says what can be told of the next
# one. It keeps nothing between calls: the state comes in and goes out. One without attention looks
# nowhere: its weights are zero, and nothing is known of how they came about.


class WiringState(NamedTuple):
    """All that a recurrent decoder carries from one token to the next."""

    cells: tuple[RecurrentState, ...]
    input_feed: Float[Tensor, "B D"] | None = None  # the last features, where they are fed back in
    attention_state: AttentionState | None = (
        None  # what has been asked of the memory, where anything asks
    )
    summary: Float[Tensor, "B V"] | None = None  # the source in one vector, where steps hear it


class WiringOutput(NamedTuple):
    """The outcome of taking in one token."""

    pre_output_input: (
        Float[Tensor, "B X"] | Float[Tensor, "B S X"]
    )  # what the next token can be told from
    weights: Float[Tensor, "B 1 S"]
    alignment: AlignmentOutput | None  # all that is known of where was looked, where anything looks
    state: WiringState


class Wiring(nn.Module, ABC):
    """When attention is asked, if at all, and where its answer goes."""

    pre_output_parts: ClassVar[PreOutputParts]
    """Which parts of a step tell of the next token."""

    def __init__(self, cells: StackedCells, pre_output: PreOutputLayer) -> None:
        super().__init__()
        self.cells = cells
        self.pre_output = pre_output

    @property
    def uses_history(self) -> bool:
        """Whether where the last token came from has a say in where is looked next."""
        return False

    @abstractmethod
    def build_memory(self, encoder_output: EncoderOutput) -> Memory:
        """Make a source ready to be looked at."""

    @abstractmethod
    def initial_state(
        self,
        start_positions: tuple[RecurrentState, ...],
        memory: Memory,
        encoder_output: EncoderOutput,
    ) -> WiringState:
        """Make the first state, from the first states of the cells."""

    @abstractmethod
    def forward(
        self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory
    ) -> WiringOutput:
        """Take in one token."""

    def compute_features(
        self, pre_output_input: Float[Tensor, "B T *S X"]
    ) -> Float[Tensor, "B T *S D"]:
        """Turn what steps told into features: the part that no later step waits for."""
        return self.pre_output(pre_output_input)


class AttentionWiring(Wiring):
    """A wiring that asks once at every step."""

    def __init__(
        self, attention: Attention, cells: StackedCells, pre_output: PreOutputLayer
    ) -> None:
        super().__init__(cells, pre_output)
        self.attention = attention

    @property
    def uses_history(self) -> bool:
        """Whether score or alignment goes by where the last token came from."""
        return self.attention.is_stateful

    def build_memory(self, encoder_output: EncoderOutput) -> Memory:
        """Make a source ready to be looked at."""
        mask = padding_mask(encoder_output.lengths, encoder_output.states.size(1))
        return self.attention.build_memory(encoder_output.states, mask)

    def initial_state(
        self,
        start_positions: tuple[RecurrentState, ...],
        memory: Memory,
        encoder_output: EncoderOutput,
    ) -> WiringState:
        """Make the first state; nothing has been asked yet."""
        return WiringState(start_positions, attention_state=self.attention.initial_state(memory))


class AttendThenStep(AttentionWiring):
    """The last state asks; the cell then reads token and context (Bahdanau et al. 2015).

    c_t = attend(s_{t-1}); s_t = cell([y_{t-1}; c_t], s_{t-1}); told from s_t, c_t and y_{t-1}
    """

    pre_output_parts = PreOutputParts(
        ("state", "context", "token_embedding"),
        deep=("previous_state", "token_embedding", "context"),
    )

    def forward(
        self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory
    ) -> WiringOutput:
        """Ask with the state that was, then step."""
        before = state.cells[-1][0]
        attended = self.attention(before.unsqueeze(1), memory, state.attention_state)
        context = attended.context.squeeze(1)
        cells = self.cells(torch.cat([embedded, context], dim=-1), state.cells)
        told = self.pre_output.concat_parts(StepVectors(before, cells[-1][0], embedded, context))
        return make_wiring_output(told, attended, cells)


class StepThenAttend(AttentionWiring):
    """The cell reads the token; the new state then asks (Luong et al. 2015).

    s_t = cell([y_{t-1}; f_{t-1}], s_{t-1}); c_t = attend(s_t); f_t told from c_t and s_t

    With input feeding (section 3.3) the features f_{t-1} go in with the next token; without it,
    only the token does.
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
        # Features of every place may be asked for again, once the token is known: made twice,
        # dropout would make two different ones.
        self.computes_features_in_step = input_feeding or attention.readout.is_per_position

    def initial_state(
        self,
        start_positions: tuple[RecurrentState, ...],
        memory: Memory,
        encoder_output: EncoderOutput,
    ) -> WiringState:
        """Make the first state; nothing has been asked or fed back yet."""
        state = super().initial_state(start_positions, memory, encoder_output)
        shown = start_positions[0][0]
        nothing = shown.new_zeros(len(shown), self.pre_output.size)
        return state._replace(input_feed=nothing) if self.input_feeding else state

    def forward(
        self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory
    ) -> WiringOutput:
        """Step, then ask with the state that is."""
        input_feeds = [] if state.input_feed is None else [state.input_feed]
        cells = self.cells(torch.cat([embedded, *input_feeds], dim=-1), state.cells)
        before, hidden = state.cells[-1][0], cells[-1][0]
        attended = self.attention(hidden.unsqueeze(1), memory, state.attention_state)
        told = self.pre_output.concat_parts(
            StepVectors(before, hidden, embedded, attended.context.squeeze(1))
        )
        if self.computes_features_in_step:
            told = self.pre_output(told)
        return make_wiring_output(
            told, attended, cells, input_feed=told if self.input_feeding else None
        )

    def compute_features(
        self, pre_output_input: Float[Tensor, "B T *S X"]
    ) -> Float[Tensor, "B T *S D"]:
        """Make the features, or give them on if they were made within the step."""
        return (
            pre_output_input
            if self.computes_features_in_step
            else self.pre_output(pre_output_input)
        )


def make_wiring_output(
    pre_output_input: Tensor,
    attention_output: AttentionOutput,
    cells: tuple[RecurrentState, ...],
    *,
    input_feed: Tensor | None = None,
) -> WiringOutput:
    """Put together what came of a step that asked attention."""
    _, weights, aligned, past = attention_output
    assert weights is not None
    assert aligned is not None
    assert past is not None
    return WiringOutput(pre_output_input, weights, aligned, WiringState(cells, input_feed, past))


class BottomLayerAttention(AttentionWiring):
    """The bottom layer's last state asks; every layer then hears (Wu et al. 2016, section 3).

    c_t = attend(s1_{t-1}); s1_t = cell([y_{t-1}; c_t], s1_{t-1}); sk_t = cell([s(k-1)_t; c_t],
    sk_{t-1}). In the paper the top state alone tells of the next token: the output `none`.
    """

    pre_output_parts = PreOutputParts(
        ("context", "state"), deep=("state", "token_embedding", "context")
    )

    def forward(
        self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory
    ) -> WiringOutput:
        """Ask with what the bottom layer was, then let every layer hear."""
        bottom, top = state.cells[0][0], state.cells[-1][0]
        attended = self.attention(bottom.unsqueeze(1), memory, state.attention_state)
        context = attended.context.squeeze(1)
        cells = self.cells(embedded, state.cells, context)
        told = self.pre_output.concat_parts(StepVectors(top, cells[-1][0], embedded, context))
        return make_wiring_output(told, attended, cells)


# Parts: what every recurrent decoder is made of, whatever its wiring.
#
# A wiring is built from these; it says how wide the cells' inputs are, and what the output is told
# from.


class RecurrentDecoderConfigBase(BaseConfig):
    """The parts of a recurrent decoder that its wiring puts together."""

    cell: CellConfig = GRUCellConfig()
    """The recurrent cell."""
    embedding_size: PositiveInt = 256
    """Width of a word's vector."""
    hidden_size: PositiveInt = 256
    """Width of a state."""
    num_layers: PositiveInt = 1
    """Cells on top of one another."""
    first_residual_layer: Annotated[int, Field(gt=1)] | None = None
    """The first layer, counted from 1, that shows the sum of what it made and what it read, as do
    all above it (Wu et al. 2016); none if not given."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped from embeddings, between layers and before the emission."""
    attention: AttentionConfig = AttentionConfig()
    """How attention works."""
    pre_output: PreOutputConfig = TanhPreOutputConfig()
    """What the next token is told from."""

    def build_attention(self, memory_size: int) -> Attention:
        """Make the mechanism that a state asks."""
        return self.attention.build(query_size=self.hidden_size, memory_size=memory_size)

    def build_cells(self, input_size: int, context_size: int = 0) -> StackedCells:
        """Make the cells for inputs of this width, and a context that every layer hears."""
        if self.first_residual_layer is not None and self.first_residual_layer > self.num_layers:
            raise ConfigError(
                "first_residual_layer",
                f"there is no layer {self.first_residual_layer}: num_layers is {self.num_layers}",
                "name a layer from 2 up to the last, or leave it out",
            )
        input_sizes = [input_size] + [self.hidden_size] * (self.num_layers - 1)
        cells = [
            self.cell.build(input_size=size + context_size, hidden_size=self.hidden_size)
            for size in input_sizes
        ]
        return StackedCells(cells, self.dropout, first_residual_layer=self.first_residual_layer)

    def build_pre_output(
        self, pre_output_parts: PreOutputParts, memory_size: int
    ) -> PreOutputLayer:
        """Make the output for what a wiring tells from."""
        part_sizes: PartSizes = {
            "previous_state": self.hidden_size,
            "state": self.hidden_size,
            "context": memory_size,
            "token_embedding": self.embedding_size,
        }
        return self.pre_output.build(pre_output_parts, part_sizes, dropout=self.dropout)


# Unattended wirings: what can be written about a source that is not looked at?
#
# All that is known of the source is one vector. It is in the first state, or heard at every step.
# Weights are zero: attention went nowhere.


class NoAttentionWiring(Wiring):
    """A wiring that never asks."""

    def build_memory(self, encoder_output: EncoderOutput) -> Memory:
        """Keep what there would be to see; nobody asks, so no keys are prepared."""
        mask = padding_mask(encoder_output.lengths, encoder_output.states.size(1))
        return Memory(encoder_output.states, (), mask)

    def _step_output(
        self, step_vectors: StepVectors, state: WiringState, memory: Memory
    ) -> WiringOutput:
        zero_weights = torch.zeros_like(memory.mask, dtype=step_vectors.state.dtype)  # (B, 1, S)
        return WiringOutput(self.pre_output.concat_parts(step_vectors), zero_weights, None, state)


class FinalStateWiring(NoAttentionWiring):
    """The source is in the first state and nowhere else (Sutskever et al. 2014).

    s_t = cell(y_{t-1}, s_{t-1}); told from s_t
    """

    pre_output_parts = PreOutputParts(("state",), deep=("state", "token_embedding"))

    def initial_state(
        self,
        start_positions: tuple[RecurrentState, ...],
        memory: Memory,
        encoder_output: EncoderOutput,
    ) -> WiringState:
        """Make the first state."""
        return WiringState(start_positions)

    def forward(
        self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory
    ) -> WiringOutput:
        """Step."""
        cells = self.cells(embedded, state.cells)
        left = StepVectors(state.cells[-1][0], cells[-1][0], embedded)
        return self._step_output(left, WiringState(cells), memory)


class ConstantContextWiring(NoAttentionWiring):
    """The summary of the source is heard at every step, by every layer (Cho et al. 2014).

    h_t = g(y_{t-1}, h_{t-1}, c) (section 2.2); told from h_t, c and y_{t-1}
    """

    pre_output_parts = PreOutputParts(
        ("state", "context", "token_embedding"), deep=("state", "token_embedding", "context")
    )

    def initial_state(
        self,
        start_positions: tuple[RecurrentState, ...],
        memory: Memory,
        encoder_output: EncoderOutput,
    ) -> WiringState:
        """Make the first state, and keep the summary."""
        return WiringState(start_positions, summary=encoder_output.summary)

    def forward(
        self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory
    ) -> WiringOutput:
        """Step, with the summary."""
        cells = self.cells(embedded, state.cells, state.summary)
        left = StepVectors(state.cells[-1][0], cells[-1][0], embedded, state.summary)
        return self._step_output(left, state._replace(cells=cells), memory)


# The wirings, as a configuration names them.


class AttendThenStepConfig(BaseConfig):
    """Ask with the last state, then step (Bahdanau et al. 2015)."""

    type: Literal["attend-then-step"] = "attend-then-step"

    def build(self, decoder_config: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        """Put a decoder's parts together."""
        return AttendThenStep(
            decoder_config.build_attention(memory_size),
            decoder_config.build_cells(decoder_config.embedding_size + memory_size),
            decoder_config.build_pre_output(AttendThenStep.pre_output_parts, memory_size),
        )


class StepThenAttendConfig(BaseConfig):
    """Step, then ask with the new state (Luong et al. 2015)."""

    type: Literal["step-then-attend"] = "step-then-attend"
    input_feeding: bool = True
    """Whether what was told goes in with the next token."""

    def build(self, decoder_config: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        """Put a decoder's parts together."""
        output = decoder_config.build_pre_output(StepThenAttend.pre_output_parts, memory_size)
        input_feed_size = output.size if self.input_feeding else 0
        return StepThenAttend(
            decoder_config.build_attention(memory_size),
            decoder_config.build_cells(decoder_config.embedding_size + input_feed_size),
            output,
            input_feeding=self.input_feeding,
        )


class BottomLayerAttentionConfig(BaseConfig):
    """Let the bottom layer ask, and every layer hear (Wu et al. 2016, GNMT)."""

    type: Literal["bottom-layer-attention"] = "bottom-layer-attention"

    def build(self, decoder_config: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        """Put a decoder's parts together."""
        return BottomLayerAttention(
            decoder_config.build_attention(memory_size),
            decoder_config.build_cells(decoder_config.embedding_size, memory_size),
            decoder_config.build_pre_output(BottomLayerAttention.pre_output_parts, memory_size),
        )


class ConstantContextWiringConfig(BaseConfig):
    """Never ask; hear the source's summary at every step (Cho et al. 2014)."""

    type: Literal["constant-context"] = "constant-context"

    def build(self, decoder_config: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        """Put a decoder's parts together."""
        return ConstantContextWiring(
            decoder_config.build_cells(decoder_config.embedding_size, memory_size),
            decoder_config.build_pre_output(ConstantContextWiring.pre_output_parts, memory_size),
        )


class FinalStateWiringConfig(BaseConfig):
    """Never ask; know the source from the first state alone (Sutskever et al. 2014)."""

    type: Literal["final-state"] = "final-state"

    def build(self, decoder_config: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        """Put a decoder's parts together."""
        return FinalStateWiring(
            decoder_config.build_cells(decoder_config.embedding_size),
            decoder_config.build_pre_output(FinalStateWiring.pre_output_parts, memory_size),
        )
