"""Pages of confusions, forecasts and search trees in a real browser."""

import shutil

import numpy as np
import pytest

from heedful.decoding.search_tree import render_html
from heedful.evaluation.confusion import ConfusionMatrix
from heedful.tasks.forecasting.forecast import Forecast
from heedful.tasks.forecasting.pages import render_forecast_page
from tests.forecasting import count_series
from tests.unit.cli.test_show import TREE
from tests.unit.tasks.translation.test_output_files import build_translation

pytestmark = [
    pytest.mark.browser,
    pytest.mark.wide,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH"),
]

LABELS = [f"LABEL{index}" for index in range(12)]


def confusion_page():
    return ConfusionMatrix("words", LABELS, np.eye(12, dtype=int) * 9 + 1).render_page("Confusions")


def forecast_page():
    forecasts = [
        Forecast(series, start, np.random.default_rng(0).poisson(5, (20, 8)).astype(float))
        for series in count_series(2, 60)
        for start in (44, 52)
    ]
    return render_forecast_page(forecasts, [0.1, 0.5, 0.9])


def tree_page():
    return render_html([build_translation("a c", tree=TREE)], title="Beam search")


@pytest.mark.parametrize("render", [confusion_page, forecast_page, tree_page])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_fits_a_narrow_screen(show, render, scheme):
    page = show(render(), width=400, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_charts_of_forecasts_fit_a_narrow_screen(show):
    page = show(forecast_page(), width=400)
    for box in page.locator(".chart svg:not(.swatch)").all():
        sides = box.bounding_box()
        assert sides["x"] >= 0
        assert sides["x"] + sides["width"] <= 400


def test_cell_of_a_confusion_is_reached_by_keyboard_and_shows_its_count(show):
    page = show(confusion_page())
    page.locator(".cell").first.focus()
    assert page.locator(".cell").first.inner_text() == "10"
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.title") == "LABEL0 \u2192 LABEL1: 0.05"
    assert page.locator("th.chosen").all_inner_texts() == ["LABEL1", "LABEL0"]
