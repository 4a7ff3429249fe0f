"""Models that pool the states of a text into one vector, and project it: W pool(h_1 .. h_S) + b.

With attention pooling, a learned query attends to the states (Yang et al. 2016, section 2.2).
Invariant: padding does not change the output.
"""

from collections.abc import Callable
from typing import Annotated, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type, with_default_type
from heedful.data.text.batching import SourceBatch
from heedful.errors import check
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.layers.pooling import (
    AttentionPoolingConfig,
    MaxPoolingConfig,
    MeanPoolingConfig,
    Pooling,
)
from heedful.models.base import Encoder
from heedful.models.bytenet import DilatedEncoderConfig
from heedful.models.convolutional import ConvolutionalEncoderConfig
from heedful.models.pretrained import PretrainedEncoderConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.models.text_encoders import BagOfWordsEncoderConfig, HierarchicalEncoderConfig
from heedful.models.transformer import TransformerEncoderConfig
from heedful.shapes import Float, Int
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, UNK

_Poolings = MeanPoolingConfig | MaxPoolingConfig | AttentionPoolingConfig
TextPoolingConfig = Annotated[_Poolings, Field(discriminator="type"), allow_bare_type(_Poolings)]
TextEncoderConfig = Annotated[
    RecurrentEncoderConfig
    | TransformerEncoderConfig
    | ConvolutionalEncoderConfig
    | DilatedEncoderConfig
    | BagOfWordsEncoderConfig
    | PretrainedEncoderConfig
    | HierarchicalEncoderConfig,
    Field(discriminator="type"),
    with_default_type("recurrent"),
]


class PooledTextModel(nn.Module):
    """Some numbers for a whole text."""

    def __init__(
        self,
        encoder: Encoder,
        pooling: Pooling,
        *,
        num_outputs: int,
        dropout: float,
        word_dropout: float,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.word_dropout = word_dropout
        self.output_projection = nn.Linear(encoder.output_size, num_outputs)

    def project(self, sources: SourceBatch) -> tuple[Float[Tensor, "B N"], dict[str, Tensor]]:
        """Return the projections of the pooled states, and the losses of the encoder."""
        encoded = self.encoder(self._drop_words(sources.tokens), sources.lengths)
        pooled = self.dropout(self.pooling(encoded.states, encoded.mask.squeeze(1)))
        return self.output_projection(pooled), dict(encoded.auxiliary_losses)

    def _drop_words(self, tokens: Int[Tensor, "B S"]) -> Int[Tensor, "B S"]:
        """Replace tokens by UNK at random, in training (word dropout; Iyyer et al. 2015)."""
        if not (self.training and self.word_dropout):
            return tokens
        is_dropped = torch.rand(tokens.shape, device=tokens.device) < self.word_dropout
        return tokens.masked_fill(is_dropped & (tokens >= NUM_SPECIAL_TOKENS), UNK)


Model = TypeVar("Model", bound=PooledTextModel)


class PooledTextConfigBase(BaseConfig):
    """An encoder, pooling over its states, a linear layer."""

    type: str
    encoder: TextEncoderConfig = RecurrentEncoderConfig()
    """The encoder; its own pooling is used only if it is `hierarchical`."""
    pooling: TextPoolingConfig = AttentionPoolingConfig()
    """How the states become one vector; only `attention` has weights to show."""
    dropout: float = Field(default=0.3, ge=0, lt=1)
    """Dropout probability of the pooled vector."""
    word_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Probability that a token is replaced by the unknown token in training."""
    init: InitConfig = DefaultInitConfig()
    """Initial values of the parameters."""

    def build_model(
        self, model_class: Callable[..., Model], vocab_size: int, num_outputs: int
    ) -> Model:
        """Build a model of this many outputs."""
        message = "would drop marks between sentences, which a hierarchical encoder needs"
        is_valid = self.encoder.type != "hierarchical" or not self.word_dropout
        check(is_valid, "model.word_dropout", message, "set it to 0")
        encoder = self.encoder.build(vocab_size=vocab_size)
        model = model_class(
            encoder,
            self.pooling.build(size=encoder.output_size),
            num_outputs=num_outputs,
            dropout=self.dropout,
            word_dropout=self.word_dropout,
        )
        self.init.initialize(model)
        return model
