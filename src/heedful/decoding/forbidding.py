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

from heedful.decoding.spelling import spell_each
from heedful.search import Rule
from heedful.shapes import Float, Int
from heedful.text.tokenizers import Tokenizer

_PARTING = "\ud800"  # half a surrogate: no text holds one
_LAST = "\U0010ffff"  # what sorts after all that goes on with a text, but a text of this itself
# Half a character, and the characters that `text.escapes` writes others by: what such a token
# spells is known only together with those before it.
_UNSETTLED = ("\ufffd", "\ue000", "\ue001", "\ue002")


class Spelled:
    """A vocabulary with its spelling, made ready to be searched once."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.tokens = spell_each(tokenizer)
        self.unsettled = [
            number for number, token in enumerate(self.tokens) if token.startswith(_UNSETTLED)
        ]
        self._order = sorted(range(len(self.tokens)), key=lambda number: self.tokens[number])
        self._sorted = [self.tokens[number] for number in self._order]
        self._joined = _PARTING.join(self.tokens)
        self._begins = [*accumulate((len(token) + 1 for token in self.tokens), initial=0)]

    def beginning_with(self, text: str) -> list[int]:
        """List the tokens that begin with a text."""
        first = bisect_left(self._sorted, text)
        after = bisect_left(self._sorted, text + _LAST, first)
        return self._order[first:after]

    def containing(self, text: str) -> set[int]:
        """List the tokens that contain a text."""
        found, place = set[int](), self._joined.find(text)
        while place >= 0:
            found.add(bisect_right(self._begins, place) - 1)
            place = self._joined.find(text, place + 1)
        return found


class NeverText(Rule):
    """Phrases that no output contains as whole words."""

    def __init__(self, phrases: Sequence[str], spelled: Spelled) -> None:
        normalise = spelled.tokenizer.normalise
        self.phrases = tuple(_Phrase(normalise(phrase).strip(), spelled) for phrase in phrases)
        self._spelled = spelled

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        written: Int[Tensor, "R T"],
        sentences: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Forbid what would complete one."""
        places = [
            (row, token)
            for row, ids in enumerate(written.tolist())
            for token in self._forbidden(ids)
        ]
        if not places:
            return log_probs
        log_probs = log_probs.clone()
        log_probs[torch.tensor(places, device=log_probs.device).T.unbind()] = -torch.inf
        return log_probs

    def _forbidden(self, ids: list[int]) -> set[int]:
        text = self._spelled.tokenizer.decode(ids)
        found = {token for phrase in self.phrases for token in phrase.completing(text)}
        if text.endswith(_UNSETTLED):
            found.update(self._settling(ids))
        return found

    def _settling(self, ids: list[int]) -> Iterator[int]:
        """Try every token that may complete a character."""
        for token in self._spelled.unsettled:
            text = self._spelled.tokenizer.decode([*ids, token])
            if any(phrase.ends(text) for phrase in self.phrases):
                yield token


class _Phrase:
    """A phrase, and the tokens that would complete it."""

    def __init__(self, text: str, spelled: Spelled) -> None:
        self.text = text
        self._spelled = spelled
        self._after = cache(self._going_on)  # by how much of the phrase has been said
        self._inside = [
            number
            for number in spelled.containing(text)
            if holds(spelled.tokens[number], text, first=1)
        ]

    def completing(self, before: str) -> Iterator[int]:
        """List the tokens that may not follow on a text."""
        yield from self._inside
        for count in range(min(len(self.text), len(before) + 1)):
            if self._ends_with(before, self.text[:count]):
                yield from self._after(count)

    def ends(self, text: str) -> bool:
        """Say whether a text ends with the phrase."""
        return self._ends_with(text, self.text)

    def _ends_with(self, text: str, part: str) -> bool:
        return text.endswith(part) and _begins(self.text, text, len(text) - len(part))

    def _going_on(self, count: int) -> list[int]:
        """List the tokens that begin with the rest of the phrase."""
        rest = self.text[count:]
        return [
            number
            for number in self._spelled.beginning_with(rest)
            if _stops(self.text, self._spelled.tokens[number], len(rest))
        ]


def holds(text: str, phrase: str, *, first: int = 0) -> bool:
    """Say whether a text contains a phrase as whole words, from some place on."""
    place = text.find(phrase, first)
    while place >= 0:
        if _begins(phrase, text, place) and _stops(phrase, text, place + len(phrase)):
            return True
        place = text.find(phrase, place + 1)
    return False


def _begins(phrase: str, text: str, place: int) -> bool:
    """Say whether a phrase that stands here does not begin within a word."""
    return not (place > 0 and _is_of_word(text[place - 1]) and _is_of_word(phrase[0]))


def _stops(phrase: str, text: str, place: int) -> bool:
    """Say whether a phrase that ends here does not end within a word, as far as the text goes."""
    return not (place < len(text) and _is_of_word(text[place]) and _is_of_word(phrase[-1]))


@cache
def _is_of_word(character: str) -> bool:
    """Letters, marks and digits make words; signs and white space part them."""
    return character == "_" or unicodedata.category(character)[0] in "LMN"
