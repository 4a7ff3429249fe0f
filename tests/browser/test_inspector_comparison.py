"""The comparison of the inspector: another run, or a checkpoint, beside what is shown."""

import pytest

import heedful
from heedful.attention.edits import AttentionEdit
from tests.browser.inspecting import (
    TEXT,
    TIMEOUT,
    click_cell,
    edit_by,
    edit_link,
    shown_layer,
    weights,
    write_text,
)

pytestmark = [pytest.mark.wide, pytest.mark.browser]
LAST_STEP = 150


def compare_with(page, name):
    """Choose what is compared with; return its part of the page."""
    pane = page.get_by_role("region", name="comparison")
    with page.expect_response("**/v1/explain", timeout=TIMEOUT):
        pane.get_by_label("compare with").select_option(name, timeout=TIMEOUT)
    pane.locator("section").nth(2).wait_for(timeout=TIMEOUT)
    return pane


def numbers(section):
    return section.locator(".cell").evaluate_all("cells => cells.map(c => +c.dataset.weight)")


def test_comparison_with_checkpoint_keeps_edits(open_page, inspected_run):
    page = open_page()
    write_text(page)
    click_cell(page, 1, 3)
    edit_by(page, lambda: page.keyboard.press("f"))
    pane = compare_with(page, f"step {LAST_STEP} of letters")
    checkpoint = heedful.load(inspected_run, device="cpu", checkpoint=LAST_STEP)
    state = page.evaluate("JSON.parse(decodeURIComponent(location.hash.slice(1)))")
    assert state["other"] == {"model": "letters", "checkpoint": LAST_STEP}
    edits = [AttentionEdit.from_json(edit) for edit in state["edits"]]
    expected = checkpoint.explain(TEXT, edits=edits)
    this, other, difference = pane.locator("section").all()
    assert other.locator(".output").inner_text() == expected.result.text
    flat = [weight for row in shown_layer(expected).weights[0] for weight in row]
    assert numbers(other) == pytest.approx(flat, abs=1e-5)
    assert numbers(this) == [weight for row in weights(page) for weight in row]
    if difference.locator(".cell").count():
        pairs = zip(numbers(other), numbers(this), strict=True)
        assert numbers(difference) == pytest.approx([one - two for one, two in pairs], abs=1e-9)


def test_hover_and_focus_linked_across_maps(open_page):
    page = open_page()
    write_text(page)
    pane = compare_with(page, "monotonic")
    chosen = pane.locator(".cell.chosen")
    cell = "[data-row='0'][data-column='1']"
    pane.locator(f"section >> nth=1 >> .cell{cell}").hover()
    assert (
        chosen.evaluate_all("cells => cells.map(c => [c.dataset.row, c.dataset.column])")
        == [["0", "1"]] * chosen.count()
    )
    assert chosen.count() >= 2
    page.mouse.move(0, 0)
    pane.locator("section >> nth=0 >> .cell[data-row='0'][data-column='0']").focus()
    page.keyboard.press("ArrowRight")
    assert pane.locator(f".cell.chosen{cell}").count() >= 2


def test_no_difference_map_for_different_tokens(open_page):
    page = open_page()
    write_text(page)
    pane = compare_with(page, "monotonic")
    axes = [pane.locator(f"section >> nth={index} >> th").all_inner_texts() for index in (0, 1)]
    difference = pane.locator("section").nth(2)
    assert axes[0] != axes[1], "the two models say the same"
    assert difference.locator(".cell").count() == 0
    assert "have different words" in difference.inner_text()
    other = open_page(edit_link(page))
    section = other.get_by_role("region", name="comparison").locator("section").nth(2)
    section.wait_for(timeout=TIMEOUT)
    assert section.inner_text() == difference.inner_text(), "a link holds the comparison"
