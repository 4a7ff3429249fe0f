"""Words: where a word begins and ends.

A piece is a word, a sign or a white space, with the one space before it: "in horto." becomes
" in", " horto", ".". The text is thought to follow a space, so a word is the same piece at the
start as within, and the pieces joined are that space and the text, to the last character.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import chain

_JOINERS = "\u200c\u200d"
# Unicode keeps all combining marks in these two stretches.
_WHERE_MARKS_ARE = (range(0x20000), range(0xE0100, 0xE01F0))


def split_words(text: str) -> list[str]:
    """Cut a text into words, signs and white space."""
    return _pattern().findall(" " + text) if text else []


def join_words(pieces: list[str]) -> str:
    """Put the pieces together, without the space the text was thought to follow."""
    return "".join(pieces).removeprefix(" ")


@cache
def _pattern() -> re.Pattern[str]:
    # re's \w lacks the combining marks that Indic words are written with, and the joiners that
    # stand inside Persian and Indic words.
    return re.compile(rf" ?[\w{_marks()}{_JOINERS}]+| ?\S|\s")


def _marks() -> str:
    """All combining marks as ranges, which re tries much faster than single characters."""
    marks = {each for each in chain.from_iterable(_WHERE_MARKS_ARE) if _is_mark(chr(each))}
    firsts = sorted(each for each in marks if each - 1 not in marks)
    lasts = sorted(each for each in marks if each + 1 not in marks)
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in zip(firsts, lasts, strict=True))


def _is_mark(character: str) -> bool:
    return unicodedata.category(character).startswith("M")
