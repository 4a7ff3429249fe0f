"""Wirings without attention: the source is in the first state, or read as one constant vector."""

from typing import Literal

import torch
from typing_extensions import override

from heedful.attention.memory import Memory
from heedful.config import BaseConfig
from heedful.models.recurrent.pre_output import PreOutputParts, StepVectors
from heedful.models.recurrent.wiring import (
    CellStates,
    RecurrentDecoderConfigBase,
    UnrolledWiringOutput,
    Wiring,
    WiringOutput,
    WiringState,
)
from heedful.shapes import Embedded, LayerInputs, Summary, TargetMask


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
        features = self.pre_output.concat_parts(vectors)
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
