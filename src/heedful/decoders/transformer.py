"""Transformer decoders: each place looks at itself, back, and at the source."""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from heedful.attention import Memory
from heedful.attention.attend import Attends
from heedful.attention.choices.attention import AttentionConfig
from heedful.attention.masks import padding
from heedful.decoders.bridges import Ends
from heedful.decoders.decoder import Decoded, Decoder, Look
from heedful.decoders.emission import Emission, EmissionConfig, VocabularyEmissionConfig
from heedful.errors import ConfigError
from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import Encoded
from heedful.layers.fused.families import Families
from heedful.layers.fused.one_place import PackedLayers
from heedful.layers.self_attention import Cache
from heedful.layers.transformer import LayerState, Stacked, StackState, TransformerStack
from heedful.layers.transformer_choices import PlacedTransformerParts
from heedful.search.protocol import Step
from heedful.shapes import Int


class TransformerDecoderState(NamedTuple):
    """All that is needed to go on writing: what was written, and what can be looked at."""

    written: StackState
    sources: tuple[Memory, ...]  # one for every layer


class TransformerDecoder(Decoder):
    """A stack of Transformer layers that look at a source; the weights are the top layer's."""

    def __init__(self, embedding: Embedding, stack: TransformerStack, emission: Emission) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.emission = emission

    def start(self, encoded: Encoded) -> TransformerDecoderState | Families:
        """Make ready to write about a source, which hypotheses have in common where they can."""
        state = self._begin(encoded)
        if self.stack.packed(encoded.states) is None or self.emission.needs_memory:
            return state
        return Families.of(state.sources, state.written.first)

    def step(
        self, tokens: Int[Tensor, "B"], state: TransformerDecoderState | Families
    ) -> Step[TransformerDecoderState | Families]:
        """Read one token; say how likely each next one is."""
        if isinstance(state, Families):
            if (layers := self.stack.packed(tokens)) is not None:
                return self._step_together(tokens, state.in_order(), layers)
            state = self._apart(state)
        read = self._read(tokens.unsqueeze(1), state, need_weights=True)
        assert read.weights is not None, "weights were asked for"
        said = self.emission(read.outputs, read.weights, state.sources[-1])
        after = state._replace(written=read.state)
        return Step(said.squeeze(1), after, read.weights.squeeze(1))

    def _step_together(
        self, tokens: Int[Tensor, "B"], state: Families, layers: PackedLayers
    ) -> Step[TransformerDecoderState | Families]:
        sources, held = state.shared
        seen = state.seen_next()
        read = layers.read(
            self.embedding(tokens.unsqueeze(1), state.first).squeeze(1),
            held or [None] * len(sources),
            sources,
            seen,
            need_weights=True,
        )
        assert read.weights is not None, "weights were asked for"
        said = self.emission(self.stack.finish(read.outputs), read.weights, sources[-1])
        after = state.after(tuple(read.held), seen)
        return Step(said.squeeze(1), after, read.weights.squeeze(1))

    def _apart(self, state: Families) -> TransformerDecoderState:
        """The same, for layers that know nothing of families."""
        sources, held = state.apart()
        layers = [LayerState(Cache(each)) for each in held or [None] * len(sources)]
        return TransformerDecoderState(StackState(tuple(layers), state.first), sources)

    def read(
        self, tokens: Int[Tensor, "B T"], encoded: Encoded, *, need_weights: bool = True
    ) -> Decoded:
        """Read a known target, all places at once."""
        state = self._begin(encoded)
        wanted = need_weights or self.emission.needs_weights
        read = self._read(tokens, state, need_weights=wanted)
        said = self.emission(read.outputs, read.weights, state.sources[-1])
        looks = [Look(*look) for look in read.looks]
        return Decoded(said, read.weights, looks, read.penalties)

    def _begin(self, encoded: Encoded) -> TransformerDecoderState:
        mask = padding(encoded.lengths, encoded.states.size(1))
        sources = self.stack.remember(encoded.states, mask, encoded.called_by)
        return TransformerDecoderState(self.stack.begin(encoded.states, sources), sources)

    def _read(
        self, tokens: Int[Tensor, "B T"], state: TransformerDecoderState, *, need_weights: bool
    ) -> Stacked:
        lengths = torch.full_like(tokens[:, 0], tokens.size(1))
        embedded = self.embedding(tokens, state.written.first)
        return self.stack(
            embedded, lengths, state.written, state.sources, need_weights=need_weights
        )


class TransformerDecoderConfig(PlacedTransformerParts):
    """Write the target with Transformer layers (Vaswani et al. 2017)."""

    kind: Literal["transformer"] = "transformer"
    source_attention: AttentionConfig | None = None
    """How places look at the source; if not given, as they look at one another."""
    emission: EmissionConfig = VocabularyEmissionConfig()
    """How a token is said."""

    def build(
        self, *, vocabulary_size: int, memory_size: int, ends: Ends | None = None
    ) -> TransformerDecoder:
        """Make the decoder for a vocabulary and an encoder's width."""
        emission = self.emission.build(feature_size=self.size, vocabulary_size=vocabulary_size)
        if emission.is_per_position:
            raise ConfigError(
                "decoder.emission.kind",
                f"{self.emission.kind!r} wants to know every place of the source apart, but a "
                "Transformer's layers have mixed them",
                "choose the emission 'vocabulary', or a recurrent decoder",
            )
        stack = self.stack(at="decoder", look_at_source=partial(self._look_at, memory_size))
        return TransformerDecoder(self.embedding(vocabulary_size), stack, emission)

    def _look_at(self, memory_size: int) -> Attends:
        config = self.source_attention or self.attention
        attention = config.build(
            query_size=self.size, memory_size=memory_size, output_size=self.size
        )
        if attention.read.is_per_position:
            raise ConfigError(
                "decoder.source_attention.read.kind",
                f"{config.read.kind!r} keeps every place apart, but here one context is wanted",
                "choose the readout 'expectation'",
            )
        return attention
