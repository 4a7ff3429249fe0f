"""The decoders, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from heedful.config.choice import assuming
from heedful.decoders.agreement import require_agreement
from heedful.decoders.bridges import Banks, BridgeConfig, Ends, TanhBridgeConfig
from heedful.decoders.convolutional import ConvolutionalDecoderConfig
from heedful.decoders.dilated import DilatedDecoderConfig
from heedful.decoders.emission import EmissionConfig, VocabularyEmissionConfig
from heedful.decoders.parts import RecurrentParts
from heedful.decoders.recurrent import RecurrentDecoder
from heedful.decoders.transformer import TransformerDecoderConfig
from heedful.decoders.wiring_choices import AttendThenStepConfig, WiringConfig
from heedful.layers.embeddings import Embedding

__all__ = ["RecurrentDecoderConfig", "WiringConfig"]


class RecurrentDecoderConfig(RecurrentParts):
    """Write the target with recurrent cells, and attention if the wiring asks for it."""

    kind: Literal["recurrent"] = "recurrent"
    bridge: BridgeConfig = TanhBridgeConfig()
    """What the first state takes over from the encoder."""
    wiring: WiringConfig = AttendThenStepConfig()
    """When attention is asked, if at all."""
    emission: EmissionConfig = VocabularyEmissionConfig()
    """How a token is said."""

    def build(
        self, *, vocabulary_size: int, memory_size: int, ends: Ends | None = None
    ) -> RecurrentDecoder:
        """Make the decoder for a vocabulary, an encoder's width and what it shows at its ends."""
        banks = Banks(memory_size, ends or Ends(), self.hidden_size, self.num_layers)
        wiring = self.wiring.build(self, memory_size=memory_size)
        decoder = RecurrentDecoder(
            Embedding(vocabulary_size, self.embedding_size, dropout=self.dropout),
            self.bridge.build(banks),
            wiring,
            self.emission.build(feature_size=wiring.output.size, vocabulary_size=vocabulary_size),
        )
        require_agreement(self, self.bridge, self.wiring, self.emission, decoder)
        return decoder


DecoderConfig = Annotated[
    RecurrentDecoderConfig
    | TransformerDecoderConfig
    | ConvolutionalDecoderConfig
    | DilatedDecoderConfig,
    Field(discriminator="kind"),
    assuming("recurrent"),
]
