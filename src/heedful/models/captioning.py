"""Captioning models: an image encoder and the decoder of any encoder-decoder model.

The encoder may have a loss of its own: which words a caption has, in any order.
"""

import math
from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits

from heedful.config import BaseConfig
from heedful.errors import check
from heedful.layers.embeddings import tie_weights
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.models.base import EncoderOutput
from heedful.models.encoder_decoder import DecoderConfig, EncoderDecoderModel
from heedful.models.image_transformers import ImageEncoderConfig
from heedful.models.recurrent.config import RecurrentDecoderConfig
from heedful.models.transformer import check_encoder_layers
from heedful.shapes import Losses, TokenIds
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS


class WordLoss(nn.Module):
    """-sum_w log p(w is in the caption, or is not), p = sigmoid(W max_i a_i + b), weighted.

    a_i are the cells of the image. It trains the encoder without the decoder, as the word detector
    of Fang et al. (2015, section 3) does, which has a noisy-or over cells in place of the maximum.
    At first every word has the probability 1 / N.
    """

    def __init__(self, cell_size: int, vocab_size: int, weight: float) -> None:
        super().__init__()
        self.projection = nn.Linear(cell_size, vocab_size)
        nn.init.constant_(self.projection.bias, -math.log(vocab_size))
        self.weight = weight

    def forward(self, encoded: EncoderOutput, targets: TokenIds) -> Losses:
        """Return the loss, summed over images; padding of the grid has no influence."""
        pooled = encoded.states.masked_fill(~encoded.mask.mT, -torch.inf).amax(dim=1)
        logits = self.projection(pooled)
        is_present = torch.zeros_like(logits).scatter_(1, targets, 1)
        is_present[:, :NUM_SPECIAL_TOKENS] = 0
        loss = binary_cross_entropy_with_logits(logits, is_present, reduction="sum")
        return {"words": self.weight * loss}


class CaptioningConfig(BaseConfig):
    """An image encoder and a decoder."""

    type: Literal["captioning"] = "captioning"
    encoder: ImageEncoderConfig
    """The encoder of the image."""
    decoder: DecoderConfig = RecurrentDecoderConfig()
    """The decoder of the caption."""
    embeddings: Literal["separate", "tied"] = "separate"
    """Tie the output head to the embeddings of words, or do not."""
    word_loss_weight: NonNegativeFloat = 0.0
    """Weight of a loss that predicts the set of words of a caption from the image alone, and trains
    an image encoder faster; 0 for none."""
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
        check_encoder_layers(encoder, decoder)
        word_loss = None
        if self.word_loss_weight:
            word_loss = WordLoss(encoder.output_size, target_vocab_size, self.word_loss_weight)
        model = EncoderDecoderModel(encoder, decoder, encoder_loss=word_loss)
        self.init.initialize(model)
        if self.embeddings == "tied":
            tie_weights(decoder.output_head.projection, decoder.embedding)
        return model
