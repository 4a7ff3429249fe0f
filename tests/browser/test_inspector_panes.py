"""Panes of the inspector beside the map: what they show and change is what Python computes."""

import json
import struct
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from heedful.attention.edits import AttentionEdit
from heedful.inspection.explanation import Explanation
from tests.browser.inspecting import (
    CROSS,
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


def set_beam(page, size):
    edit_by(
        page,
        lambda: (page.fill("[name=beam_size]", str(size)), page.press("[name=beam_size]", "Tab")),
    )


def tree_of(translator, size=8):
    return translator.translate(TEXT, beam_size=size, need_tree=True).to_json(tree=True)["tree"]


def test_tree_is_that_of_the_command(open_page, translator):
    page = open_page()
    write_text(page)
    set_beam(page, 8)
    shown = page.eval_on_selector_all(
        ".tree .node",
        "nodes => nodes.map(node => [node.dataset.status, +node.dataset.logProb,"
        " node.querySelector('title').textContent.split(': ')[0],"
        " +node.getAttribute('aria-level')])",
    )
    expected = tree_of(translator)
    assert [status for status, *_ in shown] == [node["status"] for node in expected]
    assert [score for _, score, *_ in shown] == [
        pytest.approx(node["cumulative_log_prob"], abs=1e-5) for node in expected
    ]
    assert [token for *_, token, _ in shown][1:] == [node["token"] for node in expected][1:]
    levels = [level for *_, level in shown]
    assert all(
        levels[index] == levels[node["parent"]] + 1 for index, node in enumerate(expected) if index
    )


@pytest.mark.parametrize("way", ["mouse", "keyboard"])
def test_pruned_node_begins_what_follows(open_page, translator, way):
    page = open_page()
    write_text(page)
    set_beam(page, 8)
    tree = tree_of(translator)
    index = next(i for i, node in enumerate(tree) if node["status"] == "pruned" and node["parent"])
    prefix, node = [], tree[index]
    while node["parent"] is not None:
        prefix.insert(0, node["token_id"])
        node = tree[node["parent"]]
    place = page.locator(f".tree .node[data-index='{index}']")
    if way == "mouse":
        page.get_by_role("button", name="Whole tree").click()
        edit_by(page, place.click)
    else:
        place.focus()
        edit_by(page, lambda: page.keyboard.press("Enter"))
    request = translator.parse_json({"text": TEXT, "prefix_tokens": prefix})
    options = translator.parse_options({"beam_size": 8})
    assert output(page) == translator.explain(request, options).result.text
    assert f"first {len(prefix)} tokens" in page.text_content("edit-pane")


def test_tree_is_walked_zoomed_and_dragged(open_page):
    page = open_page()
    write_text(page)
    page.locator(".tree .node").first.focus()
    for key, level in [("ArrowRight", "2"), ("ArrowRight", "3"), ("ArrowLeft", "2")]:
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.getAttribute('aria-level')") == level
    view = "tree => ({ ...tree.view })"
    tree = page.locator("beam-tree")
    zoom = tree.evaluate(view)["zoom"]
    page.keyboard.press("+")
    assert tree.evaluate(view)["zoom"] == pytest.approx(1.25 * zoom)
    box = page.locator(".tree").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 5, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 65, box["y"] + 30, steps=3)
    page.mouse.up()
    moved = tree.evaluate(view)
    assert (moved["x"], moved["y"]) == (pytest.approx(-60, abs=8), pytest.approx(-10, abs=8))
    page.get_by_role("button", name="Whole tree").click()
    assert tree.evaluate(view)["x"] == 0


@pytest.mark.parametrize("temperature", [0.2, 5])
def test_temperature_is_that_of_python(open_page, translator, temperature):
    page = open_page()
    write_text(page)
    slider = page.get_by_label("temperature")
    edit_by(page, lambda: slider.fill(str(temperature)))
    edit = AttentionEdit(layer=CROSS, alignment={"type": "softmax", "temperature": temperature})
    check_edit(page, translator, edit)
    assert f"temperature {temperature}" in page.text_content("edit-pane")


@pytest.mark.parametrize("name", ["sparsemax", "entmax", "uniform", "diagonal"])
def test_other_alignment_is_that_of_python(open_page, translator, name):
    page = open_page()
    write_text(page)
    choice = page.get_by_label("alignment of this layer")
    edit_by(page, lambda: choice.select_option(name))
    check_edit(page, translator, AttentionEdit.parse(f"layer={CROSS}, alignment={name}"))
    edit_by(page, lambda: choice.select_option("the model\u2019s"))
    assert "no edits" in page.text_content("edit-pane")


def check_edit(page, translator, edit):
    expected = translator.explain(TEXT, edits=[edit])
    layer = next(layer for layer in expected.layers if layer.path == CROSS)
    assert output(page) == expected.result.text
    assert weights(page) == [pytest.approx(row, abs=1e-5) for row in layer.weights[0]]


def test_mechanism_that_keeps_its_alignment_says_why(open_page):
    page = open_page()
    with page.expect_response("**/v1/explain", timeout=TIMEOUT):
        page.select_option("select", "monotonic")
    settle(page)
    assert page.get_by_label("alignment of this layer").is_disabled()
    assert page.get_by_label("temperature").is_disabled()
    assert "depend on more than scores" in page.text_content("alignment-pane")


def export(page, name):
    """Return the file that a button of the export pane writes."""
    with page.expect_download(timeout=TIMEOUT) as download:
        page.get_by_role("region", name="export").get_by_role("button", name=name).click()
    settle(page)
    return Path(download.value.path()).read_bytes()


def test_exported_figures_have_the_weights_of_the_map(open_page):
    page = open_page()
    write_text(page)
    rows = weights(page)
    figure = ElementTree.fromstring(export(page, "SVG"))
    drawn = [float(cell.get("data-weight")) for cell in figure.iter() if cell.get("data-weight")]
    assert drawn == pytest.approx([weight for row in rows for weight in row], abs=1e-3)
    width, height = struct.unpack(">II", export(page, "PNG")[16:24])
    assert width / height == pytest.approx(
        float(figure.get("width")) / float(figure.get("height")), rel=0.01
    )


def test_exported_explanation_is_that_of_python(open_page, translator):
    page = open_page()
    write_text(page)
    click_cell(page, 1, 3)
    edit_by(page, lambda: page.keyboard.press("f"))
    exported = json.loads(export(page, "JSON"))
    read = Explanation.from_json(exported)
    expected = translator.explain(TEXT, edits=read.edits)
    for layer, other in zip(read.layers, expected.layers, strict=True):
        np.testing.assert_allclose(layer.weights, other.weights, atol=1e-5)
    assert exported["result"]["text"] == expected.result.text
    assert exported["token_ids"] == list(expected.result.token_ids)


def test_exported_page_shows_the_same_without_a_server(open_page, show):
    page = open_page()
    write_text(page)
    exported = show(export(page, "page").decode())
    counts = [one.locator(".thumbnails label").count() for one in (exported, page)]
    assert counts[0] == counts[1] > 1
    assert exported.locator("section .output").first.text_content() == output(page)


def test_movie_shows_validations_of_a_run_that_goes_on(open_page, inspected_run):
    from playwright.sync_api import expect

    page = open_page()
    pane = page.get_by_role("region", name="training")
    pane.get_by_text("Training").click(timeout=TIMEOUT)
    slider = pane.get_by_label("Validation")
    samples = inspected_run / "samples.jsonl"
    written = samples.read_text(encoding="utf-8")
    steps = sorted({json.loads(line)["step"] for line in written.splitlines()})
    expect(slider).to_have_attribute("max", str(len(steps) - 1), timeout=TIMEOUT)
    slider.focus()
    page.keyboard.press("Home")
    first = json.loads(written.splitlines()[0])
    expect(pane.locator(".card").first).to_contain_text(first["text"])
    assert pane.locator(".cell").count() == len(first["source"]) * len(first["output"])
    page.keyboard.press("End")
    later = json.dumps({**first, "step": steps[-1] + 1, "text": "the next validation"})
    try:
        samples.write_text(f"{written}{later}\n{later[:40]}", encoding="utf-8")  # the last is torn
        expect(slider).to_have_attribute("max", str(len(steps)), timeout=TIMEOUT)
        expect(pane.locator(".card")).to_have_count(1)
        expect(pane.locator(".card")).to_contain_text("the next validation")
    finally:
        samples.write_text(written, encoding="utf-8")


def test_hostile_text_is_shown_on_a_narrow_screen(open_page):
    page = open_page()
    dialogs = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.dismiss()))
    page.set_viewport_size({"width": 400, "height": 900})
    for hostile in ("\U0001f469\u200d\U0001f4bb \x00", "<img onerror=alert(1)> \u202eb e\u0301"):
        write_text(page, hostile)
    page.get_by_role("region", name="training").get_by_text("Training").click(timeout=TIMEOUT)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.locator(".stack img, aside img").count() == 0
    with page.expect_response("**/v1/explain", timeout=TIMEOUT):
        page.fill("textarea", "a " * 10_000)
    check_status(page).to_contain_text("characters", timeout=TIMEOUT)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert dialogs == []


def test_forced_colors_keep_the_shades_of_the_map(open_page):
    page = open_page(EDITED_LINK)
    settle(page)
    page.emulate_media(forced_colors="active", reduced_motion="reduce")
    colors = page.eval_on_selector_all(
        "attention-pane .cell", "cells => cells.map(cell => getComputedStyle(cell).backgroundColor)"
    )
    assert len(set(colors)) > 3


CLIPPED = """() => [...document.querySelectorAll("button, select, label, h1, h2, p, .reading, li")]
  .filter((node) => node.checkVisibility() && !node.closest(".thumbnails"))
  .filter((node) => getComputedStyle(node).overflow !== "visible" || node.matches("button"))
  .filter((node) => node.scrollWidth > node.clientWidth + 1)
  .map((node) => node.outerHTML.slice(0, 120))"""


def test_text_of_twice_the_size_is_neither_clipped_nor_scrolled_sideways(open_page):
    page = open_page(EDITED_LINK)
    settle(page)
    set_beam(page, 8)
    page.set_viewport_size({"width": 1280, "height": 900})
    size = "getComputedStyle(document.querySelector('.output')).fontSize"
    before = float(page.evaluate(size).removesuffix("px"))
    page.evaluate("document.documentElement.style.fontSize = '200%'")
    assert float(page.evaluate(size).removesuffix("px")) == pytest.approx(2 * before)
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    assert page.evaluate(CLIPPED) == []
