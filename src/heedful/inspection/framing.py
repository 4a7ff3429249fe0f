"""Framing: how is a page put together that asks nothing of the network?

Its policy lets only its own script and style run, by their hashes. What it shows travels as JSON
and enters the page as text, so what looks like markup stays text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template

from heedful.inspection.colours import css_variables
from heedful.inspection.labels import visible_line


def frame(
    template: str,
    *,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: Mapping[str, object],
    variables: str = "",
    kind: str = "page",
    content: str = "",
) -> str:
    """Fill a template in `page/` with assets of the same folder and data by name.

    `variables` are rules of style that stand before the others, `kind` is the class of the body,
    `content` is markup that has been escaped already.
    """
    style = css_variables() + variables + "".join(map(asset, styles))
    script = "".join(map(asset, scripts))
    return Template(asset(template)).substitute(
        policy=_policy(style=style, script=script),
        title=escape(visible_line(title)),
        kind=kind,
        content=content,
        style=style,
        script=script,
        **{name: as_script(value) for name, value in data.items()},
    )


def asset(name: str) -> str:
    """Read a file of the folder `page/`."""
    return (files("heedful.inspection") / "page" / name).read_text(encoding="utf-8")


def as_script(value: object) -> str:
    """Write a value as JSON that can stand inside a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    # Inside strings, the only place where it can occur, JSON may spell it out.
    return text.replace("<", "\\u003c")


def _policy(*, style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
