"""The text that each token of a sequence stands for, and the word that it belongs to.

A word is a maximal run without whitespace. A token belongs to the word of its first character that
is not whitespace; whitespace alone belongs to no word, and a byte that completes a character
belongs to the word of the token before it. Invariant: the token texts concatenate to the text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

from heedful.tokenization.tokenizer import Tokenizer, VocabularyTokenizer, WordTokenizer
from heedful.tokenization.vocabulary import UNK

NO_WORD_ID = -1
"""Word index of a token without a word: whitespace, or EOS."""

_MAX_CONTEXT = 3  # previous tokens that may complete a character with this one: UTF-8 has 4 bytes
_WORD = re.compile(r"\s*\S+")


class TokenTextMapper:
    """Maps token ids to the parts of the text that they stand for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._offset = len(tokenizer.decode([UNK]))
        self._lengths: dict[int, int] = {}

    def token_texts(self, ids: Sequence[int]) -> list[str]:
        """Return what each token adds to the text of those before it."""
        text = self.tokenizer.decode([UNK, *ids])[self._offset :]
        lengths = [self._length(token) for token in ids]
        if sum(lengths) > len(text):  # some bytes form a character only together
            lengths = self._lengths_in_context(ids)
        ends = [*accumulate(lengths)]
        parts = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        return _strip_leading_space(parts, len(text) - len(self.tokenizer.decode(ids)))

    def source_token_texts(self, ids: Sequence[int], text: str) -> list[str]:
        """Return the part of `text` that each of its tokens comes from, also for UNK."""
        if not isinstance(self.tokenizer, VocabularyTokenizer):
            return self.token_texts(ids)
        parts = self.tokenizer.tokenize(self.tokenizer.normalizer(text))
        return _strip_leading_space(parts, int(isinstance(self.tokenizer, WordTokenizer)))

    def _length(self, token: int) -> int:
        if token not in self._lengths:
            self._lengths[token] = len(self.tokenizer.decode([UNK, token])) - self._offset
        return self._lengths[token]

    def _lengths_in_context(self, ids: Sequence[int]) -> list[int]:
        decode = self.tokenizer.decode
        windows = [
            [UNK, *ids[max(0, position - _MAX_CONTEXT) : position + 1]]
            for position in range(len(ids))
        ]
        return [len(decode(window)) - len(decode(window[:-1])) for window in windows]


def _strip_leading_space(parts: list[str], num_characters: int) -> list[str]:
    """Remove the space that tokenizers assume before a text."""
    first = next((index for index, part in enumerate(parts) if part), None)
    if first is not None:
        parts[first] = parts[first][num_characters:]
    return parts


def vocabulary_texts(tokenizer: Tokenizer) -> list[str]:
    """Return what each entry of the vocabulary adds to a text that has begun."""
    before = tokenizer.decode([UNK])
    return [tokenizer.decode([UNK, token])[len(before) :] for token in range(len(tokenizer))]


def whitespace_words(text: str) -> list[str]:
    """Split a text into words, each with the whitespace before it."""
    return _WORD.findall(text)


def word_ids(token_texts: Sequence[str], words: Sequence[str]) -> list[int]:
    """Return the index of the word of each token; tokens and words spell the same text."""
    word_of_character = [index for index, word in enumerate(words) for _ in word]
    ids: list[int] = []
    position = 0
    for text in token_texts:
        num_spaces = len(text) - len(text.lstrip())
        if not text:
            ids.append(ids[-1] if ids else NO_WORD_ID)
        elif num_spaces == len(text):
            ids.append(NO_WORD_ID)
        else:
            ids.append(word_of_character[position + num_spaces])
        position += len(text)
    return ids
