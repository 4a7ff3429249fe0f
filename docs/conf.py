"""Sphinx settings of the site; `make site` builds it, `tools/site.py` prepares the pages."""

import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

from heedful.version import VERSION
from tools.site import to_mathml

project, author, release = "heedful", "The heedful authors", VERSION
html_title = f"heedful {VERSION}"
project_copyright = f"{author}, Apache License 2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "furo"
html_static_path = ["static"]
html_favicon = "static/favicon.svg"
html_extra_path = ["extra"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # browsers refuse to read pages for it from file://
html_search_scorer = str(Path(__file__).with_name("static") / "scorer.js")
html_math_renderer = "mathml"
html_theme_options = {"navigation_with_keys": True}
exclude_patterns = ["extra", "static"]
myst_heading_anchors = 6
myst_fence_as_directive = ["math"]
suppress_warnings = ["myst.header"]
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_class_signature = "mixed"
maximum_signature_line_length = 88
toc_object_entries = False
pygments_style, pygments_dark_style = "friendly", "monokai"


_QUESTION_WORDS = """
am any can could did do does don from get have how i it its me my need one should so than them want
we what when where which who why would you your
"""


class SearchQuestions(SearchEnglish):
    """English, in which the words that make a question count for nothing."""

    stopwords = SearchEnglish.stopwords | set(_QUESTION_WORDS.split())


def as_restructured_text(_app: Sphinx, _kind: str, _name: str, *rest: Any) -> None:
    """Make a docstring, which is plain text, one of reStructuredText; keep indented lines."""
    lines = rest[-1]
    parts = re.split(r"`([^`]+)`", "\n".join(lines))  # every second part is code
    parts[::2] = [re.sub(r"([\\*|_])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [f"``{part}``\\ " for part in parts[1::2]]
    paragraphs = [
        "\n".join(f"| {line}" for line in part.splitlines()) if "\n " in part else part
        for part in "".join(parts).split("\n\n")
    ]
    lines[:] = "\n\n".join(paragraphs).splitlines()


def visit_math(translator: Any, node: nodes.Element) -> None:
    """Write a formula as MathML, which browsers draw without a script."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    formula = to_mathml(node.astext(), display)
    translator.body.append(
        f'<div class="formula">{formula}</div>' if display == "block" else formula
    )
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Add the formulas and the search."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    app.add_search_language(SearchQuestions)
    app.connect("autodoc-process-docstring", as_restructured_text)
