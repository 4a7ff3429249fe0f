"""axe-core finds no violation in any page, in both color schemes.

`npm install --no-save axe-core` in the root of the repository, or NODE_PATH, provides it.
"""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from heedful.comparison.report import render_comparison_page
from heedful.inspection.attention_map import render_html
from heedful.inspection.figures import render_captions
from heedful.inspection.run_report import render_run_page
from heedful.tasks.registry import all_metrics
from tests.browser.inspecting import EDITED_LINK, TIMEOUT, settle
from tests.browser.test_attention_map import HEBREW, LATIN
from tests.browser.test_caption_attention import BARE, PHOTO
from tests.browser.test_components import LARGE
from tests.browser.test_evaluation_pages import confusion_page, forecast_page, tree_page
from tests.browser.test_glimpses import PAGE
from tests.browser.test_run_report import CONFIG, ENTRIES, SAMPLES
from tests.example_comparisons import example_comparison

ROOT = Path(__file__).parents[2]
NODE_MODULES = [ROOT / "node_modules", *map(Path, os.environ.get("NODE_PATH", "").split(":"))]


def node_module(name):
    """A file of an npm package; the test is skipped where it is not installed."""
    found = [path / name for path in NODE_MODULES if (path / name).is_file()]
    return found[0] if found else pytest.skip(f"npm package of {name} is not installed")


needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH")
pytestmark = pytest.mark.extras

HEADS = [replace(LATIN, caption=f"head {index} of 2") for index in (1, 2)]
PAGES = {
    "attention map": lambda: render_html([*HEADS, HEBREW], title="Maps"),
    "large map": lambda: render_html([LARGE], title="Large"),
    "caption": lambda: render_captions([PHOTO, BARE], title="Captions"),
    "glimpses": lambda: PAGE,
    "run report": lambda: render_run_page(
        "letters", CONFIG, ENTRIES, SAMPLES, metrics=all_metrics()
    ),
    "comparison": lambda: render_comparison_page(example_comparison(4)),
    "confusions": confusion_page,
    "forecasts": forecast_page,
    "search tree": tree_page,
}
VIOLATIONS = """async () => (await axe.run()).violations.map(
  ({ id, nodes }) => [id, ...nodes.slice(0, 4).map(({ html, failureSummary }) =>
    html.slice(0, 160) + failureSummary)])"""


@needs_chromium
@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_has_no_accessibility_violation(show, name, scheme):
    axe = node_module("axe-core/axe.min.js").read_text(encoding="utf-8")
    page = show(PAGES[name](), scheme=scheme)
    page.wait_for_timeout(300)  # pictures are decoded
    page.evaluate(f"{axe}\n;0")
    assert page.evaluate(VIOLATIONS) == []


@needs_chromium
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_inspector_has_no_accessibility_violation(chromium, inspector, scheme):
    axe = node_module("axe-core/axe.min.js").read_text(encoding="utf-8")
    with chromium.new_context(color_scheme=scheme, bypass_csp=True) as context:  # axe sets styles
        page = context.new_page()
        page.emulate_media(reduced_motion="reduce")
        page.goto(f"{inspector.url}/{EDITED_LINK}")
        page.get_by_role("region", name="training").get_by_text("Training").click(timeout=TIMEOUT)
        settle(page)
        page.evaluate(f"{axe}\n;0")
        assert page.evaluate(VIOLATIONS) == []
