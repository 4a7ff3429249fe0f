"""The tokenizers of source and target, separate or shared, and their settings.

A config can `train` tokenizers and `load` saved ones; both encode alike.
"""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from heedful.config import BaseConfig
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.subword_regularization import SubwordRegularizer
from heedful.tokenization.tokenizer import (
    CharacterTokenizerConfig,
    LabelTokenizerConfig,
    Tokenizer,
    WordTokenizerConfig,
)

TokenizerConfig = Annotated[
    WordTokenizerConfig | CharacterTokenizerConfig | SubwordTokenizerConfig | LabelTokenizerConfig,
    Field(discriminator="type"),
]


class TokenizerPair(NamedTuple):
    """The tokenizers of source and target; the same object if they are shared."""

    source: Tokenizer
    target: Tokenizer

    def save(self, folder: Path) -> None:
        """Write them into the folders `source` and `target`, or `shared`."""
        is_shared = self.source is self.target
        for name, tokenizer in ({"shared": self.source} if is_shared else self._asdict()).items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            tokenizer.save(folder / name)


class RegularizerPair(NamedTuple):
    """The subword regularizers of source and target; None if a side has none."""

    source: SubwordRegularizer | None
    target: SubwordRegularizer | None


class SeparateTokenizersConfig(BaseConfig):
    """A tokenizer for each side."""

    type: Literal["separate"] = "separate"
    source: TokenizerConfig = SubwordTokenizerConfig()
    target: TokenizerConfig = SubwordTokenizerConfig()

    def train(self, source_texts: Iterable[str], target_texts: Iterable[str]) -> TokenizerPair:
        """Train each tokenizer on the texts of its side."""
        return TokenizerPair(self.source.train(source_texts), self.target.train(target_texts))

    def load(self, folder: Path) -> TokenizerPair:
        """Load saved tokenizers."""
        return TokenizerPair(
            self.source.load(folder / "source"), self.target.load(folder / "target")
        )

    def build_regularizers(self, tokenizers: TokenizerPair) -> RegularizerPair:
        """Return the subword regularizers of training texts."""
        return RegularizerPair(
            self.source.build_regularizer(tokenizers.source),
            self.target.build_regularizer(tokenizers.target),
        )


class SharedTokenizerConfig(BaseConfig):
    """One tokenizer for both sides, so that a token has the same id in both."""

    type: Literal["shared"] = "shared"
    tokenizer: TokenizerConfig = SubwordTokenizerConfig()
    regularized_sides: Literal["both", "source", "target"] = "both"
    """Sides to which `tokenizer.subword_regularization` applies."""

    def train(self, source_texts: Iterable[str], target_texts: Iterable[str]) -> TokenizerPair:
        """Train on the texts of both sides."""
        tokenizer = self.tokenizer.train(chain(source_texts, target_texts))
        return TokenizerPair(tokenizer, tokenizer)

    def load(self, folder: Path) -> TokenizerPair:
        """Load the saved tokenizer."""
        tokenizer = self.tokenizer.load(folder / "shared")
        return TokenizerPair(tokenizer, tokenizer)

    def build_regularizers(self, tokenizers: TokenizerPair) -> RegularizerPair:
        """Return the subword regularizers of training texts."""
        regularizer = self.tokenizer.build_regularizer(tokenizers.source)
        return RegularizerPair(
            source=regularizer if self.regularized_sides != "target" else None,
            target=regularizer if self.regularized_sides != "source" else None,
        )


TokenizersConfig = Annotated[
    SeparateTokenizersConfig | SharedTokenizerConfig, Field(discriminator="type")
]
