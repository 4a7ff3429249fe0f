"""Drawing: the few SVG elements that a picture is made of.

Elements are built as a tree and written by an XML writer, so no text can break out of its
place. A document brings its own style, with colours for light and for dark pages, and its own
background, so that it looks the same wherever it is shown.
"""

from __future__ import annotations

from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from heedful.inspection.colours import DARK, LIGHT, Palette

_STYLE = """
text {{ font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial,
  sans-serif; font-size: 15px; fill: {text}; }}
.paper {{ fill: {paper}; stroke: {rule}; }}
.track {{ fill: {track}; }}
.ink {{ fill: {ink}; }}
.title {{ font-weight: 600; font-size: 16px; }}
.note {{ font-size: 12px; fill: {muted}; }}
.target {{ text-anchor: end; }}
.digits {{ font-size: 12.5px; text-anchor: middle; pointer-events: none; fill: {on_track};
  font-variant-numeric: tabular-nums; }}
.faint {{ fill-opacity: 0.6; }}
.strong {{ fill: {on_ink}; font-weight: 600; }}
"""


class Box(NamedTuple):
    """A place on the page, in pixels."""

    x: float
    y: float
    width: float
    height: float


def document(width: float, height: float, *, title: str, description: str) -> Element:
    """Begin a picture: its size, its words for those who cannot see it, its background."""
    root = Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")
    root.set("width", number(width))
    root.set("height", number(height))
    root.set("viewBox", f"0 0 {number(width)} {number(height)}")
    SubElement(root, "title").text = title
    SubElement(root, "desc").text = description
    dark = f"@media (prefers-color-scheme: dark) {{{_style(DARK)}}}"
    SubElement(root, "style").text = _style(LIGHT) + dark
    draw_box(root, "paper", Box(0.5, 0.5, width - 1, height - 1), radius=14)
    return root


def draw_box(parent: Element, look: str, box: Box, *, radius: int = 0) -> Element:
    """Draw a rectangle."""
    sides = {name: number(side) for name, side in box._asdict().items()}
    return SubElement(parent, "rect", {"class": look, **sides, "rx": str(radius)})


def draw_label(parent: Element, look: str, text: str, *, x: float, y: float) -> Element:
    """Draw a line of text on the baseline `y`."""
    label = SubElement(parent, "text", {"class": look, "x": number(x), "y": number(y)})
    label.text = text
    return label


def number(value: float) -> str:
    """Write a length to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def write(root: Element) -> str:
    """Write the picture as text."""
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _style(palette: Palette) -> str:
    return _STYLE.format_map(palette._asdict())
