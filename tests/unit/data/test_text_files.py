import gzip
import io
import lzma
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.data.text_files import read_lines


def written(folder, content, name="text.txt"):
    path = folder / name
    path.write_bytes(content)
    return str(path)


@given(lines=st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_read_lines_round_trip(tmp_path, lines):
    if lines and lines[0].startswith("\ufeff"):
        lines[0] = "a" + lines[0]
    lines = [line.removesuffix("\r") for line in lines]
    for ending in ("\n", "\r\n"):
        content = "".join(f"{line}{ending}" for line in lines).encode()
        assert list(read_lines(written(tmp_path, content))) == lines


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n\n\nb", ["a", "", "", "b"]),
        (b"a\r\n\r\nb\r", ["a", "", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"a\r\r\n", ["a\r"]),
        ("a\u2028b\x85c\x0bd\x0ce\x1cf\n".encode(), ["a\u2028b\x85c\x0bd\x0ce\x1cf"]),
        (b"a\0b\n", ["a\0b"]),
        ("\ufeffa\n".encode(), ["a"]),
        ("\ufeff\ufeffa\ufeff\n\ufeffb\n".encode(), ["\ufeffa\ufeff", "\ufeffb"]),
        ("\ufeff".encode(), [""]),
    ],
)
def test_newlines_of_unix_and_windows_end_a_line(tmp_path, content, lines):
    assert list(read_lines(written(tmp_path, content))) == lines


@pytest.mark.parametrize(("ending", "pack"), [(".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_files_read_like_plain_files(tmp_path, ending, pack):
    content = "\ufeffa\r\n漢\n\nlast".encode()
    plain = list(read_lines(written(tmp_path, content)))
    assert list(read_lines(written(tmp_path, pack(content), f"text{ending}"))) == plain
    assert plain == ["a", "漢", "", "last"]


def test_concatenated_archives_are_one_file(tmp_path):
    packed = gzip.compress(b"a\nb") + gzip.compress(b"c\nd\n")
    assert list(read_lines(written(tmp_path, packed, "text.gz"))) == ["a", "bc", "d"]


def test_stdin_is_read_as_utf8_in_any_locale():
    code = "from heedful.data.text_files import read_lines; print(ascii(list(read_lines('-'))))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        input="\ufeffa\r\n漢\n\nlast".encode(),
        capture_output=True,
        check=True,
        env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    )
    assert result.stdout == b"['a', '\\u6f22', '', 'last']" + b"\n"


def test_stdin_stays_open(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(b"a\nb\n"))
    monkeypatch.setattr(sys, "stdin", stream)
    assert list(read_lines("-")) == ["a", "b"]
    assert not stream.closed


def test_million_characters_are_one_line(tmp_path):
    content = "漢".encode() * 10**6 + b"\nb\n"
    first, second = read_lines(written(tmp_path, content))
    assert (first, second) == ("漢" * 10**6, "b")


def test_lines_are_streamed(tmp_path):
    lines = read_lines(written(tmp_path, b"a\nb\n\xff\n"))
    assert next(lines) == "a"
    assert next(lines) == "b"
