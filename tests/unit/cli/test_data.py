import json

from tests.commands import heedful


def test_corpora_are_listed(capsys, monkeypatch):
    output_projection = heedful(capsys, monkeypatch, "data").out
    assert [line.split()[0] for line in output_projection.splitlines()] == [
        "latin",
        "arithmetic",
        "dates",
        "copy",
        "reverse",
        "sort",
    ]


def test_pairs_come_as_asked_and_again_the_same(capsys, monkeypatch):
    words = ("data", "reverse", "--split", "test", "--size", "5", "--seed", "3")
    once, again = (heedful(capsys, monkeypatch, *words).out for _ in range(2))
    assert once == again
    rows = [line.split("\t") for line in once.splitlines()]
    assert len(rows) == 5
    assert all(target.split() == source.split()[::-1] for source, target in rows)


def test_pairs_come_as_json_lines_too(capsys, monkeypatch):
    output_projection = heedful(
        capsys, monkeypatch, "data", "dates", "--size", "2", "--format", "jsonl"
    ).out
    assert [set(json.loads(line)) for line in output_projection.splitlines()] == [
        {"source", "target"}
    ] * 2
