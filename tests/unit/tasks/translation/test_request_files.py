"""Request files: texts, targets and constraints line by line, and their errors."""

import gzip
import json
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.data.text_files import read_lines
from heedful.decoding.requests import Request
from heedful.errors import ConfigError, DataError, format_count
from heedful.tasks.translation.files import (
    RequestFiles,
    check_single_stdin,
    count_lines,
    is_streamed,
    parse_constraints,
    read_requests,
)


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


def test_endless_pipe_is_not_counted_to_its_end(write, tmp_path):
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
            "  choose from: forbidden_phrases, prefix, required_phrases",
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
def test_invalid_constraints_reported_with_their_line(line, message):
    with pytest.raises(DataError) as caught:
        parse_constraints(line, "f:3")
    assert str(caught.value) == message


def test_long_value_is_shortened_in_the_message():
    with pytest.raises(DataError) as caught:
        parse_constraints(json.dumps({"prefix": ["a" * 99]}), "f:1")
    assert f'cannot be ["{"a" * 58}...\n' in str(caught.value)
