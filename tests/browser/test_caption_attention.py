"""Captions with their attention as HTML and SVG in a real browser."""

import base64
import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from heedful.inspection import figures
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.figures import CaptionAttention, render_captions
from heedful.inspection.image_attention import SheetLayout
from heedful.plotting import raster
from heedful.plotting.svg import DARK, LIGHT, weight_color

pytestmark = [
    pytest.mark.browser,
    pytest.mark.wide,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH"),
]

WORDS = ["a", "red", "dog", "runs"]
WEIGHTS = np.zeros((4, 3, 4))
WEIGHTS[0] = 1 / 12
WEIGHTS[1, 0, 3], WEIGHTS[1, 0, 2] = 0.75, 0.25
WEIGHTS[2, 1, 1], WEIGHTS[2, 1, 2] = 0.5, 0.4
WEIGHTS[3, 2, 0] = 1.0
PIXELS = np.random.default_rng(3).integers(0, 256, (120, 160, 3), dtype=np.uint8)
PHOTO = CaptionAttention(PIXELS, WORDS, WEIGHTS, gates=[0.1, 0.8, 0.9, 0.5], title="dog.jpg")
BARE = CaptionAttention(None, WORDS, WEIGHTS, title="features")
WIDE = CaptionAttention(
    np.full((40, 400), 255, dtype=np.uint8),
    [f"token-{number}" for number in range(50)],
    np.full((50, 4, 40), 1 / 160),
    title="formula",
)
HOSTILE_WORDS = [
    "<img src=x onerror=window.harmed=1>",
    "</script><script>window.harmed=1</script>",
    "javascript:window.harmed=1",
]
HOSTILE = CaptionAttention(
    PIXELS[:30, :40], HOSTILE_WORDS, np.full((3, 2, 2), 0.25), title=HOSTILE_WORDS[0]
)


def words(page):
    return page.locator(".word")


def canvas_pixels(page, selector="canvas.picture"):
    """The pixels of a canvas, (height, width, RGB)."""
    width, height, text = page.locator(selector).first.evaluate(
        """canvas => {
             const context = canvas.getContext("2d");
             const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
             const characters = Array.from(data, (value) => String.fromCharCode(value));
             return [canvas.width, canvas.height, btoa(characters.join(""))];
           }"""
    )
    data = np.frombuffer(base64.b64decode(text), dtype=np.uint8)
    return data.reshape(height, width, 4)[..., :3]


def chosen_word(page):
    """The index of the word that the image shows, or None."""
    word = page.locator(".figure").first.get_attribute("data-word")
    return int(word) if word else None


def weights_of(page):
    shown = words(page).evaluate_all("nodes => nodes.map(node => node.dataset.weight)")
    return [float(weight) if weight else None for weight in shown]


def point_at(page, row, column, *, click=False):
    box = page.locator("canvas.picture").bounding_box()
    x = box["x"] + box["width"] * (column + 0.5) / 4
    y = box["y"] + box["height"] * (row + 0.5) / 3
    (page.mouse.click if click else page.mouse.move)(x, y)


@pytest.mark.parametrize(("scheme", "palette"), [("light", LIGHT), ("dark", DARK)])
def test_word_under_the_pointer_is_blended_into_the_image(show, scheme, palette):
    page = show(PHOTO.to_html(), scheme=scheme)
    words(page).nth(3).wait_for()
    np.testing.assert_array_equal(canvas_pixels(page), PIXELS)
    for index, strength in enumerate(PHOTO.strengths):
        words(page).nth(index).hover()
        expected = raster.blend_attention(PIXELS, raster.resize(strength, 120, 160), palette)
        np.testing.assert_allclose(canvas_pixels(page), expected.astype(int), atol=1)
    page.mouse.move(1, 1)
    np.testing.assert_array_equal(canvas_pixels(page), PIXELS)


def test_cells_shown_without_interpolation(show):
    page = show(PHOTO.to_html())
    page.get_by_label("interpolate between cells").uncheck()
    words(page).nth(2).click()
    strength = raster.repeat_cells(PHOTO.strengths[2], 120, 160)
    expected = raster.blend_attention(PIXELS, strength).astype(int)
    np.testing.assert_allclose(canvas_pixels(page), expected, atol=1)


def test_small_image_keeps_its_pixels(show):
    small = CaptionAttention(PIXELS[:48, :48, 0], ["dog"], np.full((1, 2, 2), 0.25))
    page = show(small.to_html())
    words(page).first.wait_for()
    enlarged = np.kron(PIXELS[:48, :48, :1].repeat(3, axis=2), np.ones((10, 10, 1)))
    np.testing.assert_array_equal(canvas_pixels(page), enlarged)


@pytest.mark.parametrize(("scheme", "palette"), [("light", LIGHT), ("dark", DARK)])
def test_grid_without_an_image_has_the_colors_of_the_weights(show, scheme, palette):
    page = show(BARE.to_html(), scheme=scheme)
    words(page).nth(2).click()
    pixels = canvas_pixels(page)
    assert pixels.shape == (360, 480, 3)
    for cell in np.ndindex(3, 4):
        middle = pixels[cell[0] * 120 + 60, cell[1] * 120 + 60]
        expected = weight_color(palette, BARE.strengths[2][cell])
        np.testing.assert_allclose(middle, list(bytes.fromhex(expected[1:])), atol=1)
    assert page.get_by_label("interpolate between cells").is_hidden()


def test_pointer_on_the_image_shows_the_words_of_that_cell(show):
    page = show(PHOTO.to_html())
    words(page).nth(3).wait_for()
    point_at(page, 1, 1)
    np.testing.assert_allclose(weights_of(page), WEIGHTS[:, 1, 1], atol=1e-4)
    assert page.locator(".word .percentage").all_inner_texts() == ["8", "", "50", ""]
    assert page.locator(".reading").inner_text() == "row 2, column 2: 15% of all words' attention"
    page.mouse.move(1, 1)
    assert weights_of(page) == [None] * 4


def test_word_and_cell_kept_by_clicks_until_escape(show):
    page = show(PHOTO.to_html())
    words(page).nth(2).click()
    point_at(page, 1, 2, click=True)
    page.mouse.move(1, 1)
    assert chosen_word(page) == 2
    assert page.locator(".reading").inner_text() == "row 2, column 3: 40% of dog"
    assert weights_of(page)[2] == 0.4
    page.keyboard.press("Escape")
    assert (chosen_word(page), weights_of(page)) == (None, [None] * 4)


def test_slider_moves_from_word_to_word(show):
    page = show(PHOTO.to_html())
    slider = page.get_by_role("slider", name="word")
    slider.focus()
    seen = []
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        seen.append((chosen_word(page), slider.get_attribute("aria-valuetext")))
    assert seen[:2] == [(0, "a, 1 of 4"), (1, "red, 2 of 4")]
    assert seen[3:] == [(3, "runs, 4 of 4")] * 2
    page.keyboard.press("Home")
    assert chosen_word(page) is None
    slider.fill("3")
    assert chosen_word(page) == 2
    assert page.locator(".reading").inner_text() == "dog: max 50% at row 2, column 2, gate 90%"


def test_words_and_cells_reached_by_keyboard(show):
    page = show(PHOTO.to_html())
    words(page).nth(3).wait_for()
    page.keyboard.press("Tab")  # the image
    for key in ("ArrowDown", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)  # the first key enters the grid at its corner
    np.testing.assert_allclose(weights_of(page), WEIGHTS[:, 1, 1], atol=1e-4)
    words(page).first.focus()
    for key, expected in (("ArrowRight", 1), ("End", 3), ("ArrowLeft", 2), ("Home", 0)):
        page.keyboard.press(key)
        assert chosen_word(page) == expected
    assert page.locator('.caption-words [tabindex="0"]').count() == 1


def test_play_shows_all_words_and_stops(show):
    page = show(PHOTO.to_html())
    words(page).nth(3).wait_for()
    page.clock.install()
    page.get_by_role("button", name="Play").click()
    seen = [chosen_word(page)]
    for _ in range(4):
        page.clock.run_for(900)
        seen.append(chosen_word(page))
    assert seen == [0, 1, 2, 3, 3]
    assert page.locator(".play").inner_text() == "Play"
    page.get_by_role("button", name="Play").click()
    assert chosen_word(page) == 0
    page.get_by_role("button", name="Pause").click()
    page.clock.run_for(2000)
    assert chosen_word(page) == 0


def test_numbers_are_those_of_the_word(show):
    page = show(PHOTO.to_html())
    words(page).nth(1).click()
    page.locator("summary").click()
    cells = page.locator(".numbers .cell").all_inner_texts()
    assert cells == ["", "", "25", "75", *[""] * 8]
    assert page.get_by_role("columnheader").all_inner_texts() == ["1", "2", "3", "4"]


def test_screen_reader_labels(show):
    page = show(PHOTO.to_html())
    label = "red: max 75% at row 1, column 4, gate 80%"
    assert page.get_by_role("button", name=label).count() == 1
    words(page).nth(1).click()
    assert page.get_by_role("img", name=label).count() == 1


def test_gates_are_bars_under_the_words(show):
    page = show(PHOTO.to_html())
    words(page).nth(3).wait_for()
    gates = page.locator(".gate").evaluate_all("nodes => nodes.map(node => +node.dataset.gate)")
    assert gates == PHOTO.gates


def test_thumbnails_show_their_words(show):
    page = show(PHOTO.to_html())
    words(page).nth(3).wait_for()
    assert page.locator(".thumbnail").count() == 4
    rgb = canvas_pixels(page, ".thumbnail")
    assert rgb.shape == (96, 128, 3)
    # "a" attends to everything alike: nothing is faded.
    tinted = raster.blend_attention(PIXELS, np.ones((120, 160)))
    np.testing.assert_allclose(rgb.mean((0, 1)), tinted.mean((0, 1)), atol=3)


def test_long_captions_have_no_thumbnails(show):
    page = show(WIDE.to_html())
    words(page).nth(49).wait_for()
    assert page.locator(".thumbnail").count() == 0


def test_layers_of_one_caption_are_chosen_on_its_card(show):
    first = replace(PHOTO, label="layer 1 of 2")
    second = replace(PHOTO, weights=WEIGHTS[::-1].copy(), label="layer 2 of 2")
    page = show(render_captions([first, second], title="Layers"))
    page.locator(".thumbnails label").nth(1).click()
    words(page).nth(0).hover()
    assert page.locator(".reading").inner_text() == "a: max 100% at row 3, column 1, gate 10%"
    assert page.locator("section").count() == 1
    assert words(page).count() == 4


def test_captions_of_a_page_are_independent(show):
    empty = CaptionAttention(PIXELS, [], np.zeros((0, 2, 2)))
    page = show(render_captions([PHOTO, BARE, empty], title="Three"))
    page.locator("#caption-3 .empty").wait_for()
    page.locator("#caption-2 .word").nth(1).click()
    chosen = page.locator(".figure").evaluate_all("nodes => nodes.map(n => n.dataset.word ?? '')")
    assert chosen == ["", "1", ""]
    assert page.locator("h2").all_inner_texts() == ["dog.jpg", "features", "Picture 3"]


def test_page_with_maps_over_texts_and_images_draws_both(show):
    over_text = AttentionMap(["x", "y"], ["u"], np.array([[0.25, 0.75]]), title="x y")
    cells = [str(cell) for cell in range(12)]
    over_image = AttentionMap(cells, WORDS, WEIGHTS.reshape(4, 12), grid=(3, 4), image=PIXELS)
    page = show(figures.render_html([over_text, over_image], title="Both"))
    page.locator("#caption-1 .word").nth(2).click()
    assert page.locator("#caption-1 .figure").get_attribute("data-word") == "2"
    page.locator("#sentence-1 .target .word").first.hover()
    shown = page.locator("#sentence-1 .source .percentage").all_inner_texts()
    assert shown == ["25", "75"]


def test_markup_in_words_is_not_interpreted(show):
    page = show(render_captions([HOSTILE], title=HOSTILE_WORDS[1]))
    words(page).nth(2).hover()
    assert page.evaluate("window.harmed") is None
    shown = [word.replace(" ", "\u2423") for word in HOSTILE_WORDS]
    assert page.locator(".token").all_inner_texts() == shown
    assert page.locator("img, section script").count() == 0


@pytest.mark.parametrize("width", [360, 800, 1400])
def test_page_has_no_horizontal_scroll(show, width):
    page = show(render_captions([PHOTO, BARE, WIDE, HOSTILE], title="Narrow"), width=width)
    page.locator("#caption-4 .word").first.wait_for()
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_tap_shows_a_word(show):
    page = show(PHOTO.to_html(), width=400, touch=True)
    words(page).nth(2).tap()
    assert chosen_word(page) == 2


def test_snippet_works_in_a_frame(show):
    page = show(f"<!doctype html><body>{PHOTO._repr_html_()}</body>", width=1100)
    frame = page.frame_locator("iframe")
    frame.locator(".word").nth(1).hover()
    assert frame.locator(".figure").get_attribute("data-word") == "1"


@pytest.mark.parametrize(("scheme", "palette"), [("light", LIGHT), ("dark", DARK)])
def test_svg_paints_the_blended_image(show, scheme, palette, tmp_path):
    """The SVG is shown as an image, where neither scripts nor style of the page reach it."""
    flat = np.full((100, 150, 3), (200, 120, 40), dtype=np.uint8)
    weights = np.zeros((2, 2, 3))
    weights[0], weights[1, 0, 0] = 1 / 6, 1.0
    attention = CaptionAttention(flat, ["all", "one"], weights)
    page = show(re.sub(r"<svg ", '<svg id="sheet" ', attention.to_svg(), count=1), scheme=scheme)
    page.locator("#sheet").screenshot(path=tmp_path / "shot.png")
    origin = page.locator("#sheet").bounding_box()
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    shot = image.open(tmp_path / "shot.png").convert("RGB")
    layout = SheetLayout(attention)
    for index, strength in enumerate(attention.strengths):
        x, y, width, height = layout.image_box(index + 1)
        rgb = np.broadcast_to(flat[:1, :1], (height, width, 3))
        expected = raster.blend_attention(rgb, raster.resize(strength, height, width), palette)
        # 0.7 of the way to the right there is no outline; a corner of the grid, and its middle.
        for row, column in ((0.1, 0.7), (0.5, 0.7), (0.9, 0.9)):
            top, left = int(row * height), int(column * width)
            drawn = shot.getpixel((round(x) + left, round(y) + top))
            np.testing.assert_allclose(drawn, expected[top, left].astype(int), atol=3)
    assert origin["x"] == pytest.approx(8, abs=8)
