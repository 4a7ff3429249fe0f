"""The page of a run: what it holds, of whole runs, of broken ones and of none."""

import json
import math
import re

import pytest

from heedful.inspection.run_report import read_json_lines, render_run_page
from heedful.plotting.svg import escape_text


def environment(step, **facts):
    return {"kind": "environment", "step": step, "torch": "2.0", "threads": 1, **facts}


def training(step, **facts):
    return {"kind": "training", "step": step, "loss": 1.0, "seconds": 2.0 * step, **facts}


def validation(step, loss, **scores):
    return {"kind": "validation", "step": step, "loss": loss, "seconds": 2.0 * step, **scores}


RUN = [
    environment(0, command=["heedful", "train"], versions={"python": "3"}),
    *(training(step, skipped=0, epoch=0, tokens_per_second=100.0 * step) for step in (1, 2)),
    validation(2, 3.0, bleu=10.0),
    environment(2, threads=4, command=["heedful", "train"], versions={"python": "3"}),
    training(3, skipped=2, epoch=1, memory=2**30, operations=1e9),
    validation(3, 2.0, bleu=9.0),
    training(4, skipped=2, epoch=1, memory=2**29, operations=2e9),
    validation(4, 2.5, bleu=11.0),
]


def data_of(entries, samples=(), config=""):
    page = render_run_page("run", config, entries, samples)
    return json.loads(re.search(r'id="run">(.*?)</script>', page, re.DOTALL)[1])


def test_the_facts_say_most_of_a_run():
    facts = {fact["name"]: (fact["value"], fact["note"]) for fact in data_of(RUN)["facts"]}
    assert facts == {
        "Steps": (4, "epoch 1"),
        "Time": (8, ""),
        "Lowest held-out loss": (2, "step 3, perplexity 7.389"),
        "Best BLEU": (11, "step 4"),
        "Tokens per second": (150, "median"),
        "Peak memory": (2**30, ""),
        "Operations": (2e9, ""),
        "Skipped steps": (2, ""),
    }


def test_validations_are_listed_and_the_best_of_each_score_is_known():
    table = data_of(RUN)["validations"]
    assert [column["name"] for column in table["columns"]] == ["Loss", "BLEU"]
    assert table["rows"] == [[2, 4, 3, 10], [3, 6, 2, 9], [4, 8, 2.5, 11]]
    assert table["best"] == [1, 2]


def test_going_on_and_skipped_steps_are_marked():
    marks = [(mark["kind"], mark["place"][0]) for mark in data_of(RUN)["marks"]]
    assert marks == [("resumed", 2), ("skipped", 3)]


def test_the_environment_is_told_once_and_then_what_changed():
    first, second = data_of(RUN)["environments"]
    assert first["facts"] == [
        ["torch", "2.0"],
        ["threads", "1"],
        ["command", "heedful train"],
        ["versions.python", "3"],
    ]
    assert second == {"step": 2, "facts": [["threads", "4"]]}


def test_a_run_that_has_only_begun_has_a_page():
    for entries in ([], [environment(0)]):
        data = data_of(entries, config="a: 1\n")
        assert data["charts"] == data["facts"] == data["validations"]["rows"] == []
        assert data["samples"] == {"validations": [], "total": 0}


@pytest.mark.parametrize(
    "odd",
    [
        {},
        {"kind": "training"},
        {"kind": "training", "step": "3"},
        {"kind": "training", "step": 3, "loss": math.nan, "penalties": 3, "skipped": "NaN"},
        {"kind": "validation", "step": 3},
        {"kind": "validation", "step": 3, "loss": math.inf, "bleu": None},
        {"kind": "environment"},
        {"kind": "else", "step": 1},
    ],
    ids=str,
)
def test_odd_lines_are_taken_as_they_come(odd):
    for entries in ([odd], [*RUN, odd], [odd, *RUN]):
        assert "NaN" not in json.dumps(data_of(entries))


def test_a_long_run_makes_a_small_page():
    entries = [
        each
        for step in range(1, 4000)
        for each in (training(step, grad_norm=step % 7 + 1, skipped=step), validation(step, 1.0))
    ]
    data = data_of(entries)
    assert len(data["marks"]) == 200
    assert len(data["validations"]["rows"]) == 1000
    assert data["validations"]["left_out"] == 2999
    assert len(json.dumps(data)) < 1_000_000


def test_the_configuration_is_kept_as_it_is_spaced():
    text = "a:\n  b:  [1, 2]\n  c: \u202e\x07\n"
    assert data_of([], config=text)["configuration"] == "a:\n  b:  [1, 2]\n  c: \\u202e\\x07\n"
    assert escape_text("") == ""


def test_half_a_last_line_is_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n[]\n\n{"step": 2, "loss": "\xe2\x82')
    assert read_json_lines(path) == [{"step": 1}]
    assert read_json_lines(tmp_path / "nothing.jsonl") == []
