"""Token embeddings, and weights shared between embeddings and output layers."""

import math
from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.positional_encoding import PositionCombiner
from heedful.config import ModuleConfig
from heedful.config.base import allow_bare_type
from heedful.errors import check
from heedful.layers.pooling import MaxPooling
from heedful.layers.rnn import RecurrentLayer
from heedful.layers.rnn_cells import LSTMCell
from heedful.shapes import Bool, Float, Int
from heedful.tokenization.special_texts import NUM_CHARACTERS
from heedful.tokenization.vocabulary import PAD

_NO_CHARACTER = 0


class CharacterEncoder(nn.Module, ABC):
    """Maps the characters of each word, counted from 1 and padded with 0, to a vector."""

    def __init__(
        self, embedding_size: int, feature_size: int, output_size: int | None, dropout: float
    ) -> None:
        """Without `output_size` the features are not projected."""
        super().__init__()
        num_embeddings = 1 + NUM_CHARACTERS
        self.embedding = nn.Embedding(num_embeddings, embedding_size, padding_idx=_NO_CHARACTER)
        self.dropout = nn.Dropout(dropout)
        self.output_size = feature_size if output_size is None else output_size
        self.projection: nn.Module = nn.Identity()
        if output_size is not None:
            self.projection = nn.Linear(feature_size, output_size)

    @override
    def forward(self, characters: Int[Tensor, "*B C"]) -> Float[Tensor, "*B E"]:
        rows = characters.flatten(0, -2)
        features = self.compute_features(self.dropout(self.embedding(rows)), rows != _NO_CHARACTER)
        return self.projection(self.dropout(features)).unflatten(0, characters.shape[:-1])

    @abstractmethod
    def compute_features(
        self, embedded: Float[Tensor, "B C E"], mask: Bool[Tensor, "B C"]
    ) -> Float[Tensor, "B V"]:
        """Return the features of each word."""


class ConvolutionalCharacterEncoder(CharacterEncoder):
    """max over i of W [c_i; ...; c_(i+k-1)] + b  (Ma & Hovy 2016, section 2.1).

    A word is padded with zeros on both sides, so that each of its characters is in the middle of a
    window.
    """

    def __init__(
        self,
        *,
        embedding_size: int,
        num_filters: int,
        kernel_size: int,
        dropout: float,
        output_size: int | None,
    ) -> None:
        super().__init__(embedding_size, num_filters, output_size, dropout)
        self.convolution = nn.Conv1d(embedding_size, num_filters, kernel_size, padding="same")
        self.pooling = MaxPooling()

    @override
    def compute_features(
        self, embedded: Float[Tensor, "B C E"], mask: Bool[Tensor, "B C"]
    ) -> Float[Tensor, "B V"]:
        return self.pooling(self.convolution(embedded.mT).mT, mask)


class RecurrentCharacterEncoder(CharacterEncoder):
    """[h_n; h'_1]: the final states of an LSTM in each direction (Lample et al. 2016, 4.1)."""

    def __init__(
        self, *, embedding_size: int, hidden_size: int, dropout: float, output_size: int | None
    ) -> None:
        super().__init__(embedding_size, hidden_size, output_size, dropout)
        forward_cell, backward_cell = (LSTMCell(embedding_size, hidden_size // 2) for _ in range(2))
        self.layer = RecurrentLayer(forward_cell=forward_cell, backward_cell=backward_cell)

    @override
    def compute_features(
        self, embedded: Float[Tensor, "B C E"], mask: Bool[Tensor, "B C"]
    ) -> Float[Tensor, "B V"]:
        lengths = mask.sum(dim=1).clamp(min=1)
        return self.layer.final_outputs(self.layer(embedded, lengths), lengths)


class CharacterEncoderConfigBase(ModuleConfig):
    """Settings of character encoders."""

    type: str
    embedding_size: PositiveInt = 32
    """Size of a character embedding."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout on character embeddings and on the features of a word."""
    combine: Literal["add", "concat"] = "add"
    """Add the projected features to the word embedding, or concatenate (concat): they are then the
    last part of `encoder.embedding_size`, and word embeddings the rest."""

    @override
    def options(self) -> dict[str, Any]:
        return {name: value for name, value in super().options().items() if name != "combine"}


class ConvolutionalCharacterEncoderConfig(CharacterEncoderConfigBase):
    """Convolution over the characters of a word, and its maximum (Ma & Hovy 2016)."""

    module_class = ConvolutionalCharacterEncoder
    type: Literal["convolution"] = "convolution"
    num_filters: PositiveInt = 128
    """Number of filters."""
    kernel_size: PositiveInt = 3
    """Characters that a filter spans."""


class RecurrentCharacterEncoderConfig(CharacterEncoderConfigBase):
    """A bidirectional LSTM over the characters of a word (Lample et al. 2016)."""

    module_class = RecurrentCharacterEncoder
    type: Literal["lstm"] = "lstm"
    hidden_size: PositiveInt = Field(default=64, multiple_of=2)
    """Size of the final states, both directions together."""


_Encoders = ConvolutionalCharacterEncoderConfig | RecurrentCharacterEncoderConfig
CharacterEncoderConfig = Annotated[
    _Encoders, Field(discriminator="type"), allow_bare_type(_Encoders)
]


class TokenEmbedding(nn.Module):
    """A learned vector per token, with positional encoding if there is a `position_combiner`.

    With `num_segments`, a vector per segment (token type) is also added. With `character_encoder`,
    a token is a word id and the ids of its characters, (*B, 1 + C), and a vector of these is
    added, or with `concat_characters` appended to a shorter vector of the word. Without any of
    them, padding is zero. `scale_embeddings` multiplies vectors by the square root of their size,
    so that the positional encoding does not dominate short ones (Vaswani et al. 2017, 3.4).
    """

    def __init__(
        self,
        vocab_size: int,
        embedding_size: int,
        *,
        dropout: float,
        position_combiner: PositionCombiner | None = None,
        scale_embeddings: bool = False,
        norm: nn.Module | None = None,
        num_segments: int = 0,
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embedding_size, padding_idx=PAD)
        self.position_combiner = position_combiner
        self.embedding_size = (
            embedding_size if position_combiner is None else position_combiner.output_size
        )
        self.scale = math.sqrt(embedding_size) if scale_embeddings else 1.0
        self.norm = norm
        self.dropout = nn.Dropout(dropout)
        # Unscaled vectors must be as long as the positional encoding that is added to them.
        is_short = scale_embeddings or position_combiner is None
        self.reset_vectors(std=embedding_size**-0.5 if is_short else 1.0)
        self.segment_embedding: nn.Module | None = None
        if num_segments:
            self.segment_embedding = nn.Embedding(num_segments, self.embedding_size)
        self.character_encoder: nn.Module | None = None
        self.concat_characters = False

    def append_characters(self, encoder: CharacterEncoder) -> None:
        """Make the output of `encoder` the last part of the vectors."""
        vocab_size, size = self.embedding.weight.shape
        word_size = size - encoder.output_size
        message = f"must exceed the {encoder.output_size} features of characters, but is {size}"
        check(word_size > 0, "encoder.embedding_size", message, "raise it, or set combine to 'add'")
        self.embedding = nn.Embedding(vocab_size, word_size, padding_idx=PAD)
        self.reset_vectors(std=word_size**-0.5)
        self.character_encoder, self.concat_characters = encoder, True

    def reset_vectors(self, *, std: float) -> None:
        """Draw all vectors from N(0, std^2), but for the padding symbol, which is zero."""
        nn.init.normal_(self.embedding.weight, std=std)
        nn.init.zeros_(self.embedding.weight[PAD].detach())

    def forward(
        self,
        tokens: Int[Tensor, "..."],
        start_positions: Int[Tensor, "B"] | int = 0,
        segments: Int[Tensor, "*B"] | None = None,
    ) -> Float[Tensor, "*B E"]:
        """Embed tokens of segment 0, or others; row r begins at position `start_positions[r]`."""
        has_characters = self.character_encoder is not None
        vectors = self.embedding(tokens[..., 0] if has_characters else tokens)
        if self.scale != 1.0:
            vectors = vectors * self.scale
        if self.character_encoder is not None:
            features = self.character_encoder(tokens[..., 1:])
            is_appended = self.concat_characters
            vectors = torch.cat([vectors, features], -1) if is_appended else vectors + features
            tokens = tokens[..., 0]
        if self.position_combiner is not None:
            vectors = self.position_combiner(vectors, start_positions)
        if self.segment_embedding is not None:
            vectors = vectors + self.segment_embedding(tokens * 0 if segments is None else segments)
        vectors = vectors if self.norm is None else self.norm(vectors)
        return self.dropout(vectors)


def tie_weights(
    projection: nn.Linear,
    embedding: TokenEmbedding,
    setting: str = "embeddings",
    untied: str = "'separate'",
) -> None:
    """Use the embeddings as weights of an output layer (Press and Wolf 2017)."""
    output_shape, input_shape = projection.weight.shape, embedding.embedding.weight.shape
    sizes = f"size {output_shape[1]}, but embeddings have size {input_shape[1]}"
    hint = f"make both sizes equal, or set {setting.removeprefix('model.')} to {untied}"
    check(output_shape == input_shape, setting, f"output weights have {sizes}", hint)
    projection.weight = embedding.embedding.weight


def share_embeddings(source: TokenEmbedding, target: TokenEmbedding) -> None:
    """Use the target embeddings also for the source."""
    check_shared_vocabulary(source.embedding.num_embeddings, target.embedding.num_embeddings)
    source_size, target_size = source.embedding.embedding_dim, target.embedding.embedding_dim
    sizes = f"size {source_size}, but target embeddings have size {target_size}"
    hint = "make both sizes equal, or set embeddings to 'separate'"
    check(source_size == target_size, "embeddings", f"source embeddings have {sizes}", hint)
    source.embedding.weight = target.embedding.weight


def check_shared_vocabulary(source_size: int, target_size: int) -> None:
    """Raise ConfigError if source and target cannot share embeddings."""
    sizes = f"{source_size} tokens, but the target vocabulary has {target_size}"
    hint = "set tokenizers.type to 'shared', or embeddings to 'separate'"
    check(source_size == target_size, "embeddings", f"the source vocabulary has {sizes}", hint)
