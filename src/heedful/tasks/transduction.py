"""Transduction: one sequence in, another out; translation above all."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from heedful.attention import padding
from heedful.attention.alignments import Looked
from heedful.config import Choice
from heedful.data.collate import Batch, Sources
from heedful.decoders.config import RecurrentDecoderConfig
from heedful.decoders.recurrent import Decoded, DecoderState, RecurrentDecoder
from heedful.encoders.recurrent import RecurrentEncoder, RecurrentEncoderConfig
from heedful.search import Hypothesis, LengthPenalty, Step, beam_search, greedy_search
from heedful.shapes import Float, Int
from heedful.text.vocabulary import BOS, EOS, PAD


class Transduced(NamedTuple):
    """Known targets as the model sees them, and what is wrong with where it looked."""

    log_probs: Float[Tensor, "B T N"]
    weights: Float[Tensor, "B T S"]
    penalties: dict[str, Float[Tensor, ""]]  # by name; sums over the real targets


class Transducer(nn.Module):
    """An encoder that reads a source and a decoder that writes a target about it."""

    def __init__(self, encoder: RecurrentEncoder, decoder: RecurrentDecoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, batch: Batch) -> Transduced:
        """Say how likely each token of known targets is."""
        decoded = self.decoder(batch.inputs, self.encoder(*batch.sources))
        penalties = self.decoder.wiring.attention.penalise(_looked(decoded, batch))
        return Transduced(decoded.log_probs, decoded.weights, penalties)

    def start(self, sources: Sources) -> DecoderState:
        """Read sources, to write about them step by step."""
        return self.decoder.start(self.encoder(*sources))

    def step(self, tokens: Int[Tensor, "B"], state: DecoderState) -> Step[DecoderState]:
        """Read one token; say how likely each next one is."""
        return self.decoder.step(tokens, state)

    def search(
        self,
        sources: Sources,
        *,
        width: int,
        max_lengths: Int[Tensor, "B"],
        penalty: LengthPenalty,
    ) -> list[list[Hypothesis]]:
        """Find likely targets for each source, best first."""
        state = self.start(sources)
        if width == 1:
            found = greedy_search(
                self, state, begin=BOS, end=EOS, max_lengths=max_lengths, penalty=penalty
            )
            return [[hypothesis] for hypothesis in found]
        return beam_search(
            self, state, begin=BOS, end=EOS, width=width, max_lengths=max_lengths, penalty=penalty
        )


def _looked(decoded: Decoded, batch: Batch) -> Looked:
    said = decoded.log_probs.gather(-1, batch.targets.unsqueeze(-1)).squeeze(-1)  # (B, T)
    visible = padding(batch.sources.lengths, decoded.weights.size(-1)).squeeze(1)  # (B, S)
    return Looked(decoded.aligned, said, batch.targets != PAD, visible)


class TransducerConfig(Choice):
    """An encoder and a decoder."""

    encoder: RecurrentEncoderConfig = RecurrentEncoderConfig()
    """What reads the source."""
    decoder: RecurrentDecoderConfig = RecurrentDecoderConfig()
    """What writes the target."""

    def build(self, *, source_size: int, target_size: int) -> Transducer:
        """Make the model for two vocabularies."""
        encoder = self.encoder.build(vocabulary_size=source_size)
        decoder = self.decoder.build(vocabulary_size=target_size, memory_size=encoder.size)
        return Transducer(encoder, decoder)
