"""What mechanisms know beside their weights, drawn on maps in a real browser."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest

from heedful.inspection.attention_map import AttentionMap, render_html
from heedful.inspection.mechanism_overlays import OVERLAY_FIELDS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.wide,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH"),
]

WEIGHTS = np.array([[0.1, 0.7, 0.2, 0.0], [0.0, 0.8, 0.2, 0.0], [0.0, 0.0, 0.1, 0.9]])
PLAIN = AttentionMap(["ego", "canem", "video", "."], ["I", "see", "dog"], WEIGHTS, title="Dog")
COVERAGE = WEIGHTS.cumsum(axis=0) - WEIGHTS
OVERLAYS = {
    "centers": np.array([1.2, 0.0, 3.0]),
    "half_width": np.array([1.0, 1.0, 1.0]),
    "coverage": COVERAGE,
    "probabilities": WEIGHTS,
    "selected_position": np.array([1, 1, -1]),
    "expected_position": np.array([0.5, 1.5, 4.0]),
}


def draw(show, *names, **options):
    overlays = {name: OVERLAYS[name] for name in names}
    return show(render_html([replace(PLAIN, overlays=overlays)], title="Dog"), **options)


def box_of(page, selector):
    return page.locator(selector).bounding_box()


def middle(page, row, column):
    box = box_of(page, f".cell[data-row='{row}'][data-column='{column}']")
    return box["x"] + box["width"] / 2


def test_map_draws_each_field_that_a_mechanism_has(show):
    assert set(OVERLAYS) == set(OVERLAY_FIELDS)
    page = draw(show, *OVERLAYS)
    legend = page.locator(".overlay-key .swatch")
    classes = {name.split()[1] for name in legend.evaluate_all("all => all.map(k => k.className)")}
    assert classes == {*OVERLAYS, "repeated"}
    assert draw(show).locator(".overlay-key, .overlay > *, tfoot").count() == 0


def test_window_covers_the_cells_within_half_a_width_of_its_center(show):
    page = draw(show, "centers", "half_width")
    boxes = [item.bounding_box() for item in page.locator("rect.half_width").all()]
    for row, columns in enumerate([(1, 2), (0, 1), (2, 3)]):
        left, right = (middle(page, row, column) for column in columns)
        assert boxes[row]["x"] < left
        assert right < boxes[row]["x"] + boxes[row]["width"]
        assert boxes[row]["width"] < 2.6 * (right - left)


def test_pointer_stands_at_its_expected_position(show):
    page = draw(show, "expected_position")
    path = page.locator("path.expected_position").get_attribute("d")
    left = box_of(page, ".overlay")["x"]
    points = [left + float(x) for x in re.findall(r"[ML]([\d.]+),", path)]
    first, second = middle(page, 0, 0), middle(page, 0, 1)
    assert points[0] == pytest.approx((first + second) / 2, abs=1)
    assert points[1] == pytest.approx((second + middle(page, 1, 2)) / 2, abs=1)
    assert points[2] > middle(page, 2, 3), "past the end"


def test_selected_position_is_ringed_and_the_distribution_drawn(show):
    page = draw(show, "selected_position", "probabilities")
    rings = [item.bounding_box() for item in page.locator("ellipse").all()]
    assert len(rings) == 2
    for row, box in enumerate(rings):
        assert box["x"] + box["width"] / 2 == pytest.approx(middle(page, row, 1), abs=1)
    cell = page.locator(".cell[data-row='1'][data-column='2']")
    assert cell.get_attribute("title").endswith("probability 0.20")


def test_coverage_is_that_before_the_chosen_row_and_repetition_is_marked(show):
    page = draw(show, "coverage")
    total = [f"{value:.1f}" for value in WEIGHTS.sum(axis=0)]
    assert page.locator(".covered").all_inner_texts() == total
    assert page.locator(".covered.repeated").count() == 1  # canem, by both rows
    page.locator(".target .word").nth(1).hover()
    before = [f"{value:.1f}" for value in COVERAGE[1]]
    assert page.locator(".covered").all_inner_texts() == before


def test_row_shows_how_much_is_copied_and_used(show):
    copied = replace(PLAIN, copy_probs=[0.25, 0.5, 0.75], gates=[1.0, 0.5, 0.1])
    page = show(render_html([copied], title="Dog"))
    shares = page.locator(".share").evaluate_all("bars => bars.map(bar => +bar.dataset.share)")
    assert shares == [0.25, 1, 0.5, 0.5, 0.75, 0.1]


def test_cell_that_attends_to_its_own_past_is_drawn_as_arcs(show):
    past = np.tril(np.full((3, 3), 0.5), -1)
    page = show(render_html([AttentionMap("abc", "abc", past, is_intra=True)], title=""))
    assert page.locator(".source .word:visible").count() == 0
    arcs = [item.bounding_box() for item in page.locator("path.link").all()]
    top = box_of(page, ".target .word >> nth=0")["y"]
    assert len(arcs) == 3
    assert all(arc["y"] + arc["height"] <= top + 8 for arc in arcs)
    page.locator(".target .word").nth(2).hover()
    assert page.locator(".target .percentage").all_inner_texts() == ["50", "50", ""]


@pytest.mark.parametrize("width", [400, 1200])
def test_map_with_overlays_fits_the_page(show, width):
    page = draw(show, *OVERLAYS, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
