"""Surrogates: whether a string is text at all.

A Python string can hold halves of UTF-16 pairs (U+D800 to U+DFFF). No encoding can write them,
so they are refused where text comes in, by name and place, rather than deep inside.
"""

from __future__ import annotations

from heedful.errors import DataError


def refuse_surrogates(text: str, *, at: str) -> None:
    """Refuse a string that is not text, saying which character makes it so."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise DataError(
            at,
            f"character {error.start + 1} is U+{ord(text[error.start]):04X}, "
            "half of a surrogate pair, which no text can hold",
            "remove it, or decode the text again from its bytes",
        ) from None
