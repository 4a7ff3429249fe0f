import bz2
import gzip
import io
import lzma
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heedful.data.text_files import check_encoding, read_lines
from heedful.errors import ConfigError, DataError


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


@pytest.mark.parametrize(
    ("ending", "pack"),
    [
        (".gz", gzip.compress),
        (".xz", lzma.compress),
        (".bz2", bz2.compress),
        (".GZ", gzip.compress),
    ],
)
def test_compressed_files_read_like_plain_files(tmp_path, ending, pack):
    content = "\ufeffa\r\n漢\n\nlast".encode()
    plain = list(read_lines(written(tmp_path, content)))
    assert list(read_lines(written(tmp_path, pack(content), f"text{ending}"))) == plain
    assert plain == ["a", "漢", "", "last"]


def test_concatenated_archives_are_one_file(tmp_path):
    packed = gzip.compress(b"a\nb") + gzip.compress(b"c\nd\n")
    assert list(read_lines(written(tmp_path, packed, "text.gz"))) == ["a", "bc", "d"]


def test_stdin_loads_as_utf8_in_any_locale():
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


def test_lines_streamed(tmp_path):
    lines = read_lines(written(tmp_path, b"a\nb\n\xff\n"))
    assert next(lines) == "a"
    assert next(lines) == "b"


@pytest.mark.parametrize("encoding", ["cp1252", "latin1", "utf-16", "utf-16-be", "UTF8"])
def test_lines_of_other_encodings_equal_those_of_utf8(tmp_path, encoding):
    lines = [
        "caf\u00e9",
        "",
        "\u00e4\u2028b\rc" if encoding.lower().startswith("utf") else "\u00e4",
        "x",
    ]
    for line_end in ("\n", "\r\n"):
        path = written(tmp_path, line_end.join(lines).encode(encoding))
        assert list(read_lines(path, encoding=encoding)) == lines


def test_wrong_encodings_reported(tmp_path):
    path = written(tmp_path, b"a\n\x81\n")
    with pytest.raises(DataError, match=r"text.txt: not cp1252 after line \d"):
        list(read_lines(path, encoding="cp1252"))
    for name in ("cp1253x", "rot13", "base64"):
        with pytest.raises(ConfigError, match=f"no encoding is called '{name}'"):
            check_encoding(name)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.zip", b"", "a.zip: .zip files are not read\n  unpack it; read as they are: .gz"),
        ("a.xlsx", b"", "a.xlsx: .xlsx files are not read\n  save the table as .csv"),
        (
            "a.txt",
            gzip.compress(b"a", mtime=0),
            "a.txt: the file is compressed: it begins as .gz files do",
        ),
        ("a.bz2", b"plain", "cannot be decompressed beyond line 0: corrupt, truncated, or not bz2"),
    ],
)
def test_unreadable_files_named(tmp_path, name, content, message):
    with pytest.raises(DataError) as caught:
        list(read_lines(written(tmp_path, content, name)))
    assert message in str(caught.value)


def test_zst_files_load_or_named(tmp_path):
    name, content = "text.zst", b"(\xb5/\xfd\x04\x00\x21\x00\x00a\nb\n"
    try:
        import pyarrow as pa
    except ImportError:
        with pytest.raises(DataError, match=r"reading .zst needs the package pyarrow"):
            list(read_lines(written(tmp_path, content, name)))
    else:
        packed = pa.Codec("zstd").compress(b"a\nb\n", asbytes=True)
        assert list(read_lines(written(tmp_path, packed, name))) == ["a", "b"]
