"""Idx files, the format of MNIST: a magic number, the sizes of all dimensions, then the values.

The magic number is two zero bytes, the type of the values and the number of dimensions; sizes are
big-endian 32-bit integers. Only bytes (type 8) are read. Invariant: what is written is read back.
"""

import gzip
import lzma
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from heedful.data.text_files import (
    ALSO_COMPRESSED,
    COMPRESSION_SUFFIXES,
    display_name,
    open_file,
    read_error,
)
from heedful.errors import DataError, check, format_count
from heedful.storage.atomic import atomic_replace

Bytes = NDArray[np.uint8]
_UNSIGNED_BYTE = 8
_TYPES = {9: "int8", 11: "int16", 12: "int32", 13: "float32", 14: "float64"}
_MAX_BYTES = 2**32  # a million images of 64 x 64
_NO_IDX = f"give an idx file, such as train-images-idx3-ubyte of MNIST; {ALSO_COMPRESSED}"
_COPY_AGAIN = "copy or download the file again"


def read_idx(path: str, num_dimensions: int) -> Bytes:
    """Read the values of an idx file, also a compressed one, with so many dimensions."""
    try:
        with open_file(path) as stream:
            return _read_values(stream, path, num_dimensions)
    except (EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile):
        cause = f"corrupt, truncated, or not {Path(path).suffix.removeprefix('.')} data"
        raise DataError(path, f"cannot be decompressed: {cause}", _COPY_AGAIN) from None
    except OSError as error:
        raise read_error(path, error) from None


def _read_values(stream: BinaryIO, path: str, num_dimensions: int) -> Bytes:
    location = display_name(path)
    magic = stream.read(4)
    is_idx = len(magic) == 4 and magic[:2] == b"\0\0" and magic[2] in {_UNSIGNED_BYTE, *_TYPES}
    check(is_idx, location, "this is no idx file", _NO_IDX, DataError)
    message = f"its values are {_TYPES.get(magic[2])}, but images and labels are bytes"
    check(magic[2] == _UNSIGNED_BYTE, location, message, _NO_IDX, DataError)
    contents = {1: "labels", 3: "images"}.get(magic[3], f"arrays of {magic[3]} dimensions")
    expected = {1: "labels", 3: "images"}[num_dimensions]
    message = f"contains {contents}, not {expected}"
    check(magic[3] == num_dimensions, location, message, f"name a file of {expected}", DataError)
    header = stream.read(4 * num_dimensions)
    check(len(header) == 4 * num_dimensions, location, "ends in its header", _COPY_AGAIN, DataError)
    shape = struct.unpack(f">{num_dimensions}I", header)
    size = math.prod(shape)
    named = " x ".join(map(str, shape))
    message = f"its header says {named} values, which is more than {_MAX_BYTES:,}"
    check(size <= _MAX_BYTES, location, message, "split the file", DataError)
    check(size > 0, location, f"is empty: its header says {named} values", _NO_IDX, DataError)
    values = stream.read(size + 1)
    count = "more" if len(values) > size else f"{len(values):,}"
    message = f"its header says {named} = {format_count(size, 'value')}, but it has {count}"
    check(len(values) == size, location, message, _COPY_AGAIN, DataError)
    return np.frombuffer(values, dtype=np.uint8).reshape(shape)


def write_idx(path: Path, values: Bytes) -> None:
    """Write values as an idx file; compressed if its name ends in .gz or .xz."""
    assert values.dtype == np.uint8, values.dtype
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, _UNSIGNED_BYTE, values.ndim, *values.shape)
    contents = header + values.tobytes()
    if path.suffix == ".gz":
        contents = gzip.compress(contents, mtime=0)
    elif path.suffix == ".xz":
        contents = lzma.compress(contents)
    with atomic_replace(path) as temporary:
        temporary.write_bytes(contents)


def find_labels(images: str) -> str:
    """Return the path of the labels of images: `labels-idx1` for `images-idx3` in its name."""
    folder, name = Path(images).parent, Path(images).name
    if name.lower().endswith(COMPRESSION_SUFFIXES):
        name = Path(name).stem
    stem = name.replace("images-idx3", "labels-idx1")
    stem = stem.replace("images.idx3", "labels.idx1")
    hint = "give data.train.labels, or name the files as MNIST does: images-idx3 and labels-idx1"
    message = "its name does not say where its labels are"
    check("labels" in stem, images, message, hint, DataError)
    candidates = [folder / f"{stem}{suffix}" for suffix in ("", *COMPRESSION_SUFFIXES)]
    labels = next((path for path in candidates if path.exists()), None)
    message = f"there is no file of its labels: {stem}, {ALSO_COMPRESSED}"
    check(labels is not None, images, message, "copy it into the same folder", DataError)
    return str(labels)
