"""Text choices: which tokenizer cuts the source, and which the target.

A choice can `train` what it describes and `load` what was saved; both give the same thing.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, PositiveInt

from heedful.config import Choice
from heedful.text.normalisation import NormalisationConfig
from heedful.text.tokenizers import CharacterTokenizer, Tokenizer, WordTokenizer
from heedful.text.vocabulary import NUM_SPECIALS

VocabularySize = Annotated[int, Field(gt=NUM_SPECIALS)]
SubwordSize = Annotated[int, Field(gt=NUM_SPECIALS + 256)]


class WordConfig(Choice):
    """Words, signs and white space; rare words are unknown."""

    kind: Literal["word"] = "word"
    max_size: VocabularySize = 30_000
    """Most entries of the vocabulary, special symbols included."""
    min_count: PositiveInt = 1
    """How often a word must be seen to be known."""
    normalisation: NormalisationConfig = NormalisationConfig()
    """What to change in a text first."""

    def train(self, texts: Iterable[str]) -> WordTokenizer:
        """Learn the words of these texts."""
        return WordTokenizer.train(
            texts,
            self.normalisation.build(),
            min_count=self.min_count,
            max_size=self.max_size,
        )

    def load(self, folder: Path) -> WordTokenizer:
        """Read a saved tokenizer."""
        return WordTokenizer.load(folder, self.normalisation.build())


class CharacterConfig(Choice):
    """Characters; long sequences, but hardly anything is unknown."""

    kind: Literal["character"] = "character"
    max_size: VocabularySize = 30_000
    """Most entries of the vocabulary, special symbols included."""
    min_count: PositiveInt = 1
    """How often a character must be seen to be known."""
    normalisation: NormalisationConfig = NormalisationConfig()
    """What to change in a text first."""

    def train(self, texts: Iterable[str]) -> CharacterTokenizer:
        """Learn the characters of these texts."""
        return CharacterTokenizer.train(
            texts,
            self.normalisation.build(),
            min_count=self.min_count,
            max_size=self.max_size,
        )

    def load(self, folder: Path) -> CharacterTokenizer:
        """Read a saved tokenizer."""
        return CharacterTokenizer.load(folder, self.normalisation.build())


class SubwordConfig(Choice):
    """Pieces of words learned by SentencePiece; nothing is unknown."""

    kind: Literal["subword"] = "subword"
    size: SubwordSize = 8000
    """Entries to learn, 4 special symbols and 256 bytes included; little text gives fewer."""
    model: Literal["unigram", "bpe"] = "unigram"
    """Choose pieces by likelihood (Kudo 2018), or by joining frequent pairs (Sennrich 2016)."""
    character_coverage: Annotated[float, Field(ge=0.98, le=1.0)] = 0.9995
    """Share of the characters met that get an entry; the rarest are spelled in bytes."""
    normalisation: NormalisationConfig = NormalisationConfig()
    """What to change in a text first."""

    def train(self, texts: Iterable[str]) -> Tokenizer:
        """Learn the pieces of these texts."""
        from heedful.text.subwords import SubwordTokenizer

        return SubwordTokenizer.train(
            texts,
            self.normalisation.build(),
            size=self.size,
            algorithm=self.model,
            character_coverage=self.character_coverage,
        )

    def load(self, folder: Path) -> Tokenizer:
        """Read a saved tokenizer."""
        from heedful.text.subwords import SubwordTokenizer

        return SubwordTokenizer.load(folder, self.normalisation.build())


TokenizerConfig = Annotated[
    WordConfig | CharacterConfig | SubwordConfig, Field(discriminator="kind")
]


class TextPair(NamedTuple):
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


class SeparateTexts(Choice):
    """A tokenizer for each side."""

    kind: Literal["separate"] = "separate"
    source: TokenizerConfig = SubwordConfig()
    target: TokenizerConfig = SubwordConfig()

    def train(self, source_texts: Iterable[str], target_texts: Iterable[str]) -> TextPair:
        """Learn each side from its own texts."""
        return TextPair(self.source.train(source_texts), self.target.train(target_texts))

    def load(self, folder: Path) -> TextPair:
        """Read saved tokenizers."""
        return TextPair(self.source.load(folder / "source"), self.target.load(folder / "target"))


class SharedText(Choice):
    """One tokenizer for both sides, so that a token means the same in both."""

    kind: Literal["shared"] = "shared"
    tokenizer: TokenizerConfig = SubwordConfig()

    def train(self, source_texts: Iterable[str], target_texts: Iterable[str]) -> TextPair:
        """Learn from the texts of both sides together."""
        tokenizer = self.tokenizer.train(chain(source_texts, target_texts))
        return TextPair(tokenizer, tokenizer)

    def load(self, folder: Path) -> TextPair:
        """Read the saved tokenizer."""
        tokenizer = self.tokenizer.load(folder / "shared")
        return TextPair(tokenizer, tokenizer)


TextConfig = Annotated[SeparateTexts | SharedText, Field(discriminator="kind")]
