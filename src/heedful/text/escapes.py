"""Escapes: how SentencePiece reads text that holds its own marks.

It writes a space as U+2581, and skips a training line that holds U+2585. A text may hold both.
So each of them, and the character that announces an escape, is written as two characters of
the private use area before SentencePiece sees it, and written back after. No two texts are
escaped alike, and an escaped text holds no mark of SentencePiece.
"""

from __future__ import annotations

import re

SPACE_MARK = "\u2581"
NOT_IN_TEXT = "\u2585"
"""A character no escaped text holds; the special symbols are spelled with it."""

_ESCAPE = "\ue000"
_ESCAPED = {
    _ESCAPE: _ESCAPE + "\ue000",
    SPACE_MARK: _ESCAPE + "\ue001",
    NOT_IN_TEXT: _ESCAPE + "\ue002",
}
_PLAIN = {escaped: plain for plain, escaped in _ESCAPED.items()}
_TO_RESTORE = re.compile("|".join(_PLAIN))


def escape(text: str) -> str:
    """Write a text without the marks of SentencePiece."""
    for plain, escaped in _ESCAPED.items():  # the escape character comes first, before it is used
        text = text.replace(plain, escaped)
    return text


def restore(text: str) -> str:
    """Undo `escape`; a half escape, which only a model can write, stays as it is."""
    return _TO_RESTORE.sub(lambda found: _PLAIN[found[0]], text)
