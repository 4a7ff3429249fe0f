"""Attention weights of words over the grid of an image, and contact sheets: an image for each word.

Cell (row, column) of a grid covers an equal part of the image. Invariants: no weight is negative,
and the weights of a word sum to one, or to less where a part of its attention went to no cell, such
as a sentinel's; a contact sheet mixes the colors of an image as `blend_attention` does.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree.ElementTree import Element, SubElement

import numpy as np

from heedful.errors import DataError, check, format_count
from heedful.inspection.attention_map import check_weights
from heedful.plotting import raster, svg
from heedful.plotting.svg import add_rect, add_text, escape_invisible, escape_line

if TYPE_CHECKING:
    from heedful.shapes import Float, Int  # at run time it would import torch


MAX_IMAGE_SIDE = 512
"""A larger image is shrunk before it becomes part of a figure or a page."""


class PeakCell(NamedTuple):
    """The cell with the largest weight of a word, counted from 0."""

    row: int
    column: int
    weight: float


@dataclass(frozen=True, eq=False)
class ImageAttention:
    """Attention weights of the words of a caption over the grid of an image."""

    image: Int[np.ndarray, "height width *channels"] | None
    """The image as the encoder gets it, uint8: the grid covers all of it. None: only the grid."""
    words: Sequence[str]
    """The words or tokens as shown."""
    weights: Float[np.ndarray, "T rows columns"]
    gates: Sequence[float] | None = None
    """How much of the image each word uses, 0 to 1: the gate of the readout, or one minus the
    weight of a sentinel; None if the model has neither."""
    title: str = ""
    """Name of the image."""
    caption: str = ""
    """The whole caption; by default the words."""
    label: str = ""
    """Which attention of the model this is, such as a layer and a head."""

    def __post_init__(self) -> None:
        location, shape = "caption_attention", self.weights.shape
        is_grid = len(shape) == 3 and shape[0] == len(self.words) and 0 not in shape[1:]
        count = format_count(len(self.words), "word")
        message = f"weights of {count} must be (words, rows, columns), found {shape}"
        check(is_grid, location, message, "give a grid of weights for each word", DataError)
        if self.image is not None:
            raster.to_rgb(self.image)  # checks it
        for word, grid in zip(self.words, self.weights, strict=True):
            check_weights(grid, f"{location}: {word!r}", "grid")
        gates, hint = self.gates, "give a number from 0 to 1 for each word, or None"
        if gates is not None:
            message = f"{format_count(len(gates), 'gate')} for {count}"
            check(len(gates) == len(self.words), location, message, hint, DataError)
            for word, gate in zip(self.words, gates, strict=True):
                message = f"the gate is {gate:.4g}"
                check(0 <= gate <= 1, f"{location}: {word!r}", message, hint, DataError)

    @property
    def is_empty(self) -> bool:
        """Whether there is no word."""
        return len(self.words) == 0

    @cached_property
    def rgb(self) -> Int[np.ndarray, "height width 3"] | None:
        """The image as RGB, shrunk to `MAX_IMAGE_SIDE`."""
        if self.image is None:
            return None
        return raster.shrink(raster.to_rgb(self.image), MAX_IMAGE_SIDE)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the image, or rows and columns of the grid."""
        height, width = (self.weights[0] if self.rgb is None else self.rgb).shape[:2]
        return height, width

    @cached_property
    def strengths(self) -> Float[np.ndarray, "T rows columns"]:
        """The weights relative to the largest one of their word: how strongly they are drawn."""
        largest = self.weights.max(axis=(1, 2), keepdims=True, initial=0)
        return np.divide(self.weights, largest, out=np.zeros(self.weights.shape), where=largest > 0)

    @cached_property
    def peaks(self) -> list[PeakCell]:
        """The cell that each word attends to most."""
        peaks = []
        for grid in self.weights:
            row, column = divmod(int(grid.argmax()), grid.shape[1])
            peaks.append(PeakCell(row, column, float(grid[row, column])))
        return peaks

    @property
    def notes(self) -> list[str]:
        """The largest weight and the gate of each word."""
        notes = [f"max {_round_percent(peak.weight)}" for peak in self.peaks]
        if self.gates is None:
            return notes
        gates = (f"gate {_round_percent(gate)}" for gate in self.gates)
        return [", ".join(pair) for pair in zip(notes, gates, strict=True)]

    @property
    def heading(self) -> tuple[str, str, str]:
        """The name of the image, the caption and what the weights are, each on one line."""
        caption = self.caption or " ".join(self.words)
        return escape_line(self.title), escape_line(caption), escape_line(self.label)

    @property
    def description(self) -> str:
        """The strongest cell of each word, for readers who cannot see the figure."""
        links = [
            f"{escape_invisible(word)}: row {peak.row + 1}, column {peak.column + 1}, {note}"
            for word, peak, note in zip(self.words, self.peaks, self.notes, strict=True)
        ]
        rows, columns = self.weights.shape[1:]
        label = f"{self.label}. " if self.label else ""
        return (
            f"{label}The cell of {rows} x {columns} each word attends to most. {'; '.join(links)}."
        )

    def to_json(self) -> dict[str, Any]:
        """Return JSON values: the words, their grids of weights, and gates if there are any."""
        weights = self.weights.astype(np.float64).round(6).tolist()
        fields = {"label": self.label, "words": list(self.words), "weights": weights}
        if self.gates is not None:
            fields["gates"] = np.round(self.gates, 6).tolist()
        return fields


def _round_percent(weight: float) -> str:
    """Return a percentage without decimals; of what would be rounded to 0, a bound."""
    rounded = int(100 * weight + 0.5)
    return f"{rounded}%" if rounded or not weight else "<1%"


SHEET_WIDTH = 1030  # pixels; more tiles begin a new row
MAX_TILE_SIZE = (180, 480)  # height and width
MIN_TILE_WIDTH = 132  # space for "max 100%, gate 99%"
GAP = 18
CELL_GAP = 2
BAR_HEIGHT = 5
WORD_HEIGHT, NOTE_HEIGHT, BAR_SPACE = 24, 20, 11
LEGEND_HEIGHT = 30
PIXELATED_BELOW = 100
"""An image with shorter sides is enlarged without smoothing."""
MAX_MASK_SIDE = 160


class SheetLayout:
    """Positions of the tiles of a contact sheet; the first tile is the image, if there is one."""

    def __init__(self, attention: ImageAttention) -> None:
        height, width = attention.size
        max_height, max_width = MAX_TILE_SIZE
        self.image_size = raster.fit_size(height, width, max_height=max_height, max_width=max_width)
        self.has_bars = attention.gates is not None
        self.num_tiles = len(attention.words) + (attention.rgb is not None)
        self.tile_width = max(MIN_TILE_WIDTH, self.image_size[1])
        footer = NOTE_HEIGHT + (BAR_SPACE if self.has_bars else 0)
        self.tile_height = WORD_HEIGHT + self.image_size[0] + footer
        usable = SHEET_WIDTH - 2 * svg.PADDING + GAP
        self.columns = max(1, min(self.num_tiles, int(usable / (self.tile_width + GAP))))
        self.width = max(
            2 * svg.PADDING + self.columns * (self.tile_width + GAP) - GAP,
            2 * svg.PADDING + svg.HEADING_ADVANCES["note"] * len(legend(attention)),
        )
        self.heading = svg.wrap_heading(attention.heading, self.width - 2 * svg.PADDING)
        self.top = svg.PADDING + svg.HEADING_LINE * len(self.heading) + (8 if self.heading else 0)
        num_rows = math.ceil(self.num_tiles / self.columns)
        tiles_height = num_rows * (self.tile_height + GAP) - GAP
        self.height = self.top + tiles_height + LEGEND_HEIGHT + svg.PADDING

    def corner(self, tile: int) -> tuple[float, float]:
        """Return the left and top of a tile."""
        row, column = divmod(tile, self.columns)
        x = svg.PADDING + column * (self.tile_width + GAP)
        return x, self.top + row * (self.tile_height + GAP)

    def image_box(self, tile: int) -> svg.Box:
        """Return the box of the image of a tile."""
        x, y = self.corner(tile)
        return x, y + WORD_HEIGHT, self.image_size[1], self.image_size[0]

    def cell_box(self, tile: int, cell: tuple[int, int], grid: tuple[int, int]) -> svg.Box:
        """Return the box of a cell of the grid over the image of a tile."""
        x, y, width, height = self.image_box(tile)
        (row, column), (rows, columns) = cell, grid
        return x + width * column / columns, y + height * row / rows, width / columns, height / rows

    def word_label(self, word: str) -> str:
        """Return a word as the label of its tile."""
        return svg.truncate(escape_invisible(word), int(self.tile_width / svg.LABEL_ADVANCE))


def legend(attention: ImageAttention) -> str:
    """Return the contents of a contact sheet."""
    scale = "relative to the word's largest cell (max: its weight)"
    if attention.rgb is None:
        return f"Filled: attended, {scale}."
    return f"Colors: attended, {scale}. Outline: that cell."


# ----- SVG -----

_STYLE = """
.faded {{ opacity: {faded}; }}
.pixelated {{ image-rendering: pixelated; }}
.frame {{ fill: none; stroke: {rule}; }}
.peak {{ fill: none; stroke: {accent}; stroke-width: 1.5; }}
"""
SHEET_STYLE = svg.select_by_scheme(
    *(
        _STYLE.format(faded=raster.FADED, accent=palette.accent, rule=palette.rule)
        for palette in (svg.LIGHT, svg.DARK)
    )
)


def render_svg(attention: ImageAttention) -> str:
    """Draw a contact sheet as an SVG document; each tile carries its word as `data-word`."""
    title, caption, _ = attention.heading
    name = title or caption or "Caption"
    if attention.is_empty:
        return svg.render_empty(title, "Caption")
    layout = SheetLayout(attention)
    root = svg.svg_document(
        layout.width,
        layout.height,
        title=name,
        description=attention.description,
        heading="",
        style=SHEET_STYLE,
    )
    svg.add_heading(root, layout.heading)
    num_others = layout.num_tiles - len(attention.words)
    if attention.rgb is not None:
        _define_image(root, attention.rgb, _id_prefix(attention))
        add_text(root, "note", "picture", x=svg.PADDING, y=layout.corner(0)[1] + WORD_HEIGHT - 8)
        _use(root, f"{_id_prefix(attention)}-picture", layout.image_box(0))
        add_rect(root, "frame", layout.image_box(0))
    for index in range(len(attention.words)):
        _draw_tile(root, attention, layout, index, tile=index + num_others)
    add_text(root, "note", legend(attention), x=svg.PADDING, y=layout.height - svg.PADDING)
    return svg.to_svg(root)


def _id_prefix(attention: ImageAttention) -> str:
    """Return a name that no other figure on a page has, unless it is the same figure."""
    digest = hashlib.sha256(attention.weights.tobytes())
    digest.update(b"" if attention.rgb is None else attention.rgb.tobytes())
    return f"sheet-{digest.hexdigest()[:10]}"


def _define_image(root: Element, image: Int[np.ndarray, "height width 3"], prefix: str) -> None:
    """Add the image in colors and in gray, to be used by the tiles."""
    definitions = SubElement(root, "defs")
    css_class = "pixelated" if max(image.shape[:2]) < PIXELATED_BELOW else ""
    for name, pixels in (("picture", image), ("gray", raster.to_gray(image))):
        scaling = {"viewBox": "0 0 1 1", "preserveAspectRatio": "none"}
        symbol = SubElement(definitions, "symbol", {"id": f"{prefix}-{name}", **scaling})
        _add_image(symbol, pixels, (0, 0, 1, 1), css_class)


def _add_image(parent: Element, pixels: np.ndarray, box: svg.Box, css_class: str = "") -> None:
    attributes = {"preserveAspectRatio": "none", "href": raster.to_data_uri(pixels)}
    classes = {"class": css_class} if css_class else {}
    SubElement(parent, "image", {**classes, **svg.box_attributes(box), **attributes})


def _use(parent: Element, name: str, box: svg.Box, css_class: str = "") -> None:
    classes = {"class": css_class} if css_class else {}
    SubElement(parent, "use", {**classes, "href": f"#{name}", **svg.box_attributes(box)})


def _draw_tile(
    root: Element, attention: ImageAttention, layout: SheetLayout, index: int, *, tile: int
) -> None:
    word, peak = attention.words[index], attention.peaks[index]
    label, box = escape_invisible(word), layout.image_box(tile)
    x, y, _, height = box
    group = SubElement(root, "g", {"class": "tile", "data-word": label})
    cell = f"row {peak.row + 1}, column {peak.column + 1}"
    SubElement(group, "title").text = f"{label}: {cell}, {attention.notes[index]}"
    add_text(group, "", layout.word_label(word), x=x, y=y - 8)
    if attention.rgb is None:
        _draw_grid(group, attention, layout, index, tile=tile)
    else:
        prefix = _id_prefix(attention)
        _use(group, f"{prefix}-gray", box, "faded")
        mask = SubElement(group, "mask", {"id": f"{prefix}-{index}"})
        _add_image(mask, _mask_pixels(attention.strengths[index]), box)
        attended = SubElement(group, "g", {"mask": f"url(#{prefix}-{index})"})
        _use(attended, f"{prefix}-picture", box)
        add_rect(attended, "full-cell", box).set("fill-opacity", f"{raster.TINT}")
        add_rect(group, "frame", box)
        grid = attention.weights.shape[1], attention.weights.shape[2]
        add_rect(group, "peak", layout.cell_box(tile, (peak.row, peak.column), grid))
    bottom = y + height
    if attention.gates is not None:
        gate, width = attention.gates[index], layout.image_size[1]
        add_rect(group, "empty-cell", (x, bottom + 6, width, BAR_HEIGHT), radius=2)
        bar = add_rect(group, "full-cell", (x, bottom + 6, width * gate, BAR_HEIGHT), radius=2)
        bar.set("data-gate", svg.format_weight(gate))
        bottom += BAR_SPACE
    add_text(group, "note", attention.notes[index], x=x, y=bottom + NOTE_HEIGHT - 4)


def _mask_pixels(strength: Float[np.ndarray, "rows columns"]) -> Int[np.ndarray, "height width 2"]:
    """Return white pixels whose alpha is the interpolated strength."""
    rows, columns = strength.shape
    size = raster.fit_size(rows, columns, max_height=MAX_MASK_SIDE, max_width=MAX_MASK_SIDE)
    alpha = raster.to_pixels(255 * raster.resize(strength, *size))
    return np.stack([np.full_like(alpha, 255), alpha], axis=-1)


def _draw_grid(
    group: Element, attention: ImageAttention, layout: SheetLayout, index: int, *, tile: int
) -> None:
    grid, weights = attention.strengths[index], attention.weights[index]
    shape = (grid.shape[0], grid.shape[1])
    for cell in np.ndindex(shape):
        box = _inner_box(layout.cell_box(tile, cell, shape))
        add_rect(group, "empty-cell", box, radius=2)
        full = add_rect(group, "full-cell", box, radius=2)
        full.set("fill-opacity", svg.format_weight(grid[cell]))
        full.set("data-weight", svg.format_weight(weights[cell]))


def _inner_box(box: svg.Box) -> svg.Box:
    """Return the part of a cell that is filled."""
    x, y, width, height = box
    gap = min(CELL_GAP, width / 4, height / 4)
    return x + gap / 2, y + gap / 2, width - gap, height - gap
