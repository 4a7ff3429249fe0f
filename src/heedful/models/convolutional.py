"""Convolutional decoders: each place sees a few places back, and every layer looks at the source.

Law: a known target read at once is the same target read step by step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, cast

import torch
from pydantic import BeforeValidator, PositiveInt, model_validator
from torch import Tensor, nn

from heedful.attention import AlignmentOutput, Attention, AttentionState, Memory, padding_mask
from heedful.attention.config import AttentionConfig
from heedful.attention.dot_product_scores import DotScoreConfig
from heedful.attention.masks import padding_mask
from heedful.errors import ConfigError
from heedful.layers.convolution import (
    SQRT_HALF,
    ConvolutionalConfigBase,
    GatedConvLayer,
    WeightNormConv1d,
    scale_gradient,
    scaled_sum,
)
from heedful.layers.embeddings import TokenEmbedding
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
from heedful.shapes import Float, Int

# Multi-step attention: every layer looks at the source, knowing what those below it found.
#
# (Gehring et al. 2017, section 3.3.) Law: places read piece by piece, each piece from the state the
# last one left, are read as if at once.


class ConvolutionalLayerState(NamedTuple):
    """What one layer carries from one place to the next."""

    recent: Float[Tensor, "B R D"]  # what it read at the last k - 1 places
    attention_state: AttentionState | None  # what it has asked of the source, where that counts


class ConvolutionalLayerOutput(NamedTuple):
    """What one layer made of places."""

    outputs: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T S"] | None
    alignment: AlignmentOutput | None
    state: ConvolutionalLayerState


class ConvolutionalAttentionLayer(nn.Module):
    """A gated layer that looks at the source between its gate and its sum.

    d_i = (W_d h_i + b_d + g_i) sqrt(0.5) asks, h_i being what the gate lets through and g_i the
    embedding of the token read; the context c_i comes in as (h_i + W_c c_i + b_c) sqrt(0.5).
    (Gehring et al. 2017, section 3.3 and equation 1, which leaves the constants out; the authors'
    code has them.) A mean of m unlike vectors has an m-th of their variance: it is multiplied by
    m sqrt(1 / m), m being the length of the source (section 3.4).
    """

    def __init__(
        self,
        layer: GatedConvLayer,
        attention: Attention,
        *,
        query_projection: WeightNormConv1d,
        context_projection: WeightNormConv1d,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.attention = attention
        self.query_projection = query_projection
        self.context_projection = context_projection

    def initial_state(
        self, memory: Memory, states: Float[Tensor, "B S V"]
    ) -> ConvolutionalLayerState:
        """Make the state of having read and asked nothing."""
        attention = self.attention
        past = attention.initial_state(memory) if attention.needs_positions else None
        return ConvolutionalLayerState(self.layer.initial_state(states), past)

    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        embedded: Float[Tensor, "B T E"],
        state: ConvolutionalLayerState,
        memory: Memory,
        context_scale: Float[Tensor, "B 1 1"],
        *,
        need_weights: bool,
    ) -> ConvolutionalLayerOutput:
        """Read on from a state, looking at the source from every place."""
        gated, recent = self.layer.forward_causal(inputs, state.recent)
        queries = scaled_sum(self.query_projection(gated), embedded)
        wanted = need_weights or self.attention.has_auxiliary_losses
        attended = self.attention(queries, memory, state.attention_state, need_weights=wanted)
        with_context = scaled_sum(gated, self.context_projection(attended.context * context_scale))
        outputs = self.layer.add_residual(inputs, with_context)
        return ConvolutionalLayerOutput(
            outputs,
            attended.weights,
            attended.alignment,
            ConvolutionalLayerState(recent, attended.state),
        )


class ConvolutionalDecoderState(NamedTuple):
    """All that is needed to go on writing: what was written, and what can be looked at."""

    layers: tuple[ConvolutionalLayerState, ...]
    memories: tuple[Memory, ...]  # one for every layer
    context_scale: Float[Tensor, "B 1 1"]  # what the contexts of a source are multiplied by
    start_positions: Int[Tensor, "B"]  # the number of the next place


class ConvolutionalStackOutput(NamedTuple):
    """What all layers made of places."""

    features: Float[Tensor, "B T D"]
    weights: Float[Tensor, "B T S"] | None  # the mean of all layers'
    attention_records: tuple[AttentionRecord, ...]
    state: ConvolutionalDecoderState


class ConvolutionalDecoder(Decoder):
    """Gated layers that see nothing of the future, each with its own attention to the source.

    (Gehring et al. 2017, section 3: "multi-step attention".) Weights are the mean of the layers'.
    What all attentions send back to the layers of the encoder is their mean, not their sum, while
    the words of the source get their own share of it whole (section 3.4).
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[ConvolutionalAttentionLayer],
        output_head: OutputHead,
        *,
        input_projection: WeightNormConv1d,
        output_projection: WeightNormConv1d,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.input_projection = input_projection
        self.layers = nn.ModuleList(layers)
        self.output_projection = output_projection
        self.dropout = nn.Dropout(dropout)
        self.output_head = output_head

    @property
    def _layers(self) -> Iterable[ConvolutionalAttentionLayer]:
        return cast(Iterable[ConvolutionalAttentionLayer], self.layers)

    def initial_state(self, encoder_output: EncoderOutput) -> ConvolutionalDecoderState:
        """Make ready to write about a source."""
        states, keys = self._values_and_keys(encoder_output)
        mask = padding_mask(encoder_output.lengths, states.size(1))
        sources = tuple(
            layer.attention.build_memory(states, mask, keys=keys) for layer in self._layers
        )
        pairs = zip(self._layers, sources, strict=True)
        return ConvolutionalDecoderState(
            tuple(layer.initial_state(source, states) for layer, source in pairs),
            sources,
            encoder_output.lengths.to(states.dtype).sqrt()[:, None, None],
            torch.zeros_like(encoder_output.lengths),
        )

    def step(
        self, tokens: Int[Tensor, "B"], state: ConvolutionalDecoderState
    ) -> StepOutput[ConvolutionalDecoderState]:
        """Read one token; say how likely each next one is."""
        read = self._forward(tokens.unsqueeze(1), state, need_weights=True)
        assert read.weights is not None, "weights were asked for"
        said = self.output_head(read.features, read.weights, state.memories[-1])
        return StepOutput(said.squeeze(1), read.state, read.weights.squeeze(1))

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        encoder_output: EncoderOutput,
        *,
        need_weights: bool = False,
    ) -> DecoderOutput:
        """Read a known target, all places at once."""
        state = self.initial_state(encoder_output)
        wanted = need_weights or self.output_head.needs_weights
        read = self._forward(tokens, state, need_weights=wanted)
        said = self.output_head(read.features, read.weights, state.memories[-1])
        return DecoderOutput(said, read.weights, read.attention_records)

    def _forward(
        self, tokens: Int[Tensor, "B T"], state: ConvolutionalDecoderState, *, need_weights: bool
    ) -> ConvolutionalStackOutput:
        embedded = self.embedding(tokens, state.start_positions)
        outputs, layer_outputs = self.input_projection(embedded), list[ConvolutionalLayerOutput]()
        parts = zip(self._layers, state.layers, state.memories, strict=True)
        for layer, own, source in parts:
            layer_outputs.append(
                layer(
                    outputs, embedded, own, source, state.context_scale, need_weights=need_weights
                )
            )
            outputs = layer_outputs[-1].outputs
        attention_records = [
            AttentionRecord(layer.attention, each.alignment)
            for layer, each in zip(self._layers, layer_outputs, strict=True)
            if each.alignment is not None
        ]
        states, first = (
            tuple(each.state for each in layer_outputs),
            state.start_positions + tokens.size(1),
        )
        return ConvolutionalStackOutput(
            self.dropout(self.output_projection(outputs)),
            _mean_weights([each.weights for each in layer_outputs]),
            tuple(attention_records),
            state._replace(layers=states, start_positions=first),
        )

    def _values_and_keys(
        self, encoder_output: EncoderOutput
    ) -> tuple[Float[Tensor, "B S V"], Float[Tensor, "B S V"] | None]:
        """Give what is taken and what it is called by, both with a share of their gradient."""
        share = 1 / len(self.layers)
        if encoder_output.keys is None:
            return scale_gradient(encoder_output.states, share), None
        keys = scale_gradient(encoder_output.keys, share)
        # States are (keys + words) sqrt(0.5). Nothing is added to them here, but what their keys
        # send back is made a share as well, and what their words do is not.
        return encoder_output.states + SQRT_HALF * (keys - encoder_output.keys), keys


def _mean_weights(
    weights: Sequence[Float[Tensor, "B T S"] | None],
) -> Float[Tensor, "B T S"] | None:
    available = [each for each in weights if each is not None]
    return torch.stack(available).mean(dim=0) if len(available) == len(weights) else None


def _default_to_dot_score(said: Any) -> Any:
    return {"score": {"type": "dot"}, **said} if isinstance(said, dict) else said


class ConvolutionalDecoderConfig(ConvolutionalConfigBase):
    """Write the target with gated convolutions that look at the source (Gehring et al. 2017)."""

    type: Literal["convolutional"] = "convolutional"
    attention: Annotated[AttentionConfig, BeforeValidator(_default_to_dot_score)] = AttentionConfig(
        score=DotScoreConfig()
    )
    """How each layer looks at the source; if it says no score, by dot products."""
    output_size: PositiveInt | None = None
    """Width of what a token is told from; if not given, that of a word's vector."""
    output_head: OutputHeadConfig = SoftmaxHeadConfig()
    """How a token is said."""

    def build(
        self,
        *,
        vocab_size: int,
        memory_size: int,
        encoder_sizes: EncoderStateSizes | None = None,
    ) -> ConvolutionalDecoder:
        """Make the decoder for a vocabulary and an encoder's width."""
        embedding = self.build_embedding(vocab_size)
        output_size = self.output_size or self.embedding_size
        layers = [
            self._build_attention_layer(layer, embedding.embedding_size, memory_size)
            for layer in self.build_layers()
        ]
        return ConvolutionalDecoder(
            embedding,
            layers,
            self._build_output_head(output_size, vocab_size),
            input_projection=WeightNormConv1d(
                embedding.embedding_size, self.first_size, dropout=self.dropout
            ),
            output_projection=WeightNormConv1d(self.last_size, output_size),
            dropout=self.dropout,
        )

    def _build_attention_layer(
        self, layer: GatedConvLayer, embedding_size: int, memory_size: int
    ) -> ConvolutionalAttentionLayer:
        attention = self.attention.build(query_size=embedding_size, memory_size=memory_size)
        if attention.readout.is_per_position:
            raise ConfigError(
                "decoder.attention.readout.type",
                f"{self.attention.readout.type!r} keeps every place apart, but here one context is "
                "wanted",
                "choose the readout 'expectation'",
            )
        return ConvolutionalAttentionLayer(
            layer,
            attention,
            query_projection=WeightNormConv1d(layer.size, embedding_size),
            context_projection=WeightNormConv1d(memory_size, layer.size),
        )

    def _build_output_head(self, feature_size: int, vocab_size: int) -> OutputHead:
        output_head = self.output_head.build(feature_size=feature_size, vocab_size=vocab_size)
        if output_head.is_per_position:
            raise ConfigError(
                "decoder.output_head.type",
                f"{self.output_head.type!r} wants to know every place of the source apart, but the "
                "layers have mixed them",
                "choose the emission 'vocabulary', or a recurrent decoder",
            )
        spread = ((1 - self.dropout) / feature_size) ** 0.5  # as every matrix here
        nn.init.normal_(output_head.projection.weight, std=spread)
        nn.init.zeros_(output_head.projection.bias)
        return output_head


# Convolutional encoders: every word of a source, and more of its neighbours with every layer.
#
# Law: padding has no influence, and a state stands where its word stands.


class ConvolutionalEncoder(Encoder):
    """Gated layers between two matrices; z, what comes out, is as wide as the embeddings e.

    (Gehring et al. 2017, section 3.) A place is called for by z and what is taken of it is
    (z + e) sqrt(0.5), both told their places. The paper's equation 2 takes z + e; the constant is
    the authors' code's, and what section 3.4 wants of every sum: that it keeps the variance.
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[GatedConvLayer],
        *,
        input_projection: WeightNormConv1d,
        output_projection: WeightNormConv1d,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.input_projection = input_projection
        self.layers = nn.ModuleList(layers)
        self.output_projection = output_projection
        self.output_size = embedding.embedding_size

    def forward(self, tokens: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> EncoderOutput:
        """Read a batch of sources."""
        mask = padding_mask(lengths, tokens.size(1)).squeeze(1)  # (B, S)
        hidden = ~mask.unsqueeze(-1)
        embedded = self.embedding(tokens)
        layer_outputs = self.input_projection(embedded)
        for layer in cast(Iterable[GatedConvLayer], self.layers):
            layer_outputs = layer.forward_bidirectional(layer_outputs, mask)
        keys = self.output_projection(layer_outputs).masked_fill(hidden, 0)
        states = scaled_sum(keys, embedded.masked_fill(hidden, 0))
        return EncoderOutput(states, lengths, keys=keys)


class ConvolutionalEncoderConfig(ConvolutionalConfigBase):
    """Read the source with gated convolutions (Gehring et al. 2017)."""

    type: Literal["convolutional"] = "convolutional"

    @model_validator(mode="after")
    def _check_odd_kernels(self) -> ConvolutionalEncoderConfig:
        even = [layer.kernel_size for layer in self.layers if layer.kernel_size % 2 == 0]
        if even:
            raise ValueError(
                f"an encoder sees as many places before as after: kernel must be odd, not {even[0]}"
            )
        return self

    def build(self, *, vocab_size: int) -> ConvolutionalEncoder:
        """Make the encoder for a vocabulary."""
        embedding = self.build_embedding(vocab_size)
        return ConvolutionalEncoder(
            embedding,
            self.build_layers(),
            input_projection=WeightNormConv1d(
                embedding.embedding_size, self.first_size, dropout=self.dropout
            ),
            output_projection=WeightNormConv1d(self.last_size, embedding.embedding_size),
        )
