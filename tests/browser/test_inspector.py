"""The inspector in a real browser, on a real server: what it shows is what Python computes."""

import re

import pytest

from heedful.attention.edits import AttentionEdit
from tests.browser.inspecting import (
    CROSS,
    OTHERS,
    TEXT,
    TIMEOUT,
    check_status,
    click_cell,
    edit_by,
    edit_link,
    former_output,
    max_difference,
    output,
    picture,
    settle,
    shown_layer,
    weights,
    write_text,
)

pytestmark = [pytest.mark.wide, pytest.mark.browser]


def test_page_shows_what_python_computes(open_page, translator):
    page = open_page()
    write_text(page)
    expected = translator.explain(TEXT)
    assert output(page) == expected.result.text
    assert weights(page) == [
        pytest.approx(row, abs=1e-5) for row in shown_layer(expected).weights[0]
    ]


def test_page_has_a_strict_policy(inspector):
    policy = inspector.get("/").headers["content-security-policy"]
    assert policy.startswith("default-src 'self'")
    assert "unsafe" not in policy
    assert inspector.get("/page/../settings.py").status == 404
    assert inspector.get("/page/page.html").status == 404


def test_answer_for_a_text_that_was_changed_meanwhile_is_not_shown(open_page, translator):
    page = open_page()
    with page.expect_response("**/v1/explain", timeout=TIMEOUT) as answer:
        page.fill("textarea", TEXT)
    settle(page)
    body, held = answer.value.text(), []

    def hold(route):
        held.append(route)

    page.route("**/v1/explain", hold, times=1)
    page.fill("textarea", "a b")
    check_status(page).to_have_text(re.compile("^\u2026"), timeout=TIMEOUT)
    with page.expect_response("**/v1/explain", timeout=TIMEOUT):
        page.fill("textarea", "c d")  # is asked for a moment later
        held[0].fulfill(body=body, content_type="application/json")
    with page.expect_response("**/v1/explain", timeout=TIMEOUT):
        write_text(page, "d c")
    settle(page)
    assert output(page) == translator.explain("d c").result.text


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


def test_edited_cell_is_hatched_and_the_former_output_stays_in_sight(open_page, translator):
    page = open_page()
    write_text(page)
    rows = weights(page)
    click_cell(page, 1, 3)
    edit_by(page, lambda: page.keyboard.press("f"))
    (edited,) = page.query_selector_all(".cell.edited")
    assert (edited.get_attribute("data-row"), edited.get_attribute("data-column")) == ("1", "3")
    assert "edited" in edited.get_attribute("title")
    assert "repeating-linear-gradient" in edited.evaluate(
        "cell => getComputedStyle(cell).backgroundImage"
    )
    before = translator.explain(TEXT).result.text
    assert former_output(page) == before != output(page)
    assert page.query_selector_all(".former del") != []
    assert weights(page)[0] == pytest.approx(rows[0], abs=1e-5)
    edit_by(page, lambda: page.click("text=undo (u)"))
    assert page.query_selector_all(".cell.edited") == []


@pytest.mark.parametrize("way", ["button", "key"])
def test_removed_word_gets_no_attention(open_page, translator, way):
    page = open_page()
    write_text(page)
    click_cell(page, 0, 2)
    if way == "button":
        edit_by(page, lambda: page.click("text=remove word (z)"))
    else:
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
    for column in (3, 0, 2):
        click_cell(page, 1, column)
        edit_by(page, lambda: page.keyboard.press("f"))
        seen.append((output(page), weights(page)))
    other = open_page(edit_link(page))
    settle(other)
    assert (output(other), weights(other)) == seen[3]
    assert max_difference(picture(other), picture(page)) <= 4  # of 255, at the edges of curves
    for expected, undo in zip(reversed(seen[:3]), ("button", "key", "button"), strict=True):
        is_key = undo == "key"
        page.evaluate("document.activeElement.blur()")
        edit_by(page, lambda: page.keyboard.press("u") if is_key else page.click("text=undo (u)"))  # noqa: B023
        assert (output(page), weights(page)) == expected


@pytest.mark.parametrize("way", ["mouse", "keyboard"])
def test_chosen_token_begins_what_follows(open_page, translator, way):
    page = open_page()
    write_text(page)
    before = translator.explain(TEXT)
    click_cell(page, 1, 0)
    token = page.locator(".top-token").nth(1)
    if way == "mouse":
        edit_by(page, token.click)
    else:
        token.focus()
        edit_by(page, lambda: page.keyboard.press("Enter"))
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
    assert page.inner_text(".stack")


def test_error_of_the_server_is_shown(open_page):
    page = open_page()
    with page.expect_response("**/v1/explain", timeout=TIMEOUT):
        page.fill("textarea", "a " * 3000)
    check_status(page).to_contain_text("characters", timeout=TIMEOUT)
