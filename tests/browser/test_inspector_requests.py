"""Requests of the inspector: settings, undo and redo, links, keys, and failed requests."""

import json
import re
from urllib.parse import quote, unquote, urlsplit

import pytest
from playwright.sync_api import expect

from heedful.attention.edits import AttentionEdit
from tests.browser.inspecting import (
    CROSS,
    EDITED,
    EDITED_LINK,
    TEXT,
    TIMEOUT,
    check_status,
    click_cell,
    edit_by,
    output,
    settle,
    weights,
    write_text,
)

pytestmark = [pytest.mark.wide, pytest.mark.browser]


def state_of(page):
    return json.loads(unquote(urlsplit(page.url).fragment))


def test_redo_after_undo_gives_the_edited_output(open_page):
    page = open_page()
    write_text(page)
    shown = []
    for column in (3, 0):
        click_cell(page, 1, column)
        edit_by(page, lambda: page.keyboard.press("f"))
        shown.append((output(page), weights(page)))
    for _ in shown:
        edit_by(page, lambda: page.keyboard.press("u"))
    for key, expected in zip(("r", "button"), shown, strict=True):
        by_key = key == "r"
        edit_by(page, lambda: page.keyboard.press("r") if by_key else page.click("text=redo (r)"))  # noqa: B023
        assert (output(page), weights(page)) == expected
    assert page.get_by_role("button", name="redo (r)").is_disabled()
    edit_by(page, lambda: page.keyboard.press("u"))
    click_cell(page, 0, 1)
    edit_by(page, lambda: page.keyboard.press("z"))
    assert page.get_by_role("button", name="redo (r)").is_disabled(), "another change was made"


def test_text_typed_in_two_visits_of_the_field_is_undone_in_two_steps(open_page):
    page = open_page()
    for text in ("a b", "c d"):
        write_text(page, text)
        page.locator("textarea").blur()
    edit_by(page, lambda: page.keyboard.press("u"))
    assert page.input_value("textarea") == "a b"


def test_effects_of_a_row_are_those_of_python_in_nats(open_page, translator):
    page = open_page()
    write_text(page)
    edit_by(page, lambda: (click_cell(page, 0, 2), page.keyboard.press("z")))
    page.click("attention-view .target .word >> nth=1")
    edit = AttentionEdit(layer="source", scale={2: 0})
    explanation = translator.explain(TEXT, edits=[edit])
    (checks,) = (one for one in explanation.checks if one.path == CROSS)
    lines = page.locator("step-pane ul.checks li .number").all_inner_texts()
    expected = [effects[1] for effects in checks.effects.values()]
    assert [float(line.removesuffix(" nats")) for line in lines] == pytest.approx(
        expected, abs=5.1e-4
    )
    support = page.locator("step-pane p.checks").first.inner_text()
    assert support == f"This row is spread over {checks.effective_support[0][1]:.1f} words."


def test_option_fields_match_the_model(open_page):
    page = open_page()
    assert page.locator("options-form input").count() == 1  # the beam size
    with page.expect_response("**/v1/explain", timeout=TIMEOUT):
        page.select_option("select[name=model]", "language-modeling")
    settle(page)
    names = page.locator("options-form input").evaluate_all("all => all.map(one => one.name)")
    assert names == ["max_new_tokens", "temperature", "top_k", "top_p", "seed"]
    with page.expect_request("**/v1/explain") as request:
        page.fill("[name=max_new_tokens]", "7")
        page.press("[name=max_new_tokens]", "Tab")
    settle(page)
    assert json.loads(request.value.post_data)["options"] == {"max_new_tokens": 7}
    page.fill("[name=top_p]", "3")
    page.press("[name=top_p]", "Tab")
    assert state_of(page)["options"] == {"max_new_tokens": 7}, "above its maximum: not sent"
    edit_by(page, lambda: page.click("text=undo (u)"))
    assert page.input_value("[name=max_new_tokens]") == ""


def test_model_of_the_same_task_gets_the_same_text(open_page):
    page = open_page()
    write_text(page, "d c b")
    for name, is_kept in (("monotonic", True), ("tagging", False)):
        with page.expect_response("**/v1/explain", timeout=TIMEOUT):
            page.select_option("select[name=model]", name)
        settle(page)
        assert (page.input_value("textarea") == "d c b") == is_kept


def test_new_link_updates_an_open_page(open_page, translator):
    page = open_page()
    write_text(page, "d d")
    edit_by(page, lambda: page.evaluate(f"location.hash = {json.dumps(EDITED_LINK)}"))
    assert page.input_value("textarea") == EDITED["input"]
    edits = [AttentionEdit.from_json(edit) for edit in EDITED["edits"]]
    options = translator.parse_options(EDITED["options"])
    assert output(page) == translator.explain(TEXT, options, edits=edits).result.text
    edit_by(page, lambda: page.click("text=undo (u)"))
    assert page.input_value("textarea") == "d d"


@pytest.mark.parametrize(
    "fragment",
    ["%", "3", json.dumps({"edits": 3, "options": None, "prefix": {}, "row": "x", "what": 1})],
)
def test_invalid_link_opens_with_valid_fields(open_page, fragment):
    page = open_page(f"#{quote(fragment, safe='%')}")
    settle(page)
    assert state_of(page)["edits"] == []
    assert output(page)


def test_link_to_unknown_model_has_a_message(open_page):
    page = open_page(f"#{quote(json.dumps({**EDITED, 'model': 'another'}))}")
    settle(page)
    expect(page.locator(".notice")).to_contain_text("the model another, which is not served")
    assert state_of(page)["edits"] == []


def test_keys_have_a_dialog(open_page):
    page = open_page()
    settle(page)
    dialog = page.get_by_role("dialog", name="Keys")
    page.keyboard.press("?")
    expect(dialog).to_be_visible()
    assert {"f", "z", "u", "r", "w", "Enter", "Escape"} <= set(
        dialog.locator("kbd").all_inner_texts()
    )
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.get_by_role("button", name="keys (?)").click()
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    page.locator("textarea").press("?")
    expect(dialog).to_be_hidden()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"detail": "the explanation takes too long", "hint": "shorten the text"}, "too long; sho"),
        (None, "the server does not answer; is it still running?"),
    ],
    ids=["deadline", "gone"],
)
def test_failed_request_has_a_message_and_a_retry(chromium, inspector, answer, message):
    context = chromium.new_context()
    page = context.new_page()
    page.goto(inspector.url)
    page.wait_for_selector("attention-view", timeout=TIMEOUT)
    settle(page)

    def fail(route):
        if answer is None:
            route.abort()
        else:
            route.fulfill(status=504, json=answer)

    page.route("**/v1/explain", fail, times=1)
    page.fill("textarea", TEXT)
    check_status(page).to_contain_text(message, timeout=TIMEOUT)
    expect(page.locator(".panes")).to_have_class("panes old")  # of the text before
    edit_by(page, lambda: page.click("text=try again"))
    expect(page.locator(".panes")).to_have_class("panes")
    assert page.locator("attention-view .source .word").count() == len(TEXT.split()) + 1
    context.close()


def test_long_request_has_a_timer(open_page):
    page, held = open_page(), []
    settle(page)

    def hold(route):
        held.append(route)

    page.route("**/v1/explain", hold, times=1)
    page.fill("textarea", TEXT)
    check_status(page).to_have_text(re.compile(r"^\u2026 \d+ s$"), timeout=TIMEOUT)
    expect(page.locator(".panes")).to_have_class("panes old")
    edit_by(page, held[0].continue_)
    expect(page.locator(".panes")).to_have_class("panes")


@pytest.mark.parametrize("width", [400, 1280])
def test_panes_are_in_reading_order(open_page, width):
    """What may be done with a chosen cell stands beside the map, or right below it."""
    page = open_page(EDITED_LINK)
    settle(page)
    page.set_viewport_size({"width": width, "height": 900})
    tops = [
        page.locator(name).bounding_box()["y"]
        for name in ("attention-pane", "step-pane", "tree-pane", "compare-pane")
    ]
    assert tops[0] <= tops[1] + 200
    assert tops[1:] == sorted(tops[1:])
    assert page.evaluate("document.documentElement.scrollWidth") <= width
