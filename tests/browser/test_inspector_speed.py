"""From a key to its map: what a person waits for, with the model that comes with heedful."""

import shutil
from statistics import median

import pytest

from tests.browser.inspecting import TIMEOUT, settle
from tests.serving.servers import running

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH"),
]
SECONDS = 0.3
TEXTS = ["Puella rosam portat.", "Canis in horto ambulat.", "Cassius nautae libros dat."]
# Milliseconds from a change of the text to the first frame with another map.
WAIT = """async text => {
  const field = document.querySelector("textarea");
  const before = document.querySelector("attention-view");
  const start = performance.now();
  field.value = text;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  while (document.querySelector("attention-view") === before) {
    await new Promise(requestAnimationFrame);
  }
  return performance.now() - start;
}"""


def test_map_is_updated_in_time_after_a_key(chromium, tmp_path):
    """For an idle machine; `pytest -s` shows the times."""
    with running(tmp_path, "demo", "--ui") as server, chromium.new_context() as context:
        page = context.new_page()
        page.goto(server.url)
        page.wait_for_selector("attention-view", timeout=TIMEOUT)
        settle(page)
        times = [page.evaluate(WAIT, text) / 1000 for text in TEXTS * 4][1:]
        print(f"from a key to its map: median {median(times):.3f} s, longest {max(times):.3f}")
        assert median(times) < SECONDS
