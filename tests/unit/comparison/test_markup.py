from html.parser import HTMLParser

import pytest

from heedful.comparison.markup import embedded, node, table, write_markup
from heedful.inspection.chart import Line, chart
from tests.made_comparisons import HOSTILE

TEXTS = [
    HOSTILE,
    '" onclick="harm()',
    "' onload='x",
    "&lt;b&gt; &amp; <b>",
    "]]> <!-- --> <![CDATA[",
    "\u65e5\u672c\u8a9e  two  spaces",
]


class Reader(HTMLParser):
    """Gathers tags, attributes and text as a browser would."""

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
def test_a_text_is_shown_and_not_obeyed(text):
    page = Reader(write_markup(node("p", text, node("b", text), text, attributes={"title": text})))
    assert page.tags == ["p", "b"]
    assert page.attributes == [("title", text)]
    assert page.text == 3 * text


@pytest.mark.parametrize(("hidden", "shown"), [("\u202e", "\\u202e"), ("\x00", "\\x00")])
def test_no_character_is_hidden(hidden, shown):
    page = Reader(write_markup(node("p", f"a{hidden}", attributes={"title": hidden})))
    assert page.text == f"a{shown}"
    assert page.attributes == [("title", shown)]


def test_texts_and_elements_keep_their_order():
    parts = node("p", "a", "b", node("i", "c"), "d", "e", node("b"), "f", look="note")
    assert write_markup(parts) == '<p class="note">ab<i>c</i>de<b></b>f</p>'


def test_a_table_has_headers_a_caption_and_a_place_that_the_keyboard_reaches():
    found = table([node("th", "a")], [[node("td", "1")]], look="plain", caption="Numbers")
    assert write_markup(found) == (
        '<div class="wide" tabindex="0" role="region" aria-label="Numbers"><table class="plain">'
        "<caption>Numbers</caption><thead><tr><th>a</th></tr></thead>"
        "<tbody><tr><td>1</td></tr></tbody></table></div>"
    )


def test_a_picture_inside_a_page_has_no_style_of_its_own_and_no_foreign_name():
    line = Line(HOSTILE, [(0, 1)])
    text = write_markup(embedded(chart([line], title=HOSTILE)))
    page = Reader(text)
    assert {"style", "script", "img"} & set(page.tags) == set()
    assert page.tags[:3] == ["svg", "title", "desc"]
    assert "ns0" not in text
    assert HOSTILE in page.text
