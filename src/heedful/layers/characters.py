"""Character features: a vector for each word, computed from its spelling.

It is added to the embedding of the word, so that words that were never seen also have one, or is a
part of it, as in Ma & Hovy 2016 and Lample et al. 2016. Invariant: padding has no influence, and a
word without characters has a vector of its own.
"""

from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.config.base import allow_bare_type
from heedful.layers.pooling import MaxPooling
from heedful.layers.rnn import RecurrentLayer
from heedful.layers.rnn_cells import LSTMCell
from heedful.shapes import Bool, Float, Int
from heedful.tokenization.whitespace import NUM_CHARACTERS

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


class CharacterEncoderConfigBase(BaseConfig):
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

    type: Literal["convolution"] = "convolution"
    num_filters: PositiveInt = 128
    """Number of filters."""
    kernel_size: PositiveInt = 3
    """Characters that a filter spans."""

    def build(self, *, output_size: int | None) -> CharacterEncoder:
        return ConvolutionalCharacterEncoder(output_size=output_size, **self.options())


class RecurrentCharacterEncoderConfig(CharacterEncoderConfigBase):
    """A bidirectional LSTM over the characters of a word (Lample et al. 2016)."""

    type: Literal["lstm"] = "lstm"
    hidden_size: PositiveInt = Field(default=64, multiple_of=2)
    """Size of the final states, both directions together."""

    def build(self, *, output_size: int | None) -> CharacterEncoder:
        return RecurrentCharacterEncoder(output_size=output_size, **self.options())


_Encoders = ConvolutionalCharacterEncoderConfig | RecurrentCharacterEncoderConfig
CharacterEncoderConfig = Annotated[
    _Encoders,
    Field(discriminator="type"),
    allow_bare_type(Literal["convolution", "lstm"] | _Encoders),
]
