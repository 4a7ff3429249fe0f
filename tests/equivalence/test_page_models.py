"""Pages of language models, classifiers, taggers and captioners answer as Python does."""

import gzip
import json
import random
from base64 import b64encode
from hashlib import sha256
from importlib.util import find_spec

import numpy as np
import pytest
import torch

import heedful
from heedful.attention.edits import AttentionEdit
from heedful.conversion.page_export import PAGE_FILE
from heedful.data.images.image_files import resize_image
from heedful.layers.crf import LinearChainCRF, Transitions
from heedful.plotting.page_runner import PageRunner
from heedful.plotting.raster import encode_png
from heedful.tasks.tagging.predictor import transition_penalties
from tests.exporting import export, write_recipe_run
from tests.page_modules import NEEDS_NODE, check_page_size, open_browser, run_module

NEEDS_ONNX = [
    pytest.mark.extras,
    pytest.mark.skipif(not find_spec("onnxscript"), reason="onnx is not installed"),
]
pytestmark = NEEDS_NODE
TIMEOUT = 120_000  # milliseconds, on a busy machine


# ----- parts


def lists(chain):
    return {name: part.tolist() for name, part in chain._asdict().items()}


@pytest.mark.parametrize("has_scheme", [False, True])
def test_tag_chain_matches_python(has_scheme):
    labels = ["O", "B-A", "I-A", "B-B", "I-B"]
    generator = torch.Generator().manual_seed(0)
    head = LinearChainCRF(len(labels))
    for parameter in head.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator)
    penalties = transition_penalties(labels, "bio") if has_scheme else None
    chain = head.transition_scores(torch.zeros(1, 1, len(labels)))
    decoding = Transitions(*map(torch.add, chain, penalties)) if penalties else chain
    sentences = [torch.randn(1, length, len(labels), generator=generator) for length in range(1, 9)]
    data = {
        "rows": [one[0].tolist() for one in sentences],
        **{"chain": lists(chain), "decoding": lists(decoding)},
    }
    module = """import { bestPath, logMarginals } from "./tag-chain.js";
answer(input.rows.map((rows) => [bestPath(rows, input.decoding), logMarginals(rows, input.chain)]));
"""
    for one, (path, marginals) in zip(sentences, run_module(module, data), strict=True):
        mask = torch.ones(one.shape[:2], dtype=torch.bool)
        assert path == head.decode(one, mask, penalties)[0].tolist()
        expected = head.log_marginals(one, mask)[0]
        torch.testing.assert_close(torch.tensor(marginals), expected.detach(), atol=1e-4, rtol=0)


def to_rgba(pixels):
    height, width, _ = pixels.shape
    opaque = np.concatenate([pixels, np.full((height, width, 1), 255, np.uint8)], axis=2)
    return {"width": width, "height": height, "values": opaque.reshape(-1).tolist()}


@pytest.mark.parametrize("fit", ["pad", "crop", "stretch"])
def test_resized_image_matches_python(fit):
    generator = np.random.default_rng(0)
    sizes = [(16, 16), (33, 20), (7, 50), (12, 12), (64, 48), (16, 5)]
    images = [generator.integers(0, 256, (*size, 3), np.uint8) for size in sizes]
    shape = {"channels": 3, "height": 16, "width": 12, "fit": fit}
    module = """import { resizeImage } from "./image-pixels.js";
answer(input.images.map((image) => [...resizeImage(image, input.shape)]));
"""
    data = {"images": [to_rgba(image) for image in images], "shape": shape}
    for image, resized in zip(images, run_module(module, data), strict=True):
        expected = resize_image(image, 16, 12, fit).transpose(2, 0, 1).reshape(-1)
        difference = np.abs(np.array(resized) - expected.astype(int))
        assert difference.max() <= 1  # sums of 32 bits, in another order, before rounding
        assert (difference > 0).mean() < 0.01


def test_only_the_last_of_waiting_requests_is_computed():
    """A worker that is slower than its user."""
    packed, digest = compress_part(b"0")
    parts = {"worker": packed, "page": "{}", "model": packed, "weights": packed}
    parts["digests"] = json.dumps({"worker": digest, "page": sha256(b"{}").hexdigest()})
    module = """import { PageModels } from "./page-models.js";
const computed = [];
globalThis.document = { getElementById: (id) => ({ textContent: input.parts[id] }) };
globalThis.Worker = class {
  postMessage({ id, parameters: { text } }) {
    if (text) computed.push(text);
    const answer = text === "ab" ? { id, error: "ab" } : { id, result: text };
    setTimeout(() => this.onmessage({ data: answer }), 20);
  }
};
(async () => {
  const models = new PageModels();
  await models.open();
  const started = [models.explain({ text: "a" })];
  await new Promise((resolve) => { setTimeout(resolve, 5); });
  for (const text of ["ab", "abc", "abcd"]) started.push(models.explain({ text }));
  const first = await Promise.all(started);
  const failed = await models.explain({ text: "ab" }).catch((error) => error.message);
  answer({ first, failed, last: await models.explain({ text: "last" }), computed });
})();
"""
    assert run_module(module, {"parts": parts}) == {
        "first": [None, None, None, "abcd"],
        "failed": "ab",
        "last": "last",
        "computed": ["a", "abcd", "ab", "last"],
    }


def compress_part(content):
    """Return bytes as a page has them, and the digest."""
    packed = json.dumps(b64encode(gzip.compress(content)).decode())
    return packed, sha256(packed.encode()).hexdigest()


# ----- pages


class ExportedPage:
    """A run with random parameters and its page."""

    def __init__(self, name, folder):
        self.run_dir = write_recipe_run(name, folder / "run")
        self.summary = export(self.run_dir, "page", folder / "page")
        self.path = folder / "page" / PAGE_FILE
        self.predictor = heedful.load(self.run_dir, device="cpu")

    def explain(self, *requests):
        return PageRunner.find().request(self.path, [("explain", request) for request in requests])


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    made = {}

    def find(name):
        if name not in made:
            made[name] = ExportedPage(name, tmp_path_factory.mktemp(name))
        return made[name]

    return find


def assert_same_layers(actual, expected):
    by_path = {layer["path"]: layer for layer in expected}
    assert {layer["path"] for layer in actual} == set(by_path)
    for layer in actual:
        one = by_path[layer["path"]]
        for name in ("type", "queries", "keys", "is_default", "first_step", "grid"):
            assert layer[name] == one[name], (layer["path"], name)
        weights = (torch.tensor(values["weights"], dtype=torch.float32) for values in (layer, one))
        torch.testing.assert_close(*weights, atol=1e-4, rtol=0)


def assert_same_top(actual, expected):
    for step, other in zip(actual, expected, strict=True):
        assert [one["id"] for one in step] == [one["id"] for one in other]
        scores = [[one["log_prob"] for one in row] for row in (step, other)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-3)


def edits_of(layers, seed):
    """Choose a cell of a row of a layer, and give it all weight."""
    chance = random.Random(seed)
    layer = chance.choice(layers)
    step, column = (chance.randrange(len(layer[axis])) for axis in ("queries", "keys"))
    column = min(column, step) if "self" in layer["type"] else column
    return [{"layer": layer["path"], "step": step, "set": {str(column): 1}}]


def python_edits(edits):
    return [AttentionEdit.from_json(edit) for edit in edits]


@pytest.mark.parametrize(
    "name",
    ["gpt-tiny", "attention-classifier-small", "bilstm-crf", "show-attend-tell-2015-soft-small"],
)
class TestSize:
    pytestmark = NEEDS_ONNX

    def test_file_size_has_an_upper_bound(self, name, pages):
        check_page_size(pages(name).path)


LM_RECIPES = ["gpt-tiny", pytest.param("zaremba-2014-small", marks=pytest.mark.slow)]


@pytest.mark.parametrize("name", LM_RECIPES)
class TestLanguageModel:
    pytestmark = NEEDS_ONNX

    @pytest.mark.parametrize("prompt", ["", "abc", "ab\ncd e"])
    def test_continuation_matches_python(self, name, prompt, pages):
        page = pages(name)
        options = {"max_new_tokens": 15, "temperature": 0}
        (answer,) = page.explain({"input": prompt, "options": options})
        options = page.predictor.parse_options(options)
        expected = page.predictor.explain(prompt, options, need_effects=False).to_json()
        assert answer["result"]["text"] == expected["result"]["text"]
        for field in ("token_ids", "num_prompt_steps"):
            assert answer[field] == expected[field]
        assert answer["result"]["tokens"] == expected["result"]["tokens"]
        assert_same_top(answer["top"], expected["top"])
        assert_same_layers(answer["layers"], expected["layers"])

    def test_chosen_token_begins_what_follows(self, name, pages):
        page = pages(name)
        (plain,) = page.explain({"input": "abc", "options": {"max_new_tokens": 6}})
        step = plain["num_prompt_steps"] + 2
        prefix = [*plain["token_ids"][:2], plain["top"][step][1]["id"]]
        request = {"input": "abc", "options": {"max_new_tokens": 6, "prefix_tokens": prefix}}
        (answer,) = page.explain(request)
        assert answer["token_ids"][:3] == prefix
        options = {"max_new_tokens": 3, "temperature": 0, "prefix_tokens": prefix}
        expected = page.predictor.explain("abc", page.predictor.parse_options(options))
        assert answer["token_ids"] == expected.to_json()["token_ids"]

    def test_edits_match_python(self, name, pages):
        page = pages(name)
        (plain,) = page.explain({"input": "abcd", "options": {"max_new_tokens": 6}})
        options = page.predictor.parse_options({"max_new_tokens": 6, "temperature": 0})
        for seed in range(5 if plain["layers"] else 0):
            edits = edits_of(plain["layers"], seed)
            request = {"input": "abcd", "options": {"max_new_tokens": 6}, "edits": edits}
            (answer,) = page.explain(request)
            expected = page.predictor.explain(
                "abcd", options, edits=python_edits(edits), need_effects=False
            ).to_json()
            assert answer["token_ids"] == expected["token_ids"]
            assert_same_layers(answer["layers"], expected["layers"])


LABEL_RECIPES = [
    "attention-classifier-small",
    "bilstm-crf",
    pytest.param("transformer-tagger", marks=pytest.mark.slow),
    pytest.param("lample-2016", marks=pytest.mark.slow),
    pytest.param("bag-of-words", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("name", LABEL_RECIPES)
class TestLabels:
    pytestmark = NEEDS_ONNX

    @pytest.mark.parametrize(
        "text", ["abcdefgh ijklmnop yz", "qrstuvwx", "a b 0123456789 +-*/()=#"]
    )
    def test_labels_and_probabilities_match_python(self, name, text, pages):
        page = pages(name)
        (answer,) = page.explain({"input": text})
        expected = page.predictor.explain(text, need_effects=False).to_json()
        result, other = answer["result"], expected["result"]
        for field in ("label", "tags", "words", "source_tokens"):
            assert result.get(field) == other.get(field)
        rows, others = (
            one["probabilities"] if "tags" in one else [one["probabilities"]]
            for one in (result, other)
        )
        for row, another in zip(rows, others, strict=True):
            assert row == pytest.approx(another, abs=1e-4)
        assert_same_layers(answer["layers"], expected["layers"])

    def test_edits_match_python(self, name, pages):
        page, text = pages(name), "abcdefgh ijklmnop yz"
        (plain,) = page.explain({"input": text})
        for seed in range(3 if plain["layers"] else 0):
            edits = edits_of(plain["layers"], seed)
            (answer,) = page.explain({"input": text, "edits": edits})
            expected = page.predictor.explain(text, edits=python_edits(edits), need_effects=False)
            assert_same_layers(answer["layers"], expected.to_json()["layers"])
            assert_same_top(answer["top"], expected.to_json()["top"])


CAPTION_RECIPES = [
    "show-attend-tell-2015-soft-small",
    pytest.param("caption-transformer-small", marks=pytest.mark.slow),
    pytest.param("adaptive-attention-2017-small", marks=pytest.mark.slow),
]


def picture(predictor, seed=0):
    _, height, width, _ = predictor.loader.shape
    blocks = np.random.default_rng(seed).integers(0, 256, (height // 4, width // 4, 3), np.uint8)
    return blocks.repeat(4, axis=0).repeat(4, axis=1)


@pytest.mark.parametrize("name", CAPTION_RECIPES)
class TestCaptions:
    pytestmark = NEEDS_ONNX

    @pytest.mark.parametrize("beam_size", [1, 3])
    def test_caption_of_an_image_matches_python(self, name, beam_size, pages):
        page = pages(name)
        pixels, options = picture(page.predictor), {"beam_size": beam_size}
        (answer,) = page.explain({"input": to_rgba(pixels), "options": options})
        options = page.predictor.parse_options(options)
        expected = page.predictor.explain(pixels, options, need_effects=False).to_json()
        assert answer["token_ids"] == expected["token_ids"]
        assert answer["result"]["text"] == expected["result"]["text"]
        assert_same_top(answer["top"], expected["top"])
        assert_same_layers(answer["layers"], expected["layers"])

    def test_weakened_cells_match_python(self, name, pages):
        page = pages(name)
        pixels = picture(page.predictor)
        edits = [{"layer": "source", "scale": dict.fromkeys(map(str, (0, 1, 2)), 0.05)}]
        request = {"input": to_rgba(pixels), "options": {"beam_size": 1}, "edits": edits}
        (answer,) = page.explain(request)
        expected = page.predictor.explain(
            pixels,
            page.predictor.parse_options({"beam_size": 1}),
            edits=python_edits(edits),
            need_effects=False,
        ).to_json()
        assert answer["token_ids"] == expected["token_ids"]
        assert_same_layers(answer["layers"], expected["layers"])


# ----- in a browser


@pytest.fixture
def open_page(pages):
    with open_browser() as browser:

        def open_offline(name):
            page, messages = browser.new_context(offline=True).new_page(), []
            page.on("console", lambda message: messages.append(message.text))
            page.on("pageerror", lambda error: messages.append(str(error)))
            page.goto(pages(name).path.as_uri())
            page.locator("model-view.ready").wait_for(timeout=TIMEOUT)
            return page, messages

        yield open_offline


@pytest.mark.browser
class TestBrowser:
    pytestmark = NEEDS_ONNX

    def test_language_model_goes_on_from_a_clicked_token(self, open_page, pages):
        from playwright.sync_api import expect

        page, messages = open_page("gpt-tiny")
        page.locator("textarea").fill("abc")
        tokens = page.locator("continuation-pane .tokens button")
        expect(tokens.first).to_be_visible(timeout=TIMEOUT)
        expect(tokens).to_have_count(4 + 40, timeout=TIMEOUT)  # EOS before the prompt
        tokens.nth(5).click()
        choice = page.locator("continuation-pane top-tokens button").nth(1)
        chosen = choice.locator("span").first.inner_text()
        choice.click()
        expect(tokens.nth(5)).to_have_text(chosen, timeout=TIMEOUT)
        assert messages == []

    def test_edited_word_leaves_the_former_bars_as_ghosts(self, open_page, pages):
        """The first text may be typed before the example of the page was explained."""
        from playwright.sync_api import expect

        name, texts = "attention-classifier-small", ("abcdefgh yz", "qrstuvwx")
        page, messages = open_page(name)
        words = page.locator("attention-view .source .word")
        for text in texts:
            page.locator("textarea").fill(text)
            tokens = pages(name).predictor.explain(text).layers[0].keys.tokens
            expect(words).to_have_count(len(tokens), timeout=TIMEOUT)
            page.locator("textarea").blur()
        former, now = (pages(name).predictor.explain(text).result for text in texts)
        ghosts = page.locator("label-pane .ghost")
        expect(ghosts.first).to_be_attached(timeout=TIMEOUT)
        ranked = sorted(now.probabilities, key=now.probabilities.get, reverse=True)
        drawn = ghosts.evaluate_all("all => all.map(({ dataset }) => +dataset.former)")
        expected = [former.probabilities[label] for label in ranked[: len(drawn)]]
        assert drawn == pytest.approx(expected, abs=1e-4)
        page.keyboard.press("u")
        expect(page.locator("textarea")).to_have_value(texts[0])
        page.keyboard.press("r")
        expect(page.locator("textarea")).to_have_value(texts[1])
        assert messages == []

    def test_typed_words_are_tagged(self, open_page, pages):
        from playwright.sync_api import expect

        name, text = "bilstm-crf", "abcdefgh ijklmnop yz"
        page, messages = open_page(name)
        page.get_by_label("words to tag").fill(text)
        tags = list(pages(name).predictor.explain(text).result.tags)
        expect(page.locator("tag-pane .tag")).to_have_text(tags, timeout=TIMEOUT)
        expect(page.locator(".intro .attention")).to_be_hidden()  # this model has none
        assert messages == []

    def test_dropped_image_is_captioned(self, open_page, pages, tmp_path):
        from playwright.sync_api import expect

        name = "show-attend-tell-2015-soft-small"
        page, messages = open_page(name)
        predictor = pages(name).predictor
        pixels = picture(predictor)
        data = b64encode(encode_png(pixels)).decode()
        transfer = page.evaluate_handle(
            """(data) => {
              const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
              const transfer = new DataTransfer();
              transfer.items.add(new File([bytes], "a.png", { type: "image/png" }));
              return transfer;
            }""",
            data,
        )
        page.dispatch_event("image-input", "drop", {"dataTransfer": transfer})
        expected = predictor.caption(pixels).text
        expect(page.locator("output-pane .output")).to_have_text(expected, timeout=TIMEOUT)
        expect(page.locator("image-pane image-attention")).to_be_visible(timeout=TIMEOUT)
        assert messages == []
