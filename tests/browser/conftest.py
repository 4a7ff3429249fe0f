"""A real browser, and the checks of every page it opens."""

import shutil
from urllib.parse import urlsplit

import pytest

import heedful
from tests.browser.inspecting import OTHERS, TIMEOUT
from tests.commands import write_random_run
from tests.exporting import train_letters
from tests.laws.test_predictor_laws import DECODER, ENCODER, SETTINGS, TEXTS
from tests.serving.servers import GOLDEN, running

MONOTONIC = {"alignment": {"type": "monotonic"}}
ARGUMENTS = [
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP *.example 127.0.0.1",
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


@pytest.fixture(scope="session")
def inspected_run(tmp_path_factory):
    return train_letters(tmp_path_factory.mktemp("inspector"), is_transformer=True)


@pytest.fixture(scope="session")
def translator(inspected_run):
    return heedful.load(inspected_run, device="cpu")


@pytest.fixture(scope="session")
def inspector(inspected_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("server")
    model = {"encoder": ENCODER, "decoder": {**DECODER, "attention": MONOTONIC}}
    settings = {**SETTINGS["translation"], "model": model}
    write_random_run(folder / "monotonic", settings, TEXTS, TEXTS, seed=3)
    runs = [f"letters={inspected_run}", folder / "monotonic", *(GOLDEN / name for name in OTHERS)]
    with running(folder, *runs, "--ui") as server:
        yield server


@pytest.fixture
def open_page(chromium, inspector):
    """Open the inspector; at the end check that it logged no error and asked no other host."""
    context, errors, hosts = chromium.new_context(), [], set()

    def open_page(fragment=""):
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        page.goto(f"{inspector.url}/{fragment}")
        page.wait_for_selector("attention-view", timeout=TIMEOUT)
        return page

    yield open_page
    context.close()
    assert [error for error in errors if "status of 422" not in error] == []
    assert hosts <= {f"{inspector.host}:{inspector.port}", ""}
