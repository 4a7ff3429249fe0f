"""The report of complete, incomplete and empty runs."""

import json
import math
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.inspection.run_report import render_run_page
from heedful.plotting.svg import escape_text
from heedful.storage.json_files import read_json_lines
from heedful.tasks.registry import all_metrics


def environment(step, **facts):
    return {"type": "environment", "step": step, "torch": "2.0", "threads": 1, **facts}


def training(step, **facts):
    return {"type": "training", "step": step, "loss": 1.0, "seconds": 2.0 * step, **facts}


def validation(step, loss, **scores):
    return {"type": "validation", "step": step, "loss": loss, "seconds": 2.0 * step, **scores}


RUN = [
    environment(0, command=["heedful", "train"], versions={"python": "3"}),
    *(
        training(step, num_skipped_steps=0, epoch=0, tokens_per_second=100.0 * step)
        for step in (1, 2)
    ),
    validation(2, 3.0, bleu=10.0),
    environment(2, threads=4, command=["heedful", "train"], versions={"python": "3"}),
    training(3, num_skipped_steps=2, epoch=1, peak_memory=2**30, flops=1e9),
    validation(3, 2.0, bleu=9.0),
    training(4, num_skipped_steps=2, epoch=1, peak_memory=2**29, flops=2e9),
    validation(4, 2.5, bleu=11.0),
]


class ReportParser(HTMLParser):
    """Collects the texts of elements by tag, and of each section."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.sections, self.tag, self.section = {}, {}, "", ""
        self.best = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tag = tag
        self.texts.setdefault(tag, []).append("")
        if tag == "section":
            self.section = dict(attrs)["id"]
        if tag == "td" and dict(attrs).get("class") == "best":
            self.best.append(len(self.texts["td"]) - 1)

    def handle_data(self, data):
        if self.tag:
            self.texts[self.tag][-1] += data
        self.sections[self.section] = self.sections.get(self.section, "") + data

    def handle_endtag(self, tag):
        self.tag = ""


def render(entries, samples=(), config=""):
    return render_run_page("run", config, entries, samples, metrics=all_metrics())


def report_of(entries):
    return ReportParser(render(entries))


def data_of(page, name):
    return json.loads(re.search(rf'id="{name}">(.*?)</script>', page, re.DOTALL)[1])


def test_key_figures_sum_up_a_run():
    report = report_of(RUN)
    names, values = report.texts["dt"], report.texts["dd"]
    assert {name: tuple(values[2 * i : 2 * i + 2]) for i, name in enumerate(names[:8])} == {
        "Steps": ("4", "epoch 1"),
        "Time": ("8 s", ""),
        "Lowest validation loss": ("2", "step 3, perplexity 7.389"),
        "Best BLEU": ("11", "step 4"),
        "Tokens per second": ("150", "median"),
        "Peak memory": ("1 GiB", ""),
        "FLOPs": ("2\u00b710\u2079", ""),
        "Skipped steps": ("2", ""),
    }


def test_validations_listed_with_the_best_of_each_metric():
    report = report_of(RUN)
    assert report.texts["th"] == ["Step", "Time", "Loss", "BLEU"]
    cells = report.texts["td"]
    assert [cells[i : i + 4] for i in range(0, len(cells), 4)] == [
        ["4", "8 s", "2.5000", "11.00"],
        ["3", "6 s", "2.0000", "9.00"],
        ["2", "4 s", "3.0000", "10.00"],
    ]
    assert [cells[index] for index in report.best] == ["11.00", "2.0000"]


def test_resumptions_and_skipped_steps_marked_in_every_chart():
    page = render(RUN)
    num_drawings = page.count('class="curves')
    # Over steps, time and FLOPs; the first chart is wide, and also drawn for narrow screens.
    assert num_drawings == 3 * (1 + len(data_of(page, "charts"))) == 18
    assert page.count("<title>resumed at step 2</title>") == num_drawings
    assert page.count("<title>steps were skipped before step 3</title>") == num_drawings


def test_environment_is_shown_once_and_then_changes():
    report = report_of(RUN)
    assert report.texts["h3"] == ["Started", "Resumed at step 2, with these changes"]
    assert list(zip(report.texts["dt"][8:], report.texts["dd"][16:], strict=True)) == [
        ("torch", "2.0"),
        ("threads", "1"),
        ("command", "heedful train"),
        ("versions.python", "3"),
        ("threads", "4"),
    ]


def test_new_run_has_a_report():
    for entries in ([], [environment(0)]):
        page = render(entries, config="a: 1\n")
        assert data_of(page, "charts") == []
        assert data_of(page, "run")["samples"] == {"validations": [], "total": 0}
        assert "training has not logged any metrics" in page
        assert "there has been no validation" in page


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"type": "training"},
        {"type": "training", "step": "3"},
        {
            "type": "training",
            "step": 3,
            "loss": math.nan,
            "auxiliary_losses": 3,
            "num_skipped_steps": "NaN",
        },
        {"type": "validation", "step": 3},
        {"type": "validation", "step": 3, "loss": math.inf, "bleu": None},
        {"type": "environment"},
        {"type": "else", "step": 1},
    ],
    ids=str,
)
def test_incomplete_entries_accepted(odd):
    for entries in ([odd], [*RUN, odd], [odd, *RUN]):
        assert "NaN" not in json.dumps(data_of(render(entries), "charts"))


def test_report_of_a_long_run_is_small():
    entries = [
        entry
        for step in range(1, 1500)
        for entry in (
            training(step, grad_norm=step % 7 + 1, num_skipped_steps=step),
            validation(step, 1.0),
        )
    ]
    page = render(entries)
    assert (
        page.count("<title>steps were skipped") == 200 * 3 * 2
    )  # two charts, one of them twice, over two axes
    report = ReportParser(page)
    assert len(report.texts["td"]) == 3 * 1000
    assert "The newest 1000 are shown; 499 older ones are not." in report.sections["validations"]
    assert len(page) < 1_500_000


def test_configuration_keeps_spaces():
    text = "a:\n  b:  [1, 2]\n  c: \u202e\x07\n"
    configuration = data_of(render([], config=text), "run")["configuration"]
    assert configuration == "a:\n  b:  [1, 2]\n  c: \\u202e\\x07\n"
    assert escape_text("") == ""


def test_incomplete_last_line_is_skipped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n[]\n\n{"step": 2, "loss": "\xe2\x82')
    assert read_json_lines(path) == [{"step": 1}]
    assert read_json_lines(tmp_path / "nothing.jsonl") == []


EDGES = st.sampled_from(
    [
        *(0, -1, 1, 2**53, 10**30, 10**400, 1e150, -1e150, 1e-150, 1e300, 5e-324),
        *(math.nan, math.inf, None, "x", True, [], {}, [[1]], {"a": {"b": 1}}),
    ]
)
NAMES = st.sampled_from(
    [
        *("step", "loss", "seconds", "flops", "epoch", "grad_norm", "tokens_per_second"),
        *("peak_memory", "num_skipped_steps", "auxiliary_losses"),
        *("bleu", "accuracy", "perplexity"),
    ]
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["training", "validation", "environment"]),
            st.integers(-1, 3) | EDGES,
            st.dictionaries(NAMES, EDGES),
        ),
        max_size=6,
    )
)
def test_report_is_written_for_any_numbers(lines):
    """Zero, huge and missing numbers, and values of any type."""
    entries = [{"type": kind, "step": step, **fields} for kind, step, fields in lines]
    assert render_run_page("run", "", entries, entries, metrics=all_metrics()).endswith("</html>\n")


def test_deeply_nested_log_lines_skipped(tmp_path):
    path = tmp_path / "metrics.jsonl"
    deep = ['{"type": "environment", "a": ' + "[" * n + "]" * n + "}" for n in (60, 900, 100_000)]
    path.write_text("\n".join([*deep, '{"step": 1}']) + "\n")
    assert read_json_lines(path) == [{"step": 1}]
