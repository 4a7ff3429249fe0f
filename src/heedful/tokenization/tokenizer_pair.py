"""The tokenizers of source and target, separate or shared, and their settings.

A config can `train` tokenizers and `load` saved ones; both encode equally.
"""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from heedful.config import BaseConfig
from heedful.tokenization.byte_level_bpe import BartTokenizerConfig, ByteLevelBPETokenizerConfig
from heedful.tokenization.imported import SentencePieceTokenizerConfig, SubwordNMTTokenizerConfig
from heedful.tokenization.special_texts import (
    PositionTokenizerConfig,
    SentenceWordTokenizerConfig,
    SMILESTokenizerConfig,
    WhitespaceTokenizerConfig,
    WordCharacterTokenizerConfig,
)
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.subword_regularization import SubwordRegularizer
from heedful.tokenization.tokenizer import (
    CharacterTokenizerConfig,
    LabelTokenizer,
    LabelTokenizerConfig,
    NormalizerConfig,
    Tokenizer,
    WordTokenizerConfig,
)
from heedful.tokenization.vocabulary import Vocabulary
from heedful.tokenization.wordpiece import WordPieceTokenizerConfig

TokenizerConfig = Annotated[
    WordTokenizerConfig
    | CharacterTokenizerConfig
    | SubwordTokenizerConfig
    | LabelTokenizerConfig
    | PositionTokenizerConfig
    | SMILESTokenizerConfig
    | WhitespaceTokenizerConfig
    | WordCharacterTokenizerConfig
    | SentenceWordTokenizerConfig
    | SentencePieceTokenizerConfig
    | SubwordNMTTokenizerConfig
    | WordPieceTokenizerConfig
    | ByteLevelBPETokenizerConfig
    | BartTokenizerConfig,
    Field(discriminator="type"),
]
_TRAINING_TIME_SETTINGS = {"subword_regularization", "regularized_sides"}


class TokenizerPair(NamedTuple):
    """The tokenizers of source and target; the same object if they are shared."""

    source: Tokenizer
    target: Tokenizer

    def for_source(self, text: str) -> "TokenizerPair":
        """Return the tokenizers of this source and its target: others with an open vocabulary."""
        if not self.target.is_open:
            return self
        target = self.target.for_source(text, self.source)
        return TokenizerPair(target if self.source is self.target else self.source, target)

    def encode_pairs(
        self, sources: Sequence[str], targets: Sequence[str]
    ) -> tuple[list[list[int]], list[list[int]]]:
        """Encode sources and their targets."""
        if not self.target.is_open:
            return self.source.encode_batch(sources), self.target.encode_batch(targets)
        pairs = [self.for_source(source) for source in sources]
        return (
            [pair.source.encode(text) for pair, text in zip(pairs, sources, strict=True)],
            [pair.target.encode(text) for pair, text in zip(pairs, targets, strict=True)],
        )

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

    @property
    def source_config(self) -> TokenizerConfig:
        """The settings of the source tokenizer."""
        return self.source

    def with_source(self, config: TokenizerConfig) -> Self:
        """Return these settings with another source tokenizer."""
        return self.model_copy(update={"source": config})

    def train(
        self,
        source_texts: Iterable[str],
        target_texts: Iterable[str],
        source_tokenizer: Tokenizer | None = None,
    ) -> TokenizerPair:
        """Train each tokenizer on the texts of its side, unless that of the source is given."""
        source = source_tokenizer or self.source.train(source_texts)
        return TokenizerPair(source, self.target.train(target_texts))

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
    hidden_word_rate: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability that a word which a training source and its target have in common is unknown in
    them, so that copying is learned also where the vocabulary has nearly every training word; needs
    `tokenizer.open_vocabulary`."""

    @model_validator(mode="after")
    def _check_open_vocabulary(self) -> Self:
        if self.hidden_word_rate and not getattr(self.tokenizer, "open_vocabulary", False):
            raise ValueError("hidden_word_rate needs a tokenizer with `open_vocabulary: true`")
        return self

    @property
    def source_config(self) -> TokenizerConfig:
        """The settings of the tokenizer."""
        return self.tokenizer

    def with_source(self, config: TokenizerConfig) -> Self:
        """Return these settings with another tokenizer."""
        return self.model_copy(update={"tokenizer": config})

    def train(
        self,
        source_texts: Iterable[str],
        target_texts: Iterable[str],
        source_tokenizer: Tokenizer | None = None,
    ) -> TokenizerPair:
        """Train on the texts of both sides, unless a tokenizer is given."""
        tokenizer = source_tokenizer or self.tokenizer.train(chain(source_texts, target_texts))
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


class NoTokenizersConfig(BaseConfig):
    """No tokenizers: the data are numbers."""

    type: Literal["none"] = "none"

    @property
    def source_config(self) -> TokenizerConfig:
        """The settings of a tokenizer without tokens."""
        return LabelTokenizerConfig()

    def with_source(self, config: TokenizerConfig) -> Self:
        """Return these settings: there is nothing to replace."""
        del config
        return self

    def train(
        self,
        source_texts: Iterable[str],
        target_texts: Iterable[str],
        source_tokenizer: Tokenizer | None = None,
    ) -> TokenizerPair:
        """Return tokenizers without tokens."""
        del source_texts, target_texts, source_tokenizer
        tokenizer = LabelTokenizer(Vocabulary([]), NormalizerConfig().normalize)
        return TokenizerPair(tokenizer, tokenizer)

    def load(self, folder: Path) -> TokenizerPair:
        """Return tokenizers without tokens."""
        return self.train([], [])

    def build_regularizers(self, tokenizers: TokenizerPair) -> RegularizerPair:
        """Return none."""
        return RegularizerPair(None, None)


TokenizersConfig = Annotated[
    SeparateTokenizersConfig | SharedTokenizerConfig | NoTokenizersConfig,
    Field(discriminator="type"),
]


def tokenization_settings(settings: Any) -> Any:
    """Return settings without those that act only when a batch is formed."""
    if isinstance(settings, dict):
        return {
            name: tokenization_settings(value)
            for name, value in settings.items()
            if name not in _TRAINING_TIME_SETTINGS
        }
    return list(map(tokenization_settings, settings)) if isinstance(settings, list) else settings
