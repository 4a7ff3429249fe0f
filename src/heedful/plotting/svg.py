"""Colours: what a weight looks like.

A weight of zero has the colour of the track, a weight of one that of the ink, and a weight
between is a straight mixture of both: the same as ink of that opacity laid over the track.
Each palette holds one hue, so lightness alone carries the weight, to every kind of eye. Digits
on a shaded cell change from one side of the scale to the other at `DARK_TEXT_THRESHOLD`, and the palettes
are tuned so that they keep a contrast of 4.5 to 1 on both sides of it.
"""

from __future__ import annotations

import unicodedata
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from rich.cells import cell_len

DARK_TEXT_THRESHOLD = 0.64
"""Cells heavier than this carry digits in the opposite colour."""
FAINT_THRESHOLD = 0.05
"""Cells lighter than this carry digits that step back."""


class Palette(NamedTuple):
    """The colours of a picture, as `#rrggbb`."""

    background: str
    empty_cell: str
    full_cell: str
    text_on_empty: str  # digits on light weights
    text_on_full: str  # digits on heavy weights
    text: str
    muted: str
    rule: str
    accent: str  # what the reader points at


LIGHT = Palette(
    background="#ffffff",
    empty_cell="#eef1f8",
    full_cell="#1e2a80",
    text_on_empty="#000000",
    text_on_full="#ffffff",
    text="#171b2e",
    muted="#5d6579",
    rule="#d9deea",
    accent="#c2410c",
)
DARK = Palette(
    background="#10141f",
    empty_cell="#1c2333",
    full_cell="#80a0ff",
    text_on_empty="#ffffff",
    text_on_full="#000000",
    text="#e7eaf4",
    muted="#98a1b5",
    rule="#2b3347",
    accent="#fdba74",
)


def weight_color(palette: Palette, weight: float) -> str:
    """Mix the colour of a weight."""
    pairs = zip(_channels(palette.empty_cell), _channels(palette.full_cell), strict=True)
    mixed = [round(track + (full_cell - track) * weight) for track, full_cell in pairs]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def _channels(color: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(color.removeprefix("#")))


def digit_color(palette: Palette, weight: float) -> str:
    """Choose the colour in which digits are readable on the shade of a weight."""
    return palette.text_on_full if weight > DARK_TEXT_THRESHOLD else palette.text_on_empty


def css_variables() -> str:
    """Write both palettes as CSS custom properties, chosen by what the reader's system prefers."""
    return (
        f":root {{ color-scheme: light dark; {_variables(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {_variables(DARK)} }} }}\n"
    )


def _variables(palette: Palette) -> str:
    return " ".join(
        f"--{name.replace('_', '-')}: {colour};" for name, colour in palette._asdict().items()
    )


# Drawing: the few SVG elements that a picture is made of.
#
# Elements are built as a tree and written by an XML writer, so no text can break out of its
# place. A document brings its own style, with colours for light and for dark pages, and its own
# background, so that it looks the same wherever it is shown.

_STYLE = """
text {{ font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial,
  sans-serif; font-size: 15px; fill: {text}; }}
.paper {{ fill: {background}; stroke: {rule}; }}
.track {{ fill: {empty_cell}; }}
.ink {{ fill: {full_cell}; }}
.title {{ font-weight: 600; font-size: 16px; }}
.note {{ font-size: 12px; fill: {muted}; }}
.target {{ text-anchor: end; }}
.digits {{ font-size: 12.5px; text-anchor: middle; pointer-events: none; fill: {text_on_empty};
  font-variant-numeric: tabular-nums; }}
.faint {{ fill-opacity: 0.6; }}
.strong {{ fill: {text_on_full}; font-weight: 600; }}
"""


class Box(NamedTuple):
    """A place on the page, in pixels."""

    x: float
    y: float
    width: float
    height: float


def svg_document(width: float, height: float, *, title: str, description: str) -> Element:
    """Begin a picture: its size, its words for those who cannot see it, its background."""
    root = Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")
    root.set("width", format_px(width))
    root.set("height", format_px(height))
    root.set("viewBox", f"0 0 {format_px(width)} {format_px(height)}")
    SubElement(root, "title").text = title
    SubElement(root, "desc").text = description
    dark = f"@media (prefers-color-scheme: dark) {{{_style(DARK)}}}"
    SubElement(root, "style").text = _style(LIGHT) + dark
    add_rect(root, "paper", Box(0.5, 0.5, width - 1, height - 1), radius=14)
    return root


def add_rect(parent: Element, css_class: str, box: Box, *, radius: int = 0) -> Element:
    """Draw a rectangle."""
    sides = {name: format_px(side) for name, side in box._asdict().items()}
    return SubElement(parent, "rect", {"class": css_class, **sides, "rx": str(radius)})


def add_text(parent: Element, css_class: str, text: str, *, x: float, y: float) -> Element:
    """Draw a line of text on the baseline `y`."""
    label = SubElement(parent, "text", {"class": css_class, "x": format_px(x), "y": format_px(y)})
    label.text = text
    return label


def format_px(value: float) -> str:
    """Write a length to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def to_svg(root: Element) -> str:
    """Write the picture as text."""
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _style(palette: Palette) -> str:
    return _STYLE.format_map(palette._asdict())


# Labels: a token and a weight, written so that nothing in them is hidden.
#
# A token may be empty, a space, a control character or half a letter. Whatever it is, its label
# can be seen, takes up room, and cannot move, hide or reorder what stands next to it.

EMPTY = "\u2205"
SPACE = "\u2423"
ELLIPSIS = "\u2026"
TRACE_MARK = "\u00b7"
"""Stands for a weight that is there but rounds to nothing."""

NOTHING_TO_DRAW = "nothing to draw"

_DOTTED_CIRCLE = "\u25cc"
# Invisible, but part of how Persian, Indic scripts and emoji are spelled.
_JOINERS = "\u200c\u200d"
_VARIATION_SELECTORS = "\ufe0e\ufe0f"
# Letters and signs by the book, but drawn as nothing.
_BLANKS = "\u115f\u1160\u2800\u3164\uffa0"


def escape_invisible(token: str) -> str:
    r"""Write a token so that every character of it shows.

    Spaces become open boxes. Controls, bidirectional overrides and other invisible characters
    become escapes such as `\u202e`; so do unpaired surrogates, which no file could hold.
    """
    label = "".join(map(_escape_character, token))
    return _DOTTED_CIRCLE + label if _starts_with_combining(label) else label or EMPTY


def escape_line(text: str) -> str:
    """Write a title on one line; the spaces between its words may stay."""
    return " ".join(map(escape_invisible, text.split()))


def _escape_character(character: str) -> str:
    if character == " ":
        return SPACE
    unseen = unicodedata.category(character)[0] in "CZ" or character in _BLANKS
    if unseen and character not in _JOINERS:
        return character.encode("unicode_escape").decode("ascii")
    return character


def _starts_with_combining(label: str) -> bool:
    """Whether a label begins with a mark that would settle on what stands before it."""
    first = label[:1]
    return bool(first) and (unicodedata.category(first)[0] == "M" or cell_len(first) == 0)


def split_joined_emoji(label: str) -> str:
    """Take joined emoji apart: terminals disagree about the width of a joined one."""
    return "".join(
        character
        for character in label
        if character not in _JOINERS and character not in _VARIATION_SELECTORS
    )


def truncate(label: str, cells: int) -> str:
    """Cut a label to a number of terminal cells, and show that it was cut."""
    if cell_len(label) <= cells:
        return label
    kept, remaining = "", cells - cell_len(ELLIPSIS)
    for character in label:
        remaining -= cell_len(character)
        if remaining < 0:
            break
        kept += character
    return kept + ELLIPSIS


def format_weight(weight: float) -> str:
    """Write a weight as a number that can be measured: four digits, however small it is."""
    return f"{weight:.4g}"


def format_percent(weight: float) -> str:
    """Write a weight as a rounded percentage; nothing for none, a dot for a trace."""
    if weight == 0:
        return ""
    rounded = int(100 * weight + 0.5)
    return str(rounded) if rounded else TRACE_MARK


def escape_text(text: str) -> str:
    """Write a text so that no character of it is hidden, its spaces and lines as they are."""
    lines = (line.split(" ") for line in text.split("\n"))
    return "\n".join(
        " ".join(escape_invisible(word) if word else "" for word in line) for line in lines
    )
