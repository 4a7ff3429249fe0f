"""Attention maps as data, as SVG and as HTML.

Each figure of attention is drawn from an `AttentionMap`. Invariant: a row holds the attention
weights of an output token over the source tokens; no weight is negative, and a row sums to one, or
to less where a part of the attention went to no token.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from rich.cells import cell_len

from heedful.errors import DataError, check, format_count
from heedful.inspection.mechanism_overlays import Overlays, overlays_to_json
from heedful.plotting import svg
from heedful.plotting.html import read_asset, render_page, sandboxed_frame
from heedful.plotting.svg import add_rect, add_text, escape_invisible, escape_line, format_percent

if TYPE_CHECKING:
    from heedful.shapes import Float, Int  # at run time it would import torch

TOLERANCE = 0.01  # of a row sum, in half precision
HALF_A_PERCENT = 0.005

FigureForm = Literal["map", "lines"]
"""A heat map, or lines between tokens; a page of maps has lines, too, beside each map."""

TokenGroups = Sequence[tuple[str, int]]
"""The label of each group of consecutive tokens, and the index of its first token."""


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """Attention weights of output tokens over source tokens."""

    source: Sequence[str]
    """The tokens as shown."""
    target: Sequence[str]
    weights: Float[np.ndarray, "T S"]
    title: str = ""
    """The source text."""
    output: str = ""
    """The output text."""
    caption: str = ""
    """Which attention of the model this is."""
    copy_probs: Sequence[float] | None = None
    """How much of each target token was copied; None if the model does not copy."""
    grid: tuple[int, int] | None = None
    """Rows and columns of an image whose cells are the source; None of a text."""
    image: Int[np.ndarray, "height width *channels"] | None = None
    """The image, uint8; None if only its features are known."""
    gates: Sequence[float] | None = None
    """How much of its context each target token uses; None if nothing gates it."""
    axis_names: tuple[str, str] = ("output", "source")
    """What the target and the source tokens are: "query" and "key" in self-attention."""
    overlays: Overlays = field(default_factory=dict)
    """What the mechanism knows beside its weights, (T,) or (T, S)."""
    is_intra: bool = False
    """Whether the source tokens are the target tokens, whose links are arcs."""

    def __post_init__(self) -> None:
        shape = (len(self.target), len(self.source))
        tokens = f"{shape[0]} target and {format_count(shape[1], 'source token')}"
        message = f"{tokens} need weights of shape {shape}, found {self.weights.shape}"
        hint = "give one row per target token and one column per source token"
        check(self.weights.shape == shape, "attention_map", message, hint, DataError)
        if self.grid is not None:
            tokens = format_count(shape[1], "source token")
            message = f"a grid of {self.grid[0]} x {self.grid[1]} cells has {tokens}"
            hint = "give one source token per cell, row by row"
            check(math.prod(self.grid) == shape[1], "attention_map", message, hint, DataError)
        for index, row in enumerate(self.weights):
            check_weights(row, f"attention_map: row {index} ({self.target[index]!r})", "row")

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return self.weights.size == 0

    @property
    def notes(self) -> list[str]:
        """The copied share of each target token in words, empty below half a percent."""
        shares = np.zeros(len(self.target)) if self.copy_probs is None else self.copy_probs
        return [f"{100 * share:.0f}% copied" if share >= HALF_A_PERCENT else "" for share in shares]

    @classmethod
    def empty(cls, title: str, output: str = "") -> AttentionMap:
        """Return a map without tokens."""
        return cls([], [], np.zeros((0, 0)), title=title, output=output)

    def join(self, target: TokenGroups, source: TokenGroups) -> AttentionMap:
        """Join tokens, such as those of a word.

        Attention to a group is the sum over its tokens, attention from it the mean (Clark et al.
        2019, section 4.1), and so are copied fractions and gates.
        """
        (rows, row_starts), (columns, column_starts) = (
            zip(*groups, strict=True) for groups in (target, source)
        )
        sizes = np.diff([*row_starts, len(self.target)])
        weights = np.add.reduceat(self.weights, column_starts, axis=1)
        weights = np.add.reduceat(weights, row_starts, axis=0) / sizes[:, None]
        shares, gates = (
            None if values is None else (np.add.reduceat(values, row_starts) / sizes).tolist()
            for values in (self.copy_probs, self.gates)
        )
        return replace(
            self,
            source=list(columns),
            target=list(rows),
            weights=weights,
            copy_probs=shares,
            gates=gates,
            overlays={},  # which are about tokens
        )

    def join_bytes(self) -> AttentionMap:
        """Join byte tokens, such as "<0xC3>" and "<0xA9>", into the characters that they spell."""
        groups = [group_bytes(tokens) for tokens in (self.target, self.source)]
        is_joined = sum(map(len, groups)) < sum(self.weights.shape)
        return self.join(*groups) if is_joined and not self.is_empty else self

    def to_json(self) -> dict[str, Any]:
        """Return JSON values."""
        weights = self.weights.astype(np.float64).round(6).tolist()
        tokens = {"source": list(self.source), "target": list(self.target)}
        fields = {"caption": self.caption, **tokens, "weights": weights}
        if self.copy_probs is not None:
            fields["copy_probs"] = np.round(self.copy_probs, 6).tolist()
        if self.gates is not None:
            fields["gates"] = np.round(self.gates, 6).tolist()
        if self.grid is not None:
            fields["grid"] = list(self.grid)
        return fields


def check_weights(weights: Float[np.ndarray, "*S"], location: str, unit: str) -> None:
    """Raise DataError unless these are the attention weights of a token."""
    total, error = weights.sum(dtype=np.float64), ""
    if not np.isfinite(weights).all():
        error = "a weight is not a finite number"
    elif (weights < 0).any():
        error = f"a weight is negative: {weights.min():.4g}"
    elif total > 1 + TOLERANCE:
        error = f"the weights sum to {total:.4g}"
    hint = f"give attention weights: none negative, each {unit} summing to at most one"
    check(not error, location, error, hint, DataError)


_BYTE_TOKEN = re.compile("(?:<0x[0-9A-F]{2}>)+")
_MAX_BYTES = 4  # of a character in UTF-8


def group_bytes(tokens: Sequence[str]) -> TokenGroups:
    """Group byte tokens by the characters that they spell; any other token is its own group."""
    groups, index = [], 0
    while index < len(tokens):
        label, end = tokens[index], index + 1
        for stop in range(index + 1, min(index + _MAX_BYTES, len(tokens)) + 1):
            if character := _decode_bytes(tokens[index:stop]):
                label, end = character, stop
                break
        groups.append((label, index))
        index = end
    return groups


def _decode_bytes(tokens: Sequence[str]) -> str:
    """Return the text that byte tokens spell; "" if they are none, or spell no text."""
    if not all(map(_BYTE_TOKEN.fullmatch, tokens)):
        return ""
    spelled = bytes.fromhex(re.sub("[<>]|0x", "", "".join(tokens)))
    try:
        return spelled.decode()
    except UnicodeDecodeError:
        return ""


# ----- SVG -----

GAP = 3
LEGEND_WIDTH = 350
LEGEND_HEIGHT = 44
MAX_LABEL_WIDTH = 24
LABEL_ANGLE = 45
# A wider map is scaled down to fit a page, and its digits would be too small to read.
MAX_COLUMNS_WITH_DIGITS = 16
MAX_COLUMNS = 64
"""A map of more source tokens is cut into bands, one below the other."""


class _Grid:
    """Position and size of the cells and of the document."""

    def __init__(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        notes: Sequence[str],
        heading: Sequence[str],
    ) -> None:
        angle = math.radians(LABEL_ANGLE)
        source_widths = [svg.LABEL_ADVANCE * cell_len(label) for label in sources]
        self.has_digits = len(sources) <= MAX_COLUMNS_WITH_DIGITS
        self.cell_width, self.cell_height = (58, 36) if self.has_digits else (24, 24)
        self.left = svg.PADDING + max(svg.LABEL_ADVANCE * cell_len(label) for label in targets) + 12
        ends = [self.middle(n) + math.cos(angle) * width for n, width in enumerate(source_widths)]
        self.right = self.left + self.cell_width * len(sources)
        note_width = svg.HEADING_ADVANCES["note"] * max(map(len, notes))
        ends += [self.right + (12 + note_width if note_width else 0), self.left + LEGEND_WIDTH]
        self.width = max(ends) + svg.PADDING
        self.heading = svg.wrap_heading(heading, self.width - 2 * svg.PADDING)
        heading_height = svg.HEADING_LINE * len(self.heading) + (12 if self.heading else 0)
        self.top = svg.PADDING + heading_height + max(source_widths) * math.sin(angle) + 18
        self.height = self.top + self.cell_height * len(targets) + LEGEND_HEIGHT + svg.PADDING

    def cell(self, row: int, column: int) -> svg.Box:
        x, y = self.left + self.cell_width * column, self.top + self.cell_height * row
        return x + GAP / 2, y + GAP / 2, self.cell_width - GAP, self.cell_height - GAP

    def middle(self, column: int) -> float:
        return self.left + self.cell_width * (column + 0.5)

    def baseline(self, row: int) -> float:
        return self.top + self.cell_height * (row + 0.5) + 5


def render_svg(attention_map: AttentionMap) -> str:
    """Draw an attention map as an SVG document.

    The opacity of a cell is its weight, which the cell also carries as `data-weight`.
    """
    attention_map = attention_map.join_bytes()
    heading, default_title = escape_line(attention_map.title), "Attention map"
    if attention_map.is_empty:
        return svg.render_empty(heading, default_title)
    if len(attention_map.source) > MAX_COLUMNS:
        return svg.join_documents([render_svg(band) for band in _bands(attention_map)])
    sources, targets = (
        [svg.truncate(escape_invisible(token), MAX_LABEL_WIDTH) for token in tokens]
        for tokens in (attention_map.source, attention_map.target)
    )
    grid = _Grid(sources, targets, attention_map.notes, heading_parts(attention_map))
    title, description = heading or default_title, describe_links(attention_map)
    size = grid.width, grid.height
    root = svg.svg_document(*size, title=title, description=description, heading="")
    svg.add_heading(root, grid.heading)
    for column, source in enumerate(sources):
        x, y = grid.middle(column) + 2, grid.top - 10
        rotation = f"rotate(-{LABEL_ANGLE} {svg.format_px(x)} {svg.format_px(y)})"
        svg.add_token(root, "source", source, x=x, y=y).set("transform", rotation)
    for row, (target, note) in enumerate(zip(targets, attention_map.notes, strict=True)):
        group = SubElement(root, "g")
        svg.add_token(group, "target", target, x=grid.left - 12, y=grid.baseline(row))
        _draw_cells(group, attention_map, row=row, grid=grid)
        if note:
            add_text(group, "note", note, x=grid.right + 12, y=grid.baseline(row))
    _draw_legend(root, left=grid.left, bottom=grid.height - svg.PADDING)
    return svg.to_svg(root)


def _bands(attention_map: AttentionMap) -> list[AttentionMap]:
    """Cut a map after every `MAX_COLUMNS` source tokens; the first band has the heading."""
    source, weights, bands = attention_map.source, attention_map.weights, []
    for start in range(0, len(source), MAX_COLUMNS):
        columns = slice(start, start + MAX_COLUMNS)
        caption = (
            f"{attention_map.axis_names[1]} tokens {start + 1} to {min(columns.stop, len(source))}"
        )
        band = replace(attention_map, source=source[columns], weights=weights[:, columns])
        bands.append(replace(band, title="", output="", caption=caption))
    caption = ", ".join(filter(None, (attention_map.caption, bands[0].caption)))
    first = replace(bands[0], title=attention_map.title, output=attention_map.output)
    return [replace(first, caption=caption), *bands[1:]]


def heading_parts(attention_map: AttentionMap) -> tuple[str, str, str]:
    """Return the source, the output and the caption of the weights, each on one line."""
    title, output = map(escape_line, (attention_map.title, attention_map.output))
    return title, output, escape_line(attention_map.caption)


def describe_links(attention_map: AttentionMap) -> str:
    """Return the strongest link of each target token, for readers who cannot see the figure."""
    links = []
    rows = zip(attention_map.target, attention_map.weights, attention_map.notes, strict=True)
    for target, row, note in rows:
        column = int(row.argmax())
        source, percent = attention_map.source[column], format_percent(row[column]) or 0
        link = f"{escape_invisible(target)}: {escape_invisible(source)} {percent}%"
        links.append(f"{link}, {note}" if note else link)
    caption = f"{attention_map.caption}. " if attention_map.caption else ""
    name = attention_map.axis_names[0]
    return f"{caption}The largest attention weight of each {name} token. {'; '.join(links)}."


def _draw_cells(group: Element, attention_map: AttentionMap, *, row: int, grid: _Grid) -> None:
    target = escape_invisible(attention_map.target[row])
    for column, weight in enumerate(attention_map.weights[row].tolist()):
        box = grid.cell(row, column)
        add_rect(group, "empty-cell", box, radius=4)
        cell = add_rect(group, "full-cell", box, radius=4)
        cell.attrib |= dict.fromkeys(("fill-opacity", "data-weight"), svg.format_weight(weight))
        source = escape_invisible(attention_map.source[column])
        SubElement(cell, "title").text = f"{target} \u2192 {source}: {weight:.2f}"
        if grid.has_digits:
            css_class = "digits faint" if weight < svg.FAINT_THRESHOLD else "digits"
            css_class = "digits strong" if weight > svg.DARK_TEXT_THRESHOLD else css_class
            x, y = grid.middle(column), grid.baseline(row)
            add_text(group, css_class, format_percent(weight), x=x, y=y)


def _draw_legend(root: Element, *, left: float, bottom: float) -> None:
    swatch, start = 14, left + 16
    add_text(root, "note", "0", x=left, y=bottom)
    for step in range(11):
        box = (start + swatch * step, bottom - 10, swatch, 12)
        add_rect(root, "empty-cell", box)
        add_rect(root, "full-cell", box).set("fill-opacity", f"{step / 10:.1f}")
    add_text(root, "note", "100% of a token's attention", x=start + swatch * 11 + 8, y=bottom)


# ----- HTML -----

MAX_SNIPPET_HEIGHT = 720  # pixels; a taller map scrolls inside its frame
MAX_TABLE_CELLS = 2000  # a larger map is drawn on a canvas


def render_html(
    maps: Sequence[AttentionMap], *, title: str, page_type: str = "page", form: FigureForm = "map"
) -> str:
    """Return a self-contained page that shows attention maps interactively.

    Consecutive maps of one text (equal titles and outputs) share a card, which shows one at a time.
    """
    return render_page(
        read_asset("attention_map.html"),
        title=title,
        styles=["attention_map.css"],
        scripts=attention_scripts(maps),
        data={"maps": attention_data(maps, form)},
        page_type=page_type,
    )


def render_notebook_html(attention_map: AttentionMap) -> str:
    """Return HTML for a notebook cell: a page in a sandboxed frame."""
    # The height is an estimate: a sandboxed frame cannot ask for it.
    rows, columns = attention_map.weights.shape
    alignment_height = 260 if columns > 9 else 0  # a wide map moves below the words
    heading_height = 28 * sum(map(bool, heading_parts(attention_map)))
    height = min(MAX_SNIPPET_HEIGHT, 182 + heading_height + 33 * rows + alignment_height)
    page = render_html([attention_map], title=attention_map.title, page_type="snippet")
    return sandboxed_frame(page, "Attention map", 120 if attention_map.is_empty else height)


def attention_scripts(maps: Sequence[AttentionMap]) -> list[str]:
    """Return the modules that draw maps; only large ones need a canvas."""
    is_large = any(one.weights.size > MAX_TABLE_CELLS for one in maps)
    return [*(["map-canvas.js"] if is_large else []), "attention-page.js"]


def attention_data(maps: Sequence[AttentionMap], form: FigureForm = "map") -> dict[str, object]:
    """Return the data that attention-page.js draws."""
    sentences: list[dict[str, Any]] = []
    for attention_map in (one.join_bytes() for one in maps):
        title, output, caption = heading_parts(attention_map)
        card = {"title": title, "output": output}
        if not (title and sentences and card.items() <= sentences[-1].items()):
            sentences.append({**card, "views": []})
        view = {
            "caption": caption,
            "names": attention_map.axis_names,
            "source": [escape_invisible(token) for token in attention_map.source],
            "target": [escape_invisible(token) for token in attention_map.target],
            "notes": attention_map.notes,
            "is_intra": attention_map.is_intra,
            "overlays": overlays_to_json(
                attention_map.overlays, attention_map.gates, attention_map.copy_probs
            ),
            "weights": [
                [float(svg.format_weight(weight)) for weight in row]
                for row in attention_map.weights
            ],
        }
        sentences[-1]["views"].append(view)
    return {"form": form, "sentences": sentences}
