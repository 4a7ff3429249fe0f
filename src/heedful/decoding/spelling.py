"""Spelling: which part of a text does each token stand for, and to which word does it belong?

Law: what the tokens of a text are spelled by, put together, is the text. A word is what white
space parts; a token belongs to the word that its first character other than white space is part
of. White space alone belongs to no word, and a byte that only completes a character belongs where
the token before it does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate

from heedful.decoding.translation import NO_WORD
from heedful.text.tokenizers import Tokenizer, VocabularyTokenizer, WordTokenizer
from heedful.text.vocabulary import UNK

_REACH = 3  # tokens before one that it may complete a character with: UTF-8 takes up to four bytes
_WORD = re.compile(r"\s*\S+")


class Speller:
    """Says which part of a text each token stands for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._before = len(tokenizer.decode([UNK]))
        self._lengths: dict[int, int] = {}

    def spell(self, ids: Sequence[int]) -> list[str]:
        """Say what each token adds to the text of those before it."""
        whole = self.tokenizer.decode([UNK, *ids])[self._before :]
        lengths = [self._length(each) for each in ids]
        if sum(lengths) > len(whole):  # there are bytes that make a character only together
            lengths = self._lengths_together(ids)
        ends = [*accumulate(lengths)]
        pieces = [whole[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
        return _without_lead(pieces, len(whole) - len(self.tokenizer.decode(ids)))

    def spell_source(self, ids: Sequence[int], text: str) -> list[str]:
        """Say which part of a text each of its tokens was cut from, unknown ones included."""
        if not isinstance(self.tokenizer, VocabularyTokenizer):
            return self.spell(ids)
        pieces = self.tokenizer.split(self.tokenizer.normalise(text))
        return _without_lead(pieces, int(isinstance(self.tokenizer, WordTokenizer)))

    def _length(self, token: int) -> int:
        if token not in self._lengths:
            self._lengths[token] = len(self.tokenizer.decode([UNK, token])) - self._before
        return self._lengths[token]

    def _lengths_together(self, ids: Sequence[int]) -> list[int]:
        decode = self.tokenizer.decode
        windows = [[UNK, *ids[max(0, place - _REACH) : place + 1]] for place in range(len(ids))]
        return [len(decode(window)) - len(decode(window[:-1])) for window in windows]


def spell_each(tokenizer: Tokenizer) -> list[str]:
    """Say what each entry of a vocabulary adds to a text that has begun."""
    before = tokenizer.decode([UNK])
    return [tokenizer.decode([UNK, each])[len(before) :] for each in range(len(tokenizer))]


def words_of(text: str) -> list[str]:
    """Part a text into words, each with the white space before it."""
    return _WORD.findall(text)


def owners(pieces: Sequence[str], units: Sequence[str]) -> list[int]:
    """Say which unit of a text each piece of it belongs to; both spell the same text."""
    bounds = [number for number, unit in enumerate(units) for _ in unit]
    found, place = list[int](), 0
    for piece in pieces:
        blank = len(piece) - len(piece.lstrip())
        if not piece:
            found.append(found[-1] if found else NO_WORD)
        elif blank == len(piece):
            found.append(NO_WORD)
        else:
            found.append(bounds[place + blank])
        place += len(piece)
    return found


def _without_lead(pieces: list[str], lead: int) -> list[str]:
    """Leave out the space that a text is thought to follow."""
    first = next((place for place, piece in enumerate(pieces) if piece), None)
    if first is not None:
        pieces[first] = pieces[first][lead:]
    return pieces
