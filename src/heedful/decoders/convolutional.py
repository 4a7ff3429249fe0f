"""Convolutional decoders: each place sees a few places back, and every layer looks at the source.

Law: a known target read at once is the same target read step by step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, cast

import torch
from pydantic import BeforeValidator, PositiveInt
from torch import Tensor, nn

from heedful.attention import Memory, padding
from heedful.attention.choices.attention import AttentionConfig
from heedful.attention.choices.content import DotScoreConfig
from heedful.decoders.bridges import Ends
from heedful.decoders.decoder import Decoded, Decoder, Look
from heedful.decoders.emission import Emission, EmissionConfig, VocabularyEmissionConfig
from heedful.decoders.multi_step import AttendingLayer, Layered, LayerState
from heedful.errors import ConfigError
from heedful.layers.convolution_choices import ConvolutionalParts
from heedful.layers.convolutions import HALVED, GatedLayer, NormedConvolution, share_gradient
from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import Encoded
from heedful.search.protocol import Step
from heedful.shapes import Float, Int


class ConvolutionalState(NamedTuple):
    """All that is needed to go on writing: what was written, and what can be looked at."""

    layers: tuple[LayerState, ...]
    sources: tuple[Memory, ...]  # one for every layer
    scales: Float[Tensor, "B 1 1"]  # what the contexts of a source are multiplied by
    first: Int[Tensor, "B"]  # the number of the next place


class Stacked(NamedTuple):
    """What all layers made of places."""

    features: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T S"] | None  # the mean of all layers'
    looks: tuple[Look, ...]
    state: ConvolutionalState


class ConvolutionalDecoder(Decoder):
    """Gated layers that see nothing of the future, each with its own attention to the source.

    (Gehring et al. 2017, section 3: "multi-step attention".) Weights are the mean of the layers'.
    What all attentions send back to the layers of the encoder is their mean, not their sum, while
    the words of the source get their own share of it whole (section 3.4).
    """

    def __init__(
        self,
        embedding: Embedding,
        layers: Sequence[AttendingLayer],
        emission: Emission,
        *,
        enter: NormedConvolution,
        leave: NormedConvolution,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.enter = enter
        self.layers = nn.ModuleList(layers)
        self.leave = leave
        self.dropout = nn.Dropout(dropout)
        self.emission = emission

    @property
    def _layers(self) -> Iterable[AttendingLayer]:
        return cast(Iterable[AttendingLayer], self.layers)

    def start(self, encoded: Encoded) -> ConvolutionalState:
        """Make ready to write about a source."""
        states, keys = self._seen(encoded)
        mask = padding(encoded.lengths, states.size(1))
        sources = tuple(layer.attention.remember(states, mask, keys=keys) for layer in self._layers)
        pairs = zip(self._layers, sources, strict=True)
        return ConvolutionalState(
            tuple(layer.begin(source, states) for layer, source in pairs),
            sources,
            encoded.lengths.to(states.dtype).sqrt()[:, None, None],
            torch.zeros_like(encoded.lengths),
        )

    def step(self, tokens: Int[Tensor, "B"], state: ConvolutionalState) -> Step[ConvolutionalState]:
        """Read one token; say how likely each next one is."""
        read = self._read(tokens.unsqueeze(1), state, need_weights=True)
        assert read.weights is not None, "weights were asked for"
        said = self.emission(read.features, read.weights, state.sources[-1])
        return Step(said.squeeze(1), read.state, read.weights.squeeze(1))

    def read(
        self, tokens: Int[Tensor, "B T"], encoded: Encoded, *, need_weights: bool = True
    ) -> Decoded:
        """Read a known target, all places at once."""
        state = self.start(encoded)
        wanted = need_weights or self.emission.needs_weights
        read = self._read(tokens, state, need_weights=wanted)
        said = self.emission(read.features, read.weights, state.sources[-1])
        return Decoded(said, read.weights, read.looks)

    def _read(
        self, tokens: Int[Tensor, "B T"], state: ConvolutionalState, *, need_weights: bool
    ) -> Stacked:
        embedded = self.embedding(tokens, state.first)
        outputs, made = self.enter(embedded), list[Layered]()
        parts = zip(self._layers, state.layers, state.sources, strict=True)
        for layer, own, source in parts:
            made.append(
                layer(outputs, embedded, own, source, state.scales, need_weights=need_weights)
            )
            outputs = made[-1].outputs
        looks = [
            Look(layer.attention, each.aligned)
            for layer, each in zip(self._layers, made, strict=True)
            if each.aligned is not None
        ]
        states, first = tuple(each.state for each in made), state.first + tokens.size(1)
        return Stacked(
            self.dropout(self.leave(outputs)),
            _mean([each.weights for each in made]),
            tuple(looks),
            state._replace(layers=states, first=first),
        )

    def _seen(
        self, encoded: Encoded
    ) -> tuple[Float[Tensor, "B S V"], Float[Tensor, "B S V"] | None]:
        """Give what is taken and what it is called by, both with a share of their gradient."""
        share = 1 / len(self.layers)
        if encoded.called_by is None:
            return share_gradient(encoded.states, share), None
        keys = share_gradient(encoded.called_by, share)
        # States are (keys + words) sqrt(0.5). Nothing is added to them here, but what their keys
        # send back is made a share as well, and what their words do is not.
        return encoded.states + HALVED * (keys - encoded.called_by), keys


def _mean(weights: Sequence[Float[Tensor, "B T S"] | None]) -> Float[Tensor, "B T S"] | None:
    known = [each for each in weights if each is not None]
    return torch.stack(known).mean(dim=0) if len(known) == len(weights) else None


def _assuming_dot(said: Any) -> Any:
    return {"score": {"kind": "dot"}, **said} if isinstance(said, dict) else said


class ConvolutionalDecoderConfig(ConvolutionalParts):
    """Write the target with gated convolutions that look at the source (Gehring et al. 2017)."""

    kind: Literal["convolutional"] = "convolutional"
    attention: Annotated[AttentionConfig, BeforeValidator(_assuming_dot)] = AttentionConfig(
        score=DotScoreConfig()
    )
    """How each layer looks at the source; if it says no score, by dot products."""
    output_size: PositiveInt | None = None
    """Width of what a token is told from; if not given, that of a word's vector."""
    emission: EmissionConfig = VocabularyEmissionConfig()
    """How a token is said."""

    def build(
        self, *, vocabulary_size: int, memory_size: int, ends: Ends | None = None
    ) -> ConvolutionalDecoder:
        """Make the decoder for a vocabulary and an encoder's width."""
        embedding = self.build_embedding(vocabulary_size)
        output_size = self.output_size or self.embedding_size
        layers = [
            self._attending(layer, embedding.size, memory_size) for layer in self.build_layers()
        ]
        return ConvolutionalDecoder(
            embedding,
            layers,
            self._emission(output_size, vocabulary_size),
            enter=NormedConvolution(embedding.size, self.first_size, dropout=self.dropout),
            leave=NormedConvolution(self.last_size, output_size),
            dropout=self.dropout,
        )

    def _attending(
        self, layer: GatedLayer, embedding_size: int, memory_size: int
    ) -> AttendingLayer:
        attention = self.attention.build(query_size=embedding_size, memory_size=memory_size)
        if attention.read.is_per_position:
            raise ConfigError(
                "decoder.attention.read.kind",
                f"{self.attention.read.kind!r} keeps every place apart, but here one context is "
                "wanted",
                "choose the readout 'expectation'",
            )
        return AttendingLayer(
            layer,
            attention,
            ask=NormedConvolution(layer.size, embedding_size),
            hear=NormedConvolution(memory_size, layer.size),
        )

    def _emission(self, feature_size: int, vocabulary_size: int) -> Emission:
        emission = self.emission.build(feature_size=feature_size, vocabulary_size=vocabulary_size)
        if emission.is_per_position:
            raise ConfigError(
                "decoder.emission.kind",
                f"{self.emission.kind!r} wants to know every place of the source apart, but the "
                "layers have mixed them",
                "choose the emission 'vocabulary', or a recurrent decoder",
            )
        spread = ((1 - self.dropout) / feature_size) ** 0.5  # as every matrix here
        nn.init.normal_(emission.projection.weight, std=spread)
        nn.init.zeros_(emission.projection.bias)
        return emission
