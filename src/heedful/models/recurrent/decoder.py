"""The recurrent decoder: a bridge, a wiring around recurrent cells, and an output head.

Invariant: a known target decoded at once matches one decoded step by step.
"""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor
from typing_extensions import override

from heedful.attention.alignments import AlignmentOutput, concat_alignments
from heedful.attention.attention import Attention
from heedful.attention.config import AttentionConfig
from heedful.attention.memory import Memory
from heedful.errors import check
from heedful.layers.embeddings import TokenEmbedding
from heedful.models.base import Decoder, DecoderOutput, EncoderOutput, EncoderStateSizes
from heedful.models.copying import (
    CopyNetHead,
    CopyNetHeadConfig,
    OutputHeadConfig,
    PointerGeneratorHeadConfig,
)
from heedful.models.output_heads import (
    CopyInputs,
    CopySource,
    HeadSizes,
    OutputHead,
    SoftmaxHeadConfig,
    check_copying,
    check_parallel,
)
from heedful.models.recurrent.adaptive import AdaptiveWiring, AdaptiveWiringConfig
from heedful.models.recurrent.bridge import Bridge, BridgeConfig, TanhBridgeConfig
from heedful.models.recurrent.deep_fusion import DeepFusionConfig
from heedful.models.recurrent.wiring import (
    AttendThenStepConfig,
    AttentionWiring,
    BottomLayerAttentionConfig,
    RecurrentDecoderConfigBase,
    StepThenAttendConfig,
    UnrolledWiringOutput,
    Wiring,
    WiringOutput,
    WiringState,
)
from heedful.models.recurrent.without_attention import (
    ConstantContextWiringConfig,
    FinalStateWiringConfig,
)
from heedful.models.scheduled_sampling import InputSampler
from heedful.search import StepOutput
from heedful.shapes import Embedded, Float, LogProbs, SourceWeights, StepTokens, TokenIds
from heedful.tokenization.vocabulary import PAD


class DeferredPrediction(NamedTuple):
    """A token that is not chosen yet: the features it is predicted from, and the weights."""

    features: Float[Tensor, "B 1 D"] | Float[Tensor, "B 1 S D"]
    weights: Float[Tensor, "B 1 S"]


class RecurrentDecoderState(NamedTuple):
    """State between two steps, and the source."""

    wiring: WiringState
    memory: Memory
    pending: DeferredPrediction | None = None  # if the next step uses its posterior over positions
    copy_source: CopySource | None = None  # if the output head copies


class RecurrentDecoder(Decoder):
    """Recurrent cells with or without attention."""

    def __init__(
        self, embedding: TokenEmbedding, bridge: Bridge, wiring: Wiring, output_head: OutputHead
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.bridge = bridge
        self.wiring = wiring
        self.output_head = output_head
        uses_cell_states = bridge.kind in ("copy", "all-layers")
        self.needs_cell_states = uses_cell_states and wiring.cells.has_cell_states

    @override
    def initial_state(self, encoder_output: EncoderOutput) -> RecurrentDecoderState:
        # Pool once: bridge and wiring may both use the summary.
        encoder_output = encoder_output._replace(pooled=encoder_output.summary)
        memory = self.wiring.build_memory(encoder_output)
        has_cell_states = self.wiring.cells.has_cell_states
        cell_states = self.bridge.cell_states(encoder_output) if has_cell_states else ()
        cells = self.wiring.cells.initial_state(self.bridge(encoder_output), cell_states)
        state = self.wiring.initial_state(cells, memory, encoder_output.summary)
        first_input = self.bridge.first_input(encoder_output)
        if first_input is not None:
            state = self.wiring(first_input, state, memory).state
        copy_source = self.build_copy_source(encoder_output)
        return RecurrentDecoderState(state, memory, copy_source=copy_source)

    @override
    def step(
        self, tokens: StepTokens, state: RecurrentDecoderState
    ) -> StepOutput[RecurrentDecoderState]:
        output, next_state = self._step(tokens, self.embed(tokens, state.copy_source), state)
        log_probs = self._predict(output, next_state)
        return StepOutput(log_probs.squeeze(1), next_state, output.weights.squeeze(1))

    @override
    def forward(
        self, tokens: TokenIds, encoder_output: EncoderOutput, *, need_weights: bool = False
    ) -> DecoderOutput:
        """Run one step per token, and the output head once for all of them.

        With experts, which process all tokens at once, run layer by layer instead.
        """
        state, outputs = self.initial_state(encoder_output), []
        source, pending_features = state.copy_source, []
        embeddings = self.embed(tokens, source)
        if self.wiring.cells.experts:
            # In eval mode tokens are independent, and one that a search returns may be PAD.
            mask = tokens != PAD if self.training else torch.ones_like(tokens, dtype=torch.bool)
            unrolled = self.wiring.unroll(embeddings, state.wiring, state.memory, mask)
            pre_output_input = self.wiring.pre_output.concat_parts(unrolled.vectors)
            features = self.wiring.compute_features(pre_output_input)
            copying = source and CopyInputs(source, unrolled.vectors.gate_inputs)
            log_probs = self.output_head(features, unrolled.weights, copying)
            attention = self._collect_attention([unrolled])
            return DecoderOutput(log_probs, *attention, unrolled.auxiliary_losses)
        steps = zip(tokens.unbind(dim=1), embeddings.unbind(dim=1), strict=True)
        for step_tokens, embedded in steps:
            output, state = self._step(step_tokens, embedded, state)
            outputs.append(output)
            pending_features += [] if state.pending is None else [state.pending.features]
        weights, attention_records = self._collect_attention(outputs)
        if pending_features:  # computed again, they would differ by dropout
            features = torch.cat(pending_features, dim=1)
        else:
            pre_output_input = torch.stack([output.pre_output_input for output in outputs], dim=1)
            features = self.wiring.compute_features(pre_output_input)
        log_probs = self.output_head(features, weights, self._copy_inputs(outputs, source))
        return DecoderOutput(log_probs, weights, attention_records)

    @override
    def forward_scheduled_sampling(
        self, tokens: TokenIds, encoder_output: EncoderOutput, sampler: InputSampler
    ) -> DecoderOutput:
        self.check_no_expert_losses()
        state = self.initial_state(encoder_output)
        outputs: list[WiringOutput] = []
        log_probs: list[Tensor] = []
        for gold_tokens in tokens.unbind(dim=1):
            input_tokens = sampler.choose(gold_tokens, log_probs[-1] if log_probs else None)
            embedded = self.embed(input_tokens, state.copy_source)
            output, state = self._step(input_tokens, embedded, state)
            outputs.append(output)
            log_probs.append(self._predict(output, state).squeeze(1))
        return DecoderOutput(torch.stack(log_probs, dim=1), *self._collect_attention(outputs))

    def _collect_attention(
        self, outputs: Sequence[WiringOutput | UnrolledWiringOutput]
    ) -> tuple[SourceWeights, Sequence[tuple[Attention, AlignmentOutput]]]:
        weights = torch.cat([output.weights for output in outputs], dim=1)
        if not isinstance(self.wiring, AttentionWiring):
            return weights, ()
        alignments = [output.alignment for output in outputs if output.alignment is not None]
        return weights, ((self.wiring.attention, concat_alignments(alignments)),)

    def _predict(self, output: WiringOutput, next_state: RecurrentDecoderState) -> LogProbs:
        """Return the log-probabilities (B, 1, N) after a step."""
        if next_state.pending is None:
            features = self.wiring.compute_features(output.pre_output_input.unsqueeze(1))
        else:
            features = next_state.pending.features
        copying = self._copy_inputs([output], next_state.copy_source)
        return self.output_head(features, output.weights, copying)

    def _step(
        self, tokens: StepTokens, embedded: Embedded, state: RecurrentDecoderState
    ) -> tuple[WiringOutput, RecurrentDecoderState]:
        """Step the wiring; first use the posterior over source positions given the token.

        It replaces the last weights, or selects the states that CopyNet reads.
        """
        wiring_state, pending, head = state.wiring, state.pending, self.output_head
        if isinstance(head, CopyNetHead) and head.has_selective_read:
            assert state.copy_source is not None
            features = None if pending is None else pending.features
            read = head.selective_read(features, tokens, state.copy_source)
            embedded = torch.cat([embedded, read], dim=-1)
        elif pending is not None:
            assert wiring_state.attention_state is not None
            posterior = head.alignment_posterior(
                pending.features, pending.weights, tokens.unsqueeze(1)
            )
            attention_state = wiring_state.attention_state._replace(
                last_weights=posterior.squeeze(1)
            )
            wiring_state = wiring_state._replace(attention_state=attention_state)
        output = self.wiring(embedded, wiring_state, state.memory)
        pending = None
        if head.has_selective_read or (head.has_alignment_posterior and self.wiring.uses_history):
            features = self.wiring.compute_features(output.pre_output_input.unsqueeze(1))
            pending = DeferredPrediction(features, output.weights)
        return output, state._replace(wiring=output.state, pending=pending)

    def _copy_inputs(
        self, outputs: Sequence[WiringOutput], source: CopySource | None
    ) -> CopyInputs | None:
        if source is None:
            return None
        parts = [torch.stack([output.vectors.gate_inputs for output in outputs], dim=1)]
        index = self.wiring.cells.cells[-1].cell_state_index
        if self.output_head.gate_reads_cell_state and index is not None:
            top_states = [output.state.cells[-1] for output in outputs]
            parts.append(torch.stack([state[index] for state in top_states], dim=1))
        return CopyInputs(source, torch.cat(parts, dim=-1))


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
        decoder = RecurrentDecoder(
            TokenEmbedding(vocab_size, self.embedding_size, dropout=self.dropout),
            self.bridge.build(memory_size, encoder_sizes or EncoderStateSizes(), self, wiring),
            wiring,
            head.build(HeadSizes(wiring.pre_output.size, vocab_size, gate_size, memory_size)),
        )
        message = f"wiring {self.wiring.type!r} uses the output of experts in the next step"
        hint = "choose 'bottom-layer-attention', or 'step-then-attend' with `input_feeding: false`"
        can_have_experts = self.experts is None or wiring.can_unroll
        check(can_have_experts, "experts", message, hint)
        if self.experts:
            check_parallel(decoder.output_head)
        if decoder.needs_cell_states and encoder_sizes is not None:
            sizes = encoder_sizes.final_cell_state_sizes
            _check_cell_states(self.bridge.type, wiring, sizes)
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


def _check_cell_states(bridge_type: str, wiring: Wiring, encoder_sizes: Sequence[int]) -> None:
    sizes = [cell.cell_state_size for cell in wiring.cells.cells]
    actual, needed = (", ".join(map(str, parts)) for parts in (encoder_sizes, sizes))
    message = f"{bridge_type!r} needs encoder cell states of sizes {needed}, but they are {actual}"
    hint = "give both the same cell.cell_state_size, or choose 'tanh'"
    check(not any(encoder_sizes) or actual == needed, "bridge.type", message, hint)
