import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from heedful.inspection.attention_map import (
    MAX_SNIPPET_HEIGHT,
    AttentionMap,
    render_html,
    render_notebook_html,
)


class Elements(HTMLParser):
    """The elements of a page, with the text inside each."""

    def __init__(self, page):
        super().__init__()
        self.result = []
        self.is_open = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.result.append([tag, dict(attrs), ""])
        self.is_open = True

    def handle_endtag(self, tag):
        self.is_open = False

    def handle_data(self, data):
        if self.is_open:
            self.result[-1][2] += data

    def named(self, tag):
        return [(attributes, text) for name, attributes, text in self.result if name == tag]


def data_of(page):
    (attributes, text), _ = Elements(page).named("script")
    assert attributes == {"type": "application/json", "id": "maps"}
    return json.loads(text)


def test_page_has_all_tokens_and_weights(latin):
    other = replace(latin, title="Another")
    cards = data_of(render_html([latin, other], title="Two"))["sentences"]
    assert [card["title"] for card in cards] == [latin.title, "Another"]
    for card in cards:
        (view,) = card["views"]
        assert (view["source"], view["target"]) == (latin.source, latin.target)
        np.testing.assert_allclose(view["weights"], latin.weights, rtol=5e-4)


def test_maps_of_one_text_share_a_card(latin):
    named = replace(latin, output="The garden.")
    maps = [replace(named, caption=f"layer {number}") for number in (1, 2)]
    other = replace(latin, output="A garden.")
    first, second = data_of(render_html([*maps, other], title="Two"))["sentences"]
    assert [view["caption"] for view in first["views"]] == ["layer 1", "layer 2"]
    assert (first["output"], second["output"]) == ("The garden.", "A garden.")


def test_half_precision_weights_become_json_numbers():
    attention_map = AttentionMap(["a", "b"], ["x"], np.array([[0.25, 0.75]], dtype=np.float16))
    assert data_of(render_html([attention_map], title=""))["sentences"][0]["views"][0][
        "weights"
    ] == [[0.25, 0.75]]


def test_markup_in_tokens_adds_no_elements(latin, hostile):
    tame, wild = (Elements(render_html([each], title="Same")).result for each in (latin, hostile))
    assert [tag for tag, _, _ in wild] == [tag for tag, _, _ in tame]
    assert data_of(render_html([hostile], title=""))["sentences"][0]["views"][0]["source"][1] == (
        "</script><script>window.harmed=1</script>"
    )


def test_page_has_no_external_references(latin):
    page = render_html([latin], title="Alone")
    assert re.findall(r"\w+://[^\"\s]*", page) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"url\(|@import|<link|\bsrc=", page)


def test_script_inserts_no_markup(latin):
    script = Elements(render_html([latin], title=""))
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(",
        script.named("script")[1][1],
    )


def test_snippet_is_the_page_in_a_sandboxed_frame(hostile):
    ((attributes, _),) = Elements(render_notebook_html(hostile)).named("iframe")
    assert attributes["sandbox"] == "allow-scripts"
    assert len(Elements(render_notebook_html(hostile)).result) == 1
    assert data_of(attributes["srcdoc"]) == data_of(render_html([hostile], title=""))


@pytest.mark.parametrize("words", [0, 1, 10, 500])
def test_snippet_height_is_bounded(words):
    weights = np.full((words, words), 1 / max(words, 1))
    frame = render_notebook_html(AttentionMap(["a"] * words, ["x"] * words, weights))
    height = int(re.search(r"height: (\d+)px", frame)[1])
    assert 100 <= height <= MAX_SNIPPET_HEIGHT
