"""Pages: where each word looked, on a page that answers when it is pointed at.

A page is one file that asks nothing of the network. Its policy lets only its own script and
style run, by their hashes; tokens travel as JSON and enter the page as text, so a token that
looks like markup stays a token. The script, the style and the frame are files in `page/`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from string import Template

from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.colours import FAINT, STRONG, css_variables
from heedful.inspection.labels import exact, visible, visible_line

TALLEST_SNIPPET = 720  # pixels; what is taller scrolls inside its frame


def html(maps: Sequence[AttentionMap], *, title: str) -> str:
    """Write a self-contained page that shows several maps."""
    return _page(maps, title=title, kind="page")


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


def _page(maps: Sequence[AttentionMap], *, title: str, kind: str) -> str:
    style = css_variables() + _asset("page.css")
    script = _asset("page.js")
    return Template(_asset("page.html")).substitute(
        policy=_policy(style=style, script=script),
        title=escape(visible_line(title)),
        kind=kind,
        style=style,
        data=_data(maps),
        script=script,
    )


def _asset(name: str) -> str:
    return (files("heedful.inspection") / "page" / name).read_text(encoding="utf-8")


def _policy(*, style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _data(maps: Sequence[AttentionMap]) -> str:
    """Write the maps as JSON that can stand inside a script element."""
    sentences = [_sentence(attention_map) for attention_map in maps]
    text = json.dumps(
        {"strong": STRONG, "faint": FAINT, "sentences": sentences}, separators=(",", ":")
    )
    # Inside strings, the only place where it can occur, JSON may spell it out.
    return text.replace("<", "\\u003c")


def _sentence(attention_map: AttentionMap) -> dict[str, object]:
    return {
        "title": visible_line(attention_map.title),
        "source": [visible(token) for token in attention_map.source],
        "target": [visible(token) for token in attention_map.target],
        "weights": [[float(exact(weight)) for weight in row] for row in attention_map.weights],
    }
