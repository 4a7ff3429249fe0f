"""Output of `translate`: the lines of each output type, and the files they go to."""

import gzip
import json
import math
import os
import re
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.text_files import read_lines
from heedful.decoding.requests import Request
from heedful.decoding.translation import Translation
from heedful.decoding.word_alignment import argmax_links
from heedful.errors import ConfigError, DataError, DiskFullError, StorageError, format_count
from heedful.search import Node
from heedful.tasks.translation import files
from heedful.tasks.translation.files import (
    OUTPUT_TYPES,
    RequestFiles,
    check_distinct_files,
    check_single_stdin,
    count_lines,
    is_streamed,
    open_outputs,
    parse_constraints,
    read_requests,
)
from tests.documents.markdown import ROOT

JSON_TYPES = {"json", "attention", "tree"}


def build_translation(text="the garden", *, score=-0.25, alternatives=(), tree=None):
    tokens = text.split()
    return Translation(
        source="horto",
        text=text,
        score=score,
        log_prob=-0.5,
        source_tokens=["horto", "(end)"],
        tokens=tokens,
        log_probs=np.full(len(tokens) + 1, -0.1),
        weights=np.full((len(tokens), 2), (2 / 3, 1 / 3), np.float32),
        eos_weights=np.array([0, 1], np.float32),
        source_word_ids=[0, -1],
        word_ids=list(range(len(tokens))),
        alternatives=alternatives,
        tree=tree,
    )


TREE = [
    Node(None, None, 0.0, 0.0, "continued"),
    Node(0, "the", -0.1, -0.1, "continued"),
    Node(0, "garden", -2.0, -2.0, "pruned"),
    Node(1, "(end)", -0.2, -0.3, "finished"),
]


def format_lines(output_type, translation, n_best=1):
    return files.format_lines(output_type, translation, n_best, argmax_links)


def format_json(output_type, translation):
    (line,) = format_lines(output_type, translation)
    return json.loads(line)


@pytest.mark.parametrize("output_type", OUTPUT_TYPES)
@pytest.mark.parametrize("n_best", [1, 2, 4])
def test_every_text_returns_the_same_number_of_lines(output_type, n_best):
    alternatives = (build_translation("a"), build_translation("b"))
    translations = [
        build_translation(),
        build_translation(""),
        build_translation("line \n break", tree=TREE),
        build_translation(alternatives=alternatives),
    ]
    lines = [format_lines(output_type, translation, n_best) for translation in translations]
    assert {len(of_text) for of_text in lines} == {1 if output_type in JSON_TYPES else n_best}
    assert all("\n" not in line for of_text in lines for line in of_text)


def test_best_output_comes_first_and_empty_lines_fill_up():
    translation = build_translation("best", alternatives=(build_translation("next"),))
    assert format_lines("text", translation, 3) == ["best", "next", ""]
    assert format_lines("alignments", translation, 3) == ["0-0", "0-0", ""]
    assert format_lines("scores", translation, 3)[2] == ""
    assert format_lines("text", translation, 1) == ["best"]


def test_score_line_has_score_and_log_probs():
    (line,) = format_lines("scores", build_translation())
    assert line == "-0.250000\t-0.500000\t-0.100000 -0.100000 -0.100000"


def test_json_has_rounded_numbers():
    assert format_json("attention", build_translation("garden")) == {
        "source": "horto",
        "source_tokens": ["horto", "(end)"],
        "source_word_ids": [0, -1],
        "text": "garden",
        "score": -0.25,
        "log_prob": -0.5,
        "tokens": ["garden"],
        "log_probs": [-0.1, -0.1],
        "weights": [[0.666667, 0.333333]],
        "word_ids": [0],
        "eos_weights": [0.0, 1.0],
        "alternatives": [],
    }


def test_json_has_weights_and_tree_only_in_output_types():
    translation = build_translation(tree=TREE, alternatives=(build_translation("a"),))
    keys = {output_type: set(format_json(output_type, translation)) for output_type in JSON_TYPES}
    assert keys["attention"] - keys["json"] == {
        "weights",
        "eos_weights",
        "source_word_ids",
        "word_ids",
    }
    assert keys["tree"] - keys["json"] == {"tree"}
    assert "weights" not in format_json("json", translation)["alternatives"][0]


def test_infinite_score_is_null_in_json():
    (line,) = format_lines("json", build_translation(score=-math.inf))
    assert json.loads(line, parse_constant=pytest.fail)["score"] is None


def test_json_tree_has_tokens_as_text():
    nodes = format_json("tree", build_translation(tree=TREE))["tree"]
    assert [node["token"] for node in nodes] == [None, "the", "garden", "(end)"]
    statuses = [node["status"] for node in nodes]
    assert statuses == ["continued", "continued", "pruned", "finished"]
    assert nodes[3] == {
        "parent": 1,
        "token": "(end)",
        "log_prob": -0.2,
        "cumulative_log_prob": -0.3,
        "status": "finished",
        "token_id": None,
    }


def documented_fields(heading):
    """The first column of the table that follows a heading of docs/translate.md."""
    text = (ROOT / "docs" / "translate.md").read_text()
    section = re.split(r"^#+ ", text.split(f"# {heading}\n", 1)[1], flags=re.MULTILINE)[0]
    return set(re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE))


def test_document_lists_all_json_fields():
    translation = build_translation(tree=TREE, alternatives=(build_translation("a"),))
    attention, tree = (format_json(name, translation) for name in ("attention", "tree"))
    assert documented_fields("Fields of a line") == {*attention, *tree}
    assert documented_fields("Fields of an alternative") == set(attention["alternatives"][0])
    assert documented_fields("Fields of a node") == set(tree["tree"][0])


def test_texts_written_and_flushed_to_files(capsysbinary, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    with open_outputs([first, second]) as write:
        write(["a\n", "1\n", "x\n"])
        assert (first.read_text(), second.read_text()) == ("1\n", "x\n")
        assert capsysbinary.readouterr().out == b"a\n"
        write(["\u2028\u00e9\n", "2\n", ""])
    assert (first.read_text(), second.read_text()) == ("1\n2\n", "x\n")
    assert capsysbinary.readouterr().out == "\u2028\u00e9\n".encode()


def test_missing_output_folder_raises(tmp_path):
    path = tmp_path / "absent" / "file"
    with pytest.raises(StorageError) as caught, open_outputs([path]):
        pass
    assert str(caught.value) == (
        f"{path}: cannot be written (no such file or directory); what was saved before is "
        "untouched\n  check the disk and the folder"
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a disk that is always full")
def test_full_disk_raises():
    with (
        pytest.raises(DiskFullError, match="/dev/full: cannot be written"),
        open_outputs([Path("/dev/full")]) as write,
    ):
        write(["", "1\n"])


def test_other_errors_not_reported_as_write_errors(tmp_path):
    with pytest.raises(FileNotFoundError), open_outputs([tmp_path / "file"]):
        raise FileNotFoundError
    assert sys.stdout.writable()


def test_output_files_must_differ_from_each_other_and_from_inputs(tmp_path):
    source, output = tmp_path / "in", tmp_path / "out"
    source.write_text("a\n")
    check_distinct_files({"--save-scores": output}, ["-", str(source)])
    with pytest.raises(ConfigError) as caught:
        check_distinct_files({"--save-scores": tmp_path / "." / "in"}, [str(source)])
    expected = f"--save-scores: {source} is read ({source})\n  name another file"
    assert str(caught.value) == expected
    with pytest.raises(ConfigError) as caught:
        check_distinct_files({"--save-scores": output, "--search-tree": output}, [])
    assert str(caught.value) == (
        f"--search-tree: {output} is already written by --save-scores\n  name another file"
    )


def test_dev_null_may_be_used_several_times():
    null = Path("/dev/null")
    outputs = {"--save-scores": null, "--search-tree": null}
    check_distinct_files(outputs, ["/dev/null"])
    assert outputs == {"--save-scores": null, "--search-tree": null}


@pytest.fixture
def write(tmp_path):
    def write_lines(name, *lines):
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    return write_lines


def test_lines_of_several_files_form_one_request(write):
    request_files = RequestFiles(
        write("in", "a", "b"),
        write("out", "c", ""),
        write("constraints", '{"required_phrases": ["x", ["y", "z"]], "prefix": "so"}', "{}"),
    )
    assert list(read_requests(request_files)) == [
        Request("a", target="c", required_phrases=["x", ["y", "z"]], prefix="so"),
        Request("b", target=""),
    ]


@pytest.mark.parametrize("field", ["targets", "constraints"])
@pytest.mark.parametrize(("num_texts", "num_others"), [(2, 5), (5, 2), (0, 1), (1, 0)])
@pytest.mark.parametrize("read", [lambda files: list(read_requests(files)), count_lines])
def test_unequal_numbers_of_lines_reported(write, field, num_texts, num_others, read):
    other = write("other", *["{}"] * num_others)
    request_files = RequestFiles(write("in", *["a"] * num_texts), **{field: other})
    with pytest.raises(DataError) as caught:
        read(request_files)
    assert str(caught.value) == (
        f"{other}: {format_count(num_others, 'line')}, but {request_files.texts} has {num_texts}\n"
        "  line n of one file must belong to line n of the other: check for missing or extra lines"
    )


def test_endless_pipe_is_not_counted_to_the_end(write, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write_forever():
        try:
            with pipe.open("w") as file:
                while True:
                    file.write("a\n")
        except BrokenPipeError:
            pass

    threading.Thread(target=write_forever, daemon=True).start()
    with pytest.raises(DataError, match=r": 1 line, but .*pipe has at least 2"):
        list(read_requests(RequestFiles(str(pipe), write("out", "b"))))


@given(text=st.text(alphabet="a\n\r\u2028"))
def test_counted_lines_are_the_lines_that_load(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("count") / "in"
    path.write_bytes(text.encode())
    assert count_lines(RequestFiles(str(path))) == len(list(read_lines(str(path))))


def test_streams_and_compressed_files_not_counted(write, tmp_path):
    with gzip.open(tmp_path / "in.gz", "wt") as file:
        file.write("a\n")
    for name in ("-", str(tmp_path / "in.gz"), str(tmp_path / "absent"), "/dev/null"):
        assert count_lines(RequestFiles(name)) is None
        assert count_lines(RequestFiles(write("in", "a"), name)) is None


def test_pipes_streamed_and_files_are_not(write, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    path = write("in", "a")
    is_pipe = [is_streamed(str(tmp_path / name)) for name in ("in", "pipe", "absent")]
    assert is_pipe == [False, True, False]
    with open(path) as file:
        monkeypatch.setattr("sys.stdin", file)
        assert not is_streamed("-")
    reader, writer = os.pipe()
    with open(reader) as file, open(writer, "w"):
        monkeypatch.setattr("sys.stdin", file)
        assert is_streamed("-")


def test_standard_input_for_two_files_raises():
    check_single_stdin(RequestFiles("-", "out"))
    check_single_stdin(RequestFiles("in", "-"))
    with pytest.raises(ConfigError) as caught:
        check_single_stdin(RequestFiles("-", "-"))
    assert str(caught.value) == (
        "standard input: only one file can be read from it\n  replace one - by a file"
    )


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '{"required_phrases": []}',
        '{"required_phrases": ["a b", ["c", "d"]], "forbidden_phrases": ["e"], "prefix": "f"}',
        '{"prefix": ""}',
    ],
)
def test_valid_constraints_load(line):
    assert parse_constraints(line, "f:1") == json.loads(line)


REQUIRED = '  write a list of phrases: "required_phrases": ["one", ["this", "or this"]]'
EXAMPLE = '  write {} for no constraints, or {"required_phrases": ["a phrase"]}, for example'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "f:3: not JSON (Expecting value: line 1 column 1 (char 0))\n" + EXAMPLE),
        ("[" * 100_000, "f:3: not JSON (more than 50 levels)\n" + EXAMPLE),
        ("[1]", "f:3: must be a JSON object, but is [1]\n" + EXAMPLE),
        (
            '{"required_phrase": []}',
            "f:3: unknown constraint 'required_phrase'; did you mean 'required_phrases'?\n"
            "  choose from: forbidden_phrases, prefix, prefix_tokens, required_phrases",
        ),
        ('{"required_phrases": "a"}', "f:3: 'required_phrases' cannot be \"a\"\n" + REQUIRED),
        ('{"required_phrases": [1]}', "f:3: 'required_phrases' cannot be [1]\n" + REQUIRED),
        ('{"required_phrases": [" "]}', "f:3: 'required_phrases' cannot be [\" \"]\n" + REQUIRED),
        ('{"required_phrases": [[]]}', "f:3: 'required_phrases' cannot be [[]]\n" + REQUIRED),
        (
            '{"forbidden_phrases": [["a"]]}',
            "f:3: 'forbidden_phrases' cannot be [[\"a\"]]\n"
            '  write a list of phrases: "forbidden_phrases": ["one", "another"]',
        ),
        (
            '{"prefix": ["a"]}',
            'f:3: \'prefix\' cannot be ["a"]\n  write a text: "prefix": "how it begins"',
        ),
    ],
)
def test_invalid_constraints_reported_with_line(line, message):
    with pytest.raises(DataError) as caught:
        parse_constraints(line, "f:3")
    assert str(caught.value) == message


def test_long_value_is_shortened_in_the_message():
    with pytest.raises(DataError) as caught:
        parse_constraints(json.dumps({"prefix": ["a" * 99]}), "f:1")
    assert f'cannot be ["{"a" * 58}...\n' in str(caught.value)
