"""Transformer encoder and decoder (Vaswani et al. 2017).

Invariant: decoding a known target at once matches decoding it step by step.
"""

from typing import Literal, NamedTuple

import torch
from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor
from typing_extensions import override

from heedful.attention.attention import Attention
from heedful.attention.config import AttentionConfig
from heedful.attention.masks import padding_mask
from heedful.attention.memory import Memory
from heedful.errors import check, format_count
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.transformer import (
    EmbeddedTransformerConfigBase,
    TransformerStack,
    TransformerStackOutput,
    TransformerStackState,
)
from heedful.models import copying, output_heads
from heedful.models.base import Decoder, DecoderOutput, Encoder, EncoderOutput, EncoderStateSizes
from heedful.search import StepOutput
from heedful.shapes import Lengths, LogProbs, SourceStates, SourceTokens, StepTokens, TokenIds


class TransformerEncoder(Encoder):
    """A stack of Transformer layers that see the whole source."""

    def __init__(self, embedding: TokenEmbedding, stack: TransformerStack, *, size: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.output_size = size
        self.layer_input_sizes = (size,) * len(stack.layers)

    @override
    def forward(
        self, tokens: SourceTokens, lengths: Lengths, *, segments: SourceTokens | None = None
    ) -> EncoderOutput:
        layer_inputs: list[Tensor] | None = [] if self.returns_layer_inputs else None
        is_padding = ~padding_mask(lengths, tokens.size(1)).mT  # (B, S, 1)
        embedded = self.embedding(tokens, segments=segments)
        outputs, losses = self.stack.forward_bidirectional(embedded, lengths, layer_inputs)
        states = outputs.masked_fill(is_padding, 0)
        output = EncoderOutput(states, lengths, auxiliary_losses=losses)
        return output._replace(layer_inputs=tuple(layer_inputs or ()))

    @override
    def layer_outputs(self, encoder_output: EncoderOutput) -> tuple[SourceStates, ...]:
        """Normalize lower layers as the top one: with pre-norm, by the last norm of the stack."""
        lower = map(self.stack.apply_final_norm, encoder_output.layer_inputs[1:])
        return (*lower, encoder_output.states)


class TransformerEncoderConfig(EmbeddedTransformerConfigBase):
    """Encode the source with Transformer layers (Vaswani et al. 2017)."""

    type: Literal["transformer"] = "transformer"
    num_segments: NonNegativeInt = 0
    """Number of segment (token type) embeddings; 2 in BERT (Devlin et al. 2019), 0 for none."""

    def build(self, *, vocab_size: int) -> TransformerEncoder:
        embedding = self.build_embedding(vocab_size, num_segments=self.num_segments)
        stack = self.build_stack(config_path="encoder")
        return TransformerEncoder(embedding, stack, size=self.hidden_size)


class TransformerDecoderState(NamedTuple):
    """Decoding state: the caches of the layers, and the source."""

    stack_state: TransformerStackState
    memories: tuple[Memory, ...]  # one per layer
    copy_source: output_heads.CopySource | None = None  # if the output head copies


class TransformerDecoder(Decoder):
    """A causal stack with cross-attention; its weights come from the top layer."""

    def __init__(
        self,
        embedding: TokenEmbedding,
        stack: TransformerStack,
        head: output_heads.OutputHead,
        *,
        attends_by_layer: bool = False,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.output_head = head
        self.attends_by_layer = attends_by_layer
        self.has_alignment_heads = stack.has_alignment_heads

    @override
    def check_encoder(self, encoder: Encoder) -> None:
        if not self.attends_by_layer:
            return
        setting, hint = "decoder.cross_attention_to", "set it to 'top-layer', or change the encoder"
        sizes, num_layers = encoder.layer_input_sizes, len(self.stack.layers)
        message = f"is 'same-layer', but the decoder has {format_count(num_layers, 'layer')}, "
        message += f"the encoder {len(sizes)}"
        check(len(sizes) == num_layers, setting, message, hint)
        lower, top = set(sizes[1:]), encoder.output_size
        message = f"is 'same-layer', but the encoder layers have different sizes: {lower | {top}}"
        check(lower <= {top}, setting, message, hint)

    @override
    def initial_state(self, encoder_output: EncoderOutput) -> TransformerDecoderState:
        states, mask = encoder_output.states, encoder_output.mask
        keys, layer_states = encoder_output.keys, encoder_output.layer_states
        memories = self.stack.build_memory(states, mask, keys, layer_states)
        stack_state = self.stack.initial_state(states, memories)
        return TransformerDecoderState(
            stack_state, memories, self.build_copy_source(encoder_output)
        )

    @override
    def step(
        self, tokens: StepTokens, state: TransformerDecoderState
    ) -> StepOutput[TransformerDecoderState]:
        start_positions = state.stack_state.start_positions
        output, log_probs = self._run_stack(
            tokens.unsqueeze(1), state, start_positions, need_weights=True
        )
        assert output.weights is not None
        next_state = state._replace(stack_state=output.state)
        return StepOutput(log_probs.squeeze(1), next_state, output.weights.squeeze(1))

    @override
    def forward(
        self, tokens: TokenIds, encoder_output: EncoderOutput, *, need_weights: bool = False
    ) -> DecoderOutput:
        # Never the state of a subclass, whose caches are for search.
        state = TransformerDecoder.initial_state(self, encoder_output)
        output, log_probs = self._run_stack(tokens, state, 0, need_weights=need_weights)
        records, losses = output.attention_records, output.auxiliary_losses
        return DecoderOutput(log_probs, output.weights, records, losses)

    def _run_stack(
        self,
        tokens: TokenIds,
        state: TransformerDecoderState,
        start_positions: Lengths | int,
        *,
        need_weights: bool,
    ) -> tuple[TransformerStackOutput, LogProbs]:
        stack_state, memories, source = state
        lengths = torch.full_like(tokens[:, 0], tokens.size(1))
        embedded = self.embed(tokens, source, start_positions)
        need_weights = need_weights or self.output_head.copies_source
        output = self.stack(embedded, lengths, stack_state, memories, need_weights=need_weights)
        features, copying = output.outputs, None
        if source is not None:
            gate_inputs = torch.cat([features, embedded], dim=-1)
            copying = output_heads.CopyInputs(source, gate_inputs)
        return output, self.output_head(features, output.weights, copying)


class TransformerDecoderConfig(EmbeddedTransformerConfigBase):
    """Decode the target with Transformer layers (Vaswani et al. 2017)."""

    type: Literal["transformer"] = "transformer"
    cross_attention: AttentionConfig | None = None
    """Attention to the source; by default the same as `attention`."""
    cross_attention_to: Literal["top-layer", "same-layer"] = "top-layer"
    """Which encoder layer a decoder layer attends to: all to the top one (Vaswani et al. 2017), or
    layer l to layer l, which needs as many layers of one size in the encoder."""
    output_head: copying.OutputHeadConfig = output_heads.SoftmaxHeadConfig()
    """Maps features to log-probabilities of tokens."""
    alignment_layer: PositiveInt | None = None
    """Layer, counted from 1, whose attention to the source is that of the decoder: what is shown,
    guided, and read for word alignments. The top layer if null; Garg et al. 2019 take the last but
    one."""
    alignment_heads: PositiveInt | None = None
    """Number of heads of that layer whose mean it is; all if null, 1 in Garg et al. 2019."""

    def build(
        self, *, vocab_size: int, memory_size: int, encoder_sizes: EncoderStateSizes | None = None
    ) -> TransformerDecoder:
        size = self.hidden_size
        sizes = output_heads.HeadSizes(size, vocab_size, gate_inputs=2 * size, memory=memory_size)
        output_head = self.output_head.build(sizes)
        output_heads.check_single_context(output_head, self.output_head.type, "output_head")
        output_heads.check_parallel(output_head)
        config = self.cross_attention or self.attention

        def build_cross_attention() -> Attention:
            attention = config.build(
                query_size=self.hidden_size, memory_size=memory_size, output_size=self.hidden_size
            )
            readout, location = attention.readout, "cross_attention.readout"
            output_heads.check_single_context(readout, config.readout.type, location)
            head_type, location = self.output_head.type, "decoder.cross_attention"
            output_heads.check_copying(output_head, attention, head_type, location)
            return attention

        self._check_alignment(config)
        stack = self.build_stack(
            config_path="decoder",
            build_cross_attention=build_cross_attention,
            alignment_layer=self.alignment_layer and self.alignment_layer - 1,
            num_alignment_heads=self.alignment_heads,
        )
        attends_by_layer = self.cross_attention_to == "same-layer"
        embedding = self.build_embedding(vocab_size)
        return TransformerDecoder(embedding, stack, output_head, attends_by_layer=attends_by_layer)

    def _check_alignment(self, attention: AttentionConfig) -> None:
        num_heads = attention.multi_head.num_heads if attention.multi_head else 0
        for name, value, limit in (
            ("alignment_layer", self.alignment_layer, self.num_layers),
            ("alignment_heads", self.alignment_heads, num_heads),
        ):
            unit = name.removeprefix("alignment_").rstrip("s")
            message = f"is {value}, but there are {limit} {unit}s"
            check(value is None or value <= limit, name, message, "lower it, or remove it")
