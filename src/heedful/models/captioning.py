"""Captioning models: an image encoder and the decoder of any encoder-decoder model."""

from typing import Literal

from heedful.config import BaseConfig
from heedful.errors import check
from heedful.layers.embeddings import tie_weights
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.models.encoder_decoder import DecoderConfig, EncoderDecoderModel
from heedful.models.image_transformers import ImageEncoderConfig
from heedful.models.recurrent.decoder import RecurrentDecoderConfig


class CaptioningConfig(BaseConfig):
    """An image encoder and a decoder."""

    type: Literal["captioning"] = "captioning"
    encoder: ImageEncoderConfig
    """The encoder of the image."""
    decoder: DecoderConfig = RecurrentDecoderConfig()
    """The decoder of the caption."""
    embeddings: Literal["separate", "tied"] = "separate"
    """Tie the output head to the embeddings of words, or do not."""
    init: InitConfig = DefaultInitConfig()
    """Initial values of the parameters."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> EncoderDecoderModel:
        del source_vocab_size  # images have no vocabulary
        head = "" if self.decoder.type == "dilated" else self.decoder.output_head.type
        message, hint = f"{head!r} copies tokens, and an image has none", "choose 'softmax'"
        is_valid = head not in ("pointer-generator", "copy", "copynet", "pointer")
        check(is_valid, "decoder.output_head.type", message, hint)
        encoder = self.encoder.build()
        decoder = self.decoder.build(
            vocab_size=target_vocab_size,
            memory_size=encoder.output_size,
            encoder_sizes=encoder.state_sizes,
        )
        model = EncoderDecoderModel(encoder, decoder)
        self.init.initialize(model)
        if self.embeddings == "tied":
            tie_weights(decoder.output_head.projection, decoder.embedding)
        return model
