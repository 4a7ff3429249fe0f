"""Sentences of a text, and the tags within them.

A sentence ends at a line break, and after . ! ? and their like where whitespace and no small letter
follow; a single letter, a number of one or two digits and the abbreviations below do not end one.
Chinese and Japanese full stops need no whitespace.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

_ABBREVIATIONS = """abb abs bd bspw bzw ca chr co corp dept dr ed eds etc evtl fa fig fr geb ggf hr
inc jr ltd max mgr min mio mlle mme mr mrd mrs ms no nr op pp prof rev sen sgt sog sr sra st str tel
usw vgl vol vs zzgl"""
ABBREVIATIONS = tuple(_ABBREVIATIONS.split())
CLOSING, _OPENING = ")]}\"'\u00bb\u201d\u2019\u203a", "([{\"'\u00ab\u201c\u201e\u2018\u2039"
FULL_WIDTH_STOPS, FULL_WIDTH_CLOSING = "\u3002\uff01\uff1f", "\u300d\u300f\uff09"
_WORD = re.compile(
    rf"[^\s{FULL_WIDTH_STOPS}]*[{FULL_WIDTH_STOPS}]+[{FULL_WIDTH_CLOSING}\u201d\u2019]*|\S+"
)
PIECE = re.compile(r"\w+(?:[^\w\s]+\w+)*|[^\w\s]+")  # a word, or the punctuation around it


class InlineTag(NamedTuple):
    """An element within a sentence, or a tag by itself, whose `closing` is empty."""

    opening: str
    closing: str
    first: int
    """Index of the first piece of the sentence, a word or punctuation, that it contains."""
    last: int
    """Index after its last piece; that of a tag by itself is `first`."""
    parent: int
    """Index of the tag that contains it; -1 without one."""


class Sentence(NamedTuple):
    """A sentence to translate."""

    text: str
    tags: Sequence[InlineTag] = ()


def sentence_spans(text: str, *, has_lines: bool = True) -> list[tuple[int, int]]:
    """Return start and end of each sentence that has a letter or digit; has_lines: lines end one"""
    words = [match.span() for match in _WORD.finditer(text)]
    spans, start = [], 0
    for index, (_, end) in enumerate(words):
        gap = text[end : words[index + 1][0]] if index + 1 < len(words) else "\n"
        has_line_break = has_lines and len(f"{gap}.".splitlines()) > 1
        is_last = index + 1 == len(words)
        if is_last or has_line_break or _ends_sentence(text, words[index], words[index + 1][0]):
            spans.append((words[start][0], end))
            start = index + 1
    return [span for span in spans if any(map(str.isalnum, text[slice(*span)]))]


def _ends_sentence(text: str, word: tuple[int, int], next_start: int) -> bool:
    stem = text[slice(*word)].rstrip(CLOSING)
    if stem[-1:] in FULL_WIDTH_STOPS or text[word[1] - 1] in FULL_WIDTH_CLOSING:
        return bool(stem)
    following = text[next_start]
    if stem[-1:] not in (".", "!", "?", "\u2026") or following.islower() or following in CLOSING:
        return False
    if not stem.endswith(".") or stem.endswith(".."):
        return True
    name = stem[:-1].lstrip(_OPENING)
    is_short = all(len(part) <= 2 for part in name.split(".")) and "." in name  # z.B., U.S.
    is_ordinal = name.isdecimal() and len(name) <= 2
    return not (len(name) == 1 or is_short or is_ordinal or name.casefold() in ABBREVIATIONS)
