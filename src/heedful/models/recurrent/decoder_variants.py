"""Recurrent decoders whose steps wait for a predicted token, or for experts of whole sequences.

Invariant: as in the plain decoder, a known target decoded at once matches one decoded step by step.
"""

import torch
from typing_extensions import override

from heedful.layers.embeddings import TokenEmbedding
from heedful.models.base import DecoderOutput, EncoderOutput
from heedful.models.copying import CopyNetHead
from heedful.models.output_heads import CopyInputs
from heedful.models.recurrent.bridge import Bridge
from heedful.models.recurrent.decoder import (
    DeferredPrediction,
    RecurrentDecoder,
    RecurrentDecoderState,
)
from heedful.models.recurrent.wiring import Wiring, WiringOutput
from heedful.shapes import Embedded, StepTokens, TokenIds
from heedful.tokenization.vocabulary import PAD


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


class ExpertsDecoder(RecurrentDecoder):
    """Runs a known target layer by layer: experts process all of its tokens at once."""

    @override
    def forward(
        self, tokens: TokenIds, encoder_output: EncoderOutput, *, need_weights: bool = False
    ) -> DecoderOutput:
        state = self.initial_state(encoder_output)
        embeddings = self.embed(tokens, state.copy_source)
        # In eval mode tokens are independent, and one that a search returns may be PAD.
        mask = tokens != PAD if self.training else torch.ones_like(tokens, dtype=torch.bool)
        unrolled = self.wiring.unroll(embeddings, state.wiring, state.memory, mask)
        pre_output_input = self.wiring.pre_output.concat_parts(unrolled.vectors)
        features = self.wiring.compute_features(pre_output_input)
        copying = state.copy_source and CopyInputs(state.copy_source, unrolled.vectors.gate_inputs)
        log_probs = self.output_head(features, unrolled.weights, copying)
        attention = self._collect_attention([unrolled])
        return DecoderOutput(log_probs, *attention, unrolled.auxiliary_losses)
