"""Masked language models: an encoder that predicts masked tokens (BERT; Devlin et al. 2019).

Of the selected tokens, which are the targets, most are replaced by the mask symbol, some by another
token, and some stay, so that the model cannot tell which are right (section 3.1).
"""

from random import Random
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.token_stream import LMBatch
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.models.base import Encoder, ModelOutput
from heedful.models.encoder_decoder import EncoderConfig
from heedful.models.language_model import tie_lm_head
from heedful.models.transformer import TransformerEncoderConfig
from heedful.shapes import Float, Int, TokenIds
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, PAD

Probability = Annotated[float, Field(ge=0, le=1)]


class MaskingConfig(BaseConfig):
    """How tokens are masked (Devlin et al. 2019)."""

    mlm_probability: Annotated[float, Field(gt=0, le=1)] = 0.15
    """Share of all tokens that are selected as targets."""
    mask_replace_prob: Probability = 0.8
    """Share of selected tokens that the mask symbol replaces."""
    random_replace_prob: Probability = 0.1
    """Share of selected tokens that a random token replaces; the rest stay."""

    @model_validator(mode="after")
    def _check_probabilities(self) -> "MaskingConfig":
        total = self.mask_replace_prob + self.random_replace_prob
        if total > 1:
            raise ValueError(f"mask_replace_prob + random_replace_prob is {total:g}, above 1")
        return self


def mask_tokens(tokens: TokenIds, config: MaskingConfig, *, vocab_size: int, seed: str) -> LMBatch:
    """Mask tokens at random; the id of the mask symbol is `vocab_size`."""
    generator = torch.Generator().manual_seed(Random(seed).getrandbits(63))
    selection = torch.rand(tokens.shape, generator=generator).masked_fill(tokens == PAD, 2.0)
    # At least one token, because the mean loss of no targets is not defined.
    is_selected = (selection < config.mlm_probability) | (selection == selection.min())
    draws = torch.rand(tokens.shape, generator=generator)
    random_tokens = torch.randint(NUM_SPECIAL_TOKENS, vocab_size, tokens.shape, generator=generator)
    is_replaced = draws < config.mask_replace_prob + config.random_replace_prob
    inputs = torch.where(is_replaced, random_tokens, tokens)
    inputs = inputs.masked_fill(draws < config.mask_replace_prob, vocab_size)
    return LMBatch(torch.where(is_selected, inputs, tokens), tokens.masked_fill(~is_selected, PAD))


class MaskedLanguageModel(nn.Module):
    """p(x_t | unmasked tokens), by an encoder and W norm(gelu(V h + c)) + b.

    The encoder's vocabulary has one more token, the mask symbol, which comes last: `mask_id`.
    """

    def __init__(self, encoder: Encoder, *, vocab_size: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.vocab_size = self.mask_id = vocab_size
        size = encoder.output_size
        self.head = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.LayerNorm(size))
        # With a row for the mask symbol, so that it can be tied; that row is never predicted.
        self.projection = nn.Linear(size, vocab_size + 1)

    @override
    def forward(self, batch: LMBatch, *, need_weights: bool = False) -> ModelOutput:
        """Score each token at each position; there are no weights to return."""
        encoded = self.encoder(batch.inputs, batch.lengths)
        logits = self.projection(self.head(encoded.states))[..., : self.vocab_size]
        return ModelOutput(logits.log_softmax(dim=-1), None, dict(encoded.auxiliary_losses))

    def predict(self, tokens: Int[Tensor, "T"]) -> Float[Tensor, "T N"]:
        """Return the log-probability of each token at each position of a text."""
        batch = tokens.unsqueeze(0)
        return self(LMBatch(batch, batch)).log_probs.squeeze(0)


class MaskedLanguageModelConfig(BaseConfig):
    """A model of masked tokens (BERT; Devlin et al. 2019)."""

    type: Literal["masked-language-model"] = "masked-language-model"
    encoder: EncoderConfig = TransformerEncoderConfig()
    """The encoder of the text."""
    masking: MaskingConfig = MaskingConfig()
    """How tokens are masked in training and validation."""
    tie_embeddings: bool = True
    """Tie the output projection to the token embeddings."""
    init: InitConfig = DefaultInitConfig()
    """Initial values of the parameters."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> MaskedLanguageModel:
        assert source_vocab_size == target_vocab_size, "a language model has one vocabulary"
        encoder = self.encoder.build(vocab_size=target_vocab_size + 1)
        model = MaskedLanguageModel(encoder, vocab_size=target_vocab_size)
        self.init.initialize(model)
        if self.tie_embeddings:
            tie_lm_head(model.projection, encoder.embedding)
        return model
