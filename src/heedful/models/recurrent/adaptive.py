"""Wirings with cell states: adaptive attention to a sentinel of the cell, and deep fusion.

Invariant: with a sentinel, weights of the source plus its gate sum to one at each step.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.attention import Attention
from heedful.attention.memory import Memory
from heedful.attention.sentinel import SentinelAttention, check_sentinel
from heedful.config import BaseConfig
from heedful.errors import ConfigError, check
from heedful.layers.rnn import StackedCells
from heedful.layers.self_attentive_cells import LSTMNCellConfig
from heedful.models.base import EncoderOutput, EncoderStateSizes
from heedful.models.recurrent.decoder_parts import (
    PreOutput,
    PreOutputParts,
    RecurrentDecoderConfigBase,
    StepVectors,
)
from heedful.models.recurrent.wiring import (
    AttentionWiring,
    CellStates,
    Wiring,
    WiringOutput,
    WiringState,
)
from heedful.shapes import Embedded, Float, Hidden, Summary


class AdaptiveWiring(AttentionWiring):
    """Step, then attend to the source and to a sentinel of what the cell has stored.

    h_t, m_t = cell(x_t, h_{t-1}, m_{t-1}), x_t = [y_{t-1}; summary of the source];
    g_t = sigmoid(W [x_t; h_{t-1}] + b), s_t = g_t * tanh(m_t); c_t = attend(h_t) to source and s_t

    (Lu et al. 2017, section 2.3.) In a stack this is the top layer, which reads the one below.
    Cells without a cell state m_t gate their output: s_t = g_t * h_t. The paper's W_s is the
    product of the score's key matrix and `sentinel_key`, which serves any score.
    """

    pre_output_parts = PreOutputParts(
        ("context", "state"), deep=("state", "token_embedding", "context")
    )
    attention: SentinelAttention

    def __init__(
        self,
        attention: SentinelAttention,
        cells: StackedCells,
        pre_output: PreOutput,
        *,
        input_size: int,
        memory_size: int,
        feeds_summary: bool,
    ) -> None:
        super().__init__(attention, cells, pre_output)
        top = cells.cells[-1]
        size = top.cell_state_size or top.hidden_size
        top_input_size = input_size if len(cells.cells) == 1 else top.hidden_size
        self.feeds_summary = feeds_summary
        self.gate = nn.Linear(top_input_size + top.hidden_size, size)
        self.sentinel_key = nn.Linear(size, memory_size, bias=False)
        self.sentinel_value: nn.Module = nn.Identity()
        if size != memory_size:
            self.sentinel_value = nn.Linear(size, memory_size)

    @override
    def initial_state(self, cells: CellStates, memory: Memory, summary: Summary) -> WiringState:
        state = super().initial_state(cells, memory, summary)
        return state._replace(summary=summary) if self.feeds_summary else state

    @override
    def forward(self, embedded: Embedded, state: WiringState, memory: Memory) -> WiringOutput:
        inputs = [embedded] if state.summary is None else [embedded, state.summary]
        cell_inputs = torch.cat(inputs, dim=-1)
        cells = self.cells(cell_inputs, state.cells)
        previous, hidden = state.cells[-1][0], cells[-1][0]
        sentinel = self._compute_sentinel(cell_inputs, previous, cells)
        step_memory = self.attention.append_sentinel(
            memory, self.sentinel_value(sentinel), self.sentinel_key(sentinel)
        )
        attended = self.attention(hidden.unsqueeze(1), step_memory, state.attention_state)
        vectors = StepVectors(previous, hidden, embedded, attended.context.squeeze(1))
        next_state = state._replace(cells=cells, attention_state=attended.state)
        return self.step_output(attended, vectors, next_state)

    def _compute_sentinel(
        self, cell_inputs: Float[Tensor, "B X"], previous: Hidden, cells: CellStates
    ) -> Float[Tensor, "B C"]:
        top_inputs = cell_inputs if len(cells) == 1 else cells[-2][0]
        gate = self.gate(torch.cat([top_inputs, previous], dim=-1)).sigmoid()
        index = self.cells.cells[-1].cell_state_index
        return gate * (cells[-1][0] if index is None else cells[-1][index].tanh())


class AdaptiveWiringConfig(BaseConfig):
    """Step, then attend to the source and a sentinel of the cell (Lu et al. 2017, adaptive)."""

    type: Literal["adaptive"] = "adaptive"
    reads_summary: bool = True
    """Read the source in one vector with each token, as in the paper."""

    def build(self, decoder: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        attention = decoder.build_attention(memory_size)
        check_sentinel(attention, "attention")
        summary_size = memory_size if self.reads_summary else 0
        input_size = decoder.input_size(memory_size) + summary_size
        return AdaptiveWiring(
            SentinelAttention(attention),
            decoder.build_cells(input_size),
            decoder.build_pre_output(AdaptiveWiring.pre_output_parts, memory_size),
            input_size=input_size,
            memory_size=memory_size,
            feeds_summary=self.reads_summary,
        )


class DeepFusion(AttentionWiring):
    """Attend with token and last context; a gate adds cell states (Cheng et al. 2016, section 4).

    [g~_t; a~_t] = attend([y_{t-1}; g~_{t-1}]), from states g and cell states a, with keys g;
    r_t = sigmoid(W [g~_t; y_{t-1}] + b); c_t = r_t * a~_t + f_t * c~_t + i_t * c^_t; output: h_t

    The bottom one of `cells` is a `DeepFusionLSTMNCell`. The paper's shallow fusion is LSTMN cells
    in encoder and decoder with any other wiring.
    """

    pre_output_parts = PreOutputParts(("state",), deep=("state", "token_embedding"))

    def __init__(
        self, attention: Attention, cells: StackedCells, pre_output: PreOutput, gate: nn.Linear
    ) -> None:
        super().__init__(attention, cells, pre_output)
        self.gate = gate

    @override
    def build_memory(self, encoder_output: EncoderOutput) -> Memory:
        states, cell_states = encoder_output.states, encoder_output.cell_states
        assert cell_states is not None, "DeepFusionConfig.check_encoder was not called"
        keys = self.attention.score.prepare_keys(states)
        return Memory(torch.cat([states, cell_states], dim=-1), keys, encoder_output.mask)

    @override
    def forward(self, embedded: Embedded, state: WiringState, memory: Memory) -> WiringOutput:
        assert state.attention_state is not None
        last_context, _ = state.attention_state.last_context.chunk(2, dim=-1)
        query = torch.cat([embedded, last_context], dim=-1).unsqueeze(1)
        # The first half has the size of a key, as scores that use the last context expect.
        attention_state = state.attention_state._replace(last_context=last_context)
        attended = self.attention(query, memory, attention_state)
        context, cell_context = attended.context.squeeze(1).chunk(2, dim=-1)
        added = self.gate(torch.cat([context, embedded], dim=-1)).sigmoid() * cell_context
        cells = self.cells(torch.cat([embedded, added], dim=-1), state.cells)
        vectors = StepVectors(state.cells[-1][0], cells[-1][0], embedded, context)
        return self.step_output(attended, vectors, WiringState(cells, None, attended.state))


class DeepFusionConfig(BaseConfig):
    """Add the source's cell states to the target's, through a gate (Cheng et al. 2016)."""

    type: Literal["deep-fusion"] = "deep-fusion"

    def check_encoder(self, encoder: EncoderStateSizes) -> None:
        """Raise ConfigError for an encoder without cell states."""
        message = "wiring 'deep-fusion' needs cell states, but this encoder returns none"
        hint = "choose 'lstmn' or 'self-attentive-lstm'"
        check(encoder.has_cell_states, "encoder.cell.type", message, hint)

    def build(self, decoder: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        cell, embedding_size = decoder.cell, decoder.input_size(memory_size)
        size, query_size = decoder.hidden_size, embedding_size + memory_size
        if not isinstance(cell, LSTMNCellConfig):
            message = f"wiring 'deep-fusion' needs 'lstmn' cells, but this is {cell.type!r}"
            raise ConfigError("cell.type", message, "choose 'lstmn', or another wiring")
        message = f"wiring 'deep-fusion' needs the encoder's size {memory_size}, but this is {size}"
        check(size == memory_size, "hidden_size", message, f"set it to {memory_size}")
        message = "wiring 'deep-fusion' adds cell states as they are, but heads project them"
        hint = "remove the section, or choose another wiring"
        check(decoder.attention.multi_head is None, "attention.multi_head", message, hint)
        cells = decoder.build_cells(embedding_size)
        # Only the bottom layer, which reads the token, gets the added term.
        cells.cells[0] = cell.build(input_size=embedding_size, hidden_size=size, deep_fusion=True)
        return DeepFusion(
            decoder.attention.build(query_size=query_size, memory_size=memory_size),
            cells,
            decoder.build_pre_output(DeepFusion.pre_output_parts, memory_size),
            nn.Linear(query_size, size),
        )
