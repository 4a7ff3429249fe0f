"""Trails of glimpses drawn on their images: in a terminal, as SVG, as a page that plays.

Invariant: the color of a glimpse depends only on its number, from the first to the last.
"""

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from heedful.errors import format_count
from heedful.plotting import html, raster
from heedful.plotting.svg import (
    PADDING,
    TITLE_HEIGHT,
    add_rect,
    add_text,
    format_px,
    render_empty,
    svg_document,
    to_svg,
)
from heedful.tasks.glimpse.predictor import GlimpsePrediction

FIRST_COLOR, LAST_COLOR = "#fde047", "#f0450f"  # of the first and the last glimpse
_TILE, _GAP, _LABEL = 168, 18, 24  # pixels of a figure
_MAX_COLUMNS = 6
_TITLE = "Glimpses"
EPISODES_NOTE = (
    "The class above an image is the mean of all test episodes; its glimpses, and the "
    "probabilities after each, are those of the most probable actions."
)
_SHADES = " .:-=+*#%@"
_STYLE = """
.label { font-size: 13px; }
.wrong { font-size: 13px; font-weight: 600; fill: #c2410c; }
.trail { fill: none; stroke-width: 1.5; stroke-opacity: 0.9; }
.number { font-size: 10px; font-weight: 600; text-anchor: middle; }
"""


def glimpse_color(index: int, count: int) -> str:
    """Return the color of a glimpse, counted from 0."""
    first, last = map(raster.hex_to_rgb, (FIRST_COLOR, LAST_COLOR))
    mixed = first + (last - first) * (index / max(count - 1, 1))
    return "#" + bytes(mixed.round().astype(np.uint8).tolist()).hex()


def format_answer(prediction: GlimpsePrediction) -> str:
    """Return class and probability, and the true class if it is another."""
    answer = f"{prediction.label}, {100 * prediction.probabilities.max():.0f} %"
    is_wrong = prediction.target not in (None, prediction.label)
    return f"{answer}, is {prediction.target}" if is_wrong else answer


def has_averaged_episodes(predictions: Sequence[GlimpsePrediction]) -> bool:
    """Whether some class is the mean of several episodes, of which only one is drawn."""
    return any(
        not np.allclose(prediction.probabilities, prediction.step_probabilities[-1], atol=1e-3)
        for prediction in predictions
    )


def centers(prediction: GlimpsePrediction) -> NDArray[np.float64]:
    """Return row and column of the middle of each glimpse in pixels, (glimpses, 2)."""
    box = prediction.boxes[:, 0].astype(np.float64)
    return box[:, :2] + box[:, 2:] / 2


# ----- terminal -----


def draw_in_terminal(prediction: GlimpsePrediction, *, width: int, has_color: bool = True) -> Text:
    """Draw an image with its glimpses, and list the prediction after each.

    With color, boxes are outlined; without, the number of a glimpse is in its middle.
    """
    count = len(prediction.boxes)
    image = _color_lines(prediction, width) if has_color else _shade_lines(prediction, width)
    lines = [Text(format_answer(prediction), style="bold"), *image]
    steps = zip(centers(prediction), prediction.step_probabilities, strict=True)
    for index, ((row, column), probabilities) in enumerate(steps):
        best = int(probabilities.argmax())
        belief = f"{best} with {100 * probabilities[best]:3.0f} %"
        text = f"glimpse {index + 1} at row {row:.0f}, column {column:.0f}: {belief}"
        lines.append(Text(text, style=glimpse_color(index, count)))
    return Text("\n", no_wrap=True, overflow="ignore").join([*lines, Text()])


def _color_lines(prediction: GlimpsePrediction, width: int) -> list[Text]:
    size = prediction.image.shape[0]
    rgb = _paint(prediction, max(1, min(width, 2 * size) // size))
    return raster.half_blocks(raster.shrink(rgb, width))


def _shade_lines(prediction: GlimpsePrediction, width: int) -> list[Text]:
    """Return the image in characters of different darkness, two for every two pixels of height."""
    size = min(prediction.image.shape[0], width)
    height = -(-size // 2)
    small = raster.resize(prediction.image.astype(np.float64), height, size)
    levels = (small / 256 * len(_SHADES)).astype(int)
    rows = [[_SHADES[level] for level in row] for row in levels]
    scale = np.array([height, size]) / prediction.image.shape
    for index, middle in enumerate(centers(prediction) * scale):
        row, column = np.clip(middle, 0, [height - 1, size - 1]).astype(int)
        rows[row][column] = str((index + 1) % 10)
    return [Text("".join(row)) for row in rows]


def _paint(prediction: GlimpsePrediction, scale: int) -> NDArray[np.uint8]:
    """Return the image enlarged, with the outlines of all glimpses and the line between them."""
    image = prediction.image
    size = image.shape[0] * scale
    rgb = raster.to_rgb(raster.repeat_cells(image, size, size)).copy()
    count = len(prediction.boxes)
    points = np.clip(centers(prediction) * scale, 0, size - 1)
    for index in range(count):
        color = raster.hex_to_rgb(glimpse_color(index, count))
        if index and scale > 1:
            steps = np.linspace(points[index - 1], points[index], 2 * size).astype(int)
            rgb[steps[:, 0], steps[:, 1]] = color
        _outline(rgb, prediction.boxes[index, 0] * scale, color, max(1, scale // 4))
    return rgb


def _outline(
    rgb: NDArray[np.uint8], box: NDArray[np.float32], color: NDArray[np.float64], thickness: int
) -> None:
    """Draw the outline of a box; what lies outside of the image is cut off."""
    size = len(rgb)
    top, left = np.round(box[:2]).astype(int)
    bottom, right = np.round(box[:2] + box[2:]).astype(int)
    rows, columns = np.mgrid[:size, :size]
    is_inside = (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
    top, left, bottom, right = (
        top + thickness,
        left + thickness,
        bottom - thickness,
        right - thickness,
    )
    is_inner = (rows >= top) & (rows < bottom) & (columns >= left) & (columns < right)
    rgb[is_inside & ~is_inner] = color


# ----- figure -----


def render_svg(predictions: Sequence[GlimpsePrediction], title: str = _TITLE) -> str:
    """Draw each image with its trail: numbered boxes, and a line through their middles."""
    if not predictions:
        return render_empty(title, _TITLE)
    columns = min(len(predictions), _MAX_COLUMNS)
    rows = -(-len(predictions) // columns)
    width = 2 * PADDING + columns * (_TILE + _GAP) - _GAP
    height = 2 * PADDING + TITLE_HEIGHT + rows * (_TILE + _LABEL + _GAP) - _GAP
    answers = "; ".join(map(format_answer, predictions))
    root = svg_document(
        max(width, 240), height, title=title, description=answers, heading=title, style=_STYLE
    )
    for index, prediction in enumerate(predictions):
        row, column = divmod(index, columns)
        x = PADDING + column * (_TILE + _GAP)
        y = PADDING + TITLE_HEIGHT + row * (_TILE + _LABEL + _GAP)
        _add_trajectory(root, prediction, x, y)
        css_class = "label" if prediction.target in (None, prediction.label) else "wrong"
        add_text(root, css_class, format_answer(prediction), x=x, y=y + _TILE + 17)
    return to_svg(root)


def _add_trajectory(root: Element, prediction: GlimpsePrediction, x: float, y: float) -> None:
    scale, count = _TILE / prediction.image.shape[0], len(prediction.boxes)
    place = {"x": str(x), "y": str(y), "width": str(_TILE), "height": str(_TILE)}
    image = raster.to_data_uri(prediction.image)
    SubElement(root, "image", {"href": image, "style": "image-rendering: pixelated", **place})
    part = SubElement(root, "svg", {**place, "viewBox": f"0 0 {_TILE} {_TILE}"})  # cuts boxes off
    points = centers(prediction)[:, ::-1] * scale
    for index, (middle, boxes) in enumerate(zip(points, prediction.boxes, strict=True)):
        color = glimpse_color(index, count)
        top, left, height, width = (scale * boxes[0]).tolist()
        rectangle = add_rect(part, "trail", (left, top, width, height), radius=2)
        rectangle.set("stroke", color)
        if index:
            ends = zip(("x1", "y1", "x2", "y2"), (*points[index - 1], *middle), strict=True)
            line = {name: format_px(end) for name, end in ends}
            SubElement(part, "line", {"class": "trail", "stroke": color, **line})
    for index, (left, top) in enumerate(points):
        color, place = glimpse_color(index, count), {"cx": format_px(left), "cy": format_px(top)}
        SubElement(part, "circle", {**place, "r": "7", "fill": color})
        number = add_text(part, "number", str(index + 1), x=left, y=top + 3.5)
        number.set("style", "fill: #171b2e")


# ----- page -----


def render_page(predictions: Sequence[GlimpsePrediction], title: str = _TITLE) -> str:
    """Return a page that plays the glimpses of each image, with the probabilities after each."""
    data = [
        {
            "size": prediction.image.shape[0],
            "pixels": prediction.image.ravel().tolist(),
            "answer": format_answer(prediction),
            "wrong": prediction.target not in (None, prediction.label),
            **prediction.to_json(),
        }
        for prediction in predictions
    ]
    count = max((len(prediction.boxes) for prediction in predictions), default=1)
    colors = [glimpse_color(index, count) for index in range(count)]
    text = (
        f"{format_count(len(predictions), 'image')}. Play, move the slider, or use the arrow keys."
    )
    if has_averaged_episodes(predictions):
        text += f" {EPISODES_NOTE}"
    trajectories = html.element("div", attributes={"id": "trails"})
    return html.render_page(
        html.serialize(html.element("main", html.element("p", text), trajectories)),
        title=title,
        styles=["attention_map.css", "glimpses.css"],
        scripts=["glimpse-page.js"],
        data={"predictions": {"images": data, "colors": colors}},
        page_type="glimpses",
    )
