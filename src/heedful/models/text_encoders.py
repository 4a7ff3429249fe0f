"""Encoders of texts for classifiers: hierarchical, and a bag of words.

h_it = words(x_i1 .. x_in), s_i = pool(h_i1 .. h_in), h_i = sentences(s_1 .. s_m)  (Yang et al.
2016, section 2.2). Invariants: padding has no influence; a text of one sentence has one state,
computed from its pooled words; permuting the words of a bag permutes its states.
"""

from typing import Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor
from typing_extensions import override

from heedful.attention.attention import outer_attention
from heedful.attention.masks import padding_mask
from heedful.config import BaseConfig
from heedful.errors import check
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.pooling import AttentionPoolingConfig, Pooling
from heedful.models.base import Encoder, EncoderOutput
from heedful.models.recurrent.encoder import RecurrentEncoder, RecurrentEncoderConfig
from heedful.shapes import Float, Int, Lengths, SourceTokens
from heedful.tokenization.special_texts import SENTENCE_END_ID
from heedful.tokenization.vocabulary import PAD


class SentenceBatch(NamedTuple):
    """The sentences of all texts, in order, as rows of words."""

    tokens: Int[Tensor, "N W"]
    lengths: Int[Tensor, "N"]  # words of each, with the mark or EOS at its end
    num_sentences: Int[Tensor, "B"]  # of each text

    @classmethod
    def from_texts(cls, tokens: SourceTokens, lengths: Lengths) -> "SentenceBatch":
        """Cut texts after each mark between sentences."""
        if tokens.is_meta:  # which only counts operations: about as many as for one sentence
            return cls(tokens, lengths, torch.ones_like(lengths))
        is_real = padding_mask(lengths, tokens.size(1)).squeeze(1)
        is_end = (tokens == SENTENCE_END_ID) & is_real
        # Padding belongs to the last sentence of its text, and is cut off by the lengths.
        sentence = is_end.cumsum(dim=1) - is_end.long()  # (B, S), index in its text
        num_sentences = sentence.amax(dim=1) + 1
        offsets = num_sentences.cumsum(dim=0) - num_sentences
        rows = (sentence + offsets.unsqueeze(1))[is_real]
        counts = torch.bincount(rows, minlength=int(num_sentences.sum()))
        starts = counts.cumsum(dim=0) - counts
        columns = torch.arange(len(rows), device=rows.device) - starts[rows]
        grouped = tokens.new_full((len(counts), int(counts.max())), PAD)
        grouped[rows, columns] = tokens[is_real]
        return cls(grouped, counts, num_sentences)

    def by_text(self, vectors: Float[Tensor, "N D"]) -> Float[Tensor, "B M D"]:
        """Return the vectors of sentences, one row per text, padded with zeros."""
        if vectors.is_meta:
            return vectors.unsqueeze(1)
        longest = int(self.num_sentences.max())
        is_real = padding_mask(self.num_sentences, longest).squeeze(1)
        padded = vectors.new_zeros(*is_real.shape, vectors.size(-1))
        return padded.masked_scatter(is_real.unsqueeze(-1), vectors)


class HierarchicalEncoder(Encoder):
    """Encodes each sentence, pools its words, and encodes the sequence of sentences."""

    def __init__(
        self, words: RecurrentEncoder, pooling: Pooling, sentences: RecurrentEncoder
    ) -> None:
        super().__init__()
        self.words = words
        self.embedding = words.embedding
        self.pooling = pooling
        self.sentences = sentences
        self.output_size = sentences.output_size
        for _, attention in outer_attention(self):
            attention.is_segmented = True  # each sentence has positions of its own

    @override
    def forward(self, tokens: SourceTokens, lengths: Lengths) -> EncoderOutput:
        """Encode texts; the output has one state per sentence."""
        batch = SentenceBatch.from_texts(tokens, lengths)
        encoded = self.words(batch.tokens, batch.lengths)
        vectors = self.pooling(encoded.states, encoded.mask.squeeze(1))
        return self.sentences.encode(batch.by_text(vectors), batch.num_sentences)


class HierarchicalEncoderConfig(BaseConfig):
    """Words, pooled to sentences, and layers over these (Yang et al. 2016)."""

    type: Literal["hierarchical"] = "hierarchical"
    words: RecurrentEncoderConfig = RecurrentEncoderConfig()
    """Encoder of the words of a sentence."""
    pooling: AttentionPoolingConfig = AttentionPoolingConfig()
    """Attention that makes one vector of the words of a sentence."""
    sentences: RecurrentEncoderConfig = RecurrentEncoderConfig()
    """Encoder of the vectors of sentences; its `embedding_size` must be `words.hidden_size`."""

    def build(self, *, vocab_size: int) -> HierarchicalEncoder:
        size, expected = self.sentences.embedding_size, self.words.hidden_size
        message = f"must be {expected}, the size of the states of words, but is {size}"
        setting = "encoder.sentences.embedding_size"
        check(size == expected, setting, message, f"set it to {expected}")
        words = self.words.build(vocab_size=vocab_size)
        sentences = self.sentences.build(vocab_size=1)
        message = "a hierarchical encoder has one column of layers"
        is_plain = isinstance(words, RecurrentEncoder) and isinstance(sentences, RecurrentEncoder)
        check(is_plain, "encoder.num_columns", message, "set it to 1")
        assert isinstance(words, RecurrentEncoder)
        assert isinstance(sentences, RecurrentEncoder)
        del sentences.embedding  # it encodes vectors
        return HierarchicalEncoder(words, self.pooling.build(size=expected), sentences)


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
