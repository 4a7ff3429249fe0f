"""The recurrent decoder: a bridge, a wiring around recurrent cells, and an output head.

Below it are decoders whose steps wait for a predicted token, or for experts of whole sequences.

Invariant: a known target decoded at once matches one decoded step by step.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from heedful.attention.alignments import AlignmentOutput, concat_alignments
from heedful.attention.attention import Attention
from heedful.attention.memory import Memory
from heedful.layers.embeddings import TokenEmbedding
from heedful.models.base import Decoder, DecoderOutput, EncoderOutput
from heedful.models.copying import CopyNetHead
from heedful.models.output_heads import CopyInputs, CopySource, OutputHead
from heedful.models.recurrent.bridge import Bridge
from heedful.models.recurrent.wiring import (
    AttentionWiring,
    UnrolledWiringOutput,
    Wiring,
    WiringOutput,
    WiringState,
)
from heedful.models.scheduled_sampling import InputSampler
from heedful.search import StepOutput
from heedful.shapes import (
    Embedded,
    Float,
    LayerInputs,
    LogProbs,
    SourceWeights,
    StepTokens,
    TokenIds,
)
from heedful.tokenization.vocabulary import PAD


class DeferredPrediction(NamedTuple):
    """A token that is not chosen yet: the features it is predicted from, and the weights."""

    features: Float[Tensor, "B 1 D"] | Float[Tensor, "B 1 S D"]
    weights: Float[Tensor, "B 1 S"]


class RecurrentDecoderState(NamedTuple):
    """State between two steps, and the source."""

    wiring: WiringState
    memory: Memory
    pending: DeferredPrediction | None = None  # see `DeferringDecoder`
    copy_source: CopySource | None = None  # if the output head copies


class RecurrentDecoder(Decoder):
    """Recurrent cells with or without attention.

    A step embeds a token, attends to the source and runs the cells, in the order of the wiring; the
    output head predicts the next token.
    """

    def __init__(
        self, embedding: TokenEmbedding, bridge: Bridge, wiring: Wiring, output_head: OutputHead
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.bridge = bridge
        self.wiring = wiring
        self.output_head = output_head
        self.needs_cell_states = bridge.uses_cell_states and wiring.cells.has_cell_states

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
        embedded = self.embed(tokens, state.copy_source)
        output, next_state = self._step(tokens, embedded, state)
        log_probs = self._predict([output], output.weights, state.copy_source)
        return StepOutput(log_probs.squeeze(1), next_state, output.weights.squeeze(1))

    @override
    def forward(
        self, tokens: TokenIds, encoder_output: EncoderOutput, *, need_weights: bool = False
    ) -> DecoderOutput:
        """Run layer after layer over all tokens where steps allow it, else one step per token."""
        state = self.initial_state(encoder_output)
        embeddings = self.embed(tokens, state.copy_source)
        if self._can_unroll:
            return self._unroll(tokens, embeddings, state)
        outputs: list[WiringOutput] = []
        steps = zip(tokens.unbind(dim=1), embeddings.unbind(dim=1), strict=True)
        for step_tokens, embedded in steps:
            output, state = self._step(step_tokens, embedded, state)
            outputs.append(output)
        weights, attention_records = self._collect_attention(outputs)
        log_probs = self._predict(outputs, weights, state.copy_source)
        return DecoderOutput(log_probs, weights, attention_records)

    @property
    def _can_unroll(self) -> bool:
        """Whether a step needs nothing of the steps before it but states of cells and attention."""
        has_plain_steps = type(self)._step is RecurrentDecoder._step
        return self.wiring.can_unroll and has_plain_steps and not self._reads_cell_state

    @property
    def _reads_cell_state(self) -> bool:
        return self.output_head.copies_source and self.output_head.gate_reads_cell_state

    def _unroll(
        self, tokens: TokenIds, embeddings: LayerInputs, state: RecurrentDecoderState
    ) -> DecoderOutput:
        # In eval mode tokens are independent, and one that a search returns may be PAD.
        mask = tokens != PAD if self.training else torch.ones_like(tokens, dtype=torch.bool)
        unrolled = self.wiring.unroll(embeddings, state.wiring, state.memory, mask)
        pre_output_input = self.wiring.pre_output.concat_parts(unrolled.vectors)
        features = self.wiring.compute_features(pre_output_input)
        copying = state.copy_source and CopyInputs(state.copy_source, unrolled.vectors.gate_inputs)
        log_probs = self.output_head(features, unrolled.weights, copying)
        attention = self._collect_attention([unrolled])
        return DecoderOutput(log_probs, *attention, unrolled.auxiliary_losses)

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
            step_log_probs = self._predict([output], output.weights, state.copy_source)
            log_probs.append(step_log_probs.squeeze(1))
        return DecoderOutput(torch.stack(log_probs, dim=1), *self._collect_attention(outputs))

    def _step(
        self, tokens: StepTokens, embedded: Embedded, state: RecurrentDecoderState
    ) -> tuple[WiringOutput, RecurrentDecoderState]:
        output: WiringOutput = self.wiring(embedded, state.wiring, state.memory)
        return output, state._replace(wiring=output.state)

    def _predict(
        self, outputs: Sequence[WiringOutput], weights: SourceWeights, source: CopySource | None
    ) -> LogProbs:
        """Return the log-probabilities (B, T, N) after these steps."""
        pre_output_input = torch.stack([output.pre_output_input for output in outputs], dim=1)
        features = self.wiring.compute_features(pre_output_input)
        copying = None
        if source is not None:
            reads_cell_state = self.output_head.gate_reads_cell_state
            index = self.wiring.cells.cells[-1].cell_state_index if reads_cell_state else None
            copying = CopyInputs(source, _gate_inputs(outputs, index))
        return self.output_head(features, weights, copying)

    def _collect_attention(
        self, outputs: Sequence[WiringOutput | UnrolledWiringOutput]
    ) -> tuple[SourceWeights, Sequence[tuple[Attention, AlignmentOutput]]]:
        weights = torch.cat([output.weights for output in outputs], dim=1)
        if not isinstance(self.wiring, AttentionWiring):
            return weights, ()
        alignments = [output.alignment for output in outputs if output.alignment is not None]
        return weights, ((self.wiring.attention, concat_alignments(alignments)),)


def _gate_inputs(
    outputs: Sequence[WiringOutput], cell_state_index: int | None
) -> Float[Tensor, "B T G"]:
    """Stack the gate inputs of each step, with the cell state of the top layer if it is indexed."""
    parts = [torch.stack([output.vectors.gate_inputs for output in outputs], dim=1)]
    if cell_state_index is not None:
        top_states = [output.state.cells[-1] for output in outputs]
        parts.append(torch.stack([state[cell_state_index] for state in top_states], dim=1))
    return torch.cat(parts, dim=-1)


class DeferringDecoder(RecurrentDecoder):
    """A decoder that keeps the features of a step until its token is chosen."""

    @override
    def _step(
        self, tokens: StepTokens, embedded: Embedded, state: RecurrentDecoderState
    ) -> tuple[WiringOutput, RecurrentDecoderState]:
        output, state = super()._step(tokens, embedded, state)
        features = output.pre_output_input.unsqueeze(1)
        return output, state._replace(pending=DeferredPrediction(features, output.weights))


class MarginalDecoder(DeferringDecoder):
    """Replaces the last weights by the posterior over positions, given the token.

    For an output head that mixes predictions of positions (Wu et al. 2018) and attention that uses
    the last weights.
    """

    @override
    def _step(
        self, tokens: StepTokens, embedded: Embedded, state: RecurrentDecoderState
    ) -> tuple[WiringOutput, RecurrentDecoderState]:
        if state.pending is not None:
            posterior = self.output_head.alignment_posterior(*state.pending, tokens.unsqueeze(1))
            assert state.wiring.attention_state is not None
            attention_state = state.wiring.attention_state._replace(
                last_weights=posterior.squeeze(1)
            )
            wiring_state = state.wiring._replace(attention_state=attention_state)
            state = state._replace(wiring=wiring_state)
        return super()._step(tokens, embedded, state)


class CopyNetDecoder(DeferringDecoder):
    """Reads source states of the last token with its embedding (Gu et al. 2016, section 3.3)."""

    output_head: CopyNetHead

    def __init__(
        self, embedding: TokenEmbedding, bridge: Bridge, wiring: Wiring, output_head: CopyNetHead
    ) -> None:
        super().__init__(embedding, bridge, wiring, output_head)
        wiring.computes_features_in_step = True

    @override
    def _step(
        self, tokens: StepTokens, embedded: Embedded, state: RecurrentDecoderState
    ) -> tuple[WiringOutput, RecurrentDecoderState]:
        assert state.copy_source is not None
        features = None if state.pending is None else state.pending.features
        read = self.output_head.selective_read(features, tokens, state.copy_source)
        return super()._step(tokens, torch.cat([embedded, read], dim=-1), state)
