"""Text choices: which tokenizer cuts the source, and which the target.

A choice can `train` what it describes and `load` what was saved; both give the same thing.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from heedful.config import Choice
from heedful.text.normalisation import NormalisationConfig
from heedful.text.tokenizers import CharacterTokenizer, Tokenizer, WordTokenizer
from heedful.text.vocabulary import NUM_SPECIALS

if TYPE_CHECKING:
    from heedful.text.cuts import Cuts, Pieces
    from heedful.text.recutting import Recutter

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


class SamplingConfig(Choice):
    """Cut a text anew each time it is learned from, likely pieces more often (Kudo 2018)."""

    kind: Literal["sampling"] = "sampling"
    alpha: PositiveFloat = 0.2
    """Cuts are drawn by their probability to this power: the smaller, the more they vary."""

    def build(self, pieces: Pieces) -> Cuts:
        """Make the cuts that are drawn so."""
        from heedful.text.sampled_cuts import SampledCuts

        return SampledCuts(pieces, self.alpha)


class DropoutConfig(Choice):
    """Cut a text anew each time it is learned from, leaving out merges (Provilkov et al. 2020)."""

    kind: Literal["dropout"] = "dropout"
    p: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """How likely each merge is left out at each step."""

    def build(self, pieces: Pieces) -> Cuts:
        """Make the cuts that are drawn so."""
        from heedful.text.dropped_merges import DroppedMerges

        return DroppedMerges(pieces, self.p)


RegularisationConfig = Annotated[SamplingConfig | DropoutConfig, Field(discriminator="kind")]
_MODEL_FOR = {"sampling": "unigram", "dropout": "bpe"}


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
    regularisation: RegularisationConfig | None = None
    """How texts that are learned from are cut anew by chance; if not given, they are not."""

    @model_validator(mode="after")
    def _has_the_model_that_is_drawn_from(self) -> Self:
        kind = self.regularisation.kind if self.regularisation else None
        if kind is not None and _MODEL_FOR[kind] != self.model:
            raise ValueError(
                f"regularisation of kind '{kind}' needs `model: {_MODEL_FOR[kind]}`, "
                f"but the model is '{self.model}'"
            )
        return self

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

    def recutter(self, tokenizer: Tokenizer) -> Recutter | None:
        """Give what cuts texts anew that this tokenizer has cut, if they are to be."""
        from heedful.text.recutting import Recutter
        from heedful.text.subwords import SubwordTokenizer

        if self.regularisation is None:
            return None
        assert isinstance(tokenizer, SubwordTokenizer)
        pieces = tokenizer.learned
        return Recutter(pieces, self.regularisation.build(pieces))


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


class Recutters(NamedTuple):
    """What cuts source and target anew by chance; None where nothing does."""

    source: Recutter | None
    target: Recutter | None


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

    def recutters(self, text: TextPair) -> Recutters:
        """Give what cuts texts anew that are learned from."""
        return Recutters(_recutter(self.source, text.source), _recutter(self.target, text.target))


class SharedText(Choice):
    """One tokenizer for both sides, so that a token means the same in both."""

    kind: Literal["shared"] = "shared"
    tokenizer: TokenizerConfig = SubwordConfig()
    regularised: Literal["both", "source", "target"] = "both"
    """Which side is cut anew by chance, if `tokenizer.regularisation` is given."""

    def train(self, source_texts: Iterable[str], target_texts: Iterable[str]) -> TextPair:
        """Learn from the texts of both sides together."""
        tokenizer = self.tokenizer.train(chain(source_texts, target_texts))
        return TextPair(tokenizer, tokenizer)

    def load(self, folder: Path) -> TextPair:
        """Read the saved tokenizer."""
        tokenizer = self.tokenizer.load(folder / "shared")
        return TextPair(tokenizer, tokenizer)

    def recutters(self, text: TextPair) -> Recutters:
        """Give what cuts texts anew that are learned from."""
        recutter = _recutter(self.tokenizer, text.source)
        return Recutters(
            source=recutter if self.regularised != "target" else None,
            target=recutter if self.regularised != "source" else None,
        )


TextConfig = Annotated[SeparateTexts | SharedText, Field(discriminator="kind")]


def _recutter(config: TokenizerConfig, tokenizer: Tokenizer) -> Recutter | None:
    return config.recutter(tokenizer) if isinstance(config, SubwordConfig) else None
