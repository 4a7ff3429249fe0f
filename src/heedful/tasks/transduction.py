"""Transduction: one sequence in, another out; translation above all."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from heedful.attention import padding
from heedful.attention.alignments import Looked
from heedful.config import Choice
from heedful.data.collate import Batch, Sources
from heedful.decoders.config import RecurrentDecoderConfig
from heedful.decoders.recurrent import Decoded, DecoderState, RecurrentDecoder
from heedful.encoders.recurrent import RecurrentEncoder, RecurrentEncoderConfig
from heedful.search import Step
from heedful.shapes import Int
from heedful.tasks.model import Model, Transduced
from heedful.text.vocabulary import PAD


class Transducer(Model):
    """An encoder that reads a source and a decoder that writes a target about it."""

    def __init__(self, encoder: RecurrentEncoder, decoder: RecurrentDecoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, batch: Batch, teacher_share: float = 1.0) -> Transduced:
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


def _looked(decoded: Decoded, batch: Batch) -> Looked:
    said = decoded.log_probs.gather(-1, batch.targets.unsqueeze(-1)).squeeze(-1)  # (B, T)
    visible = padding(batch.sources.lengths, decoded.weights.size(-1)).squeeze(1)  # (B, S)
    return Looked(decoded.aligned, said, batch.targets != PAD, visible)


class TransducerConfig(Choice):
    """An encoder and a decoder."""

    kind: Literal["encoder-decoder"] = "encoder-decoder"
    encoder: RecurrentEncoderConfig = RecurrentEncoderConfig()
    """What reads the source."""
    decoder: RecurrentDecoderConfig = RecurrentDecoderConfig()
    """What writes the target."""

    def build(self, *, source_size: int, target_size: int) -> Transducer:
        """Make the model for two vocabularies."""
        encoder = self.encoder.build(vocabulary_size=source_size)
        decoder = self.decoder.build(vocabulary_size=target_size, memory_size=encoder.size)
        return Transducer(encoder, decoder)
