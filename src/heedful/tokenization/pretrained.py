"""Base of the tokenizers that come with pretrained models: WordPiece and byte-level BPE.

They are read from the files of a model, not trained. Invariants: the pieces of a text are those of
the library that the model was trained with, but no text is encoded as a special token, whatever it
spells; with `mark_words`, as many ids are below the size of the vocabulary as there are words.
"""

from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from typing_extensions import override

from heedful.errors import ConfigError
from heedful.tokenization.standalone import VOCABULARY_FILE, split_spaces
from heedful.tokenization.tokenizer import Normalizer, Tokenizer, TokenizerConfigBase
from heedful.tokenization.vocabulary import SPECIAL_TOKENS, UNK, Vocabulary


class PretrainedTokenizer(Tokenizer):
    """Pieces of a fixed vocabulary.

    With `mark_words` a text is a list of words, separated by spaces; the first piece of a word has
    its own id, and the others an id above the vocabulary: their own plus its size. A word without
    pieces is unknown.
    """

    config: "PretrainedTokenizerConfig"
    normalizes_first = False

    def __init__(
        self,
        vocabulary: Vocabulary,
        normalizer: Normalizer,
        displayed_tokens: Iterable[str],
        *,
        mark_words: bool,
    ) -> None:
        super().__init__(normalizer, displayed_tokens)
        self.vocabulary = vocabulary
        self.mark_words = mark_words
        self._spellings = ("", SPECIAL_TOKENS[UNK], "", "", *vocabulary.tokens)

    @abstractmethod
    def tokenize(self, text: str) -> list[str]:
        """Split a text into pieces; one that is not in the vocabulary becomes UNK."""

    @abstractmethod
    def tokenize_word(self, word: str) -> list[str]:
        """Split one word of several into pieces."""

    @property
    @override
    def id_bound(self) -> int:
        return 2 * len(self) if self.mark_words else len(self)

    @override
    def _encode(self, texts: list[str]) -> list[list[int]]:
        to_ids = self.vocabulary.tokens_to_ids
        if not self.mark_words:
            return [to_ids(self.tokenize(text)) for text in texts]
        words = ([to_ids(self.tokenize_word(word)) for word in split_spaces(t)] for t in texts)
        return [[token for ids in row for token in self._mark(ids or [UNK])] for row in words]

    def _mark(self, ids: list[int]) -> list[int]:
        return [ids[0], *(token + len(self) for token in ids[1:])]

    @override
    def ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        return super().ids_to_tokens(token % len(self) for token in ids)

    @override
    def save(self, folder: Path) -> None:
        self.vocabulary.save(folder / VOCABULARY_FILE)


class PretrainedTokenizerConfig(TokenizerConfigBase):
    """Settings of tokenizers that come with pretrained models."""

    type: str
    mark_words: bool = False
    """Give the pieces of a word after its first an id above the vocabulary; for taggers."""
    mask_token: str = "[MASK]"
    """How the model's files spell a masked token in a text."""
    mask_lstrip: bool = True
    """A masked token also stands for the white space before it."""

    def train(self, texts: Iterable[str]) -> Any:
        """Raise ConfigError: these tokenizers are read from files."""
        del texts
        message = f"'{self.type}' comes with a pretrained model and is not trained"
        hint = "name the model in model.encoder.path, or use `type: subword`"
        raise ConfigError("tokenizers.type", message, hint)
