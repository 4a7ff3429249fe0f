"""Labels: a token and a weight, written so that nothing in them is hidden.

A token may be empty, a space, a control character or half a letter. Whatever it is, its label
can be seen, takes up room, and cannot move, hide or reorder what stands next to it.
"""

from __future__ import annotations

import unicodedata

from rich.cells import cell_len

EMPTY = "\u2205"
SPACE = "\u2423"
ELLIPSIS = "\u2026"
TRACE = "\u00b7"
"""Stands for a weight that is there but rounds to nothing."""

NOTHING_TO_DRAW = "nothing to draw"

_DOTTED_CIRCLE = "\u25cc"
# Invisible, but part of how Persian, Indic scripts and emoji are spelled.
_JOINERS = "\u200c\u200d"
_VARIATION_SELECTORS = "\ufe0e\ufe0f"
# Letters and signs by the book, but drawn as nothing.
_BLANKS = "\u115f\u1160\u2800\u3164\uffa0"


def visible(token: str) -> str:
    r"""Write a token so that every character of it shows.

    Spaces become open boxes. Controls, bidirectional overrides and other invisible characters
    become escapes such as `\u202e`; so do unpaired surrogates, which no file could hold.
    """
    label = "".join(map(_visible_character, token))
    return _DOTTED_CIRCLE + label if _leans_left(label) else label or EMPTY


def visible_line(text: str) -> str:
    """Write a title on one line; the spaces between its words may stay."""
    return " ".join(map(visible, text.split()))


def _visible_character(character: str) -> str:
    if character == " ":
        return SPACE
    unseen = unicodedata.category(character)[0] in "CZ" or character in _BLANKS
    if unseen and character not in _JOINERS:
        return character.encode("unicode_escape").decode("ascii")
    return character


def _leans_left(label: str) -> bool:
    """Whether a label begins with a mark that would settle on what stands before it."""
    first = label[:1]
    return bool(first) and (unicodedata.category(first)[0] == "M" or cell_len(first) == 0)


def unjoined(label: str) -> str:
    """Take joined emoji apart: terminals disagree about the width of a joined one."""
    return "".join(
        character
        for character in label
        if character not in _JOINERS and character not in _VARIATION_SELECTORS
    )


def shortened(label: str, cells: int) -> str:
    """Cut a label to a number of terminal cells, and show that it was cut."""
    if cell_len(label) <= cells:
        return label
    kept, room = "", cells - cell_len(ELLIPSIS)
    for character in label:
        room -= cell_len(character)
        if room < 0:
            break
        kept += character
    return kept + ELLIPSIS


def exact(weight: float) -> str:
    """Write a weight as a number that can be measured: four digits, however small it is."""
    return f"{weight:.4g}"


def percent(weight: float) -> str:
    """Write a weight as a rounded percentage; nothing for none, a dot for a trace."""
    if weight == 0:
        return ""
    rounded = int(100 * weight + 0.5)
    return str(rounded) if rounded else TRACE
