"""A real browser, and the checks of every page it opens."""

import shutil

import pytest

ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=ARGUMENTS
        )
        yield browser
        browser.close()


@pytest.fixture
def show(chromium, tmp_path):
    """Open text as a page; at the end check that it logged no error and made no request."""
    contexts, errors, requests, opened = [], [], [], []

    def open_text(text, *, name="page.html", scheme="light", width=1200, touch=False):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        contexts.append(
            chromium.new_context(
                color_scheme=scheme,
                reduced_motion="reduce",
                viewport={"width": width, "height": 900},
                has_touch=touch,
            )
        )
        page = contexts[-1].new_page()
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        opened.append(path.as_uri())
        page.goto(path.as_uri())
        return page

    yield open_text
    for context in contexts:
        context.close()
    assert errors == []
    assert [url for url in requests if url != "about:srcdoc"] == opened
