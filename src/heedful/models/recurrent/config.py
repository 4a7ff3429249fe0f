"""The config of a recurrent decoder, and the settings that do not work together."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import override

from heedful.attention.config import AttentionConfig
from heedful.errors import check
from heedful.layers.embeddings import TokenEmbedding
from heedful.models.base import EncoderStateSizes
from heedful.models.copying import (
    CopyNetHead,
    CopyNetHeadConfig,
    OutputHeadConfig,
    PointerGeneratorHeadConfig,
)
from heedful.models.output_heads import (
    HeadSizes,
    OutputHead,
    SoftmaxHeadConfig,
    check_copying,
    check_parallel,
)
from heedful.models.recurrent.adaptive import AdaptiveWiring, AdaptiveWiringConfig, DeepFusionConfig
from heedful.models.recurrent.bridge import Bridge, BridgeConfig, BridgeContext, TanhBridgeConfig
from heedful.models.recurrent.decoder import (
    CopyNetDecoder,
    MarginalDecoder,
    RecurrentDecoder,
)
from heedful.models.recurrent.decoder_parts import RecurrentDecoderConfigBase
from heedful.models.recurrent.wiring import (
    AttendThenStepConfig,
    AttentionWiring,
    BottomLayerAttentionConfig,
    ConstantContextWiringConfig,
    FinalStateWiringConfig,
    StepThenAttendConfig,
    Wiring,
)

WiringConfig = Annotated[
    AttendThenStepConfig
    | StepThenAttendConfig
    | BottomLayerAttentionConfig
    | DeepFusionConfig
    | AdaptiveWiringConfig
    | ConstantContextWiringConfig
    | FinalStateWiringConfig,
    Field(discriminator="type"),
]


class RecurrentDecoderConfig(RecurrentDecoderConfigBase):
    """Decode with recurrent cells, and attention if the wiring uses it."""

    type: Literal["recurrent"] = "recurrent"
    bridge: BridgeConfig = TanhBridgeConfig()
    """How the encoder's output becomes the first decoder state."""
    wiring: WiringConfig = AttendThenStepConfig()
    """When the decoder attends, if at all, and where the context goes."""
    output_head: OutputHeadConfig = SoftmaxHeadConfig()
    """How the features become log-probabilities of tokens."""

    @override
    def input_size(self, memory_size: int) -> int:
        head = self.output_head
        is_selective = isinstance(head, CopyNetHeadConfig) and head.selective_read
        return self.embedding_size + (memory_size if is_selective else 0)

    def build(
        self, *, vocab_size: int, memory_size: int, encoder_sizes: EncoderStateSizes | None = None
    ) -> RecurrentDecoder:
        if isinstance(self.wiring, DeepFusionConfig) and encoder_sizes is not None:
            self.wiring.check_encoder(encoder_sizes)
        wiring = self.wiring.build(self, memory_size=memory_size)
        head = self.output_head
        gate_size = memory_size + self.hidden_size + self.input_size(memory_size)
        if isinstance(head, PointerGeneratorHeadConfig) and head.gate_reads_cell_state:
            top_cell = wiring.cells.cells[-1]
            message = f"cells of type {self.cell.type!r} have no cell state for the gate to read"
            setting, hint = "output_head.gate_reads_cell_state", "set it to false, or use 'lstm'"
            check(top_cell.cell_state_index is not None, f"decoder.{setting}", message, hint)
            gate_size += top_cell.cell_state_size
        sizes = HeadSizes(wiring.pre_output.size, vocab_size, gate_size, memory_size)
        context = BridgeContext(memory_size, encoder_sizes or EncoderStateSizes(), self, wiring)
        decoder = _assemble(
            TokenEmbedding(vocab_size, self.embedding_size, dropout=self.dropout),
            self.bridge.build(context),
            wiring,
            head.build(sizes),
        )
        message = f"wiring {self.wiring.type!r} uses the output of experts in the next step"
        hint = "choose 'bottom-layer-attention', or 'step-then-attend' with `input_feeding: false`"
        can_have_experts = self.experts is None or wiring.can_unroll
        check(can_have_experts, "experts", message, hint)
        if self.experts:
            check_parallel(decoder.output_head)
        if decoder.needs_cell_states and encoder_sizes is not None:
            _check_cell_states(self.bridge.type, wiring, encoder_sizes.final_cell_state_sizes)
        if isinstance(wiring, AttentionWiring):
            self._check_attention(wiring, decoder.output_head)
            check_copying(decoder.output_head, wiring.attention, self.output_head.type, "attention")
        else:
            self._check_no_attention()
        return decoder

    def _check_no_attention(self) -> None:
        wiring, head = self.wiring.type, self.output_head.type
        has_source = wiring != "final-state" or self.bridge.type != "zeros"
        message = f"wiring {wiring!r} passes the source in the first state alone, which is zero"
        hint = "choose another bridge, such as 'tanh', or another wiring"
        check(has_source, "bridge.type", message, hint)
        message = f"wiring {wiring!r} has no attention, so these settings would have no effect"
        hint = "remove the section, or choose another wiring, such as 'attend-then-step'"
        check(self.attention == AttentionConfig(), "attention", message, hint)
        message = f"output head {head!r} needs attention, which wiring {wiring!r} does not have"
        hint = "choose 'softmax', or another wiring, such as 'step-then-attend'"
        check(head == "softmax", "output_head.type", message, hint)

    def _check_attention(self, wiring: AttentionWiring, output_head: OutputHead) -> None:
        attention, is_per_position = wiring.attention, wiring.attention.readout.is_per_position
        readout, alignment = self.attention.readout.type, self.attention.alignment.type
        head, pre_output = self.output_head.type, self.pre_output.type
        step_first = self.wiring if isinstance(self.wiring, StepThenAttendConfig) else None
        is_adaptive = isinstance(wiring, AdaptiveWiring)
        message = f"{pre_output!r} leaves out the context, which this wiring uses nowhere else"
        hint = "choose 'tanh', 'maxout' or 'concat', or another wiring"
        uses_context = pre_output != "state-only" or not (step_first or is_adaptive)
        check(uses_context, "pre_output.type", message, hint)
        message = f"output head {head!r} needs weights that sum to one, without a sentinel"
        hint = "choose 'softmax', or the wiring 'step-then-attend'"
        check(head == "softmax" or not is_adaptive, "output_head.type", message, hint)
        message = f"output head {head!r} needs a context per source position, not {readout!r}"
        hint = "choose the readout 'per-position', or the output head 'softmax'"
        can_read = is_per_position or not output_head.is_per_position
        check(can_read, "attention.readout.type", message, hint)
        if not is_per_position:
            return
        message = f"{head!r} needs a single context, but readout {readout!r} has one per position"
        hint = "choose the output head 'marginal', or the readout 'weighted-sum'"
        check(output_head.is_per_position, "output_head.type", message, hint)
        message = f"its cell reads a single context, but readout {readout!r} has one per position"
        hint = "choose 'step-then-attend' with `input_feeding: false`"
        check(step_first, "wiring.type", message, hint)
        message = f"readout {readout!r} gives features per position, which cannot be fed back"
        is_fed = step_first and step_first.input_feeding
        check(not is_fed, "wiring.input_feeding", message, "set it to false")
        message = f"{head!r} needs weights that sum to one, but those of {alignment!r} may not"
        hint = "choose 'monotonic-marginal' or 'softmax'"
        is_normalized = not attention.alignment_function.is_unnormalized
        check(is_normalized, "attention.alignment.type", message, hint)


def _assemble(
    embedding: TokenEmbedding, bridge: Bridge, wiring: Wiring, head: OutputHead
) -> RecurrentDecoder:
    if wiring.cells.experts:  # which process all tokens of a target at once
        return RecurrentDecoder(embedding, bridge, wiring, head)
    if isinstance(head, CopyNetHead) and head.has_selective_read:
        return CopyNetDecoder(embedding, bridge, wiring, head)
    if head.has_alignment_posterior and wiring.uses_history:
        return MarginalDecoder(embedding, bridge, wiring, head)
    return RecurrentDecoder(embedding, bridge, wiring, head)


def _check_cell_states(bridge_type: str, wiring: Wiring, encoder_sizes: Sequence[int]) -> None:
    sizes = [cell.cell_state_size for cell in wiring.cells.cells]
    actual, needed = (", ".join(map(str, parts)) for parts in (encoder_sizes, sizes))
    message = f"{bridge_type!r} needs encoder cell states of sizes {needed}, but they are {actual}"
    hint = "give both the same cell.cell_state_size, or choose 'tanh'"
    check(not any(encoder_sizes) or actual == needed, "bridge.type", message, hint)
