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
def test_links_saved_line_by_line(call, tmp_path, model):
    ended = call("--source", "s", "--target", "t", "--model", model, "-o", "links")
    assert (ended.code, ended.out) == (0, "")
    assert (tmp_path / "links").read_text().split("\n") == [*GOLD, ""]
    assert "forward" in ended.err
    assert "iteration 5/5" in ended.err


def test_pairs_and_files_return_the_same_links(call):
    ended = call("--source", "s", "--target", "t", "-q")
    assert ended.err == ""
    assert call("--pairs", "pairs.tsv", "-q").out == ended.out
    more = "--train-source", "s", "--train-target", "t"
    assert call("--pairs", "pairs.tsv", "-q", *more).out.split("\n") == [*GOLD, ""]


def test_gold_links_scored(call):
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
            "short: 1 line of gold links, but 41 pairs of texts\n"
            "  line n of the links must belong to pair n",
        ),
        (
            ["--pairs", "pairs.tsv", "--gold", "malformed", "-o", "links"],
            "malformed:2: '1:2' is not an alignment link\n"
            "  write 0-2 for a sure link from word 0 to word 2, 0?2 for a possible one",
        ),
        (
            ["--pairs", "pairs.tsv", "--gold", "outside", "-o", "links"],
            "outside:3: a link to target word 9, but there are {}, from 0\n"
            "  words are separated by white space, in the texts and for the links",
        ),
        (
            ["--source", "s", "--target", "short"],
            "s: 41 lines, but short has 1\n"
            "  line n of one must belong to line n of the other: look for lost or added lines",
        ),
        (
            ["--source", "none", "--target", "none"],
            "none: contains no lines\n  give a file with text in it",
        ),
        (["--source", "s", "--target", "missing"], "missing: no such file\n  check the path"),
    ],
)
def test_bad_input_raises(call, tmp_path, words, message):
    files = {"short": ["0-0"], "malformed": [*GOLD[:1], "0-0 1:2", *GOLD[2:]], "none": []}
    files["outside"] = [*GOLD[:2], "0-9", *GOLD[3:]]
    for name, lines in files.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    ended = call(*words)
    message = message.format(len(ROWS[2]))
    assert (ended.code, ended.out, ended.err) == (2, "", f"heedful: {message}\n")
    assert not (tmp_path / "links").exists()


def test_pairs_without_words_have_no_links(call, tmp_path):
    (tmp_path / "blank").write_text("\n\n")
    ended = call("--source", "blank", "--target", "blank", "-q")
    assert (ended.code, ended.out) == (0, "\n\n")
