"""ConvS2S: a convolutional encoder, and a decoder with attention in each layer.

(Gehring et al. 2017.) Invariant: a known target decoded at once gives the same as one step per
token; padding has no influence.
"""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, cast

import torch
from pydantic import BeforeValidator, PositiveInt, model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.alignments import AlignmentOutput
from heedful.attention.attention import Attention, AttentionOutput
from heedful.attention.config import AttentionConfig
from heedful.attention.masks import padding_mask
from heedful.attention.memory import AttentionState, Memory
from heedful.attention.scores import DotScoreConfig
from heedful.layers.convolution import (
    SQRT_HALF,
    ConvolutionalConfigBase,
    GatedConvLayer,
    WeightNormConv1d,
    scale_gradient,
    scaled_sum,
)
from heedful.layers.embeddings import TokenEmbedding
from heedful.models import copying, output_heads
from heedful.models.base import Decoder, DecoderOutput, Encoder, EncoderOutput, EncoderStateSizes
from heedful.search import StepOutput
from heedful.shapes import Float, Int, Lengths, SourceStates, SourceTokens, StepTokens, TokenIds


class ConvolutionalLayerState(NamedTuple):
    """State of one layer between positions."""

    recent: Float[Tensor, "B R D"]  # its inputs at the last k - 1 positions
    attention_state: AttentionState | None  # if attention depends on earlier steps


class ConvolutionalAttentionLayer(nn.Module):
    """A gated convolution with attention between its gate and its residual sum.

    The query is d_i = (W_d h_i + b_d + g_i) sqrt(0.5) for the gate's output h_i and the token
    embedding g_i; the context c_i is added as (h_i + W_c c_i + b_c) sqrt(0.5)  (Gehring et al.
    2017, section 3.3 and equation 1, which omits the constants of the authors' code). A mean of m
    independent vectors has 1 / m of their variance, so the context is multiplied by m sqrt(1 / m)
    for a source of length m (section 3.4).
    """

    def __init__(
        self, layer: GatedConvLayer, attention: Attention, embedding_size: int, memory_size: int
    ) -> None:
        super().__init__()
        self.layer = layer
        self.attention = attention
        self.query_projection = WeightNormConv1d(layer.size, embedding_size)
        self.context_projection = WeightNormConv1d(memory_size, layer.size)

    def initial_state(self, memory: Memory, states: SourceStates) -> ConvolutionalLayerState:
        """Return the state before the first position."""
        needs_state = self.attention.needs_positions
        attention_state = self.attention.initial_state(memory) if needs_state else None
        return ConvolutionalLayerState(self.layer.initial_state(states), attention_state)

    @override
    def forward(
        self,
        inputs: Float[Tensor, "B T D"],
        embedded: Float[Tensor, "B T E"],
        state: ConvolutionalLayerState,
        memory: Memory,
        context_scale: Float[Tensor, "B 1 1"],
        *,
        need_weights: bool,
    ) -> tuple[Float[Tensor, "B T X"], ConvolutionalLayerState, AttentionOutput]:
        """Return the layer's outputs, its next state and the output of its attention."""
        gated, recent = self.layer.forward_causal(inputs, state.recent)
        queries = scaled_sum(self.query_projection(gated), embedded)
        need_weights = need_weights or self.attention.has_auxiliary_losses
        attended = self.attention(queries, memory, state.attention_state, need_weights=need_weights)
        with_context = scaled_sum(gated, self.context_projection(attended.context * context_scale))
        next_state = ConvolutionalLayerState(recent, attended.state)
        return self.layer.add_residual(inputs, with_context), next_state, attended


class ConvolutionalDecoderState(NamedTuple):
    """State between two steps, and the source."""

    layers: tuple[ConvolutionalLayerState, ...]
    memories: tuple[Memory, ...]  # one per layer
    context_scale: Float[Tensor, "B 1 1"]
    start_positions: Int[Tensor, "B"]  # position of the next token
    copy_source: output_heads.CopySource | None = None  # if the output head copies


class ConvolutionalDecoder(Decoder):
    """Causal gated convolutions, each with its own attention to the source.

    (Gehring et al. 2017, section 3: "multi-step attention".) Weights are the mean over the layers.
    The gradient of the encoder's layers is the mean over the attentions, not the sum, while the
    source embeddings get the whole of theirs (section 3.4).
    """

    averages_layers = True

    def __init__(
        self,
        embedding: TokenEmbedding,
        layers: Sequence[ConvolutionalAttentionLayer],
        output_head: output_heads.OutputHead,
        *,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        size, first, last = embedding.embedding_size, layers[0].layer, layers[-1].layer
        self.input_projection = WeightNormConv1d(size, first.input_size, dropout=dropout)
        self.layers = cast(Sequence[ConvolutionalAttentionLayer], nn.ModuleList(layers))
        self.output_projection = WeightNormConv1d(last.size, output_head.feature_size)
        self.dropout = nn.Dropout(dropout)
        self.output_head = output_head

    @override
    def initial_state(self, encoder_output: EncoderOutput) -> ConvolutionalDecoderState:
        states, keys, factor = encoder_output.states, encoder_output.keys, 1 / len(self.layers)
        if keys is None:
            states = scale_gradient(states, factor)
        else:
            unscaled, keys = keys, scale_gradient(keys, factor)
            # States are (keys + embeddings) sqrt(0.5). The added term is zero; it scales the
            # gradient that reaches the keys through the states, and not that of the embeddings.
            states = states + SQRT_HALF * (keys - unscaled)
        mask = encoder_output.mask
        memories = [layer.attention.build_memory(states, mask, keys=keys) for layer in self.layers]
        layers = zip(self.layers, memories, strict=True)
        return ConvolutionalDecoderState(
            tuple(layer.initial_state(memory, states) for layer, memory in layers),
            tuple(memories),
            encoder_output.lengths.to(states.dtype).sqrt()[:, None, None],
            torch.zeros_like(encoder_output.lengths),
            self.build_copy_source(encoder_output),
        )

    @override
    def step(
        self, tokens: StepTokens, state: ConvolutionalDecoderState
    ) -> StepOutput[ConvolutionalDecoderState]:
        output, next_state = self._forward(tokens.unsqueeze(1), state, need_weights=True)
        assert output.weights is not None
        return StepOutput(output.log_probs.squeeze(1), next_state, output.weights.squeeze(1))

    @override
    def forward(
        self, tokens: TokenIds, encoder_output: EncoderOutput, *, need_weights: bool = False
    ) -> DecoderOutput:
        state = self.initial_state(encoder_output)
        return self._forward(tokens, state, need_weights=need_weights)[0]

    def _forward(
        self, tokens: TokenIds, state: ConvolutionalDecoderState, *, need_weights: bool
    ) -> tuple[DecoderOutput, ConvolutionalDecoderState]:
        embedded = self.embed(tokens, state.copy_source, state.start_positions)
        need_weights = need_weights or self.output_head.copies_source
        hidden = self.input_projection(embedded)
        states: list[ConvolutionalLayerState] = []
        weights: list[Tensor] = []
        attention_records: list[tuple[Attention, AlignmentOutput]] = []
        for layer, *inputs in zip(self.layers, state.layers, state.memories, strict=True):
            hidden, next_state, attended = layer(
                hidden, embedded, *inputs, state.context_scale, need_weights=need_weights
            )
            states.append(next_state)
            if attended.weights is not None:
                weights.append(attended.weights)
            if attended.alignment is not None:
                attention_records.append((layer.attention, attended.alignment))
        mean_weights = torch.stack(weights).mean(dim=0) if weights else None
        features = self.dropout(self.output_projection(hidden))
        copying_inputs = None
        if state.copy_source is not None:
            gate_inputs = torch.cat([features, embedded], dim=-1)
            copying_inputs = output_heads.CopyInputs(state.copy_source, gate_inputs)
        log_probs = self.output_head(features, mean_weights, copying_inputs)
        output = DecoderOutput(log_probs, mean_weights, attention_records)
        start_positions = state.start_positions + tokens.size(1)
        return output, state._replace(layers=tuple(states), start_positions=start_positions)


def _default_to_dot_score(section: Any) -> Any:
    return {"score": {"type": "dot"}, **section} if isinstance(section, dict) else section


class ConvolutionalDecoderConfig(ConvolutionalConfigBase):
    """Decode with gated convolutions and attention in each layer (Gehring et al. 2017)."""

    type: Literal["convolutional"] = "convolutional"
    attention: Annotated[AttentionConfig, BeforeValidator(_default_to_dot_score)] = AttentionConfig(
        score=DotScoreConfig()
    )
    """Attention of each layer to the source; the default score is the dot product."""
    output_size: PositiveInt | None = None
    """Size of the features of the output head; by default embedding_size."""
    output_head: copying.OutputHeadConfig = output_heads.SoftmaxHeadConfig()
    """How the features become log-probabilities of tokens."""

    def build(
        self, *, vocab_size: int, memory_size: int, encoder_sizes: EncoderStateSizes | None = None
    ) -> ConvolutionalDecoder:
        embedding = self.build_embedding(vocab_size)
        size, num_features = embedding.embedding_size, self.output_size or self.embedding_size
        layers = [
            self._build_attention_layer(layer, size, memory_size) for layer in self.build_layers()
        ]
        sizes = output_heads.HeadSizes(num_features, vocab_size, num_features + size, memory_size)
        head = self._build_output_head(sizes)
        for layer in layers:
            output_heads.check_copying(
                head, layer.attention, self.output_head.type, "decoder.attention"
            )
        return ConvolutionalDecoder(embedding, layers, head, dropout=self.dropout)

    def _build_attention_layer(
        self, layer: GatedConvLayer, embedding_size: int, memory_size: int
    ) -> ConvolutionalAttentionLayer:
        attention = self.attention.build(query_size=embedding_size, memory_size=memory_size)
        readout_type = self.attention.readout.type
        output_heads.check_single_context(attention.readout, readout_type, "attention.readout")
        return ConvolutionalAttentionLayer(layer, attention, embedding_size, memory_size)

    def _build_output_head(self, sizes: output_heads.HeadSizes) -> output_heads.OutputHead:
        output_head = self.output_head.build(sizes)
        output_heads.check_single_context(output_head, self.output_head.type, "output_head")
        output_heads.check_parallel(output_head)
        for linear in output_head.children():
            assert isinstance(linear, nn.Linear)
            # As WeightNormConv1d.
            nn.init.normal_(linear.weight, std=((1 - self.dropout) / linear.in_features) ** 0.5)
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)
        return output_head


class ConvolutionalEncoder(Encoder):
    """Gated convolutions between two projections; the output z has the size of the embeddings e.

    (Gehring et al. 2017, section 3.) Keys are z and states (z + e) sqrt(0.5), where e includes the
    positions. Equation 2 of the paper has z + e; the constant is from the authors' code, and
    keeps the variance, as section 3.4 wants for each sum.
    """

    def __init__(
        self, embedding: TokenEmbedding, layers: Sequence[GatedConvLayer], *, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.output_size = size = embedding.embedding_size
        self.input_projection = WeightNormConv1d(size, layers[0].input_size, dropout=dropout)
        self.layers = cast(Sequence[GatedConvLayer], nn.ModuleList(layers))
        self.output_projection = WeightNormConv1d(layers[-1].size, size)

    @override
    def forward(self, tokens: SourceTokens, lengths: Lengths) -> EncoderOutput:
        mask = padding_mask(lengths, tokens.size(1)).squeeze(1)  # (B, S)
        is_padding = ~mask.unsqueeze(-1)
        embedded = self.embedding(tokens)
        hidden = self.input_projection(embedded)
        for layer in self.layers:
            hidden = layer.forward_bidirectional(hidden, mask)
        keys = self.output_projection(hidden).masked_fill(is_padding, 0)
        states = scaled_sum(keys, embedded.masked_fill(is_padding, 0))
        return EncoderOutput(states, lengths, keys=keys)


class ConvolutionalEncoderConfig(ConvolutionalConfigBase):
    """Encode the source with gated convolutions (Gehring et al. 2017)."""

    type: Literal["convolutional"] = "convolutional"

    @model_validator(mode="after")
    def _check_odd_kernels(self) -> "ConvolutionalEncoderConfig":
        even = [layer.kernel_size for layer in self.layers if layer.kernel_size % 2 == 0]
        if even:
            raise ValueError(f"kernel_size of an encoder must be odd, but is {even[0]}")
        return self

    def build(self, *, vocab_size: int) -> ConvolutionalEncoder:
        embedding, layers = self.build_embedding(vocab_size), self.build_layers()
        return ConvolutionalEncoder(embedding, layers, dropout=self.dropout)
