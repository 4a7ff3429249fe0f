"""Draw docs/images/inspector.png: the inspector, before and after three edits, one picture each.

It needs playwright and chromium, and a server: `heedful serve demo --ui --port 8000`.
"""

import argparse
import base64
import json
import shutil
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Browser, expect, sync_playwright

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "inspector.png"
TEXT = "Puella rosam portat."
WIDTH, HEIGHT = 1180, 500
SCENES = {
    "1. A translation, the row of a chosen word, what else it might have been.": {},
    "2. Key f: all weight of this step is put on Puella, and the girl carries the girl.": {
        "edits": [{"step": 4, "set": {"0": 1.0}}],
        "column": 0,
    },
    "3. Key z: no step looks at rosam any more. The girl is carried here, too.": {
        "edits": [{"layer": "source", "scale": {"1": 0}}],
    },
    "4. Temperature 5: rows are spread over all words. The translation stays.": {
        "edits": [{"alignment": {"type": "softmax", "temperature": 5}}],
    },
}
STYLE = """body { margin: 0; padding: 12px; background: #fff; font: 19px sans-serif; color: #222;
  display: grid; grid-template-columns: 1fr 1fr; gap: 18px; width: 1560px }
figure { margin: 0 } img { width: 100%; border: 1px solid #ddd; border-radius: 10px }
figcaption { padding: 4px 2px 8px }"""


def take(browser: Browser, address: str, changes: dict[str, object]) -> bytes:
    """Return a picture of the inspector in a state."""
    state = {"model": "demo", "input": TEXT, "row": 4, "column": 1, **changes}
    page = browser.new_page(viewport={"width": WIDTH, "height": 2 * HEIGHT})
    page.goto(f"{address}/#{quote(json.dumps(state))}")
    page.wait_for_selector("step-pane .top-token", timeout=120_000)
    expect(page.locator(".status")).to_have_text("", timeout=120_000)
    top = page.locator(".panes").evaluate("panes => panes.getBoundingClientRect().top") - 12
    clip = {"x": 0.0, "y": top, "width": float(WIDTH), "height": float(HEIGHT)}
    return page.screenshot(animations="disabled", clip=clip)


def main() -> None:
    """Take the pictures, and write them as one."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--server", default="http://127.0.0.1:8000")
    address = parser.parse_args().server
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        figures = [
            f'<figure><figcaption>{caption}</figcaption><img src="data:image/png;base64,'
            f'{base64.b64encode(take(browser, address, changes)).decode()}"></figure>'
            for caption, changes in SCENES.items()
        ]
        page = browser.new_page()
        page.set_content(f"<!doctype html><style>{STYLE}</style>{''.join(figures)}")
        page.locator("body").screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main()
