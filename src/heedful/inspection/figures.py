"""Figures of attention over texts and over images: terminal, SVG, and a page with both.

An attention map with a `grid` is drawn as images (`CaptionAttention`), any other as a heat map or
as lines between tokens (`attention_lines`). Without an image (a file of features) the grid is
drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.inspection import attention_lines, attention_map, image_attention
from heedful.inspection.attention_map import (
    AttentionMap,
    FigureForm,
    attention_data,
    attention_scripts,
)
from heedful.inspection.image_attention import ImageAttention
from heedful.inspection.terminal_figures import terminal_heatmap, terminal_sheet
from heedful.plotting import raster, svg
from heedful.plotting.html import read_asset, render_page, sandboxed_frame
from heedful.plotting.svg import escape_invisible, write_figures

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text


class CaptionAttention(ImageAttention):
    """Attention of a caption that can be drawn."""

    def to_terminal(self, console: Console) -> None:
        """Print a small image for each word; without colors, grids of shades."""
        has_color = console.color_system is not None
        console.print(terminal_sheet(self, width=console.width, has_color=has_color))

    def to_svg(self) -> str:
        """Return a contact sheet: an image for each word."""
        return image_attention.render_svg(self)

    def to_png(self, path: Path) -> None:
        """Write the contact sheet as a PNG file; needs resvg-py."""
        write_figures([path], self.to_svg)

    def to_html(self) -> str:
        """Return a self-contained page with a word scrubber over the image."""
        return render_captions([self], title=self.title or "Caption")

    def _repr_html_(self) -> str:
        page = render_captions([self], title=self.title or "Caption", page_type="snippet")
        return sandboxed_frame(page, "Attention of a caption", 640)


def to_caption_attention(attention: AttentionMap) -> CaptionAttention:
    """Return a map over an image as grids of weights."""
    assert attention.grid is not None, "the source is not an image"
    return CaptionAttention(
        attention.image,
        attention.target,
        attention.weights.reshape(-1, *attention.grid),
        gates=attention.gates,
        title=attention.title,
        caption=attention.output,
        label=attention.caption,
    )


def render_terminal(
    attention: AttentionMap, *, width: int, has_color: bool = True, form: FigureForm = "map"
) -> Text:
    """Draw a map within a number of terminal columns, without its heading."""
    untitled = replace(attention, title="")
    if attention.grid is None:
        draw = attention_lines.terminal_lines if form == "lines" else terminal_heatmap
        return draw(untitled, width=width)
    images = to_caption_attention(replace(untitled, output="", caption=""))
    return terminal_sheet(images, width=width, has_color=has_color, has_heading=False)


def render_svg(maps: Sequence[AttentionMap], *, columns: int = 1, form: FigureForm = "map") -> str:
    """Draw maps, such as those of several layers and heads, as one SVG document."""
    draw = attention_lines.render_svg if form == "lines" else attention_map.render_svg
    documents = [
        draw(one) if one.grid is None else to_caption_attention(one).to_svg() for one in maps
    ]
    return svg.join_documents(documents, columns=columns)


def render_html(maps: Sequence[AttentionMap], *, title: str, form: FigureForm = "map") -> str:
    """Return a self-contained page with all maps; those over images come last."""
    texts = [one for one in maps if one.grid is None]
    images = [to_caption_attention(one) for one in maps if one.grid is not None]
    if not images:
        return attention_map.render_html(texts, title=title, form=form)
    return render_captions(images, title=title, maps=texts, form=form)


def render_captions(
    attentions: Sequence[CaptionAttention],
    *,
    title: str,
    page_type: str = "page",
    maps: Sequence[AttentionMap] = (),
    form: FigureForm = "map",
) -> str:
    """Return a self-contained page of captions, each with a scrubber over its image.

    Consecutive attentions of one caption (equal titles and captions) share a card, which shows one
    of them at a time. Maps of texts come before them.
    """
    texts = {"maps": attention_data(maps, form)} if maps else {}
    return render_page(
        read_asset("caption.html"),
        title=title,
        styles=["attention_map.css", "caption.css"],
        scripts=[*(attention_scripts(maps) if maps else []), "caption-page.js"],
        data={**texts, "captions": caption_data(attentions)},
        page_type=page_type,
        has_images=True,
    )


def caption_data(attentions: Sequence[CaptionAttention]) -> dict[str, object]:
    """Return the data that caption-page.js draws."""
    cards: list[dict[str, Any]] = []
    for attention in attentions:
        title, caption, label = attention.heading
        card = {"title": title, "caption": caption}
        if not (title and cards and card.items() <= cards[-1].items()):
            image = attention.rgb
            uri = "" if image is None else raster.to_data_uri(image)
            cards.append({**card, "picture": uri, "size": list(attention.size), "views": []})
        view = {
            "label": label,
            "words": [escape_invisible(word) for word in attention.words],
            "gates": None if attention.gates is None else [round(g, 4) for g in attention.gates],
            "weights": [
                [[float(svg.format_weight(weight)) for weight in row] for row in grid]
                for grid in attention.weights
            ],
        }
        cards[-1]["views"].append(view)
    return {"cards": cards}
