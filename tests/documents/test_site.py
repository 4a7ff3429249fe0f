"""The site: built from docs/ alone, without anything remote, read and searched from file://."""

import os
import re
import shutil
import subprocess
import sys
from urllib.parse import quote

import pytest
from filelock import FileLock

from tests.documents.markdown import DOCUMENTS, ROOT, blocks, name_of, without_blocks
from tools.site import redirects, to_mathml

INDEX = (ROOT / "docs" / "index.md").read_text("utf-8")
FIRST_PAGES = re.findall(r"^start/[\w-]+$", INDEX, re.MULTILINE)
QUESTIONS = {  # of a newcomer: the page that should be among the first five
    "How do I install heedful?": "start/install",
    "command not found": "start/install",
    "Does it use my GPU?": "start/install",
    "optional packages": "start/install",
    "train on my own data": "start/first-model",
    "two text files": "start/first-model",
    "Which recipe for which data?": "start/first-model",
    "language model": "language-models",
    "What is attention?": "start/attention",
    "query key value": "start/attention",
    "context vector weights": "start/attention",
    "Which mechanism should I choose?": "start/mechanism",
    "hard attention": "attention/captioning",
    "sparsemax": "attention/alignments/sparsemax",
    "training loss NaN": "start/train",
    "overfitting": "start/first-model",
    "resume training": "training",
    "several GPUs": "scale",
    "translate a file": "translate",
    "beam search": "search-parts",
    "serve over HTTP": "serving",
    "export to ONNX": "export",
    "import a Hugging Face model": "import",
    "draw attention map": "start/inspect",
    "change the attention of a model": "edits",
    "compare two systems": "comparison",
    "evaluate with BLEU": "evaluation",
    "reproduce a run": "start/compare",
    "course exercises": "course/index",
    "write my own score": "start/extend",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site once for all processes that run tests."""
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    out = folder / "site"
    with FileLock(folder / "site.lock"):
        if not out.exists():
            command = [sys.executable, "-m", "tools.site", str(out)]
            ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
            if ended.returncode:
                shutil.rmtree(out, ignore_errors=True)
            assert ended.returncode == 0, ended.stdout + ended.stderr  # warnings are errors
    return out


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        yield opened
        opened.close()


@pytest.fixture
def browse(browser):
    """Open pages; at the end nothing was logged, and nothing remote was read."""
    context, errors, remote = browser.new_context(), [], []

    def open_page(address, **options):
        page = context.new_page()
        page.on("console", lambda message: errors.append(f"{address}: {message.text}"))
        page.on("pageerror", lambda error: errors.append(f"{address}: {error}"))
        page.on("request", lambda sent: sent.url.startswith("http") and remote.append(sent.url))
        page.set_viewport_size({"width": 1200, "height": 900, **options})
        page.goto(address)
        return page

    yield open_page
    context.close()
    assert (errors, remote) == ([], [])


def test_every_formula_is_one_that_the_site_can_draw():
    pytest.importorskip("latex2mathml")
    failed = []
    for document in DOCUMENTS:
        for block in blocks(document.read_text(encoding="utf-8")):
            if block.language == "math":
                unknown = re.findall(r"<mi>(\\\w+|&)</mi>", to_mathml(block.text))
                failed += [(name_of(document), block.line, name) for name in unknown]
    assert failed == []


def test_formulas_are_in_math_fences():
    formula = r"(?m)^ {4}\S.*(?:[=~]|\w_\w+ ) .*(?:\b(?:sum|log|mean|softmax)\b|exp\()"
    texts = {name_of(path): without_blocks(path.read_text("utf-8")) for path in DOCUMENTS}
    assert [name for name, text in texts.items() if re.search(formula, text)] == []


def test_every_page_has_a_place_in_the_order():
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    assert sorted(pages - set(INDEX.splitlines())) == []


def test_pages_that_moved_lead_to_pages_that_exist():
    pages = {name_of(path) for path in DOCUMENTS}
    for old, new in redirects().items():
        assert {f"docs/{old}.md", f"docs/{new}.md"} & pages == {f"docs/{new}.md"}


@pytest.mark.extras
@pytest.mark.browser
def test_old_address_opens_the_page_that_moved(site, browse):
    for old, new in redirects().items():
        page = browse((site / f"{old}.html").as_uri())
        page.wait_for_url((site / f"{new}.html").as_uri())


@pytest.mark.extras
def test_site_reads_nothing_remote(site):
    loads = re.compile(r"""(?:src|srcset|data)=["']?(?:https?:)?//|<link[^>]+href=["']https?://""")
    pages = [*site.rglob("*.html"), *site.rglob("*.css")]
    remote = {path: loads.findall(path.read_text(encoding="utf-8")) for path in pages}
    assert {path: found for path, found in remote.items() if found} == {}
    assert len(pages) > 150


@pytest.mark.extras
def test_every_formula_is_drawn_without_a_script(site):
    page = (site / "attention" / "scores" / "scaled-dot.html").read_text(encoding="utf-8")
    assert "<msqrt>" in page
    assert "MathJax" not in page


@pytest.mark.extras
def test_reference_has_types_defaults_links_and_source(site):
    page = (site / "api" / "attention.html").read_text(encoding="utf-8")
    (signature,) = re.findall(
        r'id="heedful.attention.additive_scores.AdditiveScore">(.*?)</dt>', page, re.DOTALL
    )
    text = re.sub(r"<[^>]+>", "", signature)
    assert "hidden_size: int" in text
    assert "bias: bool = False" in text
    assert "_modules/heedful/attention/additive_scores.html" in signature


@pytest.mark.extras
@pytest.mark.browser
def test_pages_are_dark_narrow_and_in_order(site, browse):
    page = browse((site / "index.html").as_uri())
    listed = page.eval_on_selector_all(
        ".sidebar-tree a", "links => links.map(link => link.getAttribute('href'))"
    )
    assert [f"{name}.html" for name in FIRST_PAGES] == [name for name in listed if "start/" in name]
    narrow = browse((site / "start" / "mechanism.html").as_uri(), width=360)
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 360
    narrow.emulate_media(color_scheme="dark")
    color = narrow.evaluate("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, re.findall(r"\d+", color)[:3])) < 40


@pytest.mark.extras
@pytest.mark.browser
def test_model_of_a_page_translates(site, browse):
    page = browse((site / "start" / "attention.html").as_uri())
    frame = page.frame_locator("iframe.live")
    frame.locator("textarea").fill("Puella rosam portat.")
    frame.get_by_text("The girl carries the rose.").first.wait_for(timeout=60_000)


@pytest.mark.extras
@pytest.mark.browser
def test_search_finds_the_page_that_a_newcomer_wants(site, browse):
    missed = {}
    for question, wanted in QUESTIONS.items():
        page = browse(f"{(site / 'search.html').as_uri()}?q={quote(question)}")
        page.wait_for_function("/finished|did not match/.test(document.body.innerText)")
        links = page.eval_on_selector_all(
            "ul.search li a", "links => links.map(link => link.getAttribute('href'))"
        )
        found = [link.split(".html")[0] for link in links]
        if wanted not in list(dict.fromkeys(found))[:5]:
            missed[question] = (wanted, found[:6])
        page.close()
    assert missed == {}
