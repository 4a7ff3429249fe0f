"""Text choices: which tokenizer cuts the source, and which the target.

A choice can `train` what it describes and `load` what was saved; both give the same thing.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field

from heedful.config import BaseConfig
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.tokenizer import (
    CharacterTokenizerConfig,
    LabelTokenizerConfig,
    Tokenizer,
    WordTokenizerConfig,
)

if TYPE_CHECKING:
    from heedful.tokenization.subword_regularization import SubwordRegularizer


TokenizerConfig = Annotated[
    WordTokenizerConfig | CharacterTokenizerConfig | SubwordTokenizerConfig | LabelTokenizerConfig,
    Field(discriminator="type"),
]


class TokenizerPair(NamedTuple):
    """The tokenizers of source and target; one and the same where they are shared."""

    source: Tokenizer
    target: Tokenizer

    def save(self, folder: Path) -> None:
        """Write both into folders of their own, or the shared one into one."""
        sides = (
            {"shared": self.source}
            if self.source is self.target
            else {"source": self.source, "target": self.target}
        )
        for name, tokenizer in sides.items():
            (folder / name).mkdir(parents=True, exist_ok=True)
            tokenizer.save(folder / name)


class RegularizerPair(NamedTuple):
    """What cuts source and target anew by chance; None where nothing does."""

    source: SubwordRegularizer | None
    target: SubwordRegularizer | None


class SeparateTokenizersConfig(BaseConfig):
    """A tokenizer for each side."""

    type: Literal["separate"] = "separate"
    source: TokenizerConfig = SubwordTokenizerConfig()
    target: TokenizerConfig = SubwordTokenizerConfig()

    def train(self, source_texts: Iterable[str], target_texts: Iterable[str]) -> TokenizerPair:
        """Learn each side from its own texts."""
        return TokenizerPair(self.source.train(source_texts), self.target.train(target_texts))

    def load(self, folder: Path) -> TokenizerPair:
        """Read saved tokenizers."""
        return TokenizerPair(
            self.source.load(folder / "source"), self.target.load(folder / "target")
        )

    def build_regularizers(self, tokenizers: TokenizerPair) -> RegularizerPair:
        """Give what cuts texts anew that are learned from."""
        return RegularizerPair(
            _build_regularizer(self.source, tokenizers.source),
            _build_regularizer(self.target, tokenizers.target),
        )


class SharedTokenizerConfig(BaseConfig):
    """One tokenizer for both sides, so that a token means the same in both."""

    type: Literal["shared"] = "shared"
    tokenizer: TokenizerConfig = SubwordTokenizerConfig()
    regularized_sides: Literal["both", "source", "target"] = "both"
    """Which side is cut anew by chance, if `tokenizer.subword_regularization` is given."""

    def train(self, source_texts: Iterable[str], target_texts: Iterable[str]) -> TokenizerPair:
        """Learn from the texts of both sides together."""
        tokenizer = self.tokenizer.train(chain(source_texts, target_texts))
        return TokenizerPair(tokenizer, tokenizer)

    def load(self, folder: Path) -> TokenizerPair:
        """Read the saved tokenizer."""
        tokenizer = self.tokenizer.load(folder / "shared")
        return TokenizerPair(tokenizer, tokenizer)

    def build_regularizers(self, tokenizers: TokenizerPair) -> RegularizerPair:
        """Give what cuts texts anew that are learned from."""
        recutter = _build_regularizer(self.tokenizer, tokenizers.source)
        return RegularizerPair(
            source=recutter if self.regularized_sides != "target" else None,
            target=recutter if self.regularized_sides != "source" else None,
        )


TokenizersConfig = Annotated[
    SeparateTokenizersConfig | SharedTokenizerConfig, Field(discriminator="type")
]


def _build_regularizer(config: TokenizerConfig, tokenizer: Tokenizer) -> SubwordRegularizer | None:
    return (
        config.build_regularizer(tokenizer) if isinstance(config, SubwordTokenizerConfig) else None
    )
