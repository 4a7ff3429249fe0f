import json

from tests.commands import heedful


def test_data_lists_corpora(capsys, monkeypatch):
    output = heedful(capsys, monkeypatch, "data").out
    assert [line.split()[0] for line in output.splitlines()] == [
        "latin",
        "arithmetic",
        "arithmetic-gaps",
        "dates",
        "copy",
        "reverse",
        "sort",
        "argsort",
    ]


def test_pairs_depend_only_on_the_seed(capsys, monkeypatch):
    words = ("data", "reverse", "--split", "test", "--size", "5", "--seed", "3")
    once, again = (heedful(capsys, monkeypatch, *words).out for _ in range(2))
    assert once == again
    rows = [line.split("\t") for line in once.splitlines()]
    assert len(rows) == 5
    assert all(target.split() == source.split()[::-1] for source, target in rows)


def test_pairs_are_printed_as_json_lines(capsys, monkeypatch):
    output = heedful(capsys, monkeypatch, "data", "dates", "--size", "2", "--format", "jsonl").out
    assert [set(json.loads(line)) for line in output.splitlines()] == [{"source", "target"}] * 2
