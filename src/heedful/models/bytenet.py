"""ByteNet: dilated convolutions over the source, and over the sum of source and target.

(Kalchbrenner et al. 2016.) There is no attention: target position i reads the encoder's output at
i. Invariant: decoding a known target at once equals one step per token; padding has no influence.
"""

from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, NonNegativeInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import pad
from typing_extensions import override

from heedful.attention.masks import padding_mask
from heedful.errors import check
from heedful.layers.convolution import DilatedConfigBase, DilatedStack, DilatedState
from heedful.layers.embeddings import TokenEmbedding
from heedful.models.base import Decoder, DecoderOutput, Encoder, EncoderOutput, EncoderStateSizes
from heedful.models.output_heads import OutputHead, SoftmaxHead
from heedful.pytree import widest_float
from heedful.search import StepOutput
from heedful.shapes import Bool, Float, Int, Lengths, LogProbs, SourceTokens, StepTokens, TokenIds


class DilatedDecoderState(NamedTuple):
    """State between two steps, and the source."""

    blocks: DilatedState
    unfolded: Float[Tensor, "B U D"]  # the unfolded source; zero past its end
    mask: Bool[Tensor, "B 1 S"]
    start_positions: Int[Tensor, "B"]  # position of the next token


class DilatedDecoder(Decoder):
    """Causal dilated blocks over the sum of source and target (Kalchbrenner et al. 2016).

    Position i reads the embedding of its token plus the encoder's output at i, both of size 2 d;
    beyond the unfolded source, only the embedding. Section 3 stacks the decoder on the encoder
    without saying how they are joined: a sum needs no parameters. The output head reads
    ReLU(norm(.)) of the last block, after dropout. Attention weights are zero.
    """

    def __init__(
        self, embedding: TokenEmbedding, stack: DilatedStack, head: OutputHead, *, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.output_layers = nn.Sequential(nn.LayerNorm(stack.size), nn.ReLU(), nn.Dropout(dropout))
        self.output_head = head

    @override
    def initial_state(self, encoder_output: EncoderOutput) -> DilatedDecoderState:
        # The states of another encoder are used as if they were unfolded.
        states, unfolded = encoder_output.states, encoder_output.unfolded
        unfolded = states if unfolded is None else unfolded
        start_positions = torch.zeros_like(encoder_output.lengths)
        blocks = self.stack.initial_state(unfolded)
        return DilatedDecoderState(blocks, unfolded, encoder_output.mask, start_positions)

    @override
    def step(
        self, tokens: StepTokens, state: DilatedDecoderState
    ) -> StepOutput[DilatedDecoderState]:
        log_probs, next_state = self._forward(tokens.unsqueeze(1), state)
        zero_weights = torch.zeros_like(state.mask.squeeze(1), dtype=log_probs.dtype)
        return StepOutput(log_probs.squeeze(1), next_state, zero_weights)

    @override
    def forward(
        self, tokens: TokenIds, encoder_output: EncoderOutput, *, need_weights: bool = False
    ) -> DecoderOutput:
        log_probs, _ = self._forward(tokens, self.initial_state(encoder_output))
        zero_weights = log_probs.new_zeros(*tokens.shape, encoder_output.states.size(1))
        return DecoderOutput(log_probs, zero_weights if need_weights else None)

    def _forward(
        self, tokens: TokenIds, state: DilatedDecoderState
    ) -> tuple[LogProbs, DilatedDecoderState]:
        length, last = tokens.size(1), state.unfolded.size(1) - 1
        positions = state.start_positions.unsqueeze(1) + torch.arange(length, device=tokens.device)
        index = positions.clamp(max=last).unsqueeze(-1).expand(-1, -1, state.unfolded.size(-1))
        source = state.unfolded.gather(1, index).masked_fill((positions > last).unsqueeze(-1), 0)
        outputs, blocks = self.stack(self.embedding(tokens) + source, state.blocks)
        log_probs = self.output_head(self.output_layers(outputs), None)
        start_positions = state.start_positions + length
        return log_probs, state._replace(blocks=blocks, start_positions=start_positions)


class DilatedDecoderConfig(DilatedConfigBase):
    """Decode with dilated convolutions over encoder outputs (Kalchbrenner et al. 2016)."""

    type: Literal["dilated"] = "dilated"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout before the output head."""

    def build(
        self, *, vocab_size: int, memory_size: int, encoder_sizes: EncoderStateSizes | None = None
    ) -> DilatedDecoder:
        stack = self.build_stack()
        message = f"needs encoder states of size {stack.size}, but they have {memory_size}"
        hint = "set encoder.type to 'dilated' and give both the same hidden_size"
        check(memory_size == stack.size, "decoder.hidden_size", message, hint)
        embedding, head = self.build_embedding(vocab_size), SoftmaxHead(stack.size, vocab_size)
        return DilatedDecoder(embedding, stack, head, dropout=self.dropout)


class DilatedEncoder(Encoder):
    """Dilated blocks over the source, padded with zeros to its unfolded length.

    Dynamic unfolding: |t^| = a |s| + b, rounded, is an assumed target length (Kalchbrenner et al.
    2016, section 3.2). The states are those at source tokens; `unfolded` has the outputs at all
    positions, for a decoder that reads them position by position.
    """

    def __init__(
        self, embedding: TokenEmbedding, stack: DilatedStack, factor: float, offset: int
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.factor = factor
        self.offset = offset
        self.output_size = stack.size

    @override
    def forward(self, tokens: SourceTokens, lengths: Lengths) -> EncoderOutput:
        size = tokens.size(1)
        is_padding = ~padding_mask(lengths, size).mT  # (B, S, 1)
        embedded = self.embedding(tokens).masked_fill(is_padding, 0)
        unfolded_size = round(self.factor * size + self.offset)
        mask = padding_mask(self.unfolded_lengths(lengths), unfolded_size)
        padded = pad(embedded, (0, 0, 0, unfolded_size - size))
        unfolded = self.stack.forward_bidirectional(padded, mask.squeeze(1))
        states = unfolded[:, :size].masked_fill(is_padding, 0)
        return EncoderOutput(states, lengths, unfolded=unfolded)

    def unfolded_lengths(self, lengths: Lengths) -> Lengths:
        """Return round(factor * length + offset), halves to even as Python rounds them."""
        float_lengths = lengths.to(widest_float(lengths.device))
        return (self.factor * float_lengths + self.offset).round().long()


class DilatedEncoderConfig(DilatedConfigBase):
    """Encode the source with dilated convolutions (Kalchbrenner et al. 2016)."""

    type: Literal["dilated"] = "dilated"
    length_factor: Annotated[float, Field(ge=1)] = 1.2
    """Target tokens per source token, at most: the paper's a."""
    length_offset: NonNegativeInt = 0
    """Further target tokens, whatever the source: the paper's b."""

    @model_validator(mode="after")
    def _check_odd_kernel(self) -> "DilatedEncoderConfig":
        if self.kernel_size % 2 == 0:
            raise ValueError(f"kernel_size of an encoder must be odd, but is {self.kernel_size}")
        return self

    def build(self, *, vocab_size: int) -> DilatedEncoder:
        stack, embedding = self.build_stack(), self.build_embedding(vocab_size)
        return DilatedEncoder(embedding, stack, self.length_factor, self.length_offset)
