"""Forbidding: how is a phrase kept out of an output, however it is cut?

Law: no output contains the phrase as whole words. A token is forbidden if the text would then
hold the phrase, beginning where a word begins and ending where the token or a word ends. So it
does not matter into which tokens a phrase is cut. Its price: with subwords, a longer word can not
be put together from the phrase and an ending, though it can still be said by tokens that do not
stop there. What an output is forced to begin with, or must contain, goes before.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import accumulate

import torch
from torch import Tensor

from heedful.decoding.translation import vocabulary_texts
from heedful.search import LogitsProcessor
from heedful.shapes import Float, Int
from heedful.tokenization.tokenizer import Tokenizer

_SEPARATOR = "\ud800"  # half a surrogate: no text holds one
_MAX_CHARACTER = (
    "\U0010ffff"  # what sorts after all that goes on with a text, but a text of this itself
)
# Half a character, and the characters that `text.escapes` writes others by: what such a token
# spells is known only together with those before it.
_INCOMPLETE_CHARACTERS = ("\ufffd", "\ue000", "\ue001", "\ue002")


class VocabularyIndex:
    """A vocabulary with its spelling, made ready to be searched once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.tokens = vocabulary_texts(tokenizer)
        self.incomplete_tokens = [
            number
            for number, token in enumerate(self.tokens)
            if token.startswith(_INCOMPLETE_CHARACTERS)
        ]
        self._order = sorted(range(len(self.tokens)), key=lambda number: self.tokens[number])
        self._sorted = [self.tokens[number] for number in self._order]
        self._joined = _SEPARATOR.join(self.tokens)
        self._start_offsets = [*accumulate((len(token) + 1 for token in self.tokens), initial=0)]

    def starting_with(self, text: str) -> list[int]:
        """List the tokens that begin with a text."""
        first = bisect_left(self._sorted, text)
        after = bisect_left(self._sorted, text + _MAX_CHARACTER, first)
        return self._order[first:after]

    def containing(self, text: str) -> set[int]:
        """List the tokens that contain a text."""
        found, position = set[int](), self._joined.find(text)
        while position >= 0:
            found.add(bisect_right(self._start_offsets, position) - 1)
            position = self._joined.find(text, position + 1)
        return found


class ForbiddenText(LogitsProcessor):
    """Phrases that no output contains as whole words."""

    def __init__(self, phrases: Sequence[str], index: VocabularyIndex) -> None:
        normalize = index.tokenizer.normalizer
        self.phrases = tuple(_Phrase(normalize(phrase).strip(), index) for phrase in phrases)
        self._index = index

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        generated: Int[Tensor, "R T"],
        sentence_ids: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Forbid what would complete one."""
        places = [
            (row, token)
            for row, ids in enumerate(generated.tolist())
            for token in self._forbidden(ids)
        ]
        if not places:
            return log_probs
        log_probs = log_probs.clone()
        log_probs[torch.tensor(places, device=log_probs.device).T.unbind()] = -torch.inf
        return log_probs

    def _forbidden(self, ids: list[int]) -> set[int]:
        text = self._index.tokenizer.decode(ids)
        found = {token for phrase in self.phrases for token in phrase.completing_tokens(text)}
        if text.endswith(_INCOMPLETE_CHARACTERS):
            found.update(self._completing_characters(ids))
        return found

    def _completing_characters(self, ids: list[int]) -> Iterator[int]:
        """Try every token that may complete a character."""
        for token in self._index.incomplete_tokens:
            text = self._index.tokenizer.decode([*ids, token])
            if any(phrase.ends(text) for phrase in self.phrases):
                yield token


class _Phrase:
    """A phrase, and the tokens that would complete it."""

    def __init__(self, text: str, index: VocabularyIndex) -> None:
        self.text = text
        self._index = index
        self._after = cache(self._tokens_continuing)  # by how much of the phrase has been said
        self._tokens_containing = [
            number
            for number in index.containing(text)
            if contains_phrase(index.tokens[number], text, first=1)
        ]

    def completing_tokens(self, before: str) -> Iterator[int]:
        """List the tokens that may not follow on a text."""
        yield from self._tokens_containing
        for count in range(min(len(self.text), len(before) + 1)):
            if self._ends_with_part(before, self.text[:count]):
                yield from self._after(count)

    def ends(self, text: str) -> bool:
        """Say whether a text ends with the phrase."""
        return self._ends_with_part(text, self.text)

    def _ends_with_part(self, text: str, part: str) -> bool:
        return text.endswith(part) and _starts_at_word(self.text, text, len(text) - len(part))

    def _tokens_continuing(self, count: int) -> list[int]:
        """List the tokens that begin with the rest of the phrase."""
        rest = self.text[count:]
        return [
            number
            for number in self._index.starting_with(rest)
            if _ends_at_word(self.text, self._index.tokens[number], len(rest))
        ]


def contains_phrase(text: str, phrase: str, *, first: int = 0) -> bool:
    """Say whether a text contains a phrase as whole words, from some place on."""
    position = text.find(phrase, first)
    while position >= 0:
        if _starts_at_word(phrase, text, position) and _ends_at_word(
            phrase, text, position + len(phrase)
        ):
            return True
        position = text.find(phrase, position + 1)
    return False


def _starts_at_word(phrase: str, text: str, position: int) -> bool:
    """Say whether a phrase that stands here does not begin within a word."""
    return not (
        position > 0 and _is_word_character(text[position - 1]) and _is_word_character(phrase[0])
    )


def _ends_at_word(phrase: str, text: str, position: int) -> bool:
    """Say whether a phrase that ends here does not end within a word, as far as the text goes."""
    return not (
        position < len(text)
        and _is_word_character(text[position])
        and _is_word_character(phrase[-1])
    )


@cache
def _is_word_character(character: str) -> bool:
    """Letters, marks and digits make words; signs and white space part them."""
    return character == "_" or unicodedata.category(character)[0] in "LMN"
