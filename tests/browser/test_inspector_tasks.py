"""The inspector with a model of each task, in a real browser: edits do what they do in Python."""

import base64
import json
from urllib.parse import quote, unquote, urlsplit

import numpy as np
import pytest

import heedful
from heedful.attention.edits import AttentionEdit
from heedful.plotting.raster import encode_png
from heedful.tokenization.vocabulary import EOS
from tests.browser.test_accessibility import VIOLATIONS, node_module
from tests.browser.test_inspector import TIMEOUT, edit_by, settle
from tests.commands import write_random_run
from tests.laws.test_explanation_laws import DRAW_WINDOW, MODELS
from tests.laws.test_predictor_laws import SETTINGS, TEXTS
from tests.serving.servers import running

pytestmark = [pytest.mark.wide, pytest.mark.browser]
PIXELS = np.random.default_rng(0).integers(0, 256, (8, 8, 3), np.uint8)
IMAGES = [base64.b64encode(encode_png(pixels)).decode() for pixels in (PIXELS, PIXELS[:, :, 0])]
STATES = {
    "tagging": {"input": "a b c a"},
    "classification": {"input": "a b c"},
    "language-modeling": {"input": "a b c", "options": {"max_new_tokens": 5, "temperature": 0}},
    "forecasting": {"options": {"num_samples": 20}},
    "captioning": {"input": IMAGES[0]},
    "glimpses": {"input": IMAGES[1]},
    "draw-window": {"input": IMAGES[1]},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    runs = {}
    for name in STATES:
        task = "glimpses" if name == "draw-window" else name
        models = {**MODELS, "draw-window": DRAW_WINDOW}
        settings = {**SETTINGS[task], "model": models.get(name, SETTINGS[task]["model"])}
        if task == "captioning":
            settings["decoding"] = {"min_length": 3, "max_length": 5}
        runs[name] = write_random_run(folder / name, settings, TEXTS, TEXTS, seed=2)
    return runs


@pytest.fixture(scope="module")
def server(runs, tmp_path_factory):
    named = [f"{task}={run}" for task, run in runs.items()]
    with running(tmp_path_factory.mktemp("server"), *named, "--ui") as server:
        yield server


class TaskPage:
    """The inspector with a model of a task, and the same model in Python."""

    def __init__(self, page, predictor):
        self.page, self.predictor = page, predictor

    @property
    def state(self):
        return json.loads(unquote(urlsplit(self.page.url).fragment))

    def explain(self):
        """Explain in Python what the page shows."""
        state, predictor = self.state, self.predictor
        options = predictor.parse_options(state["options"])
        edits = [AttentionEdit.from_json(edit) for edit in state["edits"]]
        explained = predictor.explain(predictor.parse_json(state["input"]), options, edits=edits)
        return explained.to_json(predictor.to_json(explained.result))

    def edit_by(self, action):
        edit_by(self.page, action)

    def numbers(self, selector, name):
        nodes = self.page.locator(selector)
        return nodes.evaluate_all(f"nodes => nodes.map(({{ dataset }}) => +dataset.{name})")


@pytest.fixture
def open_task(chromium, server, runs):
    """Open the inspector; at the end check that it logged no error."""
    contexts, errors = [], []

    def open_task(task, **options):
        contexts.append(chromium.new_context(viewport={"width": 1200, "height": 900}, **options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: errors.append(message.text))
        page.on("pageerror", lambda error: errors.append(str(error)))
        state = quote(json.dumps({"model": task, **STATES[task]}))
        with page.expect_response("**/v1/explain", timeout=TIMEOUT):
            page.goto(f"{server.url}/#{state}")
        settle(page)
        return TaskPage(page, heedful.load(runs[task], device="cpu"))

    yield open_task
    for context in contexts:
        context.close()
    assert errors == []


def test_language_model_goes_on_from_a_clicked_token(open_task):
    shown = open_task("language-modeling")
    before = shown.explain()
    step = before["num_prompt_steps"] + 1
    shown.page.click(f"attention-view .target .word >> nth={step}")
    ids = [token["id"] for token in before["top"][step]]
    chosen = next(index for index, token in enumerate(ids) if index and token > EOS)
    shown.edit_by(lambda: shown.page.click(f".top-token >> nth={chosen}"))
    prefix = [before["token_ids"][0], ids[chosen]]
    assert shown.state["prefix"] == prefix
    options = {**STATES["language-modeling"]["options"], "prefix_tokens": prefix}
    parsed = shown.predictor.parse_options(options)
    text = shown.predictor.explain("a b c", parsed).result.text
    assert shown.page.inner_text("output-pane .output") == text
    shown.page.click("attention-view .target .word >> nth=0")
    assert shown.page.locator(".top-token").first.is_disabled(), "the prompt is given"


def test_edited_prompt_is_continued_anew(open_task):
    shown = open_task("language-modeling")
    shown.edit_by(lambda: shown.page.fill("textarea", "c a"))
    assert shown.page.inner_text("output-pane .output") == shown.explain()["result"]["text"]


def test_edited_word_moves_tags_and_leaves_ghosts(open_task):
    shown = open_task("tagging")
    before = shown.explain()["result"]
    shown.edit_by(lambda: shown.page.fill("textarea", "c b c a"))
    now = shown.explain()["result"]
    assert now["probabilities"] != before["probabilities"]
    tags = [text.split("\n")[-1] for text in shown.page.locator(".tagged .tag").all_inner_texts()]
    assert [tag[-len(new) :] for tag, new in zip(tags, now["tags"], strict=True)] == now["tags"]
    old = [row[tag] for row, tag in zip(before["probabilities"], now["tags"], strict=True)]
    assert shown.numbers("tag-pane .ghost", "former") == pytest.approx(old, abs=1e-5)
    is_changed = [one != two for one, two in zip(before["tags"], now["tags"], strict=True)]
    assert shown.page.locator(".tagged.changed").count() == sum(is_changed)


def test_edited_word_moves_labels_and_leaves_ghosts(open_task):
    shown = open_task("classification")
    before = shown.explain()["result"]["probabilities"]
    shown.edit_by(lambda: shown.page.fill("textarea", "c c"))
    now = shown.explain()["result"]["probabilities"]
    ranked = sorted(now, key=now.get, reverse=True)
    assert shown.page.locator(".labels tbody th").all_inner_texts() == ranked
    old = [before[label] for label in ranked]
    assert shown.numbers("label-pane .ghost", "former") == pytest.approx(old, abs=1e-5)


def medians(shown, name):
    values = shown.page.get_attribute(f".median.{name}", "data-values")
    return [float(value) for value in values.split()]


@pytest.mark.parametrize("way", ["pointer", "keys"])
def test_moved_past_value_moves_the_forecast_and_leaves_the_former(open_task, way):
    shown = open_task("forecasting")
    before = medians(shown, "now")
    assert before == pytest.approx(shown.explain()["result"]["quantiles"]["0.5"], rel=1e-5)
    point = shown.page.locator(".point").last
    value = float(point.get_attribute("aria-valuenow"))
    if way == "keys":
        point.focus()
        shown.edit_by(lambda: shown.page.keyboard.press("PageDown"))
    else:
        box = point.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        shown.page.mouse.move(x, y)
        shown.page.mouse.down()
        shown.page.mouse.move(x, y + 40, steps=3)
        shown.edit_by(shown.page.mouse.up)
    moved = shown.page.locator(".point").last
    assert float(moved.get_attribute("aria-valuenow")) < value
    assert medians(shown, "former") == before
    assert medians(shown, "now") != before
    expected = shown.explain()["result"]["quantiles"]["0.5"]
    assert medians(shown, "now") == pytest.approx(expected, rel=1e-5)


def test_weakened_cells_get_less_attention_as_in_python(open_task):
    shown = open_task("captioning")
    canvas = shown.page.locator("image-pane .picture")
    box = canvas.bounding_box()
    canvas.click(position={"x": box["width"] * 0.3, "y": box["height"] * 0.3})
    shown.edit_by(lambda: shown.page.click("text=/weaken 3 . 3 cells/"))
    (edit,) = shown.state["edits"]
    rows, columns = shown.explain()["layers"][0]["grid"]
    expected = {str(columns * row + column) for row in range(3) for column in range(3)}
    assert set(edit["scale"]) == expected
    words = shown.page.locator("image-pane .word .token").all_inner_texts()
    explanation = shown.explain()
    assert words == explanation["layers"][0]["queries"]
    shown.page.click("image-pane .word >> nth=0")
    cells = shown.page.locator("image-pane .numbers td.cell").all_text_contents()
    drawn = [0 if cell in ("", "\u00b7") else int(cell) for cell in cells]
    weights = explanation["layers"][0]["weights"][0][0]
    assert drawn == [round(100 * weight) for weight in weights]
    assert len(drawn) == rows * columns


@pytest.mark.parametrize("model", ["glimpses", "draw-window"])
@pytest.mark.parametrize("way", ["pointer", "keys"])
def test_moved_glimpse_stays_and_those_after_it_are_taken_again(open_task, way, model):
    shown = open_task(model)
    before = shown.explain()["result"]["glimpses"]
    canvas = shown.page.locator("glimpse-pane .trail > canvas")
    slider = shown.page.locator("glimpse-pane input[type=range]")
    slider.fill("2")
    if way == "keys":
        canvas.focus()
        shown.edit_by(lambda: shown.page.keyboard.press("ArrowDown"))
        index = 1
    else:
        box, scale = canvas.bounding_box(), canvas.bounding_box()["width"] / 8
        top, left, height, width = before[-1]["boxes"][0]
        middle = [max(side + size / 2, 0.5) for side, size in ((left, width), (top, height))]
        x, y = (box[name] + scale * side for name, side in zip("xy", middle, strict=True))
        shown.page.mouse.move(x, y)
        shown.page.mouse.down()
        shown.page.mouse.move(x + scale * 2, y + scale, steps=3)
        shown.edit_by(shown.page.mouse.up)
        index = int(next(iter(shown.state["options"]["locations"])))
    now = shown.explain()["result"]["glimpses"]
    assert list(shown.state["options"]["locations"]) == [str(index)]
    assert [glimpse["boxes"] for glimpse in now[:index]] == [
        glimpse["boxes"] for glimpse in before[:index]
    ]
    assert now[index]["boxes"] != before[index]["boxes"]
    drawn = shown.page.locator("glimpse-trail").evaluate("node => node.image.glimpses")
    assert drawn == now


@pytest.mark.extras
@pytest.mark.parametrize("task", STATES)
def test_view_of_a_task_has_no_accessibility_violation(open_task, task):
    axe = node_module("axe-core/axe.min.js").read_text(encoding="utf-8")
    page = open_task(task, bypass_csp=True).page  # axe sets styles
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        page.evaluate(f"{axe}\n;0")
        assert page.evaluate(VIOLATIONS) == []
