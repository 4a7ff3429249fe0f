"""Masking: which tokens of a text are hidden, for a model to find them out?

Some tokens are chosen. Most of these are hidden behind a mask symbol; some become another token
and some stay, so that the model cannot tell which of the tokens it sees are right (Devlin et al.
2019, section 3.1). Only the chosen ones are asked for. What is drawn follows from a seed alone.
"""

from __future__ import annotations

from random import Random
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from heedful.config import BaseConfig
from heedful.data.token_stream import LMBatch
from heedful.layers.embeddings import tie_weights
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.models.base import Encoder, ModelOutput
from heedful.models.config import EncoderConfig
from heedful.models.language_model import check_tied_sizes
from heedful.models.transformer import TransformerEncoderConfig
from heedful.shapes import Bool, Float, Int
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, PAD

Probability = Annotated[float, Field(ge=0, le=1)]


class MaskingConfig(BaseConfig):
    """Which tokens are chosen, and what becomes of them (Devlin et al. 2019)."""

    mlm_probability: Annotated[float, Field(gt=0, le=1)] = 0.15
    """Share of all tokens that the model is asked for."""
    mask_replace_prob: Probability = 0.8
    """Share of these that the mask symbol stands for."""
    random_replace_prob: Probability = 0.1
    """Share of these that another token, any of the vocabulary, stands for; the rest stay."""

    @model_validator(mode="after")
    def _check_probabilities(self) -> MaskingConfig:
        if self.mask_replace_prob + self.random_replace_prob > 1:
            raise ValueError("hidden and replaced together must not be more than 1")
        return self


def mask_tokens(
    tokens: Int[Tensor, "B T"], config: MaskingConfig, *, vocab_size: int, seed: str
) -> LMBatch:
    """Choose tokens and hide them; the mask symbol is the id after the last of the vocabulary."""
    chance = torch.Generator().manual_seed(Random(seed).getrandbits(63))
    chosen = _sample_mask(
        torch.rand(tokens.shape, generator=chance), tokens != PAD, config.mlm_probability
    )
    draw = torch.rand(tokens.shape, generator=chance)
    others = torch.randint(NUM_SPECIAL_TOKENS, vocab_size, tokens.shape, generator=chance)
    shown = torch.where(
        draw < config.mask_replace_prob + config.random_replace_prob, others, tokens
    )
    shown = shown.masked_fill(draw < config.mask_replace_prob, vocab_size)
    return LMBatch(torch.where(chosen, shown, tokens), tokens.masked_fill(~chosen, PAD))


def _sample_mask(draws: Tensor, real: Bool[Tensor, "B T"], share: float) -> Bool[Tensor, "B T"]:
    """Choose each real token with this probability, and the first by lot in any case."""
    # Of no targets there would be no mean.
    draws = draws.masked_fill(~real, 2.0)
    return (draws < share) | (draws == draws.min())


# Masked language models: which tokens are hidden in a text that is seen from both sides?
#
# (Devlin et al. 2019, section 3.1.) What is hidden, and how, is decided where the data is made.


class MaskedLanguageModel(nn.Module):
    """p(x_t | all that is seen), by an encoder and W norm(gelu(V h + c)) + b.

    The encoder has one token more than can be said: the mask symbol, which is the last.
    """

    def __init__(self, encoder: Encoder, *, vocab_size: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.vocab_size = vocab_size
        size = encoder.output_size
        self.head = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.LayerNorm(size))
        # As many rows as the encoder's table, which it may be; the last is never said.
        self.projection = nn.Linear(size, vocab_size + 1)

    @property
    def mask_id(self) -> int:
        """The mask symbol."""
        return self.vocab_size

    def forward(self, batch: LMBatch, *, need_weights: bool = False) -> ModelOutput:
        """Score every token at every position; there are no weights to return."""
        encoded = self.encoder(batch.inputs, batch.lengths)
        return ModelOutput(
            self._compute_log_probs(encoded.states), None, dict(encoded.auxiliary_losses)
        )

    def _compute_log_probs(self, states: Float[Tensor, "B T D"]) -> Float[Tensor, "B T N"]:
        logits = self.projection(self.head(states))
        return logits[..., : self.vocab_size].log_softmax(dim=-1)

    def predict(self, tokens: Int[Tensor, "T"]) -> Float[Tensor, "T N"]:
        """Say how likely each token is to stand at each place of one text."""
        text = tokens.unsqueeze(0)
        return self(LMBatch(text, text)).log_probs.squeeze(0)


class MaskedLanguageModelConfig(BaseConfig):
    """A model that finds out which tokens of a text are hidden (BERT; Devlin et al. 2019)."""

    type: Literal["masked-language-model"] = "masked-language-model"
    encoder: EncoderConfig = TransformerEncoderConfig()
    """What reads the text."""
    masking: MaskingConfig = MaskingConfig()
    """Which tokens are hidden in training and validation."""
    tie_embeddings: bool = True
    """Whether a token is said by the vector it is read by."""
    init: InitConfig = DefaultInitConfig()
    """Which values the weights begin with."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> MaskedLanguageModel:
        """Make the model for a vocabulary, which is source and target alike."""
        assert source_vocab_size == target_vocab_size, "a language model has one vocabulary"
        encoder = self.encoder.build(vocab_size=target_vocab_size + 1)
        model = MaskedLanguageModel(encoder, vocab_size=target_vocab_size)
        self.init.initialize(model)
        if self.tie_embeddings:
            check_tied_sizes(encoder.output_size, encoder.embedding.embedding.embedding_dim)
            tie_weights(model.projection, encoder.embedding)
        return model
