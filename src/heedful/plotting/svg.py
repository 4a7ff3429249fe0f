"""SVG elements, the two color palettes, and labels in which no character is hidden.

Elements are serialized by an XML writer, so no text can become markup; a document carries its own
style for light and dark pages. Invariant: the color of a weight is the mixture of `empty_cell` and
`full_cell` in that proportion, and digits on it have a contrast of at least 4.5 to 1.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from rich.cells import cell_len

from heedful.errors import ConfigError, check
from heedful.storage.atomic import atomic_replace, write_text
from heedful.terminal import check_figure_files, echo

DARK_TEXT_THRESHOLD = 0.64
"""Cells with a larger weight have digits in the opposite color."""
FAINT_THRESHOLD = 0.05
"""Cells with a smaller weight have faint digits."""


class Palette(NamedTuple):
    """Colors of a light page. One hue only, so that only lightness encodes a weight."""

    background: str = "#ffffff"
    empty_cell: str = "#eef1f8"
    full_cell: str = "#1e2a80"
    text_on_empty: str = "#000000"
    text_on_full: str = "#ffffff"
    text: str = "#171b2e"
    muted: str = "#5d6579"
    rule: str = "#d9deea"
    accent: str = "#c2410c"  # the element under the pointer


LIGHT = Palette()
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
    """Return the color of a cell with this weight."""
    empty, full = (bytes.fromhex(color[1:]) for color in (palette.empty_cell, palette.full_cell))
    mixed = (round(low + (high - low) * weight) for low, high in zip(empty, full, strict=True))
    return "#" + bytes(mixed).hex()


def digit_color(palette: Palette, weight: float) -> str:
    """Return the color of digits on a cell with this weight."""
    return palette.text_on_full if weight > DARK_TEXT_THRESHOLD else palette.text_on_empty


def css_variables() -> str:
    """Return both palettes as CSS custom properties, selected by the color scheme."""
    light, dark = (
        " ".join(f"--{name.replace('_', '-')}: {color};" for name, color in palette.items())
        for palette in (LIGHT._asdict(), DARK._asdict())
    )
    root = f":root {{ color-scheme: light dark; {light} }}\n"
    return f"{root}@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"


def select_by_scheme(light: str, dark: str) -> str:
    """Return CSS rules for light pages with those that replace them on dark ones."""
    return f"{light}@media (prefers-color-scheme: dark) {{{dark}}}"


# ----- elements -----

_STYLE = """
text {{ font-family: system-ui, -apple-system, "Segoe UI", "Noto Sans", Helvetica, Arial,
  "DejaVu Sans", "Liberation Sans",
  sans-serif; font-size: 15px; fill: {text}; }}
.background {{ fill: {background}; stroke: {rule}; }}
.empty-cell {{ fill: {empty_cell}; }}
.full-cell {{ fill: {full_cell}; }}
.title {{ font-weight: 600; font-size: 16px; }}
.note {{ font-size: 12px; fill: {muted}; }}
.target {{ text-anchor: end; }}
.digits {{ font-size: 12.5px; text-anchor: middle; pointer-events: none; fill: {text_on_empty};
  font-variant-numeric: tabular-nums; }}
.faint {{ fill-opacity: 0.6; }}
.strong {{ fill: {text_on_full}; font-weight: 600; }}
.space-mark {{ fill-opacity: 0.3; }}
"""
SVG_STYLE = select_by_scheme(*(_STYLE.format_map(palette._asdict()) for palette in (LIGHT, DARK)))

PADDING = 26
TITLE_HEIGHT = 34
HEADING_LINE = 22
LABEL_ADVANCE = 9.2  # pixels per terminal cell, enough in every common font
HEADING_ADVANCES = {"title": 10.2, "note": 7.4}
NOTHING_TO_DRAW = "nothing to draw"

NAMESPACE = "http://www.w3.org/2000/svg"

Box = tuple[float, float, float, float]
"""x, y, width and height of a rectangle in pixels."""


def svg_document(
    width: float, height: float, *, title: str, description: str, heading: str, style: str = ""
) -> Element:
    """Return an SVG root with accessible title and description, style, background and heading."""
    root = Element("svg", xmlns=NAMESPACE, role="img")
    size = {"width": format_px(width), "height": format_px(height)}
    root.attrib |= {**size, "viewBox": f"0 0 {' '.join(size.values())}"}
    for tag, text in (("title", title), ("desc", description), ("style", SVG_STYLE)):
        SubElement(root, tag).text = text
    add_rect(root, "background", (0.5, 0.5, width - 1, height - 1), radius=14)
    if style:
        SubElement(root, "style").text = style
    if heading:
        add_text(root, "title", heading, x=PADDING, y=PADDING + 14)
    return root


def render_empty(heading: str, default_title: str, style: str = "") -> str:
    """Return a document with the note that there is no data to draw."""
    title, note = heading or default_title, NOTHING_TO_DRAW
    root = svg_document(350, 90, title=title, description=note, heading=heading, style=style)
    add_text(root, "note", note, x=PADDING, y=64)
    return to_svg(root)


def wrap_heading(parts: Sequence[str], width: float) -> list[tuple[str, str]]:
    """Return the class and the text of each line of a heading: a title, a text and a note."""
    return [
        (css_class, line)
        for css_class, text in zip(("title", "", "note"), parts, strict=True)
        for line in wrap(text, int(width / HEADING_ADVANCES.get(css_class, LABEL_ADVANCE)))
    ]


def add_heading(root: Element, lines: Iterable[tuple[str, str]]) -> None:
    """Append the lines of a heading."""
    for index, (css_class, line) in enumerate(lines):
        add_text(root, css_class, line, x=PADDING, y=PADDING + 14 + HEADING_LINE * index)


def box_attributes(box: Box) -> dict[str, str]:
    """Return position and size of a box as attributes of an element."""
    return dict(zip(("x", "y", "width", "height"), map(format_px, box), strict=True))


def add_rect(parent: Element, css_class: str, box: Box, *, radius: int = 0) -> Element:
    """Append a rectangle."""
    sides = box_attributes(box)
    return SubElement(parent, "rect", {"class": css_class, **sides, "rx": str(radius)})


def add_path(parent: Element, css_class: str, path: str) -> Element:
    """Append a path."""
    return SubElement(parent, "path", {"class": css_class, "d": path})


def add_text(parent: Element, css_class: str, text: str, *, x: float, y: float) -> Element:
    """Append a line of text with its baseline at `y`."""
    label = SubElement(parent, "text", {"class": css_class, "x": format_px(x), "y": format_px(y)})
    label.text = text
    return label


def add_token(parent: Element, css_class: str, token: str, *, x: float, y: float) -> Element:
    """Append a token; the mark of a space before it is faint."""
    word = token.removeprefix(SPACE_MARK)
    if not word or word == token:
        return add_text(parent, css_class, token, x=x, y=y)
    label = add_text(parent, css_class, "", x=x, y=y)
    mark = SubElement(label, "tspan", {"class": "space-mark"})
    mark.text, mark.tail = SPACE_MARK, word
    return label


def format_px(value: float) -> str:
    """Format a length to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def to_svg(root: Element) -> str:
    """Serialize an SVG document."""
    ElementTree.indent(root)
    for node in root.iter():
        if len(node) and node.tag.endswith("text"):
            node.text = None  # an indent would be drawn as a space
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def join_documents(documents: Sequence[str], *, columns: int = 1) -> str:
    """Return SVG documents side by side, row by row, as one document."""
    if len(documents) == 1:
        return documents[0]
    ElementTree.register_namespace("", NAMESPACE)
    figures = [ElementTree.fromstring(document) for document in documents]
    sizes = [(float(figure.attrib["width"]), float(figure.attrib["height"])) for figure in figures]
    width = max(width for width, _ in sizes) + PADDING
    rows = [sizes[first : first + columns] for first in range(0, len(sizes), columns)]
    heights = [max(height for _, height in row) + PADDING for row in rows]
    size = [format_px(width * columns), format_px(sum(heights))]
    attributes = {"width": size[0], "height": size[1], "viewBox": f"0 0 {' '.join(size)}"}
    root = Element(f"{{{NAMESPACE}}}svg", attributes)
    for index, figure in enumerate(figures):
        x, y = width * (index % columns), sum(heights[: index // columns])
        figure.attrib |= {"x": format_px(x), "y": format_px(y)}
        root.append(figure)
    return to_svg(root)


# ----- labels -----

SPACE_MARK = "\u2581"
"""SentencePiece's mark of a space before a token."""
EMPTY = "\u2205"
SPACE = "\u2423"
ELLIPSIS = "\u2026"
TRACE_MARK = "\u00b7"
"""A positive weight that rounds to 0 %."""

_DOTTED_CIRCLE = "\u25cc"
# Invisible, but needed to spell Persian, Indic scripts and emoji.
_JOINERS = "\u200c\u200d"
_VARIATION_SELECTORS = "\ufe0e\ufe0f"
# Letters and symbols by category, but drawn as nothing.
_BLANKS = "\u115f\u1160\u2800\u3164\uffa0"


def escape_invisible(token: str) -> str:
    r"""Return a token in which each character is visible.

    Spaces become open boxes. Controls, bidirectional overrides, other invisible characters and
    unpaired surrogates become escapes such as `\u202e`.
    """
    label = ""
    for character in token.replace(" ", SPACE):
        is_invisible = unicodedata.category(character)[0] in "CZ" or character in _BLANKS
        is_escaped = is_invisible and character not in _JOINERS
        label += character.encode("unicode_escape").decode("ascii") if is_escaped else character
    first = label[:1]
    is_combining = first and (unicodedata.category(first)[0] == "M" or cell_len(first) == 0)
    return _DOTTED_CIRCLE + label if is_combining else label or EMPTY


def escape_line(text: str) -> str:
    """Return a text on one line with each character visible; words are separated by spaces."""
    return " ".join(map(escape_invisible, text.split()))


def escape_text(text: str) -> str:
    """Return a text with each character visible; spaces and line breaks are kept."""
    words = re.split("([ \n])", text)
    return "".join(word if word in {"", " ", "\n"} else escape_invisible(word) for word in words)


def split_joined_emoji(label: str) -> str:
    """Split joined emoji: terminals disagree about their width."""
    return label.translate(str.maketrans("", "", _JOINERS + _VARIATION_SELECTORS))


def truncate(label: str, cells: int) -> str:
    """Cut a label to a number of terminal cells, with an ellipsis."""
    if cell_len(label) <= cells:
        return label
    widths = accumulate(map(cell_len, label))
    num_kept = sum(width <= cells - cell_len(ELLIPSIS) for width in widths)
    return label[:num_kept] + ELLIPSIS


def wrap(text: str, cells: int) -> list[str]:
    """Split a text into lines of at most so many terminal cells, between words if it can."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if cell_len(joined) <= cells:
            lines[-1] = joined
            continue
        lines += [""] if lines[-1] else []
        for character in word:
            if cell_len(lines[-1] + character) > cells:
                lines.append("")
            lines[-1] += character
    return [line for line in lines if line]


def format_weight(weight: float) -> str:
    """Format a weight with four significant digits."""
    return f"{weight:.4g}"


def format_percent(weight: float) -> str:
    """Format a weight as a rounded percentage: empty for 0, a dot for less than half a percent."""
    if weight == 0:
        return ""
    rounded = int(100 * weight + 0.5)
    return str(rounded) if rounded else TRACE_MARK


SCALE = 2
"""Pixels of a PNG per pixel of the SVG, for screens of high resolution."""
_SAMPLE = "<svg xmlns='http://www.w3.org/2000/svg' width='20' height='20'>{}</svg>"


def write_figures(paths: Iterable[Path], render: Callable[[], str]) -> None:
    """Write an SVG document, which is rendered once, to each path as SVG or as PNG."""
    paths = check_figure_files(list(paths)) or []
    document = render() if paths else ""
    for path in paths:
        if path.suffix.lower() == ".svg":
            write_text(path, document)
        else:
            png = render_png(document, str(path))
            with atomic_replace(path) as temporary:
                temporary.write_bytes(png)


def save_drawings(
    figures: Sequence[Path] | None,
    draw: Callable[[], str],
    html: Path | None = None,
    render: Callable[[], str] = str,
) -> None:
    """Write an SVG document in the formats of some files, and a page; say so when all are there."""
    write_figures(figures or (), draw)
    if html:
        write_text(html, render())
    for path in filter(None, (*(figures or ()), html)):
        echo(f"wrote {path}", err=True)


def render_png(svg: str, location: str = "figure") -> bytes:
    """Return an SVG document as a PNG file; `location` is named if the system has no fonts."""
    import resvg_py

    message, hint = "the system has no fonts to draw text with", "install DejaVu Sans or Noto Sans"
    check(_has_fonts(), location, message, hint, ConfigError)
    return resvg_py.svg_to_bytes(svg_string=svg, zoom=SCALE, background=LIGHT.background)


@cache
def _has_fonts() -> bool:
    """Return whether text leaves any trace on an image."""
    import resvg_py

    text = "<text y='16' font-family='\"DejaVu Sans\", \"Noto Sans\", Helvetica, Arial'>x</text>"
    drawn = [resvg_py.svg_to_bytes(svg_string=_SAMPLE.format(part)) for part in (text, "")]
    return drawn[0] != drawn[1]
