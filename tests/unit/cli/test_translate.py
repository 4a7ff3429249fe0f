import gzip
import json
import os
import pty

import pytest

from tests.commands import heedful, start_heedful


@pytest.fixture
def call(capsys, monkeypatch, trained):
    def run(*words, stdin=""):
        return heedful(capsys, monkeypatch, "translate", trained, *words, stdin=stdin)

    return run


def test_as_many_lines_come_out_as_went_in(call):
    lines = ["a b", "", "c d e", "   ", "a\u2028b", "f"]
    ended = call(stdin="\n".join(lines) + "\n")
    assert ended.code == 0
    output_projection = ended.out.split("\n")
    assert len(output_projection) == len(lines) + 1
    assert (
        output_projection[0],
        output_projection[1],
        output_projection[2],
        output_projection[5],
    ) == ("a b", "", "c d e", "f")


def test_a_file_is_read_compressed_or_not(call, tmp_path):
    (tmp_path / "in.txt").write_text("a b\nc\n")
    with gzip.open(tmp_path / "in.txt.gz", "wt") as file:
        file.write("a b\nc\n")
    assert call(tmp_path / "in.txt").out == call(tmp_path / "in.txt.gz").out == "a b\nc\n"


def test_nothing_in_gives_nothing_out(call):
    ended = call(stdin="")
    assert (ended.code, ended.out) == (0, "")


def test_beam_width_1_and_5_copy_alike(call):
    assert call("--beam", "1", stdin="a b c\n").out == call("--beam", "5", stdin="a b c\n").out


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_attention_is_written_as_json_lines(call, tmp_path):
    path = tmp_path / "attention.jsonl"
    assert call("--save-attention", path, stdin="a b\n\n").code == 0
    first, second = lines_of(path)
    assert first["source"] == first["tokenizers"] == "a b"
    assert first["source_tokens"] == ["a", "b", "(end)"]
    assert first["tokens"] == ["a", "b"]
    assert [len(row) for row in first["weights"]] == [3, 3]
    assert all(abs(sum(row) - 1) < 1e-4 for row in [*first["weights"], first["eos_weights"]])
    assert second == {
        "source": "",
        "source_tokens": ["(end)"],
        "text": "",
        "score": 0.0,
        "log_probability": 0.0,
        "tokens": [],
        "log_probabilities": [0.0],
        "weights": [],
        "eos_weights": [0.0],
        "alternatives": [],
    }


def test_every_kind_of_evidence_belongs_to_the_output_line_by_line(call, tmp_path):
    kinds = ("attention", "alignments", "scores", "tree")
    files = {kind: tmp_path / kind for kind in kinds}
    options = [word for kind in kinds for word in (f"--{kind}", files[kind])]
    ended = call(*options, stdin="a b c\n\nd\n")
    assert (ended.code, ended.out) == (0, "a b c\n\nd\n")
    assert files["alignments"].read_text() == "0-0 1-1 2-2\n\n0-0\n"
    scores = [line.split("\t") for line in files["scores"].read_text().splitlines()]
    for text, (_, log_probability, each) in zip(["a b c", "", "d"], scores, strict=True):
        assert len(each.split()) == len(text.split()) + 1
        assert sum(map(float, each.split())) == pytest.approx(float(log_probability), abs=1e-5)
    attention, trees = lines_of(files["attention"]), lines_of(files["tree"])
    assert [line["tokenizers"] for line in attention] == [line["tokenizers"] for line in trees]
    for line in (trees[0], trees[2]):
        ends = [node["total"] for node in line["tree"] if node["fate"] == "ended"]
        assert pytest.approx(line["log_probability"], abs=1e-5) in ends


def test_json_takes_the_place_of_the_output(call):
    ended = call("--json", stdin="a b\n\n")
    first, second = map(json.loads, ended.out.splitlines())
    assert (first["tokenizers"], second["tokenizers"]) == ("a b", "")
    assert "weights" not in first


@pytest.mark.parametrize("count", [1, 3])
def test_as_many_outputs_come_as_were_asked_for(call, tmp_path, count):
    scores = tmp_path / "scores"
    texts = ["a b", "", "c"]
    ended = call("--nbest", count, "--save-scores", scores, stdin="\n".join(texts) + "\n")
    lines = ended.out.split("\n")[:-1]
    assert len(lines) == count * len(texts)
    assert lines[::count] == texts
    assert lines[count : 2 * count] == [""] * count
    ranks = [float(line.split("\t")[0]) for line in scores.read_text().splitlines()[:count]]
    assert ranks == sorted(ranks, reverse=True)
    nested = json.loads(call("--nbest", count, "--json", stdin="a b\n").out)
    assert [
        nested["tokenizers"],
        *(each["tokenizers"] for each in nested["alternatives"]),
    ] == lines[:count]


def test_given_outputs_are_judged_as_they_would_be_if_they_were_found(call, tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("a b c\nd e\n\n")
    target.write_text("a b c\nd e\n\n")  # as they are found, for the model copies
    found = [json.loads(line) for line in call(source, "--json").out.splitlines()]
    judged = [
        json.loads(line)
        for line in call(source, "--force-target", target, "--json").out.splitlines()
    ]
    assert [line["tokens"] for line in found] == [line["tokens"] for line in judged]
    for one, other in zip(found[:2], judged[:2], strict=True):
        assert one["log_probabilities"] == pytest.approx(other["log_probabilities"], abs=1e-4)
        assert one["score"] == pytest.approx(other["score"], abs=1e-4)
    target.write_text("h h\nd e\n\n")
    worse = json.loads(call(source, "--force-target", target, "--json").out.splitlines()[0])
    assert worse["tokenizers"] == "h h"
    assert worse["score"] < found[0]["score"]


def test_constraints_hold_for_their_own_line(call, tmp_path):
    wishes = tmp_path / "wishes.jsonl"
    wishes.write_text('{"must": ["h"]}\n{}\n{"never": ["a"]}\n{"prefix": "g g"}\n')
    output_projection = call("--constraints", wishes, stdin="a b\n" * 4).out.splitlines()
    assert "h" in output_projection[0].split()
    assert output_projection[1] == "a b"
    assert "a" not in output_projection[2].split()
    assert output_projection[3].startswith("g g")


def test_runs_decide_together(call, trained):
    assert (
        call("--ensemble-with", trained, "--ensemble-with", trained, stdin="a b c\n").out
        == "a b c\n"
    )


def test_what_is_drawn_depends_on_the_seed_and_the_line_alone(call, tmp_path):
    drawn = ("--set", "decoding.sampling={temperature: 3}")
    text = "a b c d\n" * 12
    whole = call(*drawn, stdin=text).out
    assert whole == call(*drawn, stdin=text).out
    assert len(set(whole.splitlines())) > 1, "every line is drawn for itself"
    assert call(*drawn, stdin=text + "e\n").out.splitlines()[:12] == whole.splitlines()


def test_bad_bytes_are_refused_with_their_line(call, tmp_path):
    path = tmp_path / "in.txt"
    path.write_bytes(b"a b\nc \xff d\n")
    ended = call(path)
    assert ended.code == 2
    assert f"{path}:2" in ended.err


def test_progress_is_shown_on_a_terminal_while_output_goes_to_a_file(
    trained, tmp_path, monkeypatch
):
    monkeypatch.setenv("TERM", "xterm")
    terminal, end = pty.openpty()
    source = tmp_path / "in.txt"
    source.write_text("a b\n" * 40)
    with (tmp_path / "out.txt").open("w") as output_projection:
        process = start_heedful("translate", trained, source, stdout=output_projection, stderr=end)
        process.wait(60)
    os.close(end)
    assert "translating" in os.read(terminal, 100_000).decode()
    assert (tmp_path / "out.txt").read_text() == "a b\n" * 40


@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=pytest.mark.faults)])
def test_a_run_that_cannot_be_loaded_leaves_files_as_they_were(
    workers, capsys, monkeypatch, tmp_path
):
    (tmp_path / "scores.txt").write_text("of yesterday\n")
    (tmp_path / "in.txt").write_text("a b\n" * 300)
    words = [
        tmp_path / "in.txt",
        "--save-scores",
        tmp_path / "scores.txt",
        "--num-workers",
        workers,
    ]
    ended = heedful(capsys, monkeypatch, "translate", tmp_path / "no-run", *words)
    assert ended.code == 2
    assert "no such folder" in ended.err
    assert (tmp_path / "scores.txt").read_text() == "of yesterday\n"
