"""The page of a run, driven by a real browser."""

import math
import re
import shutil

import pytest

from heedful.inspection.run_report import render_run_page
from heedful.plotting.svg import DARK, LIGHT

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH"),
]

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
        "weights": [[share, 1 - share, 0]] * (1 + len(words.split())),
    }
    for step, words, share in (
        (100, "the the", 0.25),
        (200, "sees the", 0.5),
        (300, "sees the slave", 0.75),
    )
]
SAMPLES += [
    {"step": step, "source": ["a"], "reference": "b", "output": [], "text": "", "weights": []}
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
        return show(render_run_page(title, config, entries, samples), scheme=scheme, width=width)

    return open_run


def chart(page, name):
    return page.locator(f'[data-chart="{name}"]')


def curve(page, name, look):
    """The corners of a curve, in pixels."""
    path = chart(page, name).locator(f".curve.{look}").get_attribute("d")
    return [tuple(map(float, pair)) for pair in re.findall(r"([\d.]+),([\d.]+)", path)]


def read_out(page, name):
    return chart(page, name).locator(".key output").all_inner_texts()


def slide(page, place):
    page.locator("#validation").evaluate(
        "(node, place) => { node.value = place; node.dispatchEvent(new Event('input')); }", place
    )


def test_every_curve_is_drawn(opened):
    page = opened()
    names = page.locator(".chart-name").all_inner_texts()
    assert names == [
        *("Loss", "Accuracy", "BLEU", "Learning rate", "Gradient norm"),
        *("Tokens per second", "Peak memory", "Operations"),
    ]
    assert page.locator(".curve").count() == len(names) + 2
    assert len(curve(page, "loss", "raw")) == 30
    assert len(curve(page, "loss", "held-out")) == 3


def test_a_curve_stands_where_its_numbers_say(opened):
    """Both ways are straight, so equal differences of numbers are equal ones of pixels."""
    page = opened()
    corners = curve(page, "loss", "raw")
    (left, top), (right, bottom) = corners[0], corners[-1]
    for index, (x, y) in enumerate(corners):
        step = 10 + 10 * index
        across = (step - 10) / 290
        down = (loss_at(10) - loss_at(step)) / (loss_at(10) - loss_at(300))
        assert x == pytest.approx(left + across * (right - left), abs=0.2)
        assert y == pytest.approx(top + down * (bottom - top), abs=0.2)


def test_the_axis_can_be_step_time_or_operations(opened):
    page = opened()
    by_step = page.locator(".chart").first.locator(".grid text").all_text_contents()
    assert "300" in by_step
    page.locator("#axis").get_by_text("Time").click()
    by_time = page.locator(".chart").first.locator(".grid text").all_text_contents()
    assert "2:00 min" in by_time
    page.locator("#axis").get_by_text("Operations").click()
    by_operations = page.locator(".chart").first.locator(".grid text").all_text_contents()
    assert "10\u00b9\u00b9" in by_operations


@pytest.mark.slow
def test_an_axis_that_is_not_known_is_not_offered(opened):
    page = opened(entries=[{"type": "training", "step": step, "loss": 1.0} for step in (1, 2)])
    assert page.locator("#axis label").all_inner_texts() == ["Step"]


def test_pointing_at_one_chart_reads_out_all(opened):
    page = opened()
    assert read_out(page, "bleu") == ["30"]
    box = chart(page, "loss").locator("svg").bounding_box()
    x, _ = curve(page, "loss", "raw")[19]
    page.mouse.move(box["x"] + x + 1, box["y"] + 100)
    assert (
        page.locator("#read-out").inner_text()
        == "step 200 \u00b7 1:40 min \u00b7 2\u00b710\u00b9\u00b9 operations"
    )
    training, _, held_out = read_out(page, "loss")
    assert (float(training), held_out) == (pytest.approx(loss_at(200), abs=1e-3), "1")
    assert read_out(page, "bleu") == ["20"]
    assert read_out(page, "memory") == ["712 MiB"]
    page.mouse.move(2, 2)
    assert read_out(page, "bleu") == ["30"]


def test_the_keyboard_reads_curves_out(opened):
    page = opened()
    chart(page, "loss").focus()
    page.keyboard.press("Home")
    assert page.locator("#read-out").inner_text().startswith("step 10 ")
    page.keyboard.press("ArrowRight")
    assert page.locator("#read-out").inner_text().startswith("step 20 ")
    page.keyboard.press("Escape")
    assert page.locator("#read-out").inner_text().startswith("Point at a curve")


def test_going_on_skips_and_the_best_validation_are_marked(opened):
    page = opened()
    loss = chart(page, "loss")
    corners = curve(page, "loss", "raw")
    resumed = float(loss.locator(".mark.resumed").get_attribute("x1"))
    assert resumed == pytest.approx(corners[19][0], abs=0.2)
    assert loss.locator(".mark.skipped title").inner_html() == "steps were skipped before step 160"
    best = loss.locator("circle.best")
    assert float(best.get_attribute("cx")) == pytest.approx(corners[19][0], abs=0.2)
    highest = chart(page, "bleu").locator("circle.best").get_attribute("cx")
    assert float(highest) == pytest.approx(curve(page, "bleu", "held-out")[2][0], abs=0.2)


def test_the_slider_shows_the_samples_of_each_validation(opened):
    page = opened()
    shown = []
    for place in range(3):
        slide(page, place)
        output = page.locator(".card").first.locator(".output").inner_text()
        heaviest = page.locator(".looked .cell").first.get_attribute("data-weight")
        shown.append((page.locator("#sample-step").inner_text(), output, heaviest))
    assert shown == [
        ("step 100 \u00b7 1 of 3", "she the the", "0.25"),
        ("step 200 \u00b7 2 of 3", "she sees the", "0.5"),
        ("step 300 \u00b7 3 of 3", "she sees the slave", "0.75"),
    ]
    assert page.locator(".looked section").count() == 1


@pytest.mark.slow
def test_the_slider_answers_to_the_keyboard(opened):
    page = opened()
    page.locator("#validation").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#sample-step").inner_text() == "step 200 \u00b7 2 of 3"


def test_words_that_the_reference_has_not_are_marked(opened):
    page = opened()
    slide(page, 0)
    assert page.locator(".card").first.locator(".other").all_inner_texts() == ["the"]
    slide(page, 2)
    assert page.locator(".card").first.locator(".other").count() == 0
    assert "\u2713" in page.locator(".card").first.inner_text()


def test_another_sample_can_be_chosen_and_one_without_attention_says_so(opened):
    page = opened()
    page.locator(".card").nth(1).click()
    assert page.locator('.card[aria-pressed="true"]').count() == 1
    assert page.locator(".looked").inner_text() == "There is no attention over a source to show."
    page.locator(".card").first.click()
    page.locator(".looked .target .word").first.hover()
    assert page.locator(".looked .source .share").all_inner_texts() == ["75", "25", ""]


def test_the_best_of_each_score_stands_out_in_the_table(opened):
    page = opened()
    newest = page.locator(".plain tbody tr").first.inner_text()
    assert newest.split()[0] == "300"
    assert page.locator(".plain td.best").all_inner_texts() == ["30.00", "1.0000", "50.00 %"]


def test_settings_are_folded_and_found(opened):
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
    assert page.locator("#found").inner_text() == "1 line"
    page.locator("#find").fill("")
    assert page.locator(".setting:visible").count() == 3


@pytest.mark.slow
def test_what_changed_between_environments_is_said(opened):
    page = opened()
    titles = page.locator("#environment h3").all_inner_texts()
    assert titles == ["Begun", "Gone on at step 200, with these changes"]
    assert page.locator("#environment dl").nth(1).inner_text().split() == ["threads", "2"]


def test_a_run_without_a_line_says_that_there_is_nothing_yet(opened):
    page = opened(entries=[], samples=[], config="")
    assert page.locator(".nothing").all_inner_texts() == [
        "Nothing yet: training has written no line of metrics.",
        "Nothing yet: no samples were taken at a validation.",
        "Nothing yet: there has been no validation.",
        "Nothing yet.",
        "Nothing was noted.",
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
def test_short_and_odd_runs_are_drawn(opened, entries):
    page = opened(entries=entries)
    drawn = page.locator(".curve, .dot").evaluate_all("nodes => nodes.map(n => n.outerHTML)")
    assert "NaN" not in " ".join(drawn)
    assert "Infinity" not in page.locator("main").inner_text()


def test_hostile_texts_are_shown_and_not_obeyed(opened):
    sample = {
        "step": 1,
        "source": [HOSTILE],
        "reference": HOSTILE,
        "output": [HOSTILE],
        "text": HOSTILE,
        "weights": [[1.0]],
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
def test_the_page_never_scrolls_sideways(opened, width):
    long = {
        "step": 1,
        "source": ["w" * 300] * 80,
        "reference": "w" * 5000,
        "output": ["v" * 300] * 90,
        "text": "v " * 3000,
        "weights": [[1 / 80] * 80] * 90,
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
def test_the_page_follows_the_readers_light_or_dark(opened, scheme, palette):
    page = opened(scheme=scheme)
    ground = page.locator("body").evaluate("node => getComputedStyle(node).backgroundColor")
    assert [int(n) for n in re.findall(r"\d+", ground)] == list(
        bytes.fromhex(palette.background[1:])
    )
