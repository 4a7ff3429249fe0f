"""Transformer decoders: each place looks at itself, back, and at the source."""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from heedful.acceleration.beam_cache import BeamSharedState
from heedful.acceleration.transformer import PackedLayers
from heedful.attention import Memory
from heedful.attention.attention import Attention
from heedful.attention.config import AttentionConfig
from heedful.attention.masks import padding_mask
from heedful.errors import ConfigError
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.self_attention import SelfAttentionCache
from heedful.layers.transformer import (
    EmbeddedTransformerConfigBase,
    TransformerLayerState,
    TransformerStack,
    TransformerStackOutput,
    TransformerStackState,
)
from heedful.models.base import (
    AttentionRecord,
    Decoder,
    DecoderOutput,
    Encoder,
    EncoderOutput,
    EncoderStateSizes,
)
from heedful.models.output_heads import OutputHead, OutputHeadConfig, SoftmaxHeadConfig
from heedful.search.protocol import StepOutput
from heedful.shapes import Int


class TransformerDecoderState(NamedTuple):
    """All that is needed to go on writing: what was written, and what can be looked at."""

    stack_state: TransformerStackState
    memories: tuple[Memory, ...]  # one for every layer


class TransformerDecoder(Decoder):
    """A stack of Transformer layers that look at a source; the weights are the top layer's."""

    def __init__(
        self, embedding: TokenEmbedding, stack: TransformerStack, output_head: OutputHead
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.output_head = output_head

    def initial_state(
        self, encoder_output: EncoderOutput
    ) -> TransformerDecoderState | BeamSharedState:
        """Make ready to write about a source, which hypotheses have in common where they can."""
        state = self._initial_state(encoder_output)
        if self.stack.packed_layers(encoder_output.states) is None or self.output_head.needs_memory:
            return state
        return BeamSharedState.from_memories(state.memories, state.stack_state.start_positions)

    def step(
        self, tokens: Int[Tensor, "B"], state: TransformerDecoderState | BeamSharedState
    ) -> StepOutput[TransformerDecoderState | BeamSharedState]:
        """Read one token; say how likely each next one is."""
        if isinstance(state, BeamSharedState):
            if (layers := self.stack.packed_layers(tokens)) is not None:
                return self._step_shared(tokens, state.regroup(), layers)
            state = self._per_row_state(state)
        read = self._forward(tokens.unsqueeze(1), state, need_weights=True)
        assert read.weights is not None, "weights were asked for"
        log_probs = self.output_head(read.outputs, read.weights, state.memories[-1])
        after = state._replace(stack_state=read.state)
        return StepOutput(log_probs.squeeze(1), after, read.weights.squeeze(1))

    def _step_shared(
        self, tokens: Int[Tensor, "B"], state: BeamSharedState, layers: PackedLayers
    ) -> StepOutput[TransformerDecoderState | BeamSharedState]:
        sources, kv_cache = state.caches
        visible = state.next_visibility()
        read = layers.step(
            self.embedding(tokens.unsqueeze(1), state.start_positions).squeeze(1),
            kv_cache or [None] * len(sources),
            sources,
            visible,
            need_weights=True,
        )
        assert read.weights is not None, "weights were asked for"
        log_probs = self.output_head(
            self.stack.apply_final_norm(read.outputs), read.weights, sources[-1]
        )
        after = state.append(tuple(read.kv_caches), visible)
        return StepOutput(log_probs.squeeze(1), after, read.weights.squeeze(1))

    def _per_row_state(self, state: BeamSharedState) -> TransformerDecoderState:
        """The same, for layers that know nothing of families."""
        sources, kv_cache = state.per_row()
        layers = [
            TransformerLayerState(SelfAttentionCache(each))
            for each in kv_cache or [None] * len(sources)
        ]
        return TransformerDecoderState(
            TransformerStackState(tuple(layers), state.start_positions), sources
        )

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        encoder_output: EncoderOutput,
        *,
        need_weights: bool = False,
    ) -> DecoderOutput:
        """Read a known target, all places at once."""
        state = self._initial_state(encoder_output)
        wanted = need_weights or self.output_head.needs_weights
        read = self._forward(tokens, state, need_weights=wanted)
        log_probs = self.output_head(read.outputs, read.weights, state.memories[-1])
        attention_records = [AttentionRecord(*look) for look in read.attention_records]
        return DecoderOutput(log_probs, read.weights, attention_records, read.auxiliary_losses)

    def _initial_state(self, encoder_output: EncoderOutput) -> TransformerDecoderState:
        mask = padding_mask(encoder_output.lengths, encoder_output.states.size(1))
        sources = self.stack.build_memory(encoder_output.states, mask, encoder_output.keys)
        return TransformerDecoderState(
            self.stack.initial_state(encoder_output.states, sources), sources
        )

    def _forward(
        self, tokens: Int[Tensor, "B T"], state: TransformerDecoderState, *, need_weights: bool
    ) -> TransformerStackOutput:
        lengths = torch.full_like(tokens[:, 0], tokens.size(1))
        embedded = self.embedding(tokens, state.stack_state.start_positions)
        return self.stack(
            embedded, lengths, state.stack_state, state.memories, need_weights=need_weights
        )


class TransformerDecoderConfig(EmbeddedTransformerConfigBase):
    """Write the target with Transformer layers (Vaswani et al. 2017)."""

    type: Literal["transformer"] = "transformer"
    cross_attention: AttentionConfig | None = None
    """How places look at the source; if not given, as they look at one another."""
    output_head: OutputHeadConfig = SoftmaxHeadConfig()
    """How a token is said."""

    def build(
        self,
        *,
        vocab_size: int,
        memory_size: int,
        encoder_sizes: EncoderStateSizes | None = None,
    ) -> TransformerDecoder:
        """Make the decoder for a vocabulary and an encoder's width."""
        output_head = self.output_head.build(feature_size=self.hidden_size, vocab_size=vocab_size)
        if output_head.is_per_position:
            raise ConfigError(
                "decoder.output_head.type",
                f"{self.output_head.type!r} wants to know every place of the source apart, but a "
                "Transformer's layers have mixed them",
                "choose the emission 'vocabulary', or a recurrent decoder",
            )
        stack = self.build_stack(
            config_path="decoder",
            make_cross_attention=partial(self._build_cross_attention, memory_size),
        )
        return TransformerDecoder(self.build_embedding(vocab_size), stack, output_head)

    def _build_cross_attention(self, memory_size: int) -> Attention:
        config = self.cross_attention or self.attention
        attention = config.build(
            query_size=self.hidden_size, memory_size=memory_size, output_size=self.hidden_size
        )
        if attention.readout.is_per_position:
            raise ConfigError(
                "decoder.cross_attention.readout.type",
                f"{config.readout.type!r} keeps every place apart, but here one context is wanted",
                "choose the readout 'expectation'",
            )
        return attention


# Transformer encoders: every place of a source looks at every other.


class TransformerEncoder(Encoder):
    """A stack of Transformer layers."""

    def __init__(self, embedding: TokenEmbedding, stack: TransformerStack, *, size: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.output_size = size

    def forward(self, tokens: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> EncoderOutput:
        """Read a batch of sources."""
        mask = padding_mask(lengths, tokens.size(1)).squeeze(1)  # (B, S)
        read, auxiliary_losses = self.stack.forward_bidirectional(self.embedding(tokens), lengths)
        states = read.masked_fill(~mask.unsqueeze(-1), 0)
        return EncoderOutput(states, lengths, auxiliary_losses=auxiliary_losses)


class TransformerEncoderConfig(EmbeddedTransformerConfigBase):
    """Read the source with Transformer layers (Vaswani et al. 2017)."""

    type: Literal["transformer"] = "transformer"

    def build(self, *, vocab_size: int) -> TransformerEncoder:
        """Make the encoder for a vocabulary."""
        return TransformerEncoder(
            self.build_embedding(vocab_size),
            self.build_stack(config_path="encoder"),
            size=self.hidden_size,
        )
