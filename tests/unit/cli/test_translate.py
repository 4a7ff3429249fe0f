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
    out = ended.out.split("\n")
    assert len(out) == len(lines) + 1
    assert (out[0], out[1], out[2], out[5]) == ("a b", "", "c d e", "f")


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


def test_attention_is_written_as_json_lines(call, tmp_path):
    path = tmp_path / "attention.jsonl"
    assert call("--attention", path, stdin="a b\n\n").code == 0
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["source"] == first["text"] == "a b"
    assert first["source_tokens"] == ["a", "b", "(end)"]
    assert first["tokens"] == ["a", "b"]
    assert [len(row) for row in first["weights"]] == [3, 3]
    assert all(abs(sum(row) - 1) < 1e-4 for row in first["weights"])
    assert second == {
        "source": "",
        "text": "",
        "score": 0.0,
        "source_tokens": ["(end)"],
        "tokens": [],
        "weights": [],
    }


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
    with (tmp_path / "out.txt").open("w") as out:
        process = start_heedful("translate", trained, source, stdout=out, stderr=end)
        process.wait(60)
    os.close(end)
    assert "translating" in os.read(terminal, 100_000).decode()
    assert (tmp_path / "out.txt").read_text() == "a b\n" * 40
