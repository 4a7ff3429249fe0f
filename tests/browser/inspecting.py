"""The inspector as its tests use it: what a person does, and what the page then shows."""

import io
import json
import random
import re
from urllib.parse import quote

import yaml
from PIL import Image, ImageChops

from heedful.recipes.recipe import read_recipe_text
from tests.commands import write_random_run

TEXT = "a b c d"
TIMEOUT = 120_000  # milliseconds, on a busy machine
OTHERS = ("classification", "forecasting", "language-modeling", "tagging")
CROSS = "decoder.stack.layers.1.cross_attention.attention"
EDITED = {
    "model": "letters",
    "input": TEXT,
    "options": {"beam_size": 4},
    "edits": [{"layer": CROSS, "step": 1, "head": 0, "set": {"3": 1}}],
    "row": 1,
    "column": 3,
}
EDITED_LINK = f"#{quote(json.dumps(EDITED))}"


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
        "attention-pane .cell",
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
    page.click(f"attention-pane .cell[data-row='{row}'][data-column='{column}']")


def edit_by(page, action):
    with page.expect_response("**/v1/explain", timeout=TIMEOUT):
        action()
    settle(page)


def former_output(page):
    return page.text_content("output-pane .former").removeprefix("before: ")


def edit_link(page):
    """Return the part of the address that reproduces what is shown."""
    return re.sub(r"^[^#]*", "", page.url)


def picture(page):
    """Return the pixels of the figure, without what the pointer and the focus show."""
    page.mouse.move(0, 0)
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(300)  # transitions of colors
    return page.locator("attention-pane attention-view").screenshot(animations="disabled")


def max_difference(picture, other):
    """Return by how much a channel of two pictures of one size differs at most."""
    images = [Image.open(io.BytesIO(data)).convert("RGB") for data in (picture, other)]
    assert images[0].size == images[1].size
    return max(last for _, last in ImageChops.difference(*images).getextrema())


def write_long_run(folder, context_length):
    """Write a run of a language model with a long context and random parameters."""
    settings = yaml.safe_load(read_recipe_text("gpt-tiny"))
    settings["data"]["lm_batching"] = {"batch_size": 1, "context_length": context_length}
    settings["model"]["positional_encoding"] = {"type": "sinusoidal"}
    lines = ["".join(random.Random(seed).choices("abcdefgh ", k=80)) for seed in range(50)]
    return write_random_run(folder, settings, lines, lines, seed=1)


def draw_text(num_tokens):
    """Return a text of so many tokens, of which the prompt's EOS is the first."""
    return "".join(random.Random(2).choices("abcdefgh ", k=num_tokens - 1))
