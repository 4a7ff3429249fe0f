r"""Lines: how a file is read as lines of text.

Only "\n" ends a line: "\r", U+2028 and their like are text. A last line without "\n" counts.
Bytes that are not UTF-8 are refused by file and line. A byte order mark at the very start says
how the file is encoded and is dropped; anywhere else it is text.
"""

from __future__ import annotations

import gzip
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from heedful.errors import DataError, did_you_mean

STANDARD_INPUT = "-"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_OPENERS: dict[str, Callable[[str], Any]] = {".gz": gzip.open, ".xz": lzma.open}
_DECOMPRESSION_ERRORS = (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile)


def read_lines(path: str) -> Iterator[str]:
    """Read the lines of a file, of one packed as .gz or .xz, or of standard input ("-")."""
    number = 0
    try:
        with _open(path) as stream:
            for number, line in enumerate(stream, start=1):
                yield _decode(line, path, number)
    except _DECOMPRESSION_ERRORS:
        packing = Path(path).suffix.removeprefix(".")
        problem = (
            f"cannot be unpacked beyond line {number}: damaged, cut off, or not {packing} data"
        )
        raise DataError(path, problem, "copy or download the file again") from None
    except OSError as error:
        raise _read_error(display_name(path), error) from None


def display_name(path: str) -> str:
    """Say what a path stands for."""
    return "standard input" if path == STANDARD_INPUT else path


def _open(path: str) -> AbstractContextManager[BinaryIO]:
    if path == STANDARD_INPUT:
        return nullcontext(sys.stdin.buffer)
    opener = _OPENERS.get(Path(path).suffix)
    return opener(path) if opener else open(path, "rb")


def _decode(line: bytes, path: str, number: int) -> str:
    if number == 1:
        line = line.removeprefix(_BYTE_ORDER_MARK)
    try:
        return line.removesuffix(b"\n").decode("utf-8")
    except UnicodeDecodeError as error:
        if number == 1 and line.startswith(_UTF_16_MARKS):
            raise _encoding_error(
                display_name(path), "the file is UTF-16, not UTF-8", "utf-16"
            ) from None
        column = len(line[: error.start].decode("utf-8")) + 1
        problem = f"byte 0x{line[error.start]:02X} at column {column} is not UTF-8"
        raise _encoding_error(f"{display_name(path)}:{number}", problem, "latin1") from None


def _encoding_error(location: str, message: str, likely: str) -> DataError:
    remedy = f"convert the text to UTF-8, for example with `iconv -f {likely} -t utf-8`"
    return DataError(location, message, remedy)


def _read_error(path: str, error: OSError) -> DataError:
    match error:
        case FileNotFoundError():
            folder, name = Path(path).parent, Path(path).name
            if not folder.is_dir():
                return DataError(path, f"there is no folder {str(folder)!r}", "check the path")
            near = did_you_mean(name, _file_names(folder))
            return DataError(path, f"no such file{near}", "check the path")
        case IsADirectoryError():
            return DataError(path, "this is a folder, not a file", "name a file in it")
        case PermissionError():
            return DataError(path, "no permission to read it", f"try `chmod u+r {path}`")
    return DataError(path, f"cannot be read ({error.strerror})", "check the path and the disk")


def _file_names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:  # a folder may let its files be opened and yet not be listed
        return []
