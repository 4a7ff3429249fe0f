"""Pages: where each word looked, on a page that answers when it is pointed at.

A page is one file that asks nothing of the network (`framing`); a token that looks like markup
stays a token. The script, the style and the frame are files in `page/`.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.colours import FAINT, STRONG
from heedful.inspection.framing import frame
from heedful.inspection.labels import exact, visible, visible_line

TALLEST_SNIPPET = 720  # pixels; what is taller scrolls inside its frame


def html(maps: Sequence[AttentionMap], *, title: str) -> str:
    """Write a self-contained page that shows several maps."""
    return _page(maps, title=title)


def snippet(attention_map: AttentionMap) -> str:
    """Write an attention map for a notebook's cell, in a frame that cannot touch the notebook."""
    page = _page([attention_map], title=attention_map.title, kind="snippet")
    return (
        f'<iframe sandbox="allow-scripts" title="Where each word looked" '
        f'style="width: 100%; height: {_height(attention_map)}px; border: 0;" '
        f'srcdoc="{escape(page)}"></iframe>'
    )


def _height(attention_map: AttentionMap) -> int:
    """Guess the pixels that a page needs, since a closed frame cannot ask for them."""
    rows, columns = attention_map.weights.shape
    if attention_map.is_empty:
        return 120
    map_height = 210 + 33 * rows
    # In the width of a usual notebook, a wide map moves below the words.
    ribbon_height = 260 if columns > 9 else 0
    return min(TALLEST_SNIPPET, map_height + ribbon_height)


def _page(maps: Sequence[AttentionMap], *, title: str, kind: str = "page") -> str:
    sentences = [_sentence(attention_map) for attention_map in maps]
    return frame(
        "page.html",
        title=title,
        styles=["page.css"],
        scripts=["page.js"],
        data={"maps": {"strong": STRONG, "faint": FAINT, "sentences": sentences}},
        kind=kind,
    )


def _sentence(attention_map: AttentionMap) -> dict[str, object]:
    return {
        "title": visible_line(attention_map.title),
        "source": [visible(token) for token in attention_map.source],
        "target": [visible(token) for token in attention_map.target],
        "weights": [[float(exact(weight)) for weight in row] for row in attention_map.weights],
    }
