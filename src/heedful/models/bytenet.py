"""Dilated decoders: a target written by convolutions that stand on those of the source.

Each place reads what the encoder made of the same place, and the target before it; nothing is
looked for. Law: a known target read at once is the same target read step by step.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field, NonNegativeInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import pad

from heedful.attention import Memory, padding_mask
from heedful.attention.masks import padding_mask
from heedful.errors import ConfigError
from heedful.layers.convolution import DilatedConfigBase, DilatedStack
from heedful.layers.embeddings import TokenEmbedding
from heedful.models.base import Decoder, DecoderOutput, Encoder, EncoderOutput, EncoderStateSizes
from heedful.models.output_heads import OutputHead, SoftmaxHead
from heedful.search.protocol import StepOutput
from heedful.shapes import Bool, Float, Int


class DilatedDecoderState(NamedTuple):
    """All that is needed to go on writing: what was written, and what is written about."""

    blocks: tuple[Float[Tensor, "B _ E"], ...]  # what each block made of the last places
    unfolded: Float[Tensor, "B U D"]  # what the encoder made of each place; zero past the end
    mask: Bool[Tensor, "B 1 S"]  # where the source has words
    start_positions: Int[Tensor, "B"]  # the number of the next place


class DilatedDecoder(Decoder):
    """Dilated blocks that see nothing of the future, over the sum of source and target.

    (Kalchbrenner et al. 2016, section 3.) Place i reads the embedding of its token plus what the
    encoder made of place i, both 2 d wide, and beyond the unfolded source the embedding alone.
    The paper says that the decoder is stacked on the encoder and not how the two meet: a sum
    needs no weights and leaves the blocks as they are. A token is told from ReLU(norm(.)) of the
    last block, which is where dropout is. Weights are zero: attention goes nowhere.
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        stack: DilatedStack,
        output_head: OutputHead,
        *,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.output_layers = nn.Sequential(nn.LayerNorm(stack.size), nn.ReLU(), nn.Dropout(dropout))
        self.output_head = output_head

    def initial_state(self, encoder_output: EncoderOutput) -> DilatedDecoderState:
        """Make ready to write about a source."""
        # An encoder that does not unfold is read as far as it goes.
        unfolded = (
            encoder_output.states if encoder_output.unfolded is None else encoder_output.unfolded
        )
        return DilatedDecoderState(
            self.stack.initial_state(unfolded),
            unfolded,
            padding_mask(encoder_output.lengths, encoder_output.states.size(1)),
            torch.zeros_like(encoder_output.lengths),
        )

    def step(
        self, tokens: Int[Tensor, "B"], state: DilatedDecoderState
    ) -> StepOutput[DilatedDecoderState]:
        """Read one token; say how likely each next one is."""
        log_probs, after = self._forward(tokens.unsqueeze(1), state)
        zero_weights = torch.zeros_like(state.mask.squeeze(1), dtype=log_probs.dtype)
        return StepOutput(log_probs.squeeze(1), after, zero_weights)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        encoder_output: EncoderOutput,
        *,
        need_weights: bool = False,
    ) -> DecoderOutput:
        """Read a known target, all places at once."""
        log_probs, _ = self._forward(tokens, self.initial_state(encoder_output))
        zero_weights = (
            log_probs.new_zeros(*tokens.shape, encoder_output.states.size(1))
            if need_weights
            else None
        )
        return DecoderOutput(log_probs, zero_weights)

    def _forward(
        self, tokens: Int[Tensor, "B T"], state: DilatedDecoderState
    ) -> tuple[Float[Tensor, "B T N"], DilatedDecoderState]:
        inputs = self.embedding(tokens) + _slice_unfolded(
            state.start_positions, tokens.size(1), state.unfolded
        )
        outputs, blocks = self.stack(inputs, state.blocks)
        memory = Memory(state.unfolded[:, : state.mask.size(-1)], (), state.mask)
        log_probs = self.output_head(self.output_layers(outputs), None, memory)
        return log_probs, state._replace(
            blocks=blocks, start_positions=state.start_positions + tokens.size(1)
        )


def _slice_unfolded(
    first: Int[Tensor, "B"], count: int, unfolded: Float[Tensor, "B U D"]
) -> Float[Tensor, "B T D"]:
    """Take so many places from the first on; past the end there are zeros."""
    places = first.unsqueeze(1) + torch.arange(count, device=first.device)  # (B, T)
    last = unfolded.size(1) - 1
    index = places.clamp(max=last).unsqueeze(-1).expand(-1, -1, unfolded.size(-1))
    return unfolded.gather(1, index).masked_fill((places > last).unsqueeze(-1), 0)


class DilatedDecoderConfig(DilatedConfigBase):
    """Write the target with dilated convolutions over those of the source (Kalchbrenner 2016)."""

    type: Literal["dilated"] = "dilated"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped before the emission."""

    def build(
        self,
        *,
        vocab_size: int,
        memory_size: int,
        encoder_sizes: EncoderStateSizes | None = None,
    ) -> DilatedDecoder:
        """Make the decoder for a vocabulary and an encoder's width."""
        stack = self.build_stack()
        if memory_size != stack.size:
            raise ConfigError(
                "decoder.hidden_size",
                f"a dilated decoder of hidden_size {self.hidden_size} stands on states of width "
                f"{stack.size}, but those of the encoder have {memory_size}",
                "give both sides kind 'dilated' and the same hidden_size",
            )
        return DilatedDecoder(
            self.build_embedding(vocab_size),
            stack,
            SoftmaxHead(stack.size, vocab_size),
            dropout=self.dropout,
        )


# Dilated encoders: a source read by convolutions, and unfolded to the length of its target.
#
# The target is not known yet, so its length is taken to be a |s| + b (Kalchbrenner et al. 2016,
# section 3.2, "dynamic unfolding"). Law: padding has no influence, and a state stands where its word
# stands.


class DynamicUnfolding(nn.Module):
    """|t^| = a |s| + b, to the nearest whole number."""

    def __init__(self, factor: float, offset: int) -> None:
        super().__init__()
        self.factor = factor
        self.offset = offset

    def unfolded_length(self, length: int) -> int:
        """Say how long a source of this length becomes."""
        return round(self.factor * length + self.offset)

    def forward(self, lengths: Int[Tensor, "B"], max_length: int) -> Int[Tensor, "B"]:
        """Say how long sources become, of which none is longer than `max_length`."""
        # Looked up: worked out on another device, a half might be rounded another way.
        sizes = [self.unfolded_length(length) for length in range(max_length + 1)]
        return torch.tensor(sizes, device=lengths.device)[lengths]


class DilatedEncoder(Encoder):
    """Dilated blocks over a source that is first filled up with zeros to the unfolded length.

    (Kalchbrenner et al. 2016, section 3.) The states are those of the words. What the blocks made
    of every place, those behind the words too, is kept beside them, for a decoder to read place
    by place.
    """

    def __init__(
        self, embedding: TokenEmbedding, stack: DilatedStack, unfolding: DynamicUnfolding
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.unfolding = unfolding
        self.output_size = stack.size

    def forward(self, tokens: Int[Tensor, "B S"], lengths: Int[Tensor, "B"]) -> EncoderOutput:
        """Read a batch of sources."""
        size = tokens.size(1)
        mask = padding_mask(lengths, size).squeeze(1)  # (B, S)
        embedded = self.embedding(tokens).masked_fill(~mask.unsqueeze(-1), 0)
        unfolded_size = self.unfolding.unfolded_length(size)
        unfolded_mask = padding_mask(self.unfolding(lengths, size), unfolded_size).squeeze(
            1
        )  # (B, U)
        unfolded = self.stack.forward_bidirectional(
            pad(embedded, (0, 0, 0, unfolded_size - size)), unfolded_mask
        )
        states = unfolded[:, :size].masked_fill(~mask.unsqueeze(-1), 0)
        return EncoderOutput(states, lengths, unfolded=unfolded)


class DilatedEncoderConfig(DilatedConfigBase):
    """Read the source with dilated convolutions (Kalchbrenner et al. 2016)."""

    type: Literal["dilated"] = "dilated"
    length_factor: Annotated[float, Field(ge=1)] = 1.2
    """How many tokens of the target there are to one of the source, at most: the paper's a."""
    length_offset: NonNegativeInt = 0
    """How many more there are, whatever the source: the paper's b."""

    @model_validator(mode="after")
    def _check_odd_kernel(self) -> DilatedEncoderConfig:
        if self.kernel_size % 2 == 0:
            raise ValueError(
                f"an encoder sees as far before as after: kernel must be odd, not {self.kernel_size}"
            )
        return self

    def build(self, *, vocab_size: int) -> DilatedEncoder:
        """Make the encoder for a vocabulary."""
        stack = self.build_stack()
        return DilatedEncoder(
            self.build_embedding(vocab_size),
            stack,
            DynamicUnfolding(self.length_factor, self.length_offset),
        )
