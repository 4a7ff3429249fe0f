import gzip
import json
import os
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.cli.request_files import (
    RequestFiles,
    check_single_stdin,
    count_lines,
    is_streamed,
    parse_constraints,
    read_requests,
)
from heedful.data.text_files import read_lines
from heedful.decoding.requests import Request
from heedful.errors import ConfigError, DataError


@pytest.fixture
def written(tmp_path):
    def write(name, *lines):
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in lines))
        return str(path)

    return write


def test_lines_of_several_files_belong_together(written):
    asked = RequestFiles(
        written("in", "a", "b"),
        written("out", "c", ""),
        written("wishes", '{"must": ["x", ["y", "z"]], "prefix": "so"}', "{}"),
    )
    assert list(read_requests(asked)) == [
        Request("a", target="c", required_phrases=["x", ["y", "z"]], prefix="so"),
        Request("b", target=""),
    ]


@pytest.mark.parametrize("field", ["targets", "constraints"])
@pytest.mark.parametrize(("texts", "others"), [(2, 5), (5, 2), (0, 1), (1, 0)])
@pytest.mark.parametrize("look", [lambda asked: list(read_requests(asked)), count_lines])
def test_unequal_files_are_refused_with_both_numbers(written, field, texts, others, look):
    asked = RequestFiles(
        written("in", *["a"] * texts), **{field: written("other", *["{}"] * others)}
    )
    with pytest.raises(DataError) as caught:
        look(asked)
    assert str(caught.value) == (
        f"{getattr(asked, field)}: {others} lines, but {asked.texts} has {texts}\n"
        "  line n of one must belong to line n of the other: look for lost or added lines"
    )


def test_an_endless_pipe_is_not_counted_to_its_end(written, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write_for_ever():
        try:
            with pipe.open("w") as file:
                while True:
                    file.write("a\n")
        except BrokenPipeError:
            pass

    threading.Thread(target=write_for_ever, daemon=True).start()
    with pytest.raises(DataError, match=r": 1 lines, but .*pipe has at least 2"):
        list(read_requests(RequestFiles(str(pipe), written("out", "b"))))


@given(text=st.text(alphabet="a\n\r\u2028"))
def test_lines_are_counted_as_they_are_read(tmp_path_factory, text):
    path = tmp_path_factory.mktemp("count") / "in"
    path.write_bytes(text.encode())
    assert count_lines(RequestFiles(str(path))) == len(list(read_lines(str(path))))


def test_what_cannot_be_counted_quickly_is_not_counted(written, tmp_path):
    with gzip.open(tmp_path / "in.gz", "wt") as file:
        file.write("a\n")
    for file in ("-", str(tmp_path / "in.gz"), str(tmp_path / "absent"), "/dev/null"):
        assert count_lines(RequestFiles(file)) is None
        assert count_lines(RequestFiles(written("in", "a"), file)) is None


def test_lines_of_files_are_there_and_lines_of_pipes_arrive(written, tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    file = written("in", "a")
    assert [is_streamed(str(tmp_path / name)) for name in ("in", "pipe", "absent")] == [
        False,
        True,
        False,
    ]
    with open(file) as regular:
        monkeypatch.setattr("sys.stdin", regular)
        assert not is_streamed("-")
    reading, writing = os.pipe()
    with open(reading) as piped, open(writing, "w"):
        monkeypatch.setattr("sys.stdin", piped)
        assert is_streamed("-")


def test_standard_input_can_be_read_once():
    check_single_stdin(RequestFiles("-", "out"))
    check_single_stdin(RequestFiles("in", "-"))
    with pytest.raises(ConfigError) as caught:
        check_single_stdin(RequestFiles("-", "-"))
    assert str(caught.value) == (
        "standard input: two files cannot both be read from it\n  name a file in the place of one -"
    )


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '{"must": []}',
        '{"must": ["a b", ["c", "d"]], "never": ["e"], "prefix": "f"}',
        '{"prefix": ""}',
    ],
)
def test_constraints_are_read_as_they_are_written(line):
    assert parse_constraints(line, "f:1") == json.loads(line)


MUST = '  write a list of phrases: "must": ["one", ["this", "or this"]]'
NOTHING = '  {} asks for nothing, and {"must": ["a phrase"]} for a phrase'


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "f:3: not JSON (Expecting value: line 1 column 1 (char 0))\n" + NOTHING),
        ("[1]", "f:3: not a JSON object but [1]\n" + NOTHING),
        (
            '{"mus": []}',
            "f:3: no constraint is called 'mus'; did you mean 'must'?\n"
            "  choose from: must, never, prefix",
        ),
        ('{"must": "a"}', "f:3: 'must' cannot be \"a\"\n" + MUST),
        ('{"must": [1]}', "f:3: 'must' cannot be [1]\n" + MUST),
        ('{"must": [" "]}', "f:3: 'must' cannot be [\" \"]\n" + MUST),
        ('{"must": [[]]}', "f:3: 'must' cannot be [[]]\n" + MUST),
        (
            '{"never": [["a"]]}',
            "f:3: 'never' cannot be [[\"a\"]]\n"
            '  write a list of phrases: "never": ["one", "another"]',
        ),
        (
            '{"prefix": ["a"]}',
            'f:3: \'prefix\' cannot be ["a"]\n  write a text: "prefix": "how it begins"',
        ),
    ],
)
def test_constraints_that_cannot_be_are_refused_with_their_line(line, message):
    with pytest.raises(DataError) as caught:
        parse_constraints(line, "f:3")
    assert str(caught.value) == message


def test_a_long_value_is_shown_in_part():
    with pytest.raises(DataError) as caught:
        parse_constraints(json.dumps({"prefix": ["a" * 99]}), "f:1")
    assert f'cannot be ["{"a" * 58}...\n' in str(caught.value)
