"""Dilated decoders: a target written by convolutions that stand on those of the source.

Each place reads what the encoder made of the same place, and the target before it; nothing is
looked for. Law: a known target read at once is the same target read step by step.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.attention import Memory, padding
from heedful.decoders.bridges import Ends
from heedful.decoders.decoder import Decoded, Decoder
from heedful.decoders.emission import Emission, VocabularyEmission
from heedful.errors import ConfigError
from heedful.layers.dilated import DilatedParts, DilatedStack
from heedful.layers.embeddings import Embedding
from heedful.layers.encoded import Encoded
from heedful.search.protocol import Step
from heedful.shapes import Bool, Float, Int


class DilatedState(NamedTuple):
    """All that is needed to go on writing: what was written, and what is written about."""

    blocks: tuple[Float[Tensor, "B _ E"], ...]  # what each block made of the last places
    unfolded: Float[Tensor, "B U D"]  # what the encoder made of each place; zero past the end
    mask: Bool[Tensor, "B 1 S"]  # where the source has words
    first: Int[Tensor, "B"]  # the number of the next place


class DilatedDecoder(Decoder):
    """Dilated blocks that see nothing of the future, over the sum of source and target.

    (Kalchbrenner et al. 2016, section 3.) Place i reads the embedding of its token plus what the
    encoder made of place i, both 2 d wide, and beyond the unfolded source the embedding alone.
    The paper says that the decoder is stacked on the encoder and not how the two meet: a sum
    needs no weights and leaves the blocks as they are. A token is told from ReLU(norm(.)) of the
    last block, which is where dropout is. Weights are zero: attention goes nowhere.
    """

    def __init__(
        self, embedding: Embedding, stack: DilatedStack, emission: Emission, *, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.stack = stack
        self.finish = nn.Sequential(nn.LayerNorm(stack.size), nn.ReLU(), nn.Dropout(dropout))
        self.emission = emission

    def start(self, encoded: Encoded) -> DilatedState:
        """Make ready to write about a source."""
        # An encoder that does not unfold is read as far as it goes.
        unfolded = encoded.states if encoded.unfolded is None else encoded.unfolded
        return DilatedState(
            self.stack.begin(unfolded),
            unfolded,
            padding(encoded.lengths, encoded.states.size(1)),
            torch.zeros_like(encoded.lengths),
        )

    def step(self, tokens: Int[Tensor, "B"], state: DilatedState) -> Step[DilatedState]:
        """Read one token; say how likely each next one is."""
        said, after = self._read(tokens.unsqueeze(1), state)
        nowhere = torch.zeros_like(state.mask.squeeze(1), dtype=said.dtype)
        return Step(said.squeeze(1), after, nowhere)

    def read(
        self, tokens: Int[Tensor, "B T"], encoded: Encoded, *, need_weights: bool = True
    ) -> Decoded:
        """Read a known target, all places at once."""
        said, _ = self._read(tokens, self.start(encoded))
        nowhere = said.new_zeros(*tokens.shape, encoded.states.size(1)) if need_weights else None
        return Decoded(said, nowhere)

    def _read(
        self, tokens: Int[Tensor, "B T"], state: DilatedState
    ) -> tuple[Float[Tensor, "B T N"], DilatedState]:
        inputs = self.embedding(tokens) + _at(state.first, tokens.size(1), state.unfolded)
        outputs, blocks = self.stack(inputs, state.blocks)
        memory = Memory(state.unfolded[:, : state.mask.size(-1)], (), state.mask)
        said = self.emission(self.finish(outputs), None, memory)
        return said, state._replace(blocks=blocks, first=state.first + tokens.size(1))


def _at(
    first: Int[Tensor, "B"], count: int, unfolded: Float[Tensor, "B U D"]
) -> Float[Tensor, "B T D"]:
    """Take so many places from the first on; past the end there are zeros."""
    places = first.unsqueeze(1) + torch.arange(count, device=first.device)  # (B, T)
    last = unfolded.size(1) - 1
    index = places.clamp(max=last).unsqueeze(-1).expand(-1, -1, unfolded.size(-1))
    return unfolded.gather(1, index).masked_fill((places > last).unsqueeze(-1), 0)


class DilatedDecoderConfig(DilatedParts):
    """Write the target with dilated convolutions over those of the source (Kalchbrenner 2016)."""

    kind: Literal["dilated"] = "dilated"
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped before the emission."""

    def build(
        self, *, vocabulary_size: int, memory_size: int, ends: Ends | None = None
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
            self.build_embedding(vocabulary_size),
            stack,
            VocabularyEmission(stack.size, vocabulary_size),
            dropout=self.dropout,
        )
