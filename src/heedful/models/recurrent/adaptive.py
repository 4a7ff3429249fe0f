"""Adaptive attention: a recurrent decoder that may attend to its own memory instead of the source.

Invariant: weights of the source plus the gate of the sentinel sum to one at each step.
"""

from typing import Literal

import torch
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.memory import Memory
from heedful.attention.sentinel import SentinelAttention, check_sentinel
from heedful.config import BaseConfig
from heedful.layers.rnn import StackedCells
from heedful.models.recurrent.decoder_parts import RecurrentDecoderConfigBase
from heedful.models.recurrent.pre_output import PreOutput, PreOutputParts, StepVectors
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
