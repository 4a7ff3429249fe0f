r"""Reading of text files as lines; of UTF-8, unless another encoding is named.

A line ends with "\n" or, in files of Windows, with "\r\n"; other "\r", U+2028 and the like are
text. A last line without "\n" counts. A byte order mark at the start is dropped; elsewhere it is
text. Errors name file, line and column.
"""

import bz2
import codecs
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

from heedful.errors import ConfigError, DataError, check, did_you_mean

STANDARD_INPUT = "-"
UTF_8 = "utf-8"
MAX_LINE_BYTES = 2**30  # a corpus of characters may be one line: text8 has 10**8
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def _open_zst(path: str) -> Any:
    try:
        arrow = import_module("pyarrow")
    except ImportError:
        message = "reading .zst needs the package pyarrow"
        hint = "install it with: pip install 'heedful[parquet]'; or decompress the file: `unzstd`"
        raise DataError(path, message, hint) from None
    return io.BufferedReader(arrow.CompressedInputStream(path, "zstd"))


_OPENERS: dict[str, Callable[[str], Any]] = {
    ".gz": gzip.open,
    ".xz": lzma.open,
    ".bz2": bz2.open,
    ".zst": _open_zst,
}
COMPRESSION_SUFFIXES = tuple(_OPENERS)
ALSO_COMPRESSED = f"also {', '.join(_OPENERS)}"
_ARCHIVE_HINT = f"unpack it; read as they are: {', '.join(_OPENERS)}"
_TABLE_HINT, _TEXT_HINT = "save the table as .csv", "save the text as .txt"
_UNREADABLE = {
    **dict.fromkeys((".zip", ".7z", ".rar", ".tar", ".tgz", ".lz4", ".br", ".lzma"), _ARCHIVE_HINT),
    **dict.fromkeys((".xls", ".xlsx", ".ods", ".numbers"), _TABLE_HINT),
    **dict.fromkeys((".doc", ".docx", ".odt", ".rtf", ".pdf"), _TEXT_HINT),
}
TRANSLATION_SUFFIXES = {
    ".tmx": "tmx",
    ".xlf": "xliff",
    ".xliff": "xliff",
    ".sdlxliff": "xliff",
    ".po": "po",
    ".pot": "po",
}
_MAGIC_NUMBERS = {
    b"\x1f\x8b": ".gz",
    b"\xfd7zXZ\x00": ".xz",
    b"BZh": ".bz2",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"PK\x03\x04": ".zip",
}
DECOMPRESSION_ERRORS = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


def file_suffix(path: str) -> str:
    """Return the suffix that names the format of a file, without that of its compression."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    return next((suffix for suffix in reversed(suffixes) if suffix not in _OPENERS), "")


def check_file_of_lines(path: str) -> None:
    """Raise DataError for a file whose lines are no texts: translations with their markup."""
    suffix = file_suffix(path)
    message = f"{suffix} files contain translations, not a text in each line"
    hint = "as training or test data: --pairs FILE; elsewhere, write the texts into lines"
    check(suffix not in TRANSLATION_SUFFIXES, display_name(path), message, hint, DataError)


def check_encoding(encoding: str) -> str:
    """Return the name of an encoding of text; raise ConfigError if there is none of this name."""
    try:
        "a".encode(encoding)
    except (LookupError, ValueError):
        message = f"no encoding is called {encoding!r}"
        hint = "give a name such as utf-8, cp1252 (Windows), latin1, utf-16, shift_jis or gb18030"
        raise ConfigError("encoding", message, hint) from None
    return encoding


def read_lines(path: str, max_bytes: int = MAX_LINE_BYTES, encoding: str = UTF_8) -> Iterator[str]:
    """Yield the lines of a file, also a compressed one, or of standard input ("-").

    A line of more than `max_bytes` is an error before the rest of it is read.
    """
    line_number = 0
    try:
        with open_file(path) as stream:
            for line_number, line in enumerate(_raw_lines(stream, encoding, max_bytes), start=1):
                content = line.removesuffix(b"\n").removesuffix(b"\r")
                if len(content) > max_bytes:
                    location = f"{display_name(path)}:{line_number}"
                    message = f"the line has more than {max_bytes:,} bytes"
                    raise DataError(location, message, "split it into several lines")
                if line_number == 1:
                    content = content.removeprefix(_BYTE_ORDER_MARK)
                try:
                    yield content.decode()
                except UnicodeDecodeError as error:
                    raise _encoding_error(content, error, path, line_number) from None
    except UnicodeDecodeError as error:
        message = f"not {encoding} after line {line_number} ({error.reason})"
        hint = "name the encoding that the file was written with"
        raise DataError(display_name(path), message, hint) from None
    except (*DECOMPRESSION_ERRORS, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise read_error(path, error) from None
        cause = f"corrupt, truncated, or not {Path(path).suffix.removeprefix('.')} data"
        message = f"cannot be decompressed beyond line {line_number}: {cause}"
        raise DataError(path, message, "copy or download the file again") from None


def _raw_lines(stream: BinaryIO, encoding: str, max_bytes: int) -> Iterator[bytes]:
    """Yield lines with their ends, as UTF-8; at most two bytes more than `max_bytes` of each."""
    if codecs.lookup(encoding).name == UTF_8:
        yield from iter(lambda: stream.readline(max_bytes + 2), b"")
        return
    text = io.TextIOWrapper(stream, encoding=encoding, newline="\n")
    try:
        while line := text.readline(max_bytes + 2):
            yield line.encode()
    finally:
        text.detach()  # standard input stays open


def nonempty_lines(
    path: str, max_bytes: int = MAX_LINE_BYTES, encoding: str = UTF_8
) -> Iterator[str]:
    """Yield the lines of a file; raise DataError at its end if there are none."""
    line: str | None = None
    for line in read_lines(path, max_bytes, encoding):
        yield line
    if line is None:
        raise DataError(display_name(path), "contains no lines", "give a file with text in it")


def display_name(path: str) -> str:
    """Return the name of a path in messages."""
    return "standard input" if path == STANDARD_INPUT else path


def open_file(path: str) -> AbstractContextManager[BinaryIO]:
    """Open a file to read bytes, after decompression."""
    if path == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    suffix = Path(path).suffix.lower()
    hint = _UNREADABLE.get(suffix, "")
    check(not hint, path, f"{suffix} files are not read", hint, DataError)
    opener = _OPENERS.get(suffix)
    return opener(path) if opener else open(path, "rb")


def _encoding_error(
    line: bytes, error: UnicodeDecodeError, path: str, line_number: int
) -> DataError:
    name = display_name(path)
    starts = (suffix for start, suffix in _MAGIC_NUMBERS.items() if line.startswith(start))
    if line_number == 1 and (suffix := next(starts, "")):
        hint = _UNREADABLE.get(suffix, f"end its name in {suffix}")
        return DataError(name, f"the file is compressed: it begins as {suffix} files do", hint)
    # cp1252 is latin1 with letters and quotation marks where latin1 has invisible characters.
    location, encoding = f"{name}:{line_number}", "cp1252"
    column = len(line[: error.start].decode()) + 1
    message = f"byte 0x{line[error.start]:02X} at column {column} is not UTF-8"
    if line_number == 1 and line.startswith(_UTF_16_MARKS):
        location, encoding, message = name, "utf-16", "the file is UTF-16, not UTF-8"
    hint = f"convert the text to UTF-8, for example with `iconv -f {encoding} -t utf-8`; for "
    hint += f"data and texts also with --encoding {encoding}"
    return DataError(location, message, hint)


def read_error(path: str, error: OSError) -> DataError:
    """Return the message for a file that cannot be read."""
    path = display_name(path)
    match error:
        case FileNotFoundError():
            folder, name, hint = Path(path).parent, Path(path).name, "check the path"
            if " " in path:
                hint += "; a text is given on standard input, or drawn by: heedful show RUN TEXT"
            if not folder.is_dir():
                return DataError(path, f"there is no folder {str(folder)!r}", hint)
            names: list[str] = []
            with suppress(OSError):  # a folder that cannot be listed may have readable files
                names = os.listdir(folder)
            return DataError(path, f"no such file{did_you_mean(name, names)}", hint)
        case IsADirectoryError():
            return DataError(path, "this is a folder, not a file", "name a file in it")
        case PermissionError():
            return DataError(path, "no permission to read it", f"try `chmod u+r {path}`")
    return DataError(
        path, f"cannot be read ({error.strerror or error})", "check the path and the disk"
    )
