r"""Reading of text files as lines of UTF-8.

A line ends with "\n" or, in files of Windows, with "\r\n"; other "\r", U+2028 and the like are
text. A last line without "\n" counts. A byte order mark at the start is dropped; elsewhere it is
text. Errors name file, line and column.
"""

import gzip
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO

from heedful.errors import DataError, did_you_mean

STANDARD_INPUT = "-"
MAX_LINE_BYTES = 2**30  # a corpus of characters may be one line: text8 has 10**8
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_OPENERS: dict[str, Callable[[str], Any]] = {".gz": gzip.open, ".xz": lzma.open}
DECOMPRESSION_ERRORS = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


def read_lines(path: str, max_bytes: int = MAX_LINE_BYTES) -> Iterator[str]:
    """Yield the lines of a file, of a .gz or .xz file, or of standard input ("-").

    A line of more than `max_bytes` is an error before the rest of it is read.
    """
    line_number = 0
    try:
        with open_file(path) as stream:
            lines = iter(lambda: stream.readline(max_bytes + 2), b"")  # one more, and the line end
            for line_number, line in enumerate(lines, start=1):
                if len(_without_line_end(line)) > max_bytes:
                    location = f"{display_name(path)}:{line_number}"
                    message = f"the line has more than {max_bytes:,} bytes"
                    raise DataError(location, message, "split it into several lines")
                yield _decode(line, path, line_number)
    except DECOMPRESSION_ERRORS:
        cause = f"corrupt, truncated, or not {Path(path).suffix.removeprefix('.')} data"
        message = f"cannot be decompressed beyond line {line_number}: {cause}"
        raise DataError(path, message, "copy or download the file again") from None
    except OSError as error:
        raise read_error(path, error) from None


def nonempty_lines(path: str, max_bytes: int = MAX_LINE_BYTES) -> Iterator[str]:
    """Yield the lines of a file; raise DataError at its end if there are none."""
    line: str | None = None
    for line in read_lines(path, max_bytes):
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
    opener = _OPENERS.get(Path(path).suffix)
    return opener(path) if opener else open(path, "rb")


def _without_line_end(line: bytes) -> bytes:
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _decode(line: bytes, path: str, line_number: int) -> str:
    if line_number == 1:
        line = line.removeprefix(_BYTE_ORDER_MARK)
    try:
        return _without_line_end(line).decode("utf-8")
    except UnicodeDecodeError as error:
        location, encoding = f"{display_name(path)}:{line_number}", "latin1"
        column = len(line[: error.start].decode("utf-8")) + 1
        message = f"byte 0x{line[error.start]:02X} at column {column} is not UTF-8"
        if line_number == 1 and line.startswith(_UTF_16_MARKS):
            location, encoding = display_name(path), "utf-16"
            message = "the file is UTF-16, not UTF-8"
        hint = f"convert the text to UTF-8, for example with `iconv -f {encoding} -t utf-8`"
        raise DataError(location, message, hint) from None


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
    return DataError(path, f"cannot be read ({error.strerror})", "check the path and the disk")
