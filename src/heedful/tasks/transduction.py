"""Transduction: one sequence in, another out; translation above all."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from heedful.attention import padding
from heedful.attention.alignments import Looked
from heedful.config import Choice
from heedful.data.collate import Batch, Sources
from heedful.decoders.bridges import Ends
from heedful.decoders.config import RecurrentDecoderConfig
from heedful.decoders.recurrent import Decoded, DecoderState, Own, RecurrentDecoder
from heedful.encoders.recurrent import RecurrentEncoder, RecurrentEncoderConfig
from heedful.layers.init import DefaultInitConfig, InitConfig
from heedful.search import Step
from heedful.shapes import Float, Int
from heedful.tasks.model import Model, Transduced
from heedful.text.vocabulary import PAD


class Transducer(Model):
    """An encoder that reads a source and a decoder that writes a target about it."""

    def __init__(self, encoder: RecurrentEncoder, decoder: RecurrentDecoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder

    def forward(self, batch: Batch, teacher_share: float = 1.0, own: Own = "drawn") -> Transduced:
        """Say how likely each token of known targets is."""
        encoded = self.encoder(*batch.sources)
        decoded = self.decoder(batch.inputs, encoded, teacher_share, own)
        penalties = {**encoded.penalties, **self._penalise(decoded, batch)}
        return Transduced(decoded.log_probs, decoded.weights, penalties)

    def start(self, sources: Sources) -> DecoderState:
        """Read sources, to write about them step by step."""
        return self.decoder.start(self.encoder(*sources))

    def step(self, tokens: Int[Tensor, "B"], state: DecoderState) -> Step[DecoderState]:
        """Read one token; say how likely each next one is."""
        return self.decoder.step(tokens, state)

    def _penalise(self, decoded: Decoded, batch: Batch) -> dict[str, Float[Tensor, ""]]:
        if decoded.aligned is None:
            return {}
        said = decoded.log_probs.gather(-1, batch.targets.unsqueeze(-1)).squeeze(-1)  # (B, T)
        visible = padding(batch.sources.lengths, decoded.weights.size(-1)).squeeze(1)  # (B, S)
        looked = Looked(decoded.aligned, said, batch.targets != PAD, visible)
        return self.decoder.wiring.penalise(looked)


class TransducerConfig(Choice):
    """An encoder and a decoder."""

    kind: Literal["encoder-decoder"] = "encoder-decoder"
    encoder: RecurrentEncoderConfig = RecurrentEncoderConfig()
    """What reads the source."""
    decoder: RecurrentDecoderConfig = RecurrentDecoderConfig()
    """What writes the target."""
    init: InitConfig = DefaultInitConfig()
    """Which values the weights begin with."""

    def build(self, *, source_size: int, target_size: int) -> Transducer:
        """Make the model for two vocabularies."""
        encoder = self.encoder.build(vocabulary_size=source_size)
        decoder = self.decoder.build(
            vocabulary_size=target_size,
            memory_size=encoder.size,
            ends=Ends(encoder.end_sizes, encoder.backward_size),
        )
        model = Transducer(encoder, decoder)
        self.init.initialise(model)
        return model
