"""Transduction: one sequence in, another out; translation above all."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from heedful.attention import padding
from heedful.config import Choice
from heedful.data.collate import Batch, Sources
from heedful.decoders.bridges import Ends
from heedful.decoders.config import DecoderConfig, RecurrentDecoderConfig
from heedful.decoders.decoder import Decoded, Decoder, penalise
from heedful.decoders.own_tokens import Own
from heedful.encoders.config import EncoderConfig
from heedful.encoders.encoder import Encoder
from heedful.encoders.recurrent import RecurrentEncoderConfig
from heedful.layers.encoded import add_up
from heedful.layers.init import DefaultInitConfig, InitConfig
from heedful.layers.tying import share, tie
from heedful.search import Step
from heedful.shapes import Float, Int
from heedful.tasks.model import Model, Transduced
from heedful.text.vocabulary import PAD


class Transducer(Model):
    """An encoder that reads a source and a decoder that writes a target about it."""

    def __init__(self, encoder: Encoder, decoder: Decoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        encoder.keeps_memories = decoder.wants_memories

    def forward(
        self,
        batch: Batch,
        teacher_share: float = 1.0,
        own: Own = "drawn",
        *,
        need_weights: bool = True,
    ) -> Transduced:
        """Say how likely each token of known targets is."""
        encoded = self.encoder(*batch.sources)
        decoded = self.decoder(batch.inputs, encoded, teacher_share, own, need_weights=need_weights)
        penalties = add_up(encoded.penalties, decoded.penalties, _penalties(decoded, batch))
        return Transduced(decoded.log_probs, decoded.weights, penalties)

    def start(self, sources: Sources) -> Any:
        """Read sources, to write about them step by step."""
        return self.decoder.start(self.encoder(*sources))

    def step(self, tokens: Int[Tensor, "B"], state: Any) -> Step[Any]:
        """Read one token; say how likely each next one is."""
        return self.decoder.step(tokens, state)


def _penalties(decoded: Decoded, batch: Batch) -> dict[str, Float[Tensor, ""]]:
    """Say, by name, what is added to the loss for where the decoder looked."""
    if not decoded.looks:
        return {}
    said = decoded.log_probs.gather(-1, batch.targets.unsqueeze(-1)).squeeze(-1)  # (B, T)
    visible = padding(batch.sources.lengths, batch.sources.tokens.size(1)).squeeze(1)  # (B, S)
    return penalise(decoded.looks, said, batch.targets != PAD, visible)


class TransducerConfig(Choice):
    """An encoder and a decoder."""

    kind: Literal["encoder-decoder"] = "encoder-decoder"
    encoder: EncoderConfig = RecurrentEncoderConfig()
    """What reads the source."""
    decoder: DecoderConfig = RecurrentDecoderConfig()
    """What writes the target."""
    embeddings: Literal["separate", "tied", "shared"] = "separate"
    """Whether words are said by the vectors they are read by (tied), on both sides (shared)."""
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
        self._tie(encoder, decoder)
        return model

    def _tie(self, encoder: Encoder, decoder: Decoder) -> None:
        if self.embeddings != "separate":
            tie(decoder.emission.projection, decoder.embedding)
        if self.embeddings == "shared":
            share(encoder.embedding, decoder.embedding)
