"""Self-contained HTML pages.

A page makes no network requests: its content security policy admits only its own script and style,
by hash. Markup is built as a tree and serialized with escaping; data are embedded as JSON and
inserted as text. Invariant: whatever a text contains, it is shown and never interpreted.
"""

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from heedful.plotting.svg import css_variables, escape_line, escape_text


def element(
    tag: str,
    *children: Element | str,
    css_class: str = "",
    attributes: Mapping[str, str] | None = None,
) -> Element:
    """Return an element with texts and elements in it; invisible characters are escaped."""
    escaped = {name: escape_text(value) for name, value in (attributes or {}).items()}
    node = Element(tag, {"class": css_class, **escaped} if css_class else escaped)
    for child in children:
        if not isinstance(child, str):
            node.append(child)
        elif len(node):
            node[-1].tail = (node[-1].tail or "") + escape_text(child)
        else:
            node.text = (node.text or "") + escape_text(child)
    return node


def table(
    head: Sequence[Element], rows: Iterable[Sequence[Element]], *, css_class: str, caption: str
) -> Element:
    """Return a table in a region that scrolls if the table is too wide, also by keyboard."""
    parts = [
        element("caption", caption),
        element("thead", element("tr", *head)),
        element("tbody", *(element("tr", *row) for row in rows)),
    ]
    region = {"tabindex": "0", "role": "region", "aria-label": caption}
    table_element = element("table", *parts, css_class=css_class)
    return element("div", table_element, css_class="wide", attributes=region)


def column_header(*children: Element | str, attributes: Mapping[str, str] | None = None) -> Element:
    """Return the header of a column."""
    return element("th", *children, attributes={"scope": "col", **(attributes or {})})


def row_header(*children: Element | str) -> Element:
    """Return the header of a row."""
    return element("th", *children, attributes={"scope": "row"})


def definition_list(pairs: Iterable[tuple[str, str]]) -> Element:
    """Return a list of names and values."""
    cells = (cell for pair in pairs for cell in zip(("dt", "dd"), pair, strict=True))
    return element("dl", *(element(tag, text) for tag, text in cells))


def key_figures(figures: Iterable[tuple[str, str, str]]) -> Element:
    """Return tiles of a name, a value and a note."""
    tiles = []
    for name, value, note in figures:
        cells = (element("dd", value, css_class="value"), element("dd", note, css_class="beside"))
        tiles.append(element("div", element("dt", name), *cells))
    return element("dl", *tiles, css_class="key-figures")


def curve_key(css_class: str, *children: Element | str, num_layers: int = 1) -> Element:
    """Return an entry of a legend: a piece of the curve or band, and what follows it.

    A band within others has as many layers as there are bands at its place.
    """
    shape = "M1,1 H15 V9 H1 Z" if css_class.startswith("band") else "M1,5 H15"
    attributes = {"d": shape}
    paths = [element("path", css_class=css_class, attributes=attributes) for _ in range(num_layers)]
    swatch = {"viewBox": "0 0 16 10", "aria-hidden": "true"}
    line = element("svg", *paths, css_class="swatch", attributes=swatch)
    return element("span", line, *children, css_class="key")


def radio_group(name: str, legend: str, choices: Sequence[str]) -> Element:
    """Return radio buttons, the first of which is checked, as a row of buttons."""
    labels = []
    for index, choice in enumerate(choices):
        radio = {"type": "radio", "name": name, "value": str(index)}
        button = element("input", attributes=radio if index else {**radio, "checked": ""})
        labels.append(element("label", button, choice))
    return element("fieldset", element("legend", legend), *labels, css_class="switch")


def embed_svg(svg: str) -> Element:
    """Return an SVG document as part of a page, without its own style, which the policy blocks."""
    root = ElementTree.fromstring(svg)
    for node in root.iter():
        node.tag = node.tag.rpartition("}")[2]  # inside a page, SVG needs no namespace
    for style in root.findall("style"):
        root.remove(style)
    return root


def serialize(*elements: Element) -> str:
    """Serialize elements as HTML."""
    return "".join(ElementTree.tostring(node, "unicode", method="html") for node in elements)


def render_page(
    content: str,
    *,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str] = (),
    data: Mapping[str, object] | None = None,
    extra_style: str = "",
    page_type: str = "page",
    has_images: bool = False,
    has_worker: bool = False,
) -> str:
    """Return a page with `content`, which is already escaped, and JSON data by element id.

    `styles` are assets, which `extra_style` precedes; `scripts` are modules, which are bundled;
    `page_type`: class of the body; `has_images`: whether the page shows images, which must be
    contained in it as `data:` URIs; `has_worker`: whether it starts a worker from its data.
    """
    style = css_variables() + extra_style + "".join(map(read_asset, styles))
    script = bundle_modules(*scripts) if scripts else ""
    sources = f"style-src {_csp_hash(style)}; script-src {_csp_hash(script)}"
    sources += "; img-src data:" if has_images else ""
    sources += "; worker-src blob:" if has_worker else ""
    data_elements = [
        f'<script type="application/json" id="{name}">{to_script_json(value)}</script>'
        for name, value in (data or {}).items()
    ]
    return Template(read_asset("page.html")).substitute(
        policy=f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'",
        title=escape(escape_line(title)),
        page_type=page_type,
        content=content,
        data="\n".join(data_elements),
        style=style,
        script=script,
    )


def render_served_page(name: str) -> str:
    """Return a page of a server, whose styles and modules are files beside it: page/NAME-page.js.

    Its content is NAME.html; the names of styles and modules, and nothing else, depend on `name`.
    """
    return Template(read_asset("served_page.html")).substitute(
        name=name, content=read_asset(f"{name}.html")
    )


def list_assets() -> list[str]:
    """Return the names of all files of the folder `page/`."""
    return sorted(file.name for file in (files("heedful.plotting") / "page").iterdir())


def sandboxed_frame(page: str, title: str, height: int) -> str:
    """Return a page in a frame of its own, for a notebook cell."""
    return (
        f'<iframe sandbox="allow-scripts" title="{title}" '
        f'style="width: 100%; height: {height}px; border: 0;" srcdoc="{escape(page)}"></iframe>'
    )


def read_asset(name: str) -> str:
    """Return a file of the folder `page/`."""
    return (files("heedful.plotting") / "page" / name).read_text(encoding="utf-8")


_IMPORT = re.compile(r'^import (?:\{([^}]*)\} from )?"\./([^"]+)";\n', re.M)
_COMMENT = re.compile(
    r"""^\s*/\*\*(?:(?!\*/)[\s\S])*\*/\n|^[ \t]*//[^\n]*\n"""  # lines of comments
    r"""|[ \t]+// [^"'`\n]*$|/\*\* @[^*\n]*\*/ ?""",  # behind or within a line
    re.M,
)
_DEFINITION = re.compile(
    r"^(export )?(?:async )?(?:function|class|const|let) (\w+|[{[][^=]*)", re.M
)


@cache
def bundle_modules(*entries: str, read: Callable[[str], str] = read_asset) -> str:
    """Return ES modules and all that they import as one script: imported modules come first.

    Modules import names, or a module for its effects, from files beside them. As all of them share
    a scope here, no two may define the same top-level name. Comments and indentation are left out.
    """
    exports: dict[str, set[str]] = {}
    bodies: dict[str, str] = {}  # in the order of the script
    owners: dict[str, str] = {}

    def add(module: str) -> None:
        source = read(module)
        definitions = _DEFINITION.findall(source)
        exports[module] = {name for is_exported, name in definitions if is_exported}
        for names, imported in _IMPORT.findall(source):
            if imported not in exports:
                add(imported)
            assert imported in bodies, f"{module} and {imported} import each other"
            unknown = set(re.findall(r"\w+", names)) - exports[imported]
            assert not unknown, f"{module}: {imported} does not export {sorted(unknown)}"
        for name in re.findall(r"\w+", " ".join(names for _, names in definitions)):
            owner = owners.setdefault(name, module)
            assert owner == module, f"{name} is defined in {owner} and in {module}"
        body = re.sub(r"^export ", "", _COMMENT.sub("", _IMPORT.sub("", source)), flags=re.M)
        other = re.search(r"^(?:import|default|\{).*", body, re.M)
        assert not other, f"{module}: {other and other[0]}: import and export by name"
        bodies[module] = body

    for entry in entries:
        if entry not in bodies:
            add(entry)
    script = re.sub(r"^\s+", "", "\n".join(bodies.values()), flags=re.M)
    return f'(() => {{\n"use strict";\n{script}}})();\n'


def to_script_json(value: object) -> str:
    """Serialize a value as JSON that is safe inside a script element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")  # "<" occurs only inside strings, where JSON may escape it


def _csp_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
