"""Markup: what is a page made of?

Elements are built as a tree and written by a writer that escapes, and no character of a text is
hidden. Law: whatever text is given, it is shown, and nothing of it is obeyed.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from heedful.plotting.svg import css_variables, escape_line, escape_text


def make_element(
    tag: str,
    *children: Element | str,
    css_class: str = "",
    attributes: Mapping[str, str] | None = None,
) -> Element:
    """An element, of a class if `look` is given, with elements and texts in it."""
    classes = {"class": css_class} if css_class else {}
    given = {name: escape_text(value) for name, value in (attributes or {}).items()}
    element = Element(tag, classes | given)
    for child in children:
        if isinstance(child, str):
            _add_text(element, escape_text(child))
        else:
            element.append(child)
    return element


def _add_text(element: Element, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text


def make_table(
    head: Sequence[Element], rows: Iterable[Sequence[Element]], *, css_class: str, caption: str
) -> Element:
    """A table that can be scrolled if it is too wide, also by keyboard."""
    body = make_element(
        "table",
        make_element("caption", caption),
        make_element("thead", make_element("tr", *head)),
        make_element("tbody", *(make_element("tr", *row) for row in rows)),
        css_class=css_class,
    )
    region = {"tabindex": "0", "role": "region", "aria-label": caption}
    return make_element("div", body, css_class="wide", attributes=region)


def column_header(*children: Element | str, attributes: Mapping[str, str] | None = None) -> Element:
    """The head of a column."""
    return make_element("th", *children, attributes={"scope": "col"} | dict(attributes or {}))


def row_header(*children: Element | str) -> Element:
    """The head of a row."""
    return make_element("th", *children, attributes={"scope": "row"})


def definition_list(pairs: Iterable[tuple[str, str]]) -> Element:
    """A list of names and what they stand for."""
    return make_element(
        "dl",
        *(
            part
            for name, said in pairs
            for part in (make_element("dt", name), make_element("dd", said))
        ),
    )


def embed_svg(svg: str) -> Element:
    """A picture as a part of a page: without a style of its own, which the page would refuse."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]  # in a page, SVG needs no namespace
    for style in root.findall("style"):
        root.remove(style)
    return root


def to_html(element: Element) -> str:
    """Write an element as HTML."""
    return ElementTree.tostring(element, encoding="unicode", method="html")


# Framing: how is a page put together that asks nothing of the network?
#
# Its policy lets only its own script and style run, by their hashes. What it shows travels as JSON
# and enters the page as text, so what looks like markup stays text.


def render_page(
    template: str,
    *,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    data: Mapping[str, object],
    variables: str = "",
    page_type: str = "page",
    content: str = "",
) -> str:
    """Fill a template in `page/` with assets of the same folder and data by name.

    `variables` are rules of style that stand before the others, `kind` is the class of the body,
    `content` is markup that has been escaped already.
    """
    style = css_variables() + variables + "".join(map(read_asset, styles))
    script = "".join(map(read_asset, scripts))
    return Template(read_asset(template)).substitute(
        policy=_content_security_policy(style=style, script=script),
        title=escape(escape_line(title)),
        kind=page_type,
        content=content,
        style=style,
        script=script,
        **{name: to_script_json(value) for name, value in data.items()},
    )


def read_asset(name: str) -> str:
    """Read a file of the folder `page/`."""
    return (files("heedful.inspection") / "page" / name).read_text(encoding="utf-8")


def to_script_json(value: object) -> str:
    """Write a value as JSON that can stand inside a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    # Inside strings, the only place where it can occur, JSON may spell it out.
    return text.replace("<", "\\u003c")


def _content_security_policy(*, style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src {_csp_hash(style)}; script-src {_csp_hash(script)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _csp_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
