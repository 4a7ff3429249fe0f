"""The tagger: an encoder of words, a score of each tag for each word, a distribution over tags.

p(tags | words) is a product of softmaxes, or a linear-chain CRF (Lample et al. 2016). Invariant:
padding, and the other sentences of a batch, have no influence.
"""

from typing import Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import pad

from heedful.attention.masks import padding_mask
from heedful.config import BaseConfig
from heedful.data.text.batching import Batch, SourceBatch
from heedful.errors import check
from heedful.layers.crf import Emissions, SoftmaxTagHeadConfig, TagHead, TagHeadConfig, Tags
from heedful.layers.embeddings import CharacterEncoderConfig, TokenEmbedding
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.models.base import Encoder, EncoderOutput
from heedful.models.encoder_decoder import EncoderConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.shapes import Float, Int, Lengths, Losses, TargetMask
from heedful.tokenization.special_texts import MAX_CHARACTERS
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, UNK

TagScheme = Literal["bio", "bioes"]


class TaggerOutput(NamedTuple):
    """Output of a tagger for known tags."""

    log_probs: Float[Tensor, "B"]  # of all tags of a sentence
    auxiliary_losses: Losses


class TagScores(NamedTuple):
    """The scores of tags for the words of sentences."""

    emissions: Emissions
    mask: TargetMask  # real words
    auxiliary_losses: Losses


class SequenceTagger(nn.Module):
    """A tagger of words; what `encoder` reads ends with EOS, which has no tag.

    With `splits_words` it reads pieces of words, and the state of the first piece is that of a word
    (Devlin et al. 2019, section 5.3).
    """

    def __init__(
        self,
        encoder: Encoder,
        head: TagHead,
        *,
        vocab_size: int,
        num_labels: int,
        has_characters: bool,
        splits_words: bool = False,
        dropout: float,
        word_dropout: float,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.vocab_size = vocab_size
        self.has_characters = has_characters
        self.splits_words = splits_words
        self.dropout = nn.Dropout(dropout)
        self.word_dropout = word_dropout
        self.output_projection = nn.Linear(encoder.output_size, num_labels)

    def forward(self, batch: Batch, *, need_weights: bool = False) -> TaggerOutput:
        """Return the log-probability of the tags of each sentence.

        A sentence with a tag that is not in the vocabulary has none; it counts as 0.
        """
        del need_weights  # `trace_attention` has them
        scores = self.score_tags(batch.sources, batch.targets.size(1))
        tags = tag_indices(batch)
        log_probs = self.head.log_likelihood(scores.emissions, tags.clamp(min=0), scores.mask)
        is_known = (tags >= 0) | ~scores.mask
        return TaggerOutput(log_probs * is_known.all(dim=1), scores.auxiliary_losses)

    def score_tags(self, sources: SourceBatch, max_words: int) -> TagScores:
        """Return the scores of tags for at most `max_words` words, EOS included."""
        if self.splits_words:
            encoded, lengths = self._encode_pieces(sources, max_words)
        else:
            tokens, lengths = self._split_words(sources, max_words)
            encoded = self.encoder(self._drop_words(tokens), lengths)
        emissions = self.output_projection(self.dropout(encoded.states))
        positions = torch.arange(max_words, device=lengths.device)
        return TagScores(emissions, positions < lengths[:, None] - 1, encoded.auxiliary_losses)

    def _encode_pieces(self, sources: SourceBatch, max_words: int) -> tuple[EncoderOutput, Lengths]:
        """Return the states of words, which are those of their first pieces, and their number.

        Ids below the size of the vocabulary are first pieces; others continue a word.
        """
        tokens, num_tokens = sources
        is_first = padding_mask(num_tokens, tokens.size(1)).squeeze(1) & (tokens < self.vocab_size)
        encoded = self.encoder(self._drop_words(tokens % self.vocab_size), num_tokens)
        # A stable sort puts the positions of first pieces, in their order, before all others.
        positions = is_first.int().sort(dim=1, descending=True, stable=True).indices
        positions = pad(positions, (0, max(0, max_words - tokens.size(1))))[:, :max_words]
        states = encoded.states.take_along_dim(positions.unsqueeze(-1), dim=1)
        return encoded._replace(states=states), is_first.sum(dim=1).clamp(max=max_words)

    def _split_words(
        self, sources: SourceBatch, max_words: int
    ) -> tuple[Int[Tensor, "B W ..."], Lengths]:
        """Return words and their number; with characters, each as a row of ids, (B, W, 1 + C).

        Ids below the size of the vocabulary are words; those that follow a word are its characters.
        """
        tokens, num_tokens = sources
        positions = torch.arange(tokens.size(1), device=tokens.device)
        is_real = positions < num_tokens[:, None]
        is_word = is_real & (tokens < self.vocab_size)
        word_indices = is_word.cumsum(dim=1) - 1
        starts = (positions * is_word).cummax(dim=1).values
        offsets = positions - starts  # 0 for the word itself
        row_size = 1 + (MAX_CHARACTERS if self.has_characters else 0)
        is_kept = is_real & (offsets < row_size) & (word_indices < max_words)
        # What is not kept goes to a last row, which is cut off.
        indices = torch.where(is_kept, word_indices * row_size + offsets, max_words * row_size)
        values = torch.where(is_word, tokens, tokens - self.vocab_size + 1)
        table = tokens.new_zeros(len(tokens), (max_words + 1) * row_size)
        table = table.scatter(1, indices, values).unflatten(1, (max_words + 1, row_size))
        words = table[:, :max_words] if self.has_characters else table[:, :max_words, 0]
        return words, is_word.sum(dim=1).clamp(max=max_words)

    def _drop_words(self, tokens: Int[Tensor, "B W ..."]) -> Int[Tensor, "B W ..."]:
        """Replace words by UNK at random, in training, but keep their characters."""
        if not (self.training and self.word_dropout):
            return tokens
        rows = tokens if tokens.dim() == 3 else tokens.unsqueeze(-1)
        words, characters = rows[..., :1], rows[..., 1:]
        is_dropped = torch.rand(words.shape, device=words.device) < self.word_dropout
        words = words.masked_fill(is_dropped & (words >= NUM_SPECIAL_TOKENS), UNK)
        return torch.cat([words, characters], dim=-1).view_as(tokens)


def tag_indices(batch: Batch) -> Tags:
    """Return the tags of a batch, counted from 0; negative if unknown, and in padding."""
    return batch.targets - NUM_SPECIAL_TOKENS


class SequenceTaggerConfig(BaseConfig):
    """A tag for each word, from the states of an encoder (Lample et al. 2016)."""

    type: Literal["sequence-tagger"] = "sequence-tagger"
    encoder: EncoderConfig = RecurrentEncoderConfig()
    """The encoder of the words; its own pooling is not used."""
    characters: CharacterEncoderConfig | None = None
    """Features from the characters of words; need `tokenizers.source.type: word-character`."""
    output_head: TagHeadConfig = SoftmaxTagHeadConfig()
    """Independent tags (softmax), or scores of neighboring tags, too (crf)."""
    scheme: TagScheme | None = None
    """Predict only tags that are valid spans: B-X I-X (bio) or also E-X, S-X (bioes)."""
    dropout: float = Field(default=0.3, ge=0, lt=1)
    """Dropout probability of the states of the encoder."""
    word_dropout: float = Field(default=0.0, ge=0, lt=1)
    """Probability that a word is replaced by the unknown token in training."""
    init: InitConfig = DefaultInitConfig()
    """Initial values of the parameters."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> SequenceTagger:
        num_labels = target_vocab_size - NUM_SPECIAL_TOKENS
        message = "the training data has no tags"
        check(num_labels > 0, "data.train", message, "look at the column of tags")
        encoder = self.encoder.build(vocab_size=source_vocab_size)
        if self.characters is not None:
            embedding = getattr(encoder, "embedding", None)
            message = f"an encoder of type '{self.encoder.type}' has no word embeddings to add to"
            is_valid = isinstance(embedding, TokenEmbedding)
            check(is_valid, "model.characters", message, "remove model.characters")
            if self.characters.combine == "concat":
                message = "a pretrained encoder has embeddings of its own size"
                is_valid = isinstance(encoder.embedding.embedding, nn.Embedding)
                check(is_valid, "model.characters.combine", message, "set it to 'add'")
                encoder.embedding.append_characters(self.characters.build(output_size=None))
            else:
                size = encoder.embedding.embedding.embedding_dim
                encoder.embedding.character_encoder = self.characters.build(output_size=size)
        model = SequenceTagger(
            encoder,
            self.output_head.build(num_labels=num_labels),
            vocab_size=source_vocab_size,
            num_labels=num_labels,
            has_characters=self.characters is not None,
            splits_words=getattr(self.encoder, "splits_words", False),
            dropout=self.dropout,
            word_dropout=self.word_dropout,
        )
        self.init.initialize(model)
        return model
