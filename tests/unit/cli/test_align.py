"""`heedful align`: links of files, and what it answers to bad input."""

import random

import pytest

from tests.commands import heedful

RNG = random.Random(0)
ROWS = [RNG.sample("abcdefgh", RNG.randint(2, 5)) for _ in range(40)] + [[]]
GOLD = [" ".join(f"{index}-{index}" for index, _ in enumerate(row)) for row in ROWS]
SOURCE, TARGET = ([" ".join(row) for row in ROWS], [" ".join(row).upper() for row in ROWS])


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pairs = [f"{one}\t{other}" for one, other in zip(SOURCE, TARGET, strict=True)]
    for name, lines in {"s": SOURCE, "t": TARGET, "gold": GOLD, "pairs.tsv": pairs}.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return lambda *words: heedful(capsys, monkeypatch, "align", *words)


@pytest.mark.parametrize("model", ["ibm1", "fast-align", "hmm"])
def test_links_are_written_line_by_line(call, tmp_path, model):
    ended = call("--source", "s", "--target", "t", "--model", model, "-o", "links")
    assert (ended.code, ended.out) == (0, "")
    assert (tmp_path / "links").read_text().split("\n") == [*GOLD, ""]
    assert "forward" in ended.err
    assert "iteration 5/5" in ended.err


def test_pairs_and_files_give_the_same_links(call):
    ended = call("--source", "s", "--target", "t", "-q")
    assert ended.err == ""
    assert call("--pairs", "pairs.tsv", "-q").out == ended.out
    more = "--train-source", "s", "--train-target", "t"
    assert call("--pairs", "pairs.tsv", "-q", *more).out.split("\n") == [*GOLD, ""]


def test_gold_links_are_scored(call):
    ended = call("--source", "s", "--target", "t", "--gold", "gold", "-q")
    assert ended.out.startswith("41 pairs, ")
    assert [line.split()[-2] for line in ended.out.splitlines()[1:]] == ["0.00", "100.00", "100.00"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--source: no text is given\n  give --source FILE --target FILE"),
        (
            ["--source", "s"],
            "--source: given without --target\n"
            "  add --target FILE with one line per line of --source",
        ),
        (
            ["--source", "s", "--target", "t", "--train-source", "s"],
            "--train-target: is missing\n  add --train-target FILE",
        ),
        (
            ["--pairs", "pairs.tsv", "--direction", "forward", "--symmetrize", "union"],
            "--symmetrize: has no effect: --direction chooses one direction\n"
            "  leave out one of them",
        ),
        (
            ["--pairs", "pairs.tsv", "--gold", "short"],
            "short: 1 lines of gold links, but 41 pairs of texts\n"
            "  line n of the links must belong to pair n",
        ),
    ],
)
def test_bad_input_is_reported(call, tmp_path, words, message):
    (tmp_path / "short").write_text("0-0\n")
    ended = call(*words)
    assert (ended.code, ended.out, ended.err) == (2, "", f"heedful: {message}\n")
