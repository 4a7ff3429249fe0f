"""Markup: what is a page made of?

Elements are built as a tree and written by a writer that escapes, and no character of a text is
hidden. Law: whatever text is given, it is shown, and nothing of it is obeyed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from heedful.inspection.run_page import readable


def node(
    tag: str,
    *children: Element | str,
    look: str = "",
    attributes: Mapping[str, str] | None = None,
) -> Element:
    """An element, of a class if `look` is given, with elements and texts in it."""
    classes = {"class": look} if look else {}
    given = {name: readable(value) for name, value in (attributes or {}).items()}
    element = Element(tag, classes | given)
    for child in children:
        if isinstance(child, str):
            _add_text(element, readable(child))
        else:
            element.append(child)
    return element


def _add_text(element: Element, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text


def table(
    head: Sequence[Element], rows: Iterable[Sequence[Element]], *, look: str, caption: str
) -> Element:
    """A table that can be scrolled if it is too wide, also by keyboard."""
    body = node(
        "table",
        node("caption", caption),
        node("thead", node("tr", *head)),
        node("tbody", *(node("tr", *row) for row in rows)),
        look=look,
    )
    region = {"tabindex": "0", "role": "region", "aria-label": caption}
    return node("div", body, look="wide", attributes=region)


def column_header(*children: Element | str, attributes: Mapping[str, str] | None = None) -> Element:
    """The head of a column."""
    return node("th", *children, attributes={"scope": "col"} | dict(attributes or {}))


def row_header(*children: Element | str) -> Element:
    """The head of a row."""
    return node("th", *children, attributes={"scope": "row"})


def definitions(pairs: Iterable[tuple[str, str]]) -> Element:
    """A list of names and what they stand for."""
    return node(
        "dl", *(part for name, said in pairs for part in (node("dt", name), node("dd", said)))
    )


def embedded(svg: str) -> Element:
    """A picture as a part of a page: without a style of its own, which the page would refuse."""
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]  # in a page, SVG needs no namespace
    for style in root.findall("style"):
        root.remove(style)
    return root


def write_markup(element: Element) -> str:
    """Write an element as HTML."""
    return ElementTree.tostring(element, encoding="unicode", method="html")
