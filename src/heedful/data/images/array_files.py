"""Arrays in files: .npy and .safetensors memory-mapped, .npy.gz read into memory.

Nothing is unpickled, and the size of an array is checked before it is read. Invariant: an array
is returned whole, or the file is an error that names it.
"""

import gzip
import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.text_files import DECOMPRESSION_ERRORS, read_error
from heedful.errors import DataError, check
from heedful.storage.json_files import MAX_BYTES, parse_json

MAX_COMPRESSED_ARRAY_BYTES = 4 * 2**30
_COPY_HINT = "copy or download the file again"
_NO_SAFETENSORS = "not a safetensors file"
_MAX_DIMS = 32  # of numpy
_FORMATS_HINT = "give a .npy, .npy.gz or .safetensors file; save one with numpy.save"
_SAFETENSORS_DTYPES: Mapping[str, str] = {"F32": "<f4", "F16": "<f2", "U8": "u1", "BOOL": "?"}


class ArrayFile(NamedTuple):
    """The arrays of a file, by name, and the metadata of the file."""

    arrays: Mapping[str, NDArray[Any]]  # a .npy file has one, named ""
    metadata: Mapping[str, str]
    location: str

    def find(self, *names: str) -> NDArray[Any] | None:
        """Return the first array that has one of these names."""
        return next((self.arrays[name] for name in names if name in self.arrays), None)


class _ArrayHeader(NamedTuple):
    """The description of an array."""

    shape: tuple[int, ...]
    order: Literal["C", "F"]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def is_valid(self) -> bool:
        """Whether there can be such an array."""
        sizes = self.shape
        return len(sizes) <= _MAX_DIMS and all(type(size) is int and size >= 0 for size in sizes)


def open_array_file(path: str) -> ArrayFile:
    """Open a .npy, .npy.gz or .safetensors file."""
    name = path.lower()
    try:
        if name.endswith(".safetensors"):
            return _open_safetensors(path)
        if name.endswith(".npy.gz"):
            with gzip.open(path) as stream:
                return ArrayFile({"": _read_compressed(stream, path)}, {}, path)
        check(name.endswith(".npy"), path, "not a file of arrays", _FORMATS_HINT, DataError)
        with open(path, "rb") as file:
            header = _read_npy_header(file, path)
            start = file.tell()
        return ArrayFile({"": _map_array(path, start, header)}, {}, path)
    except DECOMPRESSION_ERRORS:
        message = "cannot be decompressed: corrupt, truncated, or not gz data"
        raise DataError(path, message, _COPY_HINT) from None
    except OSError as error:
        raise read_error(path, error) from None


def _read_compressed(stream: Any, path: str) -> NDArray[Any]:
    header = _read_npy_header(stream, path)
    message = f"{header.size / 2**30:,.1f} GiB when decompressed; the limit is 4 GiB"
    hint = "decompress it with gunzip; a .npy file is read piece by piece"
    check(header.size <= MAX_COMPRESSED_ARRAY_BYTES, path, message, hint, DataError)
    data = stream.read(header.size)
    _check_complete(path, len(data), header.size)
    return np.frombuffer(data, header.dtype).reshape(header.shape, order=header.order)


def _read_npy_header(stream: BinaryIO, path: str) -> _ArrayHeader:
    """Read the header; raise DataError if it describes anything but an array of numbers."""
    try:
        formats = np.lib.format
        is_first = formats.read_magic(stream) == (1, 0)
        read = formats.read_array_header_1_0 if is_first else formats.read_array_header_2_0
        shape, is_fortran, dtype = read(stream)
    except (*DECOMPRESSION_ERRORS, OSError):
        raise
    except Exception:  # of many types: the header is a Python literal
        raise DataError(path, "not an array in the format of numpy", _FORMATS_HINT) from None
    message = "contains Python objects, which could run code when they are loaded"
    hint = "save an array of numbers: numpy.stack(list(array))"
    check(not dtype.hasobject, path, message, hint, DataError)
    # numpy divides by the size of an item, which is 0 in an array of empty texts: SIGFPE.
    message = f"an array of {dtype}, not of numbers"
    check(dtype.kind in "biuf", path, message, "save it as float32 or uint8", DataError)
    header = _ArrayHeader(shape, "F" if is_fortran else "C", dtype)
    message = f"an array cannot have the shape {shape}"
    check(header.is_valid, path, message, _COPY_HINT, DataError)
    return header


def _open_safetensors(path: str) -> ArrayFile:
    size = Path(path).stat().st_size
    with open(path, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else MAX_BYTES + 1
        is_valid = length <= min(MAX_BYTES, size)
        check(is_valid, path, _NO_SAFETENSORS, _COPY_HINT, DataError)
        text = file.read(length)
    try:
        header = parse_json(text)
        metadata = header.pop("__metadata__", {})
        arrays = {name: _map_tensor(path, 8 + length, entry) for name, entry in header.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise DataError(path, _NO_SAFETENSORS, _COPY_HINT) from None
    check(isinstance(metadata, dict), path, _NO_SAFETENSORS, _COPY_HINT, DataError)
    return ArrayFile(arrays, metadata, path)


def _map_tensor(path: str, offset: int, entry: Mapping[str, Any]) -> NDArray[Any]:
    dtype, (start, end) = entry["dtype"], entry["data_offsets"]
    message = f"a tensor of {dtype}, which cannot be read"
    hint = f"save it as one of {', '.join(_SAFETENSORS_DTYPES)}"
    check(dtype in _SAFETENSORS_DTYPES, path, message, hint, DataError)
    header = _ArrayHeader(tuple(entry["shape"]), "C", np.dtype(_SAFETENSORS_DTYPES[dtype]))
    is_valid = 0 <= start <= end and header.is_valid and header.size == end - start
    check(is_valid, path, _NO_SAFETENSORS, _COPY_HINT, DataError)
    return _map_array(path, offset + start, header)


def _map_array(path: str, offset: int, header: _ArrayHeader) -> NDArray[Any]:
    """Memory-map an array that begins at an offset of a file."""
    _check_complete(path, Path(path).stat().st_size - offset, header.size)
    if not header.size:
        return np.empty(header.shape, header.dtype)
    return np.memmap(path, header.dtype, "r", offset, header.shape, header.order)


def _check_complete(path: str, size: int, needed: int) -> None:
    message = f"truncated: {needed - size:,} bytes are missing"
    check(size >= needed, path, message, _COPY_HINT, DataError)
