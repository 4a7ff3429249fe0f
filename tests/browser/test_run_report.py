"""The report of a run in a real browser."""

import math
import re
import shutil

import pytest

from heedful.inspection.run_report import render_run_page
from heedful.plotting.svg import DARK, LIGHT
from heedful.tasks.registry import all_metrics

pytestmark = [
    pytest.mark.browser,
    pytest.mark.wide,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH"),
]

RAW, VALIDATION = ".line-0 .run-curve", ".line-1 .line"
HOSTILE = "</script><script>window.harmed=1</script><img src=x onerror=window.harmed=1>"
CONFIG = """\
info:
  summary: letters
model:
  decoder:
    attention:
      score:
        type: additive
    layers:
    - type: plain
      hidden_size: 32
training:
  max_steps: 300
  optimizer:
    learning_rate: 0.01
"""


def loss_at(step):
    return 4 * math.exp(-step / 100) + 0.5


ENTRIES = [
    {"type": "environment", "step": 0, "torch": "2.0", "threads": 1},
    *(
        {
            "type": "training",
            "step": step,
            "loss": loss_at(step),
            "grad_norm": 1 + 0.9 * math.sin(step),
            "learning_rate": 0.01 * (1 - step / 310),
            "tokens_per_second": 2000.0 + step,
            "peak_memory": 2**29 + 2**20 * step,
            "flops": 1e9 * step,
            "num_skipped_steps": int(step > 150),
            "seconds": step / 2,
        }
        for step in range(10, 301, 10)
    ),
    {"type": "environment", "step": 200, "torch": "2.0", "threads": 2},
    *(
        {"type": "validation", "step": step, "loss": loss, "accuracy": 0.5, "bleu": step / 10}
        for step, loss in ((100, 2.0), (200, 1.0), (300, 1.5))
    ),
]
SAMPLES = [
    {
        "step": step,
        "source": ["servum", "videt", "(end)"],
        "reference": "she sees the slave",
        "output": ["she", *words.split()],
        "text": f"she {words}",
        "attention": [[share, 1 - share, 0]] * (1 + len(words.split())),
    }
    for step, words, share in (
        (100, "the the", 0.25),
        (200, "sees the", 0.5),
        (300, "sees the slave", 0.75),
    )
]
SAMPLES += [
    {"step": step, "source": ["a"], "reference": "b", "output": [], "text": "", "attention": []}
    for step in (100, 200, 300)
]


@pytest.fixture
def opened(show):
    def open_run(
        *,
        title="letters",
        config=CONFIG,
        entries=ENTRIES,
        samples=SAMPLES,
        scheme="light",
        width=1200,
    ):
        page = render_run_page(title, config, entries, samples, metrics=all_metrics())
        return show(page, scheme=scheme, width=width)

    return open_run


def chart(page, name):
    return page.locator(f'[data-chart="{name}"]')


def drawing(page, name):
    """The SVG of a chart over the chosen axis."""
    return chart(page, name).locator(".curves:visible svg")


def curve(page, name, selector):
    """The corners of a curve, in units of the SVG."""
    path = drawing(page, name).locator(selector).get_attribute("d")
    return [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+),([\d.]+)", path)]


def translation(marker):
    return [float(n) for n in re.findall(r"[\d.]+", marker.get_attribute("transform"))][:2]


def read_out(page, name):
    return chart(page, name).locator(".key output").all_inner_texts()


def slide(page, place):
    page.locator("step-player input").evaluate(
        "(node, place) => { node.value = place; node.dispatchEvent(new Event('input')); }", place
    )


def test_every_logged_value_has_a_chart(opened):
    page = opened()
    names = page.locator(".chart-name").all_inner_texts()
    assert names == [
        *("Loss", "Accuracy", "BLEU", "Learning rate", "Gradient norm"),
        *("Tokens per second", "Peak memory", "FLOPs"),
    ]
    assert page.locator(".curves:visible").count() == len(names)
    assert len(curve(page, "loss", RAW)) == 30
    assert len(curve(page, "loss", VALIDATION)) == 3


def test_curve_passes_through_its_points(opened):
    """Both axes are linear, so equal differences of numbers are equal distances."""
    page = opened()
    corners = curve(page, "loss", RAW)
    (left, top), (right, bottom) = corners[0], corners[-1]
    for index, (x, y) in enumerate(corners):
        step = 10 + 10 * index
        across = (step - 10) / 290
        down = (loss_at(10) - loss_at(step)) / (loss_at(10) - loss_at(300))
        assert x == pytest.approx(left + across * (right - left), abs=0.2)
        assert y == pytest.approx(top + down * (bottom - top), abs=0.2)


def test_axis_can_be_switched(opened):
    page = opened()
    assert "300" in drawing(page, "loss").locator(".tick").all_text_contents()
    page.locator(".switch").get_by_text("Time").click()
    assert "140 s" in drawing(page, "loss").locator(".tick").all_text_contents()
    page.locator(".switch").get_by_text("FLOPs").click()
    assert "10\u00b9\u00b9" in drawing(page, "loss").locator(".tick").all_text_contents()


@pytest.mark.slow
def test_unknown_axis_is_not_offered(opened):
    page = opened(entries=[{"type": "training", "step": step, "loss": 1.0} for step in (1, 2)])
    assert page.locator(".switch label").all_inner_texts() == ["Step"]


def test_pointer_on_one_chart_reads_all_charts(opened):
    page = opened()
    assert read_out(page, "bleu") == ["30"]
    box = drawing(page, "loss").bounding_box()
    x, _ = curve(page, "loss", RAW)[19]
    scale = box["width"] / float(drawing(page, "loss").get_attribute("width"))
    page.mouse.move(box["x"] + scale * x + 1, box["y"] + 100)
    assert (
        page.locator("#read-out").inner_text()
        == "step 200 \u00b7 1:40 min \u00b7 2\u00b710\u00b9\u00b9 FLOPs"
    )
    training, _, validation = read_out(page, "loss")
    assert (float(training), validation) == (pytest.approx(loss_at(200), abs=1e-3), "1")
    assert read_out(page, "bleu") == ["20"]
    assert read_out(page, "peak_memory") == ["712 MiB"]
    page.mouse.move(2, 2)
    assert read_out(page, "bleu") == ["30"]


def test_keyboard_reads_curves(opened):
    page = opened()
    chart(page, "loss").focus()
    page.keyboard.press("Home")
    assert page.locator("#read-out").inner_text().startswith("step 10 ")
    page.keyboard.press("ArrowRight")
    assert page.locator("#read-out").inner_text().startswith("step 20 ")
    page.keyboard.press("Escape")
    assert page.locator("#read-out").inner_text().startswith("Point at a curve")


def test_resumption_skipped_steps_and_best_validation_marked(opened):
    page = opened()
    loss = drawing(page, "loss")
    resumed_x, _ = curve(page, "loss", RAW)[19]
    assert loss.locator(".event.resumed").get_attribute("d").startswith(f"M{resumed_x:g},")
    assert loss.locator(".event.skipped title").inner_html() == "steps were skipped before step 160"
    assert translation(loss.locator(".best"))[0] == pytest.approx(resumed_x, abs=0.2)
    highest, _ = translation(drawing(page, "bleu").locator(".best"))
    assert highest == pytest.approx(curve(page, "bleu", VALIDATION)[2][0], abs=0.2)


def test_slider_shows_the_samples_of_each_validation(opened):
    page = opened()
    shown = []
    for place in range(3):
        slide(page, place)
        output = page.locator(".card").first.locator(".output").inner_text()
        heaviest = page.locator(".attention .cell").first.get_attribute("data-weight")
        shown.append((page.locator("step-player output").inner_text(), output, heaviest))
    assert shown == [
        ("step 100 \u00b7 1 of 3", "she the the", "0.25"),
        ("step 200 \u00b7 2 of 3", "she sees the", "0.5"),
        ("step 300 \u00b7 3 of 3", "she sees the slave", "0.75"),
    ]
    assert page.locator(".attention section").count() == 1


@pytest.mark.slow
def test_slider_works_by_keyboard(opened):
    page = opened()
    page.locator("step-player input").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("step-player output").inner_text() == "step 200 \u00b7 2 of 3"


def test_words_not_in_the_reference_marked(opened):
    page = opened()
    slide(page, 0)
    assert page.locator(".card").first.locator(".other").all_inner_texts() == ["the"]
    slide(page, 2)
    assert page.locator(".card").first.locator(".other").count() == 0
    assert "\u2713" in page.locator(".card").first.inner_text()


def test_sample_can_be_selected_and_missing_attention_raises(opened):
    page = opened()
    page.locator(".card").nth(1).click()
    assert page.locator('.card[aria-pressed="true"]').count() == 1
    assert page.locator(".attention").inner_text() == "No attention weights over a source."
    page.locator(".card").first.click()
    page.locator(".attention .target .word").first.hover()
    assert page.locator(".attention .source .percentage").all_inner_texts() == ["75", "25", ""]


def test_sample_of_an_image_is_drawn_as_grids(show):
    weights = [[0.5, 0.25, 0.25, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0]]
    sample = {"source": list("123456"), "reference": "a dog", "output": ["a", "dog"]}
    sample |= {"text": "a dog", "attention": weights, "source_text": "dog.png", "grid": [2, 3]}
    samples = [{"step": 100, **sample}]
    page = show(render_run_page("run", CONFIG, ENTRIES, samples, metrics=all_metrics()))
    page.locator(".attention .word").nth(1).click()
    expected = "dog: max 100% at row 2, column 3"
    assert page.locator(".attention .reading").inner_text() == expected
    assert page.locator(".card i").first.inner_text() == "dog.png"
    assert page.locator(".attention section").count() == 1


def test_best_validation_of_each_metric_is_marked(opened):
    page = opened()
    newest = page.locator(".plain tbody tr").first.inner_text()
    assert newest.split()[0] == "300"
    assert page.locator(".plain td.best").all_inner_texts() == ["30.00", "1.0000", "50.00 %"]


def test_settings_folded_and_searchable(opened):
    page = opened()
    assert page.locator(".setting:visible").all_inner_texts() == ["info:", "model:", "training:"]
    page.locator("#find").fill("Optimizer.Learning")
    assert page.locator(".setting:visible").all_inner_texts() == [
        "training:",
        "optimizer:",
        "learning_rate: 0.01",
    ]
    page.locator("#find").fill("addi")
    assert page.locator("mark").all_inner_texts() == ["addi"]
    assert page.locator("#matches").inner_text() == "1 line"
    page.locator("#find").fill("")
    assert page.locator(".setting:visible").count() == 3


@pytest.mark.slow
def test_changes_of_the_environment_shown(opened):
    page = opened()
    titles = page.locator("#environment h3").all_inner_texts()
    assert titles == ["Started", "Resumed at step 200, with these changes"]
    assert page.locator("#environment dl").nth(1).inner_text().split() == ["threads", "2"]


def test_empty_run_has_a_note(opened):
    page = opened(entries=[], samples=[], config="")
    assert page.locator(".nothing").all_inner_texts() == [
        "Nothing yet: training has not logged any metrics.",
        "Nothing yet: no samples were logged.",
        "Nothing yet: there has been no validation.",
        "Nothing yet.",
        "The environment was not logged.",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "entries",
    [
        [{"type": "training", "step": 1, "loss": 2.0, "grad_norm": 0.0, "seconds": 0.1}],
        [{"type": "training", "step": step, "loss": math.nan, "peak_memory": 0} for step in (1, 2)],
        [{"type": "validation", "step": 5, "loss": 0.0, "odd": -1e-30}],
        [{"type": "training", "step": 1, "loss": 1e300}, {"type": "environment", "step": 0}],
    ],
    ids=["one line", "no number", "one validation", "huge"],
)
def test_short_and_odd_runs_drawn(opened, entries):
    page = opened(entries=entries)
    drawn = page.locator(".line, .marker").evaluate_all("nodes => nodes.map(n => n.outerHTML)")
    assert "NaN" not in " ".join(drawn)
    assert "Infinity" not in page.locator("main").inner_text()


def test_markup_in_texts_is_not_interpreted(opened):
    sample = {
        "step": 1,
        "source": [HOSTILE],
        "reference": HOSTILE,
        "output": [HOSTILE],
        "text": HOSTILE,
        "attention": [[1.0]],
    }
    entries = [
        {"type": "environment", "step": 0, HOSTILE: HOSTILE},
        {"type": "training", "step": 1, "loss": 1.0, HOSTILE: 1.0},
        {"type": "validation", "step": 1, "loss": 1.0, HOSTILE: 1.0},
    ]
    page = opened(title=HOSTILE, config=f"a: {HOSTILE}", entries=entries, samples=[sample])
    assert page.evaluate("window.harmed") is None
    assert page.locator("img, main script").count() == 0
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator(".card .output").inner_text() == HOSTILE
    assert page.locator(".setting").inner_text() == f"a: {HOSTILE}"


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 900, 1400])
def test_page_has_no_horizontal_scroll(opened, width):
    long = {
        "step": 1,
        "source": ["w" * 300] * 80,
        "reference": "w" * 5000,
        "output": ["v" * 300] * 90,
        "text": "v " * 3000,
        "attention": [[1 / 80] * 80] * 90,
    }
    page = opened(
        title="t" * 300,
        config=f"{'k' * 400}:\n  {'v' * 400}: {'x' * 400}",
        entries=[*ENTRIES, {"type": "environment", "step": 1, "e" * 300: "f" * 900}],
        samples=[*SAMPLES, long],
        width=width,
    )
    slide(page, 0)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size({"width": 340, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 340


@pytest.mark.parametrize(("scheme", "palette"), [("light", LIGHT), ("dark", DARK)])
def test_page_follows_the_color_scheme(opened, scheme, palette):
    page = opened(scheme=scheme)
    background = page.locator("body").evaluate("node => getComputedStyle(node).backgroundColor")
    assert [int(n) for n in re.findall(r"\d+", background)] == list(
        bytes.fromhex(palette.background[1:])
    )
