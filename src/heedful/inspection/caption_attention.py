"""Where each word of a caption attends in an image: in the terminal, as a figure, as a page.

Without an image (a file of features) the grid is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.inspection.contact_sheet import render_svg
from heedful.inspection.image_attention import ImageAttention
from heedful.inspection.terminal_images import terminal_sheet
from heedful.plotting import raster, svg
from heedful.plotting.figure_files import write_figures
from heedful.plotting.html import read_asset, render_page
from heedful.plotting.svg import escape_invisible

if TYPE_CHECKING:
    from rich.console import Console


class CaptionAttention(ImageAttention):
    """Attention of a caption that can be drawn."""

    def to_terminal(self, console: Console) -> None:
        """Print a small image for each word; without colors, grids of shades."""
        has_color = console.color_system is not None
        console.print(terminal_sheet(self, width=console.width, has_color=has_color))

    def to_svg(self) -> str:
        """Return a contact sheet: an image for each word."""
        return render_svg(self)

    def to_png(self, path: Path) -> None:
        """Write the contact sheet as a PNG file; needs resvg-py."""
        write_figures([path], self.to_svg)

    def to_html(self) -> str:
        """Return a self-contained page with a word scrubber over the image."""
        return render_html([self], title=self.title or "Caption")

    def _repr_html_(self) -> str:
        page = render_html([self], title=self.title or "Caption", page_type="snippet")
        return (
            f'<iframe sandbox="allow-scripts" title="Attention of a caption" '
            f'style="width: 100%; height: 640px; border: 0;" srcdoc="{escape(page)}"></iframe>'
        )


def render_html(
    attentions: Sequence[CaptionAttention], *, title: str, page_type: str = "page"
) -> str:
    """Return a self-contained page of captions, each with a scrubber over its image.

    Consecutive attentions of one caption (equal titles and captions) share a card, which shows one
    of them at a time.
    """
    return render_page(
        read_asset("caption.html"),
        title=title,
        styles=["attention_map.css", "caption.css"],
        scripts=["caption.js"],
        data={"captions": caption_data(attentions)},
        page_type=page_type,
        has_images=True,
    )


def caption_data(attentions: Sequence[CaptionAttention]) -> dict[str, object]:
    """Return the data that caption.js draws."""
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
    return {
        "strong": svg.DARK_TEXT_THRESHOLD,
        "faded": raster.FADED,
        "tint": raster.TINT,
        "cards": cards,
    }
