"""Deep fusion: what if the source were taken into the memory of the cell itself?

Elsewhere a context is one more input, or stands beside the state that told of it. Here the memory
cells of the source are added, through a gate, to the memory cell of the target. A shallow fusion
needs nothing of this: it is LSTMN cells on both sides under any other wiring.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from heedful.attention import Attention, Memory, padding_mask
from heedful.config import BaseConfig
from heedful.errors import ConfigError
from heedful.layers.rnn import StackedCells
from heedful.layers.self_attentive_cells import LSTMNCellConfig
from heedful.models.base import EncoderOutput
from heedful.models.recurrent.pre_output import PreOutputLayer, PreOutputParts, StepVectors
from heedful.models.recurrent.wiring import (
    AttentionWiring,
    RecurrentDecoderConfigBase,
    Wiring,
    WiringOutput,
    WiringState,
    make_wiring_output,
)
from heedful.shapes import Float


class DeepFusion(AttentionWiring):
    """Token and last context ask; a gate lets memory into the cell  (Cheng et al. 2016, section 4).

    [g~_t; a~_t] = attend([y_{t-1}; g~_{t-1}]), from states g and memory cells a, by the keys g;
    r_t = sigmoid(W [g~_t; y_{t-1}] + b); c_t = r_t * a~_t + f_t * c~_t + i_t * c^_t; told from h_t

    `cells` has a `DeepFusionLSTMNCell` at the bottom.
    """

    pre_output_parts = PreOutputParts(("state",), deep=("state", "token_embedding"))

    def __init__(
        self,
        attention: Attention,
        cells: StackedCells,
        pre_output: PreOutputLayer,
        *,
        gate: nn.Linear,
    ) -> None:
        super().__init__(attention, cells, pre_output)
        self.gate = gate

    def build_memory(self, encoder_output: EncoderOutput) -> Memory:
        """Make a source ready to be looked at, its memory cells beside its states."""
        states, memories = encoder_output.states, encoder_output.cell_states
        if memories is None:
            raise ConfigError(
                "encoder.cell.type",
                "under 'deep-fusion' the decoder takes memory cells from the encoder, but this "
                "one writes none down",
                "choose 'lstmn' or 'self-attentive-lstm'",
            )
        keys = self.attention.score.prepare_keys(states)
        mask = padding_mask(encoder_output.lengths, states.size(1))
        return Memory(torch.cat([states, memories], dim=-1), keys, mask)

    def forward(
        self, embedded: Float[Tensor, "B E"], state: WiringState, memory: Memory
    ) -> WiringOutput:
        """Ask, let memory through the gate, and step."""
        assert state.attention_state is not None
        source_context, _ = state.attention_state.last_context.chunk(2, dim=-1)
        query = torch.cat([embedded, source_context], dim=-1)
        past = state.attention_state._replace(
            last_context=source_context
        )  # as wide as a key, for a score that looks back
        attended = self.attention(query.unsqueeze(1), memory, past)
        source_context, memories = attended.context.squeeze(1).chunk(2, dim=-1)
        added = self.gate(torch.cat([source_context, embedded], dim=-1)).sigmoid() * memories
        cells = self.cells(torch.cat([embedded, added], dim=-1), state.cells)
        pre_output_input = self.pre_output.concat_parts(
            StepVectors(state.cells[-1][0], cells[-1][0], embedded)
        )
        return make_wiring_output(pre_output_input, attended, cells)


class DeepFusionConfig(BaseConfig):
    """Add the source's memory cells to the target's, through a gate (Cheng et al. 2016)."""

    type: Literal["deep-fusion"] = "deep-fusion"

    def build(self, decoder_config: RecurrentDecoderConfigBase, *, memory_size: int) -> Wiring:
        """Put a decoder's parts together."""
        cell, width = decoder_config.cell, decoder_config.embedding_size
        if not isinstance(cell, LSTMNCellConfig):
            raise ConfigError(
                "cell.type",
                f"under 'deep-fusion' memory is added within the cell, but {cell.type!r} lets "
                "none in",
                "choose 'lstmn', or another wiring",
            )
        _check_memory_sizes(decoder_config, memory_size)
        cells = decoder_config.build_cells(width)
        # Only the bottom layer, which reads the token, is told what to add.
        cells.cells[0] = cell.build_deep_fusion(
            input_size=width, hidden_size=decoder_config.hidden_size
        )
        return DeepFusion(
            decoder_config.attention.build(query_size=width + memory_size, memory_size=memory_size),
            cells,
            decoder_config.build_pre_output(DeepFusion.pre_output_parts, memory_size),
            gate=nn.Linear(memory_size + width, decoder_config.hidden_size),
        )


def _check_memory_sizes(decoder_config: RecurrentDecoderConfigBase, memory_size: int) -> None:
    """Refuse what would keep memory cells of the source from being added to the target's."""
    if decoder_config.hidden_size != memory_size:
        raise ConfigError(
            "hidden_size",
            f"under 'deep-fusion' memory cells of both sides are added, but the encoder's are "
            f"{memory_size} wide and the decoder's {decoder_config.hidden_size}",
            f"set it to {memory_size}",
        )
    if decoder_config.attention.multi_head is not None:
        raise ConfigError(
            "attention.multi_head",
            "under 'deep-fusion' states and memory cells are taken as they are, but heads make "
            "others of them",
            "leave the section out, or choose another wiring",
        )
