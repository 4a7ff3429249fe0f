"""The text classifier: an encoder, pooling over its states, a linear layer over the labels.

p(label | text) = softmax(W pool(h_1 .. h_S) + b); with attention pooling, a learned query attends
to the states (Yang et al. 2016, section 2.2). Invariant: padding does not change the output.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type, with_default_type
from heedful.data.text.batching import Batch, SourceBatch
from heedful.errors import check
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.layers.pooling import (
    AttentionPoolingConfig,
    MaxPoolingConfig,
    MeanPoolingConfig,
    Pooling,
)
from heedful.models.base import Encoder, ModelOutput
from heedful.models.bytenet import DilatedEncoderConfig
from heedful.models.convolutional import ConvolutionalEncoderConfig
from heedful.models.pretrained import PretrainedEncoderConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.models.text_encoders import BagOfWordsEncoderConfig, HierarchicalEncoderConfig
from heedful.models.transformer import TransformerEncoderConfig
from heedful.shapes import Float, Int
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, UNK

_Poolings = MeanPoolingConfig | MaxPoolingConfig | AttentionPoolingConfig
ClassifierPoolingConfig = Annotated[
    _Poolings, Field(discriminator="type"), allow_bare_type(_Poolings)
]
ClassifierEncoderConfig = Annotated[
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


def label_indices(batch: Batch) -> Int[Tensor, "B"]:
    """Return the labels of a batch, counted from 0; negative where a label is unknown."""
    return batch.targets[:, 0] - NUM_SPECIAL_TOKENS


class TextClassifier(nn.Module):
    """A classifier of whole texts."""

    def __init__(
        self,
        encoder: Encoder,
        pooling: Pooling,
        *,
        num_labels: int,
        dropout: float,
        word_dropout: float,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.dropout = nn.Dropout(dropout)
        self.word_dropout = word_dropout
        self.output_projection = nn.Linear(encoder.output_size, num_labels)

    def forward(self, batch: Batch, *, need_weights: bool = False) -> ModelOutput:
        """Return the log-probabilities of labels, one target per text."""
        del need_weights  # `trace_attention` has them
        log_probs, auxiliary_losses = self.classify(batch.sources)
        return ModelOutput(log_probs.unsqueeze(1), None, auxiliary_losses)

    def classify(
        self, sources: SourceBatch
    ) -> tuple[Float[Tensor, "B N"], dict[str, Float[Tensor, ""]]]:
        """Return the log-probabilities of labels and the losses of the encoder."""
        encoded = self.encoder(self._drop_words(sources.tokens), sources.lengths)
        pooled = self.dropout(self.pooling(encoded.states, encoded.mask.squeeze(1)))
        log_probs = self.output_projection(pooled).log_softmax(dim=-1)
        return log_probs, dict(encoded.auxiliary_losses)

    def _drop_words(self, tokens: Int[Tensor, "B S"]) -> Int[Tensor, "B S"]:
        """Replace tokens by UNK at random, in training (word dropout; Iyyer et al. 2015)."""
        if not (self.training and self.word_dropout):
            return tokens
        is_dropped = torch.rand(tokens.shape, device=tokens.device) < self.word_dropout
        return tokens.masked_fill(is_dropped & (tokens >= NUM_SPECIAL_TOKENS), UNK)


class TextClassifierConfig(BaseConfig):
    """A label for a text, by pooling over the states of an encoder (Yang et al. 2016)."""

    type: Literal["text-classifier"] = "text-classifier"
    encoder: ClassifierEncoderConfig = RecurrentEncoderConfig()
    """The encoder; its own pooling is used only if it is `hierarchical`."""
    pooling: ClassifierPoolingConfig = AttentionPoolingConfig()
    """How the states become one vector; only `attention` has weights to show."""
    dropout: float = Field(default=0.3, ge=0, lt=1)
    """Dropout probability of the pooled vector."""
    word_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Probability that a token is replaced by the unknown token in training."""
    init: InitConfig = DefaultInitConfig()
    """Initial values of the parameters."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> TextClassifier:
        num_labels = target_vocab_size - NUM_SPECIAL_TOKENS
        message = f"the training data has {num_labels} label; a classifier needs two or more"
        check(num_labels > 1, "data.train", message, "look at the column of labels")
        message = "would drop marks between sentences, which a hierarchical encoder needs"
        is_valid = self.encoder.type != "hierarchical" or not self.word_dropout
        check(is_valid, "model.word_dropout", message, "set it to 0")
        encoder = self.encoder.build(vocab_size=source_vocab_size)
        model = TextClassifier(
            encoder,
            self.pooling.build(size=encoder.output_size),
            num_labels=num_labels,
            dropout=self.dropout,
            word_dropout=self.word_dropout,
        )
        self.init.initialize(model)
        return model
