"""Trails of glimpses as a page that plays, in a real browser."""

import shutil

import numpy as np
import pytest

from heedful.tasks.glimpse.predictor import GlimpsePrediction
from heedful.tasks.glimpse.trajectories import render_page, render_svg

pytestmark = [
    pytest.mark.browser,
    pytest.mark.wide,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH"),
]


def prediction(target=1, count=3):
    """An image with a white pixel; class 1 grows more probable with each glimpse."""
    image = np.zeros((10, 10), dtype=np.uint8)
    image[4, 5] = 255
    growing = np.linspace(0.4, 0.9, count)
    steps = np.stack([1 - growing, growing], axis=1).astype(np.float32)
    boxes = np.array([[[row, row, 4, 4], [row - 2, row - 2, 8, 8]] for row in range(count)])
    return GlimpsePrediction(image, steps[-1], steps, boxes.astype(np.float32), target)


PAGE = render_page([prediction(), prediction(target=0, count=2)])


def bars(page, index):
    return page.locator(".trail").nth(index).locator(".bar.best span").all_text_contents()


def test_page_shows_all_glimpses_first(show):
    page = show(PAGE)
    assert page.locator("figcaption").all_text_contents() == ["1, 90 %", "1, 90 %, is 0"]
    assert page.locator("figcaption.wrong").count() == 1
    assert page.locator(".patches canvas").count() == 5
    assert page.locator(".patches canvas.later").count() == 0
    assert page.locator("step-player output").text_content() == "3 of 3"


def test_arrow_keys_and_slider_move_through_the_glimpses(show):
    page = show(PAGE)
    page.locator("h1").click()
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    assert page.locator("step-player output").text_content() == "the image"
    assert page.locator(".patches canvas.later").count() == 5
    assert bars(page, 0) == []
    page.keyboard.press("ArrowRight")
    assert bars(page, 0) == ["0"]  # 60 %
    slider = page.locator("step-player input")
    slider.focus()
    slider.press("End")
    assert page.locator("step-player output").text_content() == "3 of 3"
    assert bars(page, 0) == ["1"]


def test_play_runs_from_the_image_to_the_last_glimpse(show):
    page = show(PAGE)
    button = page.locator("step-player .play")
    button.click()
    assert button.text_content() == "Pause"
    assert page.locator("step-player output").text_content() == "the image"
    page.get_by_text("3 of 3").wait_for()
    page.get_by_role("button", name="Play").wait_for()


def test_boxes_drawn_where_the_model_looked(show):
    page = show(PAGE)
    data = page.locator(".trail > canvas").first.evaluate(
        """canvas => Array.from(canvas.getContext("2d").getImageData(0, 0, 80, 80).data)"""
    )
    pixels = np.array(data).reshape(80, 80, 4)[..., :3].tolist()
    assert pixels[4 * 8 + 4][5 * 8 + 4] == [255, 255, 255]  # the white pixel
    red, green, blue = pixels[4 * 8][2 * 8]  # left side of the last box
    assert red > 200 > green > blue
    assert pixels[2][9 * 8 + 4] == [0, 0, 0]


def test_figure_opens_without_errors(show):
    page = show(render_svg([prediction()]), name="trails.svg")
    assert page.locator("circle").count() == 3


def test_page_without_predictions_opens(show):
    assert show(render_page([])).locator(".trail").count() == 0
