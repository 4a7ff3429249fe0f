"""`heedful translate`: lines in and out, output files, errors, and the work of one process."""

import json
import os
import pty

import pytest
import torch

from heedful.cli.options import RunPredictorLoader
from heedful.decoding.requests import Request
from heedful.decoding.word_alignment import argmax_links
from heedful.errors import ConfigError
from heedful.tasks.translation.command import (
    WORKER_CHUNK_SIZE,
    RequestChunk,
    TranslationJob,
    choose_num_processes,
    number_chunks,
)
from tests.commands import heedful
from tests.forking import ForkedCommand


@pytest.fixture
def translate(capsys, monkeypatch, trained):
    def run(*arguments, stdin=""):
        return heedful(capsys, monkeypatch, "translate", trained, *arguments, stdin=stdin)

    return run


@pytest.fixture
def in_folder(monkeypatch, tmp_path):
    """A working directory with the input file `in`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_text("a\nb\n")
    return tmp_path


def loader(run, device):
    return RunPredictorLoader(run, device, "translation")


def read_json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_every_line_returns_one_line(translate):
    lines = ["a b", "", "c d e", "   ", "a\u2028b", "f"]
    result = translate(stdin="\n".join(lines) + "\n")
    assert result.code == 0
    outputs = result.out.split("\n")
    assert len(outputs) == len(lines) + 1
    assert [outputs[index] for index in (0, 1, 2, 5)] == ["a b", "", "c d e", "f"]


def test_table_has_one_output_per_record(translate, tmp_path):
    (tmp_path / "in.csv").write_bytes('id,text\n1,"a b"\n2,\n3,"c\nd"\n'.encode("utf-16"))
    result = translate(tmp_path / "in.csv", "--encoding", "utf-16")
    first, second, third, end = result.out.split("\n")
    assert (result.code, first, second, bool(third), end) == (0, "a b", "", True, "")


LONG = "a b c d " * 20


@pytest.mark.parametrize("output_options", [(), ("--json",)])
def test_long_lines_skipped_and_reported_and_the_rest_is_translated(translate, output_options):
    result = translate(*output_options, stdin=f"a b\n{LONG}\nc d e\n{LONG}\n")
    assert result.code == 0
    lines = result.out.splitlines()
    texts = [json.loads(line)["text"] for line in lines] if output_options else lines
    assert texts == ["a b", "", "c d e", ""]
    second, fourth, *summary = result.err.splitlines()
    assert second.startswith("warning: standard input:2: the text has ")
    assert fourth.startswith("warning: standard input:4: the text has ")
    assert summary == [
        "2 of 4 texts were too long and skipped",
        "  split long texts, or add --too-long cut or --set decoding.max_source_length=N",
    ]


def test_long_lines_may_be_cut(translate):
    result = translate("--too-long", "cut", stdin=f"{LONG}\nc\n")
    cut, short = result.out.splitlines()
    assert cut.startswith("a b")
    assert short == "c"
    assert "1 of 2 texts was too long and cut\n" in result.err


def test_int8_outputs_of_a_confident_model_are_those_of_fp32(translate, monkeypatch):
    monkeypatch.setattr("heedful.acceleration.precision._MIN_INT8_ELEMENTS", 2)
    monkeypatch.setattr("heedful.runs.check_dtype", lambda *_: None)  # any processor can emulate it
    result = translate("--dtype", "int8", "--device", "cpu", stdin="a b\nc d e\n")
    assert result.out.splitlines() == ["a b", "c d e"]


def test_windows_files_translated_like_unix_files(translate, tmp_path):
    lines = ["a b c", "", "d e"]
    (tmp_path / "unix").write_text("\n".join(lines) + "\n")
    windows = "\ufeff" + "\r\n".join(lines) + "\r\n"
    (tmp_path / "windows").write_bytes(windows.encode())
    expected = translate(tmp_path / "unix").out
    assert translate(tmp_path / "windows").out == translate(stdin=windows).out == expected
    assert expected.count("\n") == 3


def test_empty_input_returns_empty_output(translate):
    result = translate(stdin="")
    assert (result.code, result.out) == (0, "")


def test_attention_is_written_as_json_lines(translate, tmp_path):
    path = tmp_path / "attention.jsonl"
    assert translate("--save-attention", path, stdin="a b\n\n").code == 0
    first, second = read_json_lines(path.read_text())
    assert first["source"] == first["text"] == "a b"
    assert first["source_tokens"] == ["a", "b", "(end)"]
    assert first["tokens"] == ["a", "b"]
    assert [len(row) for row in first["weights"]] == [3, 3]
    assert all(abs(sum(row) - 1) < 1e-4 for row in [*first["weights"], first["eos_weights"]])
    assert second == {
        "source": "",
        "source_tokens": ["(end)"],
        "source_word_ids": [-1],
        "text": "",
        "score": 0.0,
        "log_prob": 0.0,
        "tokens": [],
        "log_probs": [0.0],
        "weights": [],
        "word_ids": [],
        "eos_weights": [0.0],
        "alternatives": [],
    }


def test_output_files_match_the_output_line_by_line(translate, tmp_path):
    options = ("--save-attention", "--save-alignments", "--save-scores", "--search-tree")
    files = {option: tmp_path / option.strip("-") for option in options}
    arguments = [argument for item in files.items() for argument in item]
    result = translate(*arguments, stdin="a b c\n\nd\n")
    assert (result.code, result.out) == (0, "a b c\n\nd\n")
    assert files["--save-alignments"].read_text() == "0-0 1-1 2-2\n\n0-0\n"
    scores = [line.split("\t") for line in files["--save-scores"].read_text().splitlines()]
    for text, (_, log_prob, log_probs) in zip(["a b c", "", "d"], scores, strict=True):
        assert len(log_probs.split()) == len(text.split()) + 1
        assert sum(map(float, log_probs.split())) == pytest.approx(float(log_prob), abs=1e-5)
    attention = read_json_lines(files["--save-attention"].read_text())
    trees = read_json_lines(files["--search-tree"].read_text())
    assert [line["text"] for line in attention] == [line["text"] for line in trees]
    for line in (trees[0], trees[2]):
        finished = [
            node["cumulative_log_prob"] for node in line["tree"] if node["status"] == "finished"
        ]
        assert pytest.approx(line["log_prob"], abs=1e-5) in finished


def test_json_replaces_the_text_output(translate):
    first, second = read_json_lines(translate("--json", stdin="a b\n\n").out)
    assert (first["text"], second["text"]) == ("a b", "")
    assert "weights" not in first


def test_nbest_widens_the_beam_as_beam_would(translate):
    widened = translate("--n-best", 7, stdin="a b\nc\n")
    assert (widened.code, widened.err) == (0, "")
    assert widened.out == translate("--n-best", 7, "--beam", 7, stdin="a b\nc\n").out
    refused = translate("--n-best", 7, "--beam", 2, stdin="a b\n")
    assert refused.code == 2
    assert "n_best is 7, but beam_size is 2" in refused.err


def test_output_option_writes_what_standard_output_would_get(translate, tmp_path):
    path, scores = tmp_path / "out.txt", tmp_path / "scores.txt"
    ended = translate("-o", path, "--save-scores", scores, stdin="a b\n\nc\n")
    assert (ended.code, ended.out) == (0, "")
    assert path.read_text() == translate(stdin="a b\n\nc\n").out
    assert len(scores.read_text().splitlines()) == 3
    clash = translate("-o", path, "--save-scores", path, stdin="a\n")
    assert "--output: " in clash.err


def test_terminal_prompts_for_each_text(trained):
    """Typed one by one: instruction, prompt, output, prompt, ... and an end by Ctrl-D."""
    ours, theirs = pty.openpty()
    process = ForkedCommand("translate", trained, stdin=theirs, stderr=-1, stdout=-1)
    os.close(theirs)
    shown = read_until(process.stderr, "> ")
    assert "Ctrl-D" in shown
    for text in ("a b", "c"):
        os.write(ours, f"{text}\n".encode())
        assert process.stdout.readline() == f"{text}\n"
        assert read_until(process.stderr, "> ") == "> "
    os.write(ours, b"\x04")
    assert process.wait(60) == 0
    assert process.stderr.read() == "\n"
    os.close(ours)


def read_until(stream, end):
    text = ""
    while not text.endswith(end):
        character = stream.read(1)
        assert character, text
        text += character
    return text


@pytest.mark.parametrize("n_best", [1, 3])
def test_nbest_returns_that_many_lines_per_text(translate, tmp_path, n_best):
    scores, texts = tmp_path / "scores", ["a b", "", "c"]
    options = ("--n-best", n_best, "--save-scores", scores)
    lines = translate(*options, stdin="\n".join(texts) + "\n").out.split("\n")[:-1]
    assert len(lines) == n_best * len(texts)
    assert lines[::n_best] == texts
    assert lines[n_best : 2 * n_best] == [""] * n_best
    values = [float(line.split("\t")[0]) for line in scores.read_text().splitlines()[:n_best]]
    assert values == sorted(values, reverse=True)
    (fields,) = read_json_lines(translate("--n-best", n_best, "--json", stdin="a b\n").out)
    outputs = [fields["text"], *(output["text"] for output in fields["alternatives"])]
    assert outputs == lines[:n_best]


def test_forced_targets_have_the_scores_of_a_search(translate, tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_text("a b c\nd e\n\n")
    target.write_text("a b c\nd e\n\n")  # what a search finds, as the model copies
    found = read_json_lines(translate(source, "--json").out)
    forced = read_json_lines(translate(source, "--force-target", target, "--json").out)
    assert [line["tokens"] for line in found] == [line["tokens"] for line in forced]
    for line, expected in zip(forced[:2], found[:2], strict=True):
        assert line["log_probs"] == pytest.approx(expected["log_probs"], abs=1e-4)
        assert line["score"] == pytest.approx(expected["score"], abs=1e-4)
    target.write_text("h h\nd e\n\n")
    worse = read_json_lines(translate(source, "--force-target", target, "--json").out)[0]
    assert worse["text"] == "h h"
    assert worse["score"] < found[0]["score"]


def test_constraints_apply_to_own_line(translate, tmp_path):
    constraints = tmp_path / "constraints.jsonl"
    constraints.write_text(
        '{"required_phrases": ["h"]}\n{}\n{"forbidden_phrases": ["a"]}\n{"prefix": "g g"}\n'
    )
    outputs = translate("--constraints", constraints, stdin="a b\n" * 4).out.splitlines()
    assert "h" in outputs[0].split()
    assert outputs[1] == "a b"
    assert "a" not in outputs[2].split()
    assert outputs[3].startswith("g g")


def test_ensemble_of_equal_runs_translates_like_one(translate, trained):
    options = ("--ensemble-with", trained, "--ensemble-with", trained)
    assert translate(*options, stdin="a b c\n").out == "a b c\n"


def test_samples_depend_on_seed_and_line_only(translate):
    sampling, text = ("--set", "decoding.sampling={temperature: 3}"), "a b c d\n" * 12
    output = translate(*sampling, stdin=text).out
    assert output == translate(*sampling, stdin=text).out
    assert len(set(output.splitlines())) > 1
    more = translate(*sampling, stdin=text + "e\n").out
    assert more.splitlines()[:12] == output.splitlines()


def test_progress_is_shown_on_a_terminal_if_output_is_a_file(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    terminal, end = pty.openpty()
    source = tmp_path / "in.txt"
    source.write_text("a b\n" * 40)
    with (tmp_path / "out.txt").open("w") as output:
        process = ForkedCommand("translate", trained, source, stdout=output, stderr=end)
        process.wait(60)
    os.close(end)
    assert "decoding" in os.read(terminal, 100_000).decode()
    assert (tmp_path / "out.txt").read_text() == "a b\n" * 40


@pytest.mark.parametrize("num_workers", ["1", pytest.param("2", marks=pytest.mark.faults)])
def test_missing_run_leaves_output_files_unchanged(num_workers, capsys, monkeypatch, tmp_path):
    source, scores = tmp_path / "in.txt", tmp_path / "scores.txt"
    scores.write_text("old\n")
    source.write_text("a b\n" * 300)
    arguments = [source, "--save-scores", scores, "--num-workers", num_workers]
    result = heedful(capsys, monkeypatch, "translate", tmp_path / "no-run", *arguments)
    assert result.code == 2
    assert "no such folder" in result.err
    assert scores.read_text() == "old\n"


@pytest.mark.parametrize(
    "option",
    [("--beam", "2"), ("--n-best", "2"), ("--constraints", "file"), ("--search-tree", "tree")],
    ids=lambda option: option[0],
)
def test_search_option_with_forced_targets_raises(translate, in_folder, option):
    result = translate("in", "--force-target", "in", *option)
    assert result.code == 2
    assert result.err == (
        f"heedful: {option[0]}: has no effect, because --force-target gives the outputs\n"
        f"  remove {option[0]} or --force-target\n"
    )


def test_alignment_method_without_alignments_raises(translate, in_folder):
    result = translate("in", "--alignment-method", "argmax")
    assert result.code == 2
    assert result.err == (
        "heedful: --alignment-method: has no effect without --save-alignments\n"
        "  add --save-alignments FILE\n"
    )


def test_unknown_alignment_method_writes_no_file(translate, in_folder):
    result = translate("in", "--save-alignments", "links", "--alignment-method", "argmix")
    assert result.code == 2
    message = "heedful: --alignment-method: unknown alignment method 'argmix'"
    assert result.err.startswith(message)
    assert not (in_folder / "links").exists()


def test_files_of_unequal_length_write_no_file(translate, in_folder):
    (in_folder / "out").write_text("a\n")
    result = translate("in", "--force-target", "out", "--save-scores", "scores")
    assert result.code == 2
    assert result.err == (
        "heedful: out: 1 line, but in has 2\n"
        "  line n of one file must belong to line n of the other: check for missing or extra "
        "lines\n"
    )
    assert not (in_folder / "scores").exists()


def test_input_file_is_not_overwritten(translate, in_folder):
    result = translate("in", "--save-scores", "in")
    assert result.code == 2
    assert result.err == "heedful: --save-scores: in is read (in)\n  name another file\n"
    assert (in_folder / "in").read_text() == "a\nb\n"


def test_standard_input_for_two_files_raises(translate):
    result = translate("-", "--force-target", "-")
    assert result.code == 2
    assert "only one file can be read from it" in result.err


def test_search_tree_with_sampling_raises(translate, in_folder):
    result = translate("in", "--search-tree", "tree", "--set", "decoding.sampling={}")
    assert result.code == 2
    assert result.err == (
        "heedful: --search-tree: needs beam search, but decoding.sampling is set\n"
        "  remove --search-tree, or set decoding.sampling to null\n"
    )


def test_lines_before_an_invalid_constraint_translated(translate, in_folder):
    (in_folder / "constraints").write_text('{}\n{"required_phrases": 1}\n')
    result = translate("in", "--constraints", "constraints")
    assert (result.code, result.out) == (2, "a\n")
    assert result.err.startswith("heedful: constraints:2: 'required_phrases' cannot be 1\n")


def test_lines_before_invalid_bytes_translated(translate, in_folder):
    (in_folder / "in").write_bytes(b"a\nb\n\xff\n")
    result = translate("in")
    assert (result.code, result.out) == (2, "a\nb\n")
    assert "in:3" in result.err


def test_chunks_numbered_by_first_text():
    assert list(number_chunks([["a", "b"], ["c"], ["d"]])) == [
        RequestChunk(1, ["a", "b"]),
        RequestChunk(3, ["c"]),
        RequestChunk(4, ["d"]),
    ]


def test_no_more_processes_started_than_there_are_chunks():
    def num_processes(num_workers, num_texts):
        return choose_num_processes(num_workers, loader("run", "cpu"), num_texts=num_texts)

    assert num_processes(1, None) == 1
    assert num_processes(4, None) == 4
    assert [num_processes(4, num_texts) for num_texts in (0, 1, WORKER_CHUNK_SIZE)] == [1, 1, 1]
    assert num_processes(4, WORKER_CHUNK_SIZE + 1) == 2
    assert num_processes(4, 100 * WORKER_CHUNK_SIZE) == 4
    assert num_processes(0, None) >= 1


@pytest.mark.parametrize("num_workers", [0, 2])
def test_several_processes_on_a_gpu_reported(monkeypatch, num_workers):
    monkeypatch.setattr("heedful.runs.resolve_device", lambda name: torch.device("cuda"))
    with pytest.raises(ConfigError) as caught:
        choose_num_processes(num_workers, loader("run", "auto"), num_texts=None)
    assert str(caught.value) == (
        "--num-workers: several processes cannot share the device 'cuda'\n"
        "  remove --num-workers, or add --device cpu"
    )


def test_lines_do_not_depend_on_chunks_or_processes(trained):
    job = TranslationJob(
        loader(trained, "cpu"),
        ("text", "alignments"),
        argmax_links,
        overrides=("decoding.sampling={temperature: 3}", "decoding.n_best=2"),
    )
    num_threads = torch.get_num_threads()
    shared = job.setup(is_shared=True)
    assert torch.get_num_threads() == 1
    torch.set_num_threads(num_threads)
    requests = [Request(text) for text in ("a b c d", "e", "", "f g h")]
    whole = shared(RequestChunk(1, requests))
    alone = job.setup(is_shared=False)
    blocks = [alone(chunk) for chunk in number_chunks([requests[:1], requests[1:]])]
    assert whole.num_texts == sum(block.num_texts for block in blocks) == 4
    parts = zip(*(block.parts for block in blocks), strict=True)
    assert whole.parts == ["".join(texts) for texts in parts]
    assert whole.parts[0].count("\n") == whole.parts[1].count("\n") == 8


@pytest.mark.parametrize(
    ("document_format", "text", "expected"),
    [
        ("document", "a b.\n\n  c d\n", "a b\n\n  c d\n"),
        ("html", "<p>a <b>b c</b> d</p>\n", "<p>a <b>b c</b> d</p>\n"),
        ("html", "<hr>\n", "<hr>\n"),
    ],
)
def test_document_is_translated_and_the_form_kept(translate, document_format, text, expected):
    assert translate("--format", document_format, stdin=text).out == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--format", "html", "--json"), "--json: works only with lines"),
        (("--format", "html", "--source-column", "1"), "--source-column: works only with lines"),
        (("de.po", "--format", "document"), "de.po: .po files contain translations"),
        (("de.po",), "de.po: .po files contain translations"),
        (("--server", "http://127.0.0.1:9", "--backend", "torch"), "--backend: works only without"),
    ],
)
def test_options_of_lines_and_of_this_machine_are_rejected(translate, options, message):
    result = translate(*options, stdin="a\n")
    assert (result.code, message in result.err) == (2, True)
