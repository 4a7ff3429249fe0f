"""Figures of attention over texts and over images: terminal, SVG, and a page with both.

An attention map with a `grid` is drawn as images (`caption_attention`), any other as a heat map
or as lines between tokens (`attention_lines`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from heedful.inspection import attention_lines, attention_map, caption_attention
from heedful.inspection.attention_map import AttentionMap, FigureForm, attention_data
from heedful.inspection.caption_attention import CaptionAttention, caption_data
from heedful.inspection.terminal_heatmap import terminal_heatmap
from heedful.inspection.terminal_images import terminal_sheet
from heedful.plotting import svg
from heedful.plotting.html import read_asset, render_page

if TYPE_CHECKING:
    from rich.text import Text


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
    if not texts:
        return caption_attention.render_html(images, title=title)
    return render_page(
        read_asset("caption.html"),
        title=title,
        styles=["attention_map.css", "caption.css"],
        scripts=["attention_map.js", "caption.js"],
        data={"maps": attention_data(texts, form), "captions": caption_data(images)},
        has_images=True,
    )
