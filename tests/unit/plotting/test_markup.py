from html.parser import HTMLParser

import pytest

from heedful.plotting import html
from heedful.plotting.charts import LineSeries, render_line_chart
from tests.example_comparisons import HOSTILE

TEXTS = [
    HOSTILE,
    '" onclick="harm()',
    "' onload='x",
    "&lt;b&gt; &amp; <b>",
    "]]> <!-- --> <![CDATA[",
    "\u65e5\u672c\u8a9e  two  spaces",
]


class PageParser(HTMLParser):
    """Collects tags, attributes and text as a browser does."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.text = [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_never_interpreted_as_markup(text):
    inner = html.element("b", text)
    outer = html.element("p", text, inner, text, attributes={"title": text})
    page = PageParser(html.serialize(outer))
    assert page.tags == ["p", "b"]
    assert page.attributes == [("title", text)]
    assert page.text == 3 * text


@pytest.mark.parametrize(("hidden", "shown"), [("\u202e", "\\u202e"), ("\x00", "\\x00")])
def test_invisible_characters_escaped(hidden, shown):
    page = PageParser(html.serialize(html.element("p", f"a{hidden}", attributes={"title": hidden})))
    assert page.text == f"a{shown}"
    assert page.attributes == [("title", shown)]


def test_texts_and_elements_keep_order():
    parts = html.element(
        "p", "a", "b", html.element("i", "c"), "d", "e", html.element("b"), "f", css_class="note"
    )
    assert html.serialize(parts) == '<p class="note">ab<i>c</i>de<b></b>f</p>'


def test_table_has_headers_a_caption_and_a_focusable_region():
    table = html.table(
        [html.element("th", "a")], [[html.element("td", "1")]], css_class="plain", caption="Numbers"
    )
    assert html.serialize(table) == (
        '<div class="wide" tabindex="0" role="region" aria-label="Numbers"><table class="plain">'
        "<caption>Numbers</caption><thead><tr><th>a</th></tr></thead>"
        "<tbody><tr><td>1</td></tr></tbody></table></div>"
    )


def test_embedded_svg_has_no_style_and_no_namespace():
    line = LineSeries(HOSTILE, [(0, 1)])
    text = html.serialize(html.embed_svg(render_line_chart([line], title=HOSTILE)))
    page = PageParser(text)
    assert {"style", "script", "img"} & set(page.tags) == set()
    assert page.tags[:3] == ["svg", "title", "desc"]
    assert "ns0" not in text
    assert HOSTILE in page.text
