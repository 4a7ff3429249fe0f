"""A page of a run translates, searches and obeys edits as the run does, token for token."""

import gzip
import json
import random
import re
from base64 import b64decode, b64encode
from hashlib import sha256
from importlib.util import find_spec

import pytest

import heedful
from heedful.attention.edits import AttentionEdit
from heedful.conversion import page_export
from heedful.conversion.exporting import export_run, sample_sources
from heedful.conversion.page_export import EXPORTER, PAGE_FILE, PageExporter
from heedful.decoding.requests import Request
from heedful.errors import DataError, RunError
from heedful.plotting.page_graphs import check_operators
from heedful.plotting.page_runner import PageRunner
from heedful.runs import load_run
from tests.commands import LETTERS
from tests.equivalence.test_export import SMALL_RECIPES
from tests.exporting import export, train_letters, write_recipe_run
from tests.page_modules import NEEDS_NODE, check_page_size, open_browser, part_of

PACKAGES = ("onnx", "onnxscript")
pytestmark = [
    NEEDS_NODE,
    pytest.mark.extras,
    pytest.mark.skipif(not all(map(find_spec, PACKAGES)), reason="onnx is not installed"),
]
NUM_TEXTS = 60
TIMEOUT = 120_000  # milliseconds, on a busy machine


class ExportedPage:
    """A trained run with its page."""

    def __init__(self, folder, is_transformer):
        self.run_dir = train_letters(folder, is_transformer=is_transformer)
        self.summary = export(self.run_dir, "page", folder / "page")
        self.path = folder / "page" / PAGE_FILE
        self.run = heedful.load(self.run_dir, device="cpu")
        self.runner = PageRunner.find()

    def explain(self, requests):
        return self.runner.request(self.path, [("explain", request) for request in requests])


@pytest.fixture(scope="module", params=["transformer", "gru"])
def exported(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return ExportedPage(folder, request.param == "transformer")


def letters(count=NUM_TEXTS, seed=1):
    chance = random.Random(seed)
    return [" ".join(chance.choices(LETTERS, k=chance.randint(1, 9))) for _ in range(count)]


def test_exporter_runs_the_exported_model(exported):
    assert "8 outputs of the page in Node.js are equal, token for token" in exported.summary


@pytest.mark.parametrize("beam_size", [1, 4])
def test_beam_search_output_matches_the_model(exported, beam_size):
    texts = [*letters(), ""]
    options = {"beam_size": beam_size}
    answers = exported.explain([{"input": text, "options": options} for text in texts])
    expected = [exported.run.translate(text, beam_size=beam_size) for text in texts]
    assert [answer["result"]["text"] for answer in answers] == [one.text for one in expected]
    assert len({one.text for one in expected}) > NUM_TEXTS // 2
    for answer, one in zip(answers[:-1], expected, strict=False):
        assert answer["result"]["score"] == pytest.approx(one.score, abs=1e-4)


def edits_for(layers, chance):
    """An edit of a random step and cell, as the keys of the page make it."""
    layer = chance.choice([layer for layer in layers if layer["type"] == "cross"])
    step = chance.randrange(len(layer["queries"]))
    column = chance.randrange(len(layer["keys"]))
    if chance.random() < 0.5:
        return [{"layer": "source", "scale": {str(column): 0}}]
    head = {"head": chance.randrange(len(layer["weights"]))} if len(layer["weights"]) > 1 else {}
    return [{"layer": layer["path"], "step": step, "set": {str(column): 1}, **head}]


@pytest.mark.parametrize("count", [30, pytest.param(300, marks=pytest.mark.slow)])
def test_attention_edits_match_python(exported, count):
    chance, texts = random.Random(3), letters(count, seed=7)
    plain = exported.explain([{"input": text} for text in texts])
    edits = [edits_for(answer["layers"], chance) for answer in plain]
    requests = [{"input": text, "edits": one} for text, one in zip(texts, edits, strict=True)]
    num_changed = 0
    for request, before, answer in zip(requests, plain, exported.explain(requests), strict=True):
        made = [AttentionEdit.from_json(edit, location="edit") for edit in request["edits"]]
        expected = exported.run.explain(request["input"], edits=made, need_effects=False).to_json()
        assert answer["token_ids"] == expected["token_ids"]
        num_changed += answer["token_ids"] != before["token_ids"]
        layers = {layer["path"]: layer for layer in expected["layers"]}
        assert {layer["path"] for layer in answer["layers"]} == set(layers)
        for layer in answer["layers"]:
            one = layers[layer["path"]]
            for name in ("type", "queries", "keys", "is_default", "first_step"):
                assert layer[name] == one[name], name
            flat = [weight for head in one["weights"] for row in head for weight in row]
            actual = [weight for head in layer["weights"] for row in head for weight in row]
            assert actual == pytest.approx(flat, abs=1e-4)
    assert num_changed > 5


def test_output_starts_with_prefix_tokens(exported):
    text = "a b c d"
    [plain] = exported.explain([{"input": text}])
    prefix = [plain["token_ids"][0], plain["top"][1][1]["id"]]
    [answer] = exported.explain([{"input": text, "options": {"prefix_tokens": prefix}}])
    expected = exported.run.explain(Request(text, prefix_tokens=prefix), need_effects=False)
    assert answer["token_ids"][:2] == prefix
    assert answer["token_ids"] == expected.to_json()["token_ids"]


def test_top_tokens_of_each_step_match_python(exported):
    [answer] = exported.explain([{"input": "b c d"}])
    expected = exported.run.explain("b c d", need_effects=False).to_json()
    assert len(answer["top"]) == len(expected["top"])
    for step, other in zip(answer["top"], expected["top"], strict=True):
        assert [one["token"] for one in step] == [one["token"] for one in other]
        assert [one["log_prob"] for one in step] == pytest.approx(
            [one["log_prob"] for one in other], abs=1e-4
        )


# ----- in a browser


@pytest.fixture
def browser():
    with open_browser() as started:
        yield started


@pytest.mark.browser
def test_html_file_runs_offline(exported, browser):
    """Text, an edit of the keyboard and undo; no request leaves the page, and nothing is logged."""
    from playwright.sync_api import expect

    page = browser.new_context(offline=True).new_page()
    requests, messages = [], []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(exported.path.as_uri())
    field, output = page.get_by_label("text to translate"), page.locator("output-pane .output")
    expect(field).to_be_enabled(timeout=TIMEOUT)
    field.fill("a b c d")
    expect(output).to_have_text(exported.run.translate("a b c d").text, timeout=TIMEOUT)
    page.click(".cell[data-row='1'][data-column='3']")
    page.keyboard.press("f")
    expect(page.locator("edit-list li")).to_have_count(1, timeout=TIMEOUT)
    expect(page.locator(".cell.edited")).to_have_count(1, timeout=TIMEOUT)
    assert float(page.get_attribute(".cell.edited", "data-weight")) == 1
    page.keyboard.press("u")
    expect(page.locator("edit-list li")).to_have_count(0, timeout=TIMEOUT)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert messages == []
    assert [url for url in requests if not url.startswith("blob:null/")] == [exported.path.as_uri()]
    policy = page.get_attribute("meta[http-equiv]", "content")
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


@pytest.mark.browser
def test_modified_html_file_is_not_used(exported, browser, tmp_path):
    from playwright.sync_api import expect

    text = exported.path.read_text()
    for name in ("model", "weights", "worker", "page", "digests"):
        place = part_of(text, name).start(1) + 9
        other = "a" if text[place] != "a" else "b"
        (tmp_path / "changed.html").write_text(text[:place] + other + text[place + 1 :])
        page = browser.new_page()
        page.goto((tmp_path / "changed.html").as_uri())
        status = page.locator(".status")
        expect(status).to_contain_text("this page was changed or damaged", timeout=TIMEOUT)
        expect(page.locator("textarea")).to_be_disabled()
        page.close()


# ----- damage


def test_modified_model_or_weights_raise(exported, tmp_path):
    page = exported.path.read_text()
    for name in ("model", "weights"):
        match = part_of(page, name)
        place = (match.start(1) + match.end(1)) // 2
        other = "a" if page[place] != "a" else "b"
        (tmp_path / "flipped.html").write_text(page[:place] + other + page[place + 1 :])
        with pytest.raises(DataError, match="the page reports: this page was changed or damaged"):
            exported.runner.request(tmp_path / "flipped.html", [])


OPERATORS = {
    "Sub: binary((x, y) => x - y)": "Sub: binary((x, y) => y - x)",
    "ReduceSum: reduction(0, sum)": "ReduceSum: reduction(1, sum)",
    "Sigmoid: unary((x) => 1 /": "Sigmoid: unary((x) => 2 /",
    "Relu: unary((x) => (x <= 0 ? 0 : x))": "Relu: unary((x) => x)",
}


def test_exporter_refuses_a_page_with_an_incorrect_operator(exported, tmp_path):
    """A page whose digests are right, but whose interpreter has a bug."""
    page = exported.path.read_text()
    packed = json.loads(part_of(page, "worker")[1])
    worker = mutant = gzip.decompress(b64decode(packed)).decode()
    for right, wrong in OPERATORS.items():
        assert right in worker
        mutant = mutant.replace(right, wrong)
    changed = b64encode(gzip.compress(mutant.encode())).decode()
    (tmp_path / PAGE_FILE).write_text(page.replace(packed, changed))
    run = load_run(exported.run_dir)
    with pytest.raises(DataError, match=r"sample \d: the run gives"):
        PageExporter().compare(run, tmp_path, sample_sources(run))


def test_file_size_has_an_upper_bound(exported):
    check_page_size(exported.path)


def test_all_parts_have_a_sha256_digest(exported):
    page = exported.path.read_text()
    digests = json.loads(part_of(page, "digests")[1])
    assert set(digests) == {"model", "weights", "worker", "page"}
    for name, digest in digests.items():
        assert sha256(part_of(page, name)[1].encode()).hexdigest() == digest


# ----- what is refused


def test_unsupported_operator_raises_before_export():
    body = {"nodes": [["Bernoulli", ["x"], ["y"], {}]]}
    graph = {"nodes": [["Scan", ["x"], ["y"], {"body": body}], ["Add", [], [], {}]]}
    with pytest.raises(RunError) as raised:
        check_operators({"encoder": graph, "step": {"nodes": [["Det", [], [], {}]]}})
    assert str(raised.value) == (
        "--to page: the model needs operators that the page does not have: Bernoulli, Det\n"
        "  use --to onnx; nothing was written"
    )


def assert_refused(run_dir, folder, message):
    with pytest.raises(RunError) as raised:
        export_run(run_dir, "page", folder / "out")
    assert str(raised.value) == message
    assert list(folder.iterdir()) == [run_dir]  # also no folder that was begun


def test_run_with_an_unsupported_operator_leaves_nothing(tmp_path, monkeypatch):
    graph = {"nodes": [["Det", ["x"], ["y"], {}]]}
    monkeypatch.setattr(page_export, "build_page_graphs", lambda *_: check_operators({"a": graph}))
    message = (
        "--to page: the model needs operators that the page does not have: Det\n"
        "  use --to onnx; nothing was written"
    )
    assert_refused(write_recipe_run("reverse-tiny", tmp_path / "run"), tmp_path, message)


def test_run_with_another_tokenizer_leaves_nothing(tmp_path):
    settings = ["tokenizers.source={type: position}", "tokenizers.target={type: word}"]
    run_dir = write_recipe_run("luong-2015-dot-small", tmp_path / "run", settings=settings)
    message = (
        f"{run_dir}: a page that runs the model by itself cannot hold this run: pages have no "
        "tokenizers of the type 'position', only: word, character, label, smiles, whitespace, "
        "word-character, subword, byte-level-bpe, bart, wordpiece\n  nothing was written"
    )
    assert_refused(run_dir, tmp_path, message)


@pytest.mark.parametrize(
    ("exporter", "hint"),
    [
        (PageExporter(), "add --dtype int8"),
        (PageExporter("int8"), "train a smaller model"),
    ],
)
def test_file_above_the_size_limit_raises(exporter, hint, tmp_path, monkeypatch):
    run_dir = write_recipe_run("reverse-tiny", tmp_path / "run")
    monkeypatch.setattr(page_export, "render_model_page", lambda *_: " " * 26_000_000)
    monkeypatch.setattr(page_export, "EXPORTER", exporter)
    message = (
        "--to page: the page would have 26.0 MB, and at most 25 MB can be exported\n"
        f"  {hint}; nothing was written"
    )
    assert_refused(run_dir, tmp_path, message)


LARGE_RECIPES = ("molecular-transformer-small", "transformer-2017-small")
WORDS = ["yz", "abcdefgh", *"+-*/()=#"]  # in all vocabularies


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL_RECIPES)
def test_outputs_for_100_texts_match_python(name, tmp_path):
    layers = [f"model.{part}.num_layers=1" for part in ("encoder", "decoder")]  # 25 MB at most
    settings = layers if name in LARGE_RECIPES else []
    run_dir = write_recipe_run(name, tmp_path / "run", settings=settings, scale=4)
    run = load_run(run_dir)
    if EXPORTER.unsupported_reason(run) is not None or run.config.task.name != "translation":
        pytest.skip("refused, or of another task, which have tests of their own")
    export(run_dir, "page", tmp_path / "page")
    chance = random.Random(0)
    texts = [" ".join(chance.choices(WORDS, k=chance.randint(1, 4))) for _ in range(100)]
    requests = [("explain", {"input": text, "options": {"beam_size": 1}}) for text in texts]
    answers = PageRunner.find().request(tmp_path / "page" / PAGE_FILE, requests)
    expected = heedful.load(run_dir, device="cpu").translate(texts, beam_size=1)
    assert [answer["token_ids"] for answer in answers] == [list(one.token_ids) for one in expected]
    scores = [answer["result"]["score"] for answer in answers]
    assert scores == pytest.approx([one.score for one in expected], rel=1e-4, abs=1e-3)


DEMO_LOSS = (
    r"([\d.]+) % of [\d,]+ tokens stay equal in \w+, for 100 dev examples; BLEU (\S+) -> (\S+)"
)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "least"), [("fp16", 99), ("int8", 90)])
def test_demo_keeps_its_score_in_lower_precision(dtype, least, tmp_path):
    summary = export("demo", "page", tmp_path / "out", "--dtype", dtype)
    rate, before, after = map(float, re.search(DEMO_LOSS, summary).groups())
    assert rate >= least
    assert before > 95
    assert after == pytest.approx(before, abs=0.5)
    check_page_size(tmp_path / "out" / PAGE_FILE)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "factor", "least"), [("fp16", 0.62, 99), ("int8", 0.42, 90)])
def test_lower_precision_takes_less_and_loses_little(dtype, factor, least, exported, tmp_path):
    summary = export(exported.run_dir, "page", tmp_path / "out", "--dtype", dtype)
    assert re.search(r"8 outputs of the page in Node.js are equal in fp32; ", summary)
    rate, num_tokens = re.search(
        rf"([\d.]+) % of ([\d,]+) tokens stay equal in {dtype}", summary
    ).groups()
    assert float(rate) >= least
    assert int(num_tokens.replace(",", "")) >= 40  # of eight samples
    page, whole = (tmp_path / "out" / PAGE_FILE).read_text(), exported.path.read_text()
    sizes = [len(part_of(text, "weights")[1]) for text in (page, whole)]
    assert sizes[0] < factor * sizes[1]
