"""Forbidden phrases as text, independent of their tokenization.

A token is forbidden if the text would then contain the phrase, starting at a word boundary and
ending with the token or at a word boundary; so no subword may end within a longer word where the
phrase ends. A forced prefix and required phrases take precedence. Invariant: no output contains the
phrase as whole words.
"""

import copy
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate
from typing import Self

import torch
from typing_extensions import override

from heedful.search import LogitsProcessor
from heedful.search.logits_processors import LogProbs, SentenceIds, Tokens
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.vocabulary import UNK

_SEPARATOR = "\ud800"  # half a surrogate pair, which no text contains
_MAX_CHARACTER = "\U0010ffff"
# An incomplete UTF-8 sequence, and the characters that tokenizers write others with: the text of
# such a token is known only together with those before it.
_INCOMPLETE_CHARACTERS = ("\ufffd", "\ue000", "\ue001", "\ue002")


def vocabulary_texts(tokenizer: Tokenizer) -> list[str]:
    """Return the text that each entry of the vocabulary adds to a text that has begun."""
    before = tokenizer.decode([UNK])
    return [tokenizer.decode([UNK, token])[len(before) :] for token in range(len(tokenizer))]


class VocabularyIndex:
    """An index of the texts of a vocabulary."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.texts = vocabulary_texts(tokenizer)
        self.incomplete_tokens = [
            token
            for token, text in enumerate(self.texts)
            if text.startswith(_INCOMPLETE_CHARACTERS)
        ]
        self._order = sorted(range(len(self.texts)), key=lambda token: self.texts[token])
        self._sorted = [self.texts[token] for token in self._order]
        self._joined = _SEPARATOR.join(self.texts)
        self._start_offsets = [*accumulate((len(text) + 1 for text in self.texts), initial=0)]
        self._added_tokens = range(0)

    def for_source(self, tokenizer: Tokenizer, source: Sequence[int]) -> Self:
        """Return an index with the tokens that an open vocabulary has for this source."""
        index, size = copy.copy(self), len(self.tokenizer)
        before = tokenizer.decode([UNK])
        added = range(size, size + len(source))
        texts = [tokenizer.decode([UNK, token])[len(before) :] for token in added]
        index.tokenizer, index.texts, index._added_tokens = tokenizer, [*self.texts, *texts], added
        return index

    def starting_with(self, text: str) -> list[int]:
        """Return the tokens whose text starts with `text`."""
        start = bisect_left(self._sorted, text)
        stop = bisect_left(self._sorted, text + _MAX_CHARACTER, start)
        added = [token for token in self._added_tokens if self.texts[token].startswith(text)]
        return self._order[start:stop] + added

    def containing(self, text: str) -> set[int]:
        """Return the tokens whose text contains `text`."""
        tokens = {token for token in self._added_tokens if text in self.texts[token]}
        position = self._joined.find(text)
        while position >= 0:
            tokens.add(bisect_right(self._start_offsets, position) - 1)
            position = self._joined.find(text, position + 1)
        return tokens


class ForbiddenText(LogitsProcessor):
    """Phrases that no output contains as whole words."""

    def __init__(self, phrases: Sequence[str], index: VocabularyIndex) -> None:
        normalize = index.tokenizer.normalizer
        self.phrases = tuple(_Phrase(normalize(phrase).strip(), index) for phrase in phrases)
        self._index = index

    @override
    def apply(self, log_probs: LogProbs, generated: Tokens, sentence_ids: SentenceIds) -> LogProbs:
        forbidden = [
            (row, token)
            for row, ids in enumerate(generated.tolist())
            for token in self._forbidden_tokens(ids)
        ]
        if not forbidden:
            return log_probs
        log_probs = log_probs.clone()
        log_probs[torch.tensor(forbidden, device=log_probs.device).T.unbind()] = -torch.inf
        return log_probs

    def _forbidden_tokens(self, ids: list[int]) -> set[int]:
        decode = self._index.tokenizer.decode
        text = decode(ids)
        tokens = {token for phrase in self.phrases for token in phrase.completing_tokens(text)}
        if text.endswith(_INCOMPLETE_CHARACTERS):  # a token may complete a character and a phrase
            for token in self._index.incomplete_tokens:
                extended = decode([*ids, token])
                if any(phrase.ends(extended, len(phrase.text)) for phrase in self.phrases):
                    tokens.add(token)
        return tokens


class _Phrase:
    """A phrase and the tokens that complete it."""

    def __init__(self, text: str, index: VocabularyIndex) -> None:
        self.text = text
        self._index = index
        self._continuing_tokens = cache(self._find_continuing_tokens)
        self._containing_tokens = [
            token
            for token in index.containing(text)
            if contains_phrase(index.texts[token], text, start=1)
        ]

    def completing_tokens(self, before: str) -> Iterator[int]:
        """Yield the tokens that may not follow this text."""
        yield from self._containing_tokens
        for count in range(min(len(self.text), len(before) + 1)):
            if self.ends(before, count):
                yield from self._continuing_tokens(count)

    def ends(self, text: str, count: int) -> bool:
        """Return True if the text ends with the first `count` characters of the phrase."""
        start = len(text) - count
        return text.endswith(self.text[:count]) and _starts_at_word(self.text, text, start)

    def _find_continuing_tokens(self, count: int) -> list[int]:
        """Return the tokens that start with the phrase without its first `count` characters."""
        rest = self.text[count:]
        return [
            token
            for token in self._index.starting_with(rest)
            if _ends_at_word(self.text, self._index.texts[token], len(rest))
        ]


def contains_phrase(text: str, phrase: str, *, start: int = 0) -> bool:
    """Return True if a text contains a phrase as whole words from position `start` on."""
    position = text.find(phrase, start)
    while position >= 0:
        end = position + len(phrase)
        if _starts_at_word(phrase, text, position) and _ends_at_word(phrase, text, end):
            return True
        position = text.find(phrase, position + 1)
    return False


def _starts_at_word(phrase: str, text: str, position: int) -> bool:
    before = text[position - 1] if position > 0 else ""
    return not (before and _is_word_character(before) and _is_word_character(phrase[0]))


def _ends_at_word(phrase: str, text: str, position: int) -> bool:
    after = text[position : position + 1]
    return not (after and _is_word_character(after) and _is_word_character(phrase[-1]))


@cache
def _is_word_character(character: str) -> bool:
    """Letters, marks, digits and underscores form words."""
    return character == "_" or unicodedata.category(character)[0] in "LMN"
