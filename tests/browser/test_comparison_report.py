"""The report of a comparison in a real browser.

The fixture `show` checks that no page logs an error or makes a request.
"""

import re
import shutil

import pytest

from heedful.comparison.report import render_comparison_page
from heedful.comparison.results import Failure, RunStatistics
from heedful.plotting.charts import DARK_LINE_COLORS, LIGHT_LINE_COLORS
from heedful.plotting.svg import DARK, LIGHT
from tests.example_comparisons import HOSTILE, bare_system, example_comparison, example_system

pytestmark = [
    pytest.mark.browser,
    pytest.mark.wide,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH"),
]


@pytest.fixture
def opened(show):
    def open_comparison(comparison=None, *, scheme="light", width=1200):
        page = render_comparison_page(comparison or example_comparison(4))
        return show(page, scheme=scheme, width=width)

    return open_comparison


def order(page):
    return page.locator(".sortable tbody .system").all_inner_texts()


def sort_by(page, name):
    page.locator(".sortable thead").get_by_role("button", name=name, exact=True).click()


def systems(*indices):
    return [f"system-{index}" for index in indices]


# --- sorting -------------------------------------------------------------------------------


def test_click_sorts_best_first_then_worst_then_original(opened):
    page = opened()
    assert order(page) == systems(0, 1, 2, 3)
    sort_by(page, "BLEU")  # where higher is better
    assert order(page) == systems(3, 2, 1, 0)
    header = page.locator(".sortable th").nth(1)
    assert header.get_attribute("aria-sort") == "descending"
    assert page.locator(".sorted").inner_text() == "Sorted by BLEU, best first."
    sort_by(page, "BLEU")
    assert order(page) == systems(0, 1, 2, 3)
    assert header.get_attribute("aria-sort") == "ascending"
    sort_by(page, "sentences/s")
    assert order(page) == systems(0, 1, 2, 3)
    sort_by(page, "sentences/s")
    assert order(page) == systems(3, 2, 1, 0)
    assert header.get_attribute("aria-sort") == "none"
    sort_by(page, "sentences/s")
    assert order(page) == systems(0, 1, 2, 3)
    assert page.locator(".sorted").inner_text() == "In the original order."


def test_numbers_sorted_numerically_with_unknown_ones_last(opened):
    costs = [9e12, 1e13, None, 2e9]
    result = [
        system._replace(cost=system.cost._replace(training_flops=cost and RunStatistics(cost)))
        for system, cost in zip(example_comparison(4).systems, costs, strict=True)
    ]
    page = opened(example_comparison(systems=result))
    sort_by(page, "training FLOPs")
    assert order(page) == systems(3, 0, 1, 2)
    sort_by(page, "training FLOPs")
    assert order(page) == systems(1, 0, 3, 2)


@pytest.mark.slow
def test_names_sorted_alphabetically_by_keyboard(opened):
    names = ["banana", "cherry", "apple"]
    page = opened(
        example_comparison(systems=[example_system(i, name=n) for i, n in enumerate(names)])
    )
    page.locator(".sortable thead button").first.focus()
    page.keyboard.press("Enter")
    assert order(page) == ["apple", "banana", "cherry"]
    page.keyboard.press("Enter")
    assert order(page) == ["cherry", "banana", "apple"]


# --- learning curves -----------------------------------------------------------------------


def shown_curves(page):
    return page.locator(".curves:visible svg > title").all_text_contents()


def test_metric_and_axis_of_learning_curves_can_be_switched(opened):
    page = opened()
    assert shown_curves(page) == ["Validation Loss over steps"]
    page.locator(".switches").get_by_text("Time", exact=True).click()
    assert shown_curves(page) == ["Validation Loss over time"]
    page.locator(".switches").get_by_text("BLEU", exact=True).click()
    assert shown_curves(page) == ["Validation BLEU over time"]
    page.locator(".switches").get_by_text("FLOPs", exact=True).click()
    assert shown_curves(page) == ["Validation BLEU over FLOPs"]


@pytest.mark.slow
def test_switch_works_by_keyboard(opened):
    page = opened()
    page.locator('input[name="axis"]').first.focus()
    page.keyboard.press("ArrowRight")
    assert shown_curves(page) == ["Validation Loss over time"]


# --- pointing a system out -----------------------------------------------------------------


def faded(page):
    """The systems that are faded in the first plot."""
    return (
        page.locator("#cost svg")
        .first.locator("g[data-name]")
        .evaluate_all(
            "groups => groups.filter(g => getComputedStyle(g).opacity < 1).map(g => g.dataset.name)"
        )
    )


def test_pointer_on_a_name_highlights_it_in_every_plot(opened):
    page = opened()
    assert faded(page) == []
    page.locator(".sortable .system").nth(1).hover()
    assert faded(page) == systems(0, 2, 3)
    page.locator("h1").hover()
    assert faded(page) == []


def test_click_keeps_a_system_and_escape_resets(opened):
    page = opened()
    page.locator("#length .system").nth(2).click()
    page.locator("h1").hover()
    assert faded(page) == systems(0, 1, 3)
    assert page.locator('.system[aria-pressed="true"]').first.inner_text() == "system-2"
    page.keyboard.press("Escape")
    assert faded(page) == []
    page.locator("#cost svg").first.locator("g[data-name] .name").first.click()
    page.locator("h1").hover()
    assert faded(page) == systems(1, 2, 3)


# --- looks ---------------------------------------------------------------------------------


def channels(color):
    return [int(number) for number in re.findall(r"\d+", color)]


@pytest.mark.parametrize(
    ("scheme", "palette", "lines"),
    [("light", LIGHT, LIGHT_LINE_COLORS), ("dark", DARK, DARK_LINE_COLORS)],
    ids=["light", "dark"],
)
def test_page_and_plots_follow_the_color_scheme(opened, scheme, palette, lines):
    page = opened(scheme=scheme)
    background = page.locator("body").evaluate("node => getComputedStyle(node).backgroundColor")
    assert channels(background) == list(bytes.fromhex(palette.background[1:]))
    for place in ("#cost g.line-1 .marker", ".sortable .swatch .line-1"):
        fill = page.locator(place).first.evaluate("node => getComputedStyle(node).fill")
        assert channels(fill) == list(bytes.fromhex(lines[1][1:]))


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 800, 1400])
def test_page_has_no_horizontal_scroll(opened, width):
    long = example_system(0, name="w" * 300)._replace(
        summary="s" * 400, runs=["r" * 400], outputs=["o" * 500, "p " * 500]
    )
    comparison = example_comparison(
        systems=[long, *(example_system(place) for place in range(1, 12))], title="t" * 300
    )
    comparison = comparison._replace(
        command="c" * 400,
        environment={"e" * 200: "f" * 400},
        test_set="u" * 300,
        failures=[Failure("a", "b" * 300, "c" * 300)],
    )
    page = opened(comparison, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_incomplete_comparison_has_a_page(opened):
    bare = bare_system(example_system(0, seeds=1))
    page = opened(example_comparison(systems=[bare])._replace(sources=[], references=[]))
    assert page.locator("#learning .nothing").inner_text() == "No run has logged a validation."
    sort_by(page, "training FLOPs")
    assert order(page) == ["system-0"]


def test_markup_in_texts_is_not_interpreted(opened):
    system = example_system(0, name=HOSTILE)._replace(summary=HOSTILE, outputs=[HOSTILE, HOSTILE])
    judged = [
        each._replace(score=each.score._replace(name=HOSTILE, signature=HOSTILE))
        for each in system.scores
    ]
    comparison = example_comparison(systems=[system._replace(scores=judged)], title=HOSTILE)
    comparison = comparison._replace(
        sources=[HOSTILE, HOSTILE], references=[HOSTILE, "b"], command=HOSTILE
    )
    page = opened(comparison)
    page.locator(".sortable .system").first.click()
    page.locator(".sortable thead button").nth(1).click()
    assert page.evaluate("window.harmed") is None
    assert page.locator("img, main script").count() == 0
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator("pre").inner_text() == HOSTILE
    assert order(page) == [HOSTILE]


def test_page_is_complete_without_its_script(chromium, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render_comparison_page(example_comparison(2)), encoding="utf-8")
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.locator("figure svg:visible").count() == 3 + 3 * 3
    assert page.locator(".sortable tbody tr:visible").count() == 2
    context.close()
