"""The bag of words: embeddings as states, without layers and without order.

Invariant: permuting the words of a source permutes the states, so every pooling of them, and with
it the output of a classifier, stays the same.
"""

from typing import Literal

from pydantic import Field, PositiveInt
from typing_extensions import override

from heedful.attention.masks import padding_mask
from heedful.config import BaseConfig
from heedful.layers.embeddings import TokenEmbedding
from heedful.models.base import Encoder, EncoderOutput
from heedful.shapes import Lengths, SourceTokens


class BagOfWordsEncoder(Encoder):
    """h_s = E x_s; the mean of these is the text representation of Joulin et al. 2017."""

    def __init__(self, embedding: TokenEmbedding) -> None:
        super().__init__()
        self.embedding = embedding
        self.output_size = embedding.embedding_size

    @override
    def forward(self, tokens: SourceTokens, lengths: Lengths) -> EncoderOutput:
        states = self.embedding(tokens)
        is_padding = ~padding_mask(lengths, states.size(1)).mT  # (B, S, 1)
        return EncoderOutput(states.masked_fill(is_padding, 0), lengths)


class BagOfWordsEncoderConfig(BaseConfig):
    """Embeddings of the words, in no order; the pooling is the whole encoder."""

    type: Literal["bag-of-words"] = "bag-of-words"
    embedding_size: PositiveInt = 256
    """Size of a token embedding, and of the states."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout probability of embeddings."""

    def build(self, *, vocab_size: int) -> BagOfWordsEncoder:
        embedding = TokenEmbedding(vocab_size, self.embedding_size, dropout=self.dropout)
        return BagOfWordsEncoder(embedding)
