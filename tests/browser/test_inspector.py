"""The inspector in a real browser, on a real server: what it shows is what Python computes."""

import re
from urllib.parse import urlsplit

import pytest

import heedful
from heedful.attention.edits import AttentionEdit
from tests.exporting import train_letters
from tests.serving.servers import GOLDEN, running

pytestmark = [pytest.mark.wide, pytest.mark.browser]
TEXT = "a b c d"
TIMEOUT = 120_000  # milliseconds, on a busy machine
OTHERS = ("classification", "forecasting", "language-modeling", "tagging")
CROSS = "decoder.stack.layers.1.cross_attention.attention"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train_letters(tmp_path_factory.mktemp("inspector"), is_transformer=True)


@pytest.fixture(scope="module")
def translator(run):
    return heedful.load(run, device="cpu")


@pytest.fixture(scope="module")
def server(run, tmp_path_factory):
    others = [GOLDEN / name for name in OTHERS]
    with running(tmp_path_factory.mktemp("server"), f"letters={run}", *others, "--ui") as server:
        yield server


@pytest.fixture
def open_page(chromium, server):
    """Open the inspector; at the end check that it logged no error and asked no other host."""
    context, errors, hosts = chromium.new_context(), [], set()

    def open_page(fragment=""):
        page = context.new_page()
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
        page.goto(f"{server.url}/{fragment}")
        page.wait_for_selector("attention-view", timeout=TIMEOUT)
        return page

    yield open_page
    context.close()
    assert [error for error in errors if "status of 422" not in error] == []
    assert hosts <= {f"{server.host}:{server.port}", ""}


def write_text(page, text=TEXT):
    with page.expect_response("**/v1/explain", timeout=TIMEOUT):
        page.fill("textarea", text)
    settle(page)


def check_status(page):
    from playwright.sync_api import expect  # not wait_for_function, which the policy forbids

    return expect(page.locator(".status"))


def settle(page):
    check_status(page).to_have_text("", timeout=TIMEOUT)


def weights(page):
    """Return the weights of the map, row by row."""
    cells = page.eval_on_selector_all(
        "attention-view .cell",
        "cells => cells.map(({ dataset }) => [+dataset.row, +dataset.weight])",
    )
    rows = {}
    for row, weight in cells:
        rows.setdefault(row, []).append(weight)
    return list(rows.values())


def output(page):
    return page.text_content("output-pane .output")


def shown_layer(explanation):
    return next(layer for layer in explanation.layers if layer.path == CROSS)


def click_cell(page, row, column):
    page.click(f"attention-view .cell[data-row='{row}'][data-column='{column}']")


def edit_by(page, action):
    with page.expect_response("**/v1/explain", timeout=TIMEOUT):
        action()
    settle(page)


def test_page_shows_what_python_computes(open_page, translator):
    page = open_page()
    write_text(page)
    expected = translator.explain(TEXT)
    assert output(page) == expected.result.text
    assert weights(page) == [
        pytest.approx(row, abs=1e-5) for row in shown_layer(expected).weights[0]
    ]


def test_page_has_a_strict_policy(server):
    policy = server.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'self'")
    assert "unsafe" not in policy
    assert server.get("/page/../settings.py").status == 404
    assert server.get("/page/page.html").status == 404


@pytest.mark.parametrize("way", ["button", "key"])
def test_forced_cell_changes_what_follows_as_in_python(open_page, translator, way):
    page = open_page()
    write_text(page)
    click_cell(page, 1, 3)
    if way == "button":
        edit_by(page, lambda: page.click("text=force (f)"))
    else:
        edit_by(page, lambda: page.keyboard.press("f"))
    edit = AttentionEdit(layer=CROSS, step=1, head=0, set={3: 1.0})
    expected = translator.explain(TEXT, edits=[edit])
    assert output(page) == expected.result.text
    assert weights(page)[1][3] == 1
    assert weights(page) == [
        pytest.approx(row, abs=1e-5) for row in shown_layer(expected).weights[0]
    ]
    assert "step 2 head 1" in page.text_content("edit-pane")


def test_removed_word_gets_no_attention(open_page, translator):
    page = open_page()
    write_text(page)
    click_cell(page, 0, 2)
    edit_by(page, lambda: page.keyboard.press("z"))
    assert all(row[2] == 0 for row in weights(page))
    assert (
        output(page)
        == translator.explain(TEXT, edits=[AttentionEdit(layer="source", scale={2: 0})]).result.text
    )


def test_undo_and_links_restore_what_was_shown(open_page):
    page = open_page()
    write_text(page)
    seen = [(output(page), weights(page))]
    for column in (3, 0):
        click_cell(page, 1, column)
        edit_by(page, lambda: page.keyboard.press("f"))
        seen.append((output(page), weights(page)))
    other = open_page(re.sub(r"^[^#]*", "", page.url))
    settle(other)
    assert (output(other), weights(other)) == seen[2]
    for expected in (seen[1], seen[0]):
        edit_by(page, lambda: page.click("text=undo (u)"))
        assert (output(page), weights(page)) == expected


def test_clicked_token_begins_what_follows(open_page, translator):
    page = open_page()
    write_text(page)
    before = translator.explain(TEXT)
    click_cell(page, 1, 0)
    edit_by(page, lambda: page.click(".top-token >> nth=1"))
    prefix = [*before.result.token_ids[:1], before.top[1][1].id]
    request = translator.parse_json({"text": TEXT, "prefix_tokens": prefix})
    assert output(page) == translator.explain(request).result.text


@pytest.mark.parametrize("name", OTHERS)
def test_models_of_other_tasks_are_explained(open_page, name):
    page = open_page()
    with page.expect_response("**/v1/explain", timeout=TIMEOUT) as answer:
        page.select_option("select", name)
    assert answer.value.status == 200
    settle(page)
    assert output(page)


def test_error_of_the_server_is_shown(open_page):
    page = open_page()
    with page.expect_response("**/v1/explain", timeout=TIMEOUT):
        page.fill("textarea", "a " * 3000)
    check_status(page).to_contain_text("characters", timeout=TIMEOUT)
