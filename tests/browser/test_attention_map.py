"""Attention maps as HTML and SVG in a real browser."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from heedful.inspection import attention_lines
from heedful.inspection.attention_map import (
    AttentionMap,
    render_html,
    render_notebook_html,
    render_svg,
)
from heedful.plotting.svg import DARK, LIGHT, weight_color

pytestmark = [
    pytest.mark.browser,
    pytest.mark.wide,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH"),
]

LATIN = AttentionMap(
    source=["Servum", "bonum", "puella", "videt", "."],
    target=["The", "girl", "sees", "the", "good", "slave", "."],
    weights=np.array(
        [
            [0.02, 0.01, 0.9, 0.05, 0.02],
            [0.015, 0.005, 0.93, 0.04, 0.01],
            [0.03, 0.01, 0.08, 0.85, 0.03],
            [0.61, 0.22, 0.02, 0.13, 0.02],
            [0.12, 0.83, 0.003, 0.042, 0.005],
            [0.91, 0.06, 0.01, 0.007, 0.013],
            [0.0, 0.0, 0.0, 0.0, 1.0],
        ]
    ),
    title="Latin to English",
)
HEBREW = AttentionMap(
    source=["\u05d4\u05d9\u05dc\u05d3\u05d4", "\u05e8\u05d5\u05d0\u05d4"],
    target=["The", "girl", "sees"],
    weights=np.array([[0.9, 0.1], [0.95, 0.05], [0.2, 0.8]]),
)
HOSTILE_TOKENS = [
    "<img src=x onerror=window.harmed=1>",
    "</script><script>window.harmed=1</script>",
    "<svg onload=window.harmed=1>",
    "&lt;b&gt;",
    "{{harmed}}",
    "javascript:window.harmed=1",
]
HOSTILE = AttentionMap(HOSTILE_TOKENS, HOSTILE_TOKENS, np.eye(6), title=HOSTILE_TOKENS[0])


def words(page, side):
    return page.locator(f".{side} .word")


def weights_of(page, side):
    """The weight each word of a row shows, or None where it shows none."""
    shown = words(page, side).evaluate_all("nodes => nodes.map(node => node.dataset.weight)")
    return [float(weight) if weight else None for weight in shown]


def colors_of(locator):
    """The background of each element as the browser paints it, in 0..255."""
    backgrounds = locator.evaluate_all(
        "nodes => nodes.map(node => getComputedStyle(node).backgroundColor)"
    )
    return [channels(background) for background in backgrounds]


def channels(color):
    numbers = [float(number) for number in re.findall(r"[\d.]+(?:e-?\d+)?", color)[:3]]
    return [255 * n for n in numbers] if color.startswith("color(") else numbers


def shades(palette, weights):
    return [list(bytes.fromhex(weight_color(palette, weight)[1:])) for weight in weights]


def is_at_rest(page):
    return {*weights_of(page, "source"), *weights_of(page, "target")} == {None}


@pytest.mark.parametrize(("scheme", "palette"), [("light", LIGHT), ("dark", DARK)])
def test_pointer_on_an_output_word_shades_its_source_words(show, scheme, palette):
    page = show(render_html([LATIN], title="Latin"), scheme=scheme)
    for row, weights in enumerate(LATIN.weights):
        words(page, "target").nth(row).hover()
        assert weights_of(page, "source") == list(weights)
        painted = colors_of(words(page, "source"))
        np.testing.assert_allclose(painted, shades(palette, weights), atol=0.6)
    assert set(weights_of(page, "target")) == {None}


def test_pointer_on_a_source_word_shows_its_output_words(show):
    page = show(render_html([LATIN], title="Latin"))
    words(page, "source").nth(2).hover()
    assert weights_of(page, "target") == list(LATIN.weights[:, 2])
    assert set(weights_of(page, "source")) == {None}


def test_pointer_on_a_cell_shows_one_pair(show):
    page = show(render_html([LATIN], title="Latin"))
    page.locator('.cell[data-row="3"][data-column="1"]').hover()
    assert weights_of(page, "source") == [None, 0.22, None, None, None]
    assert weights_of(page, "target") == [None, None, None, 0.22, None, None, None]
    assert page.locator("th.chosen").all_inner_texts() == ["bonum", "the"]


def test_percentages_are_next_to_the_words(show):
    page = show(render_html([LATIN], title="Latin"))
    words(page, "target").nth(4).hover()
    assert page.locator(".source .percentage").all_inner_texts() == ["12", "83", "\u00b7", "4", "1"]


def test_links_lead_from_the_word_to_its_source_words(show):
    page = show(render_html([LATIN], title="Latin"))
    words(page, "target").nth(3).hover()
    threads = page.locator(".link").evaluate_all(
        """paths => paths.filter(path => getComputedStyle(path).visibility === "visible").map(
          path => {
            const frame = path.ownerSVGElement.getBoundingClientRect();
            const end = path.getPointAtLength(path.getTotalLength());
            return [+path.dataset.column, +path.getAttribute("stroke-opacity"), frame.x + end.x];
          })"""
    )
    assert [(column, weight) for column, weight, _ in threads] == list(enumerate(LATIN.weights[3]))
    for column, _, end in threads:
        box = words(page, "source").nth(column).bounding_box()
        assert end == pytest.approx(box["x"] + box["width"] / 2, abs=0.5)


def test_lines_are_as_thick_as_their_weights(show):
    page = show(render_html([LATIN], title="Latin", form="lines"))
    drawn = page.locator(".link").evaluate_all(
        "paths => paths.map(path => [+path.dataset.row, +path.dataset.column,"
        " parseFloat(getComputedStyle(path).strokeWidth), getComputedStyle(path).strokeOpacity])"
    )
    assert len(drawn) > len(LATIN.target)
    for row, column, thickness, opacity in drawn:
        assert thickness == pytest.approx(12 * LATIN.weights[row, column], rel=1e-3)
        assert opacity == "0.75"


LONG_TEXT = [f"word-{number}" for number in range(17)]
LONG = AttentionMap(
    [*LONG_TEXT, "(end)"], LONG_TEXT, np.full((17, 18), 1 / 18), title="Long", output="A fox."
)

# Points along every link that lie inside a word.
BEHIND_WORDS = """paths => {
  const boxes = [...document.querySelectorAll(".word")].map(word => word.getBoundingClientRect());
  return paths.flatMap(path => {
    const frame = path.ownerSVGElement.getBoundingClientRect();
    return [...Array(41).keys()].map(step => {
      const point = path.getPointAtLength(path.getTotalLength() * step / 40);
      return [frame.x + point.x, frame.y + point.y];
    }).filter(([x, y]) => boxes.some(box =>
      box.left + 1 < x && x < box.right - 1 && box.top + 1 < y && y < box.bottom - 1));
  });
}"""


@pytest.mark.parametrize(
    "width", [360, *(pytest.param(width, marks=pytest.mark.wide) for width in (800, 1400))]
)
@pytest.mark.parametrize("attention_map", [LATIN, HEBREW, LONG], ids=["latin", "hebrew", "long"])
@pytest.mark.parametrize("form", ["map", "lines"])
def test_links_never_run_behind_words(show, attention_map, width, form):
    page = show(render_html([attention_map], title="Links", form=form), width=width)
    links = page.locator(".link")
    assert links.count() > 0
    assert links.evaluate_all(BEHIND_WORDS) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_resized_page_rearranges_its_words(show):
    page = show(render_html([LATIN], title="Links"), width=1400)
    assert page.locator(".columns").count() == 0
    page.set_viewport_size({"width": 360, "height": 900})
    page.locator(".columns").wait_for()
    assert page.locator(".link").evaluate_all(BEHIND_WORDS) == []


def test_card_shows_the_output_and_what_the_weights_are(show):
    named = replace(LATIN, output="The girl sees the good slave.", caption="cross-attention")
    page = show(render_html([named], title="Latin"))
    assert page.locator("section .output").inner_text() == named.output
    assert page.locator("section p.caption").inner_text() == "cross-attention"


def test_arrow_keys_move_between_thumbnails(show):
    page = show(
        render_html([replace(LATIN, caption=f"head {n} of 3") for n in (1, 2, 3)], title="")
    )
    page.locator(".thumbnails input").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator("p.caption").inner_text() == "head 2 of 3"


def test_long_sentence_has_a_legend_of_its_shades(show):
    source = [f"word{index}" for index in range(100)]
    weights = np.full((2, 100), 0.005)
    weights[0, 7] = 0.4
    page = show(render_html([AttentionMap(source, ["a", "b"], weights)], title="Long"))
    legend = page.locator(".legend")
    assert legend.inner_text().split("\n")[-1] == "20% of the attention of all words, on average"
    words(page, "target").nth(0).hover()
    assert legend.inner_text().split("\n")[-1] == "40% of the attention of \u201ca\u201d"


def test_rows_named_by_the_axes(show):
    page = show(render_html([replace(LATIN, axis_names=("query", "key"))], title="Self"))
    rows = page.locator(".words").evaluate_all("rows => rows.map((row) => row.ariaLabel)")
    assert rows == ["key", "query"]


def test_layers_of_one_text_are_chosen_on_its_card(show):
    swapped = replace(LATIN, weights=LATIN.weights[::-1], caption="layer 2 of 2")
    page = show(render_html([replace(LATIN, caption="layer 1 of 2"), swapped], title="Layers"))
    assert page.locator("section").count() == 1
    assert page.locator(".thumbnails label").all_inner_texts() == ["layer 1", "layer 2"]
    assert page.locator(".thumbnails canvas").count() == 2
    page.locator(".thumbnails canvas").nth(1).click()
    assert page.locator("p.caption").inner_text() == "layer 2 of 2"
    words(page, "target").nth(0).hover()
    assert weights_of(page, "source") == list(swapped.weights[0])
    assert page.locator(".cell").count() == LATIN.weights.size


def test_cells_have_the_color_and_percentage_of_their_weight(show):
    page = show(render_html([LATIN], title="Latin"))
    cells = page.locator(".cell")
    expected = shades(LIGHT, LATIN.weights.flatten())
    np.testing.assert_allclose(colors_of(cells), expected, atol=0.6)
    assert cells.all_inner_texts()[15:20] == ["61", "22", "2", "13", "2"]
    assert cells.all_inner_texts()[-5:] == ["", "", "", "", "100"]


def test_keyboard_focus_shows_the_same_as_hover(show):
    page = show(render_html([LATIN], title="Latin"))
    page.keyboard.press("Tab")
    assert weights_of(page, "target") == list(LATIN.weights[:, 0])
    page.keyboard.press("ArrowRight")
    assert weights_of(page, "target") == list(LATIN.weights[:, 1])
    page.keyboard.press("Tab")
    assert weights_of(page, "source") == list(LATIN.weights[0])
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    assert weights_of(page, "source") == list(LATIN.weights[-2])
    page.keyboard.press("Tab")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert weights_of(page, "source") == [None, None, 0.93, None, None]
    page.keyboard.press("Escape")
    assert is_at_rest(page)


def test_each_row_of_words_and_the_map_is_one_tab_stop(show):
    page = show(render_html([LATIN, HEBREW], title="Two"))
    assert page.locator('[tabindex="0"]').count() == 6


def test_arrow_keys_follow_the_direction_of_the_script(show):
    page = show(render_html([HEBREW], title="Hebrew"))
    first, second = (words(page, "source").nth(index).bounding_box() for index in (0, 1))
    assert first["x"] > second["x"]
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowLeft")
    assert weights_of(page, "target") == list(HEBREW.weights[:, 1])


def test_click_keeps_the_view(show):
    page = show(render_html([LATIN], title="Latin"))
    words(page, "target").nth(1).click()
    words(page, "target").nth(5).hover()
    assert weights_of(page, "source") == list(LATIN.weights[5])
    page.mouse.move(1, 1)
    assert weights_of(page, "source") == list(LATIN.weights[1])
    page.mouse.click(1, 1)
    assert is_at_rest(page)


def test_tap_shows_the_weights_of_a_word(show):
    page = show(render_html([LATIN], title="Latin"), width=400, touch=True)
    words(page, "target").nth(5).tap()
    assert weights_of(page, "source") == list(LATIN.weights[5])


def test_screen_reader_labels(show):
    page = show(render_html([LATIN], title="Latin"))
    label = "good: bonum 83%, Servum 12%, videt 4%, . 1%"
    assert words(page, "target").nth(4).get_attribute("aria-label") == label
    assert page.get_by_role("button", name="puella: girl 93%, The 90%, sees 8%").count() == 1
    assert page.get_by_role("columnheader").all_inner_texts() == LATIN.source
    assert page.get_by_role("rowheader").all_inner_texts() == LATIN.target
    assert page.get_by_role("gridcell").count() >= LATIN.weights.size


def test_markup_in_tokens_is_not_interpreted(show):
    page = show(render_html([HOSTILE], title=HOSTILE_TOKENS[1]))
    for index in range(len(HOSTILE_TOKENS)):
        words(page, "target").nth(index).hover()
    assert page.evaluate("window.harmed") is None
    shown = [token.replace(" ", "\u2423") for token in HOSTILE_TOKENS]
    assert page.locator(".target .token").all_inner_texts() == shown
    assert page.locator("h1").inner_text() == HOSTILE_TOKENS[1]
    assert page.locator("h2").inner_text() == HOSTILE_TOKENS[0]
    assert page.locator("img, section script").count() == 0


def test_sentences_of_a_page_are_independent(show):
    empty = AttentionMap([], [], np.zeros((0, 0)))
    page = show(render_html([LATIN, HEBREW, empty], title="Three"))
    words(page, "target").nth(7).hover()
    assert weights_of(page, "source") == [None] * 5 + [0.9, 0.1]
    assert page.locator("h2").all_inner_texts() == ["Latin to English", "Sentence 2", "Sentence 3"]
    assert page.locator("#sentence-3 .empty").inner_text() == "nothing to draw"


def test_page_follows_the_color_scheme(show):
    for scheme, palette in (("light", LIGHT), ("dark", DARK)):
        page = show(render_html([LATIN], title="Latin"), name=f"{scheme}.html", scheme=scheme)
        assert colors_of(page.locator("body")) == [list(bytes.fromhex(palette.background[1:]))]


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_page_has_no_horizontal_scroll(show, width):
    page = show(render_html([LATIN, HOSTILE], title="Narrow"), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_snippet_works_in_a_frame_and_fits_it(show):
    page = show(f"<!doctype html><body>{render_notebook_html(LATIN)}</body>", width=1000)
    frame = page.frame_locator("iframe")
    frame.locator(".target .word").nth(1).hover()
    assert frame.locator(".source .word").nth(2).get_attribute("data-weight") == "0.93"
    overflow = frame.locator("html").evaluate("node => node.scrollHeight - node.clientHeight")
    assert overflow <= 0


def test_slanted_labels_not_cut_off(show):
    page = show(f"<!doctype html><body>{render_notebook_html(HOSTILE)}</body>", width=1000)
    room = page.frame_locator("iframe").locator(".map").bounding_box()
    for word in page.frame_locator("iframe").locator("thead span").all():
        box = word.bounding_box()
        assert box["y"] >= room["y"]
        assert box["x"] + box["width"] <= room["x"] + room["width"]


def test_snippet_cannot_access_the_notebook(show):
    page = show(f"<!doctype html><body>{render_notebook_html(HOSTILE)}</body>")
    page.frame_locator("iframe").locator(".word").first.wait_for()
    assert page.evaluate("window.harmed") is None
    assert page.evaluate("document.querySelector('iframe').contentDocument") is None


@pytest.mark.parametrize(
    "attention_map",
    [LATIN, HEBREW, HOSTILE, replace(HEBREW, title=" ".join(LONG_TEXT), output=60 * "\u6f22")],
    ids=["latin", "hebrew", "hostile", "long"],
)
@pytest.mark.parametrize("draw", [render_svg, attention_lines.render_svg], ids=["map", "lines"])
def test_svg_labels_not_cut_off(show, attention_map, draw):
    page = show(draw(attention_map), name="map.svg")
    boxes = page.locator("text").evaluate_all(
        """nodes => nodes.map(node => {
          const { left, top, right, bottom } = node.getBoundingClientRect();
          return [left, top, right, bottom];
        })"""
    )
    width, height = (float(page.locator("svg").get_attribute(side)) for side in ("width", "height"))
    left, top, right, bottom = np.array(boxes).T
    assert left.min() >= 0
    assert top.min() >= 0
    assert right.max() <= width
    assert bottom.max() <= height


@pytest.mark.parametrize(("scheme", "palette"), [("light", LIGHT), ("dark", DARK)])
def test_svg_follows_the_color_scheme(show, scheme, palette):
    page = show(render_svg(LATIN), name="map.svg", scheme=scheme)
    fill = page.locator(".background").evaluate("node => getComputedStyle(node).fill")
    assert channels(fill) == list(bytes.fromhex(palette.background[1:]))


def test_long_source_is_running_text_colored_by_the_output_word(show):
    size = 300
    weights = np.full((2, size), 0.5 / size)
    weights[0, 40], weights[1, 250] = 0.4, 0.2
    long = AttentionMap([f"word{index}" for index in range(size)], ["a", "b"], weights)
    page = show(render_html([long], title="Attention"))
    assert page.locator(".link").count() == 0
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.locator(".running .source").bounding_box()["height"] < 900

    def darkness(index):
        style = "node => getComputedStyle(node).getPropertyValue('--weight')"
        return float(words(page, "source").nth(index).evaluate(style))

    assert (darkness(40), darkness(0) < 0.05, darkness(250) > 0.4) == (1, True, True)
    words(page, "target").nth(1).hover()
    assert (darkness(250), darkness(40) < 0.05) == (1, True)
    words(page, "source").nth(40).hover()
    assert weights_of(page, "target") == pytest.approx([0.4, 0.5 / size], abs=1e-4)
