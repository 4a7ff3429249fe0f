"""Arrays in files: .npy and .safetensors memory-mapped, .npy.gz read into memory.

Nothing is unpickled, and the size of an array is checked before it is read. Invariant: an array
is returned whole, or the file is an error that names it.
"""

import gzip
import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.text_files import DECOMPRESSION_ERRORS, read_error
from heedful.errors import DataError, check
from heedful.storage.json_files import MAX_BYTES, parse_json

MAX_COMPRESSED_ARRAY_BYTES = 4 * 2**30
_COPY_HINT = "copy or download the file again"
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
            _read_npy_header(file, path)
        return ArrayFile({"": np.load(path, mmap_mode="r")}, {}, path)
    except DECOMPRESSION_ERRORS:
        message = "cannot be decompressed: corrupt, truncated, or not gz data"
        raise DataError(path, message, _COPY_HINT) from None
    except OSError as error:
        raise read_error(path, error) from None
    except ValueError as error:  # numpy's word for a file shorter than its header says
        message = f"broken or truncated ({str(error).splitlines()[0]})"
        raise DataError(path, message, _COPY_HINT) from None


def _read_compressed(stream: Any, path: str) -> NDArray[Any]:
    shape, dtype = _read_npy_header(stream, path)
    size = int(np.prod(shape, dtype=np.float64)) * dtype.itemsize
    message = f"{size / 2**30:,.1f} GiB when decompressed; the limit is 4 GiB"
    hint = "decompress it with gunzip; a .npy file is read piece by piece"
    check(size <= MAX_COMPRESSED_ARRAY_BYTES, path, message, hint, DataError)
    stream.seek(0)
    return np.load(stream)


def _read_npy_header(stream: BinaryIO, path: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return shape and dtype; raise DataError for objects and for what is no array."""
    try:
        version = np.lib.format.read_magic(stream)
        reader = (
            np.lib.format.read_array_header_1_0
            if version == (1, 0)
            else np.lib.format.read_array_header_2_0
        )
        shape, _, dtype = reader(stream)
    except ValueError:
        raise DataError(path, "not an array in the format of numpy", _FORMATS_HINT) from None
    message = "contains Python objects, which could run code when they are loaded"
    hint = "save an array of numbers: numpy.stack(list(array))"
    check(not dtype.hasobject, path, message, hint, DataError)
    return shape, dtype


def _open_safetensors(path: str) -> ArrayFile:
    size = Path(path).stat().st_size
    with open(path, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else MAX_BYTES + 1
        message, is_valid = "not a safetensors file", length <= min(MAX_BYTES, size)
        check(is_valid, path, message, _COPY_HINT, DataError)
        text = file.read(length)
    try:
        header = parse_json(text)
        metadata = header.pop("__metadata__", {})
        arrays = {
            name: _map_tensor(path, 8 + length, size, entry) for name, entry in header.items()
        }
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError, UnicodeDecodeError):
        raise DataError(path, message, _COPY_HINT) from None
    return ArrayFile(arrays, metadata, path)


def _map_tensor(path: str, offset: int, size: int, entry: Mapping[str, Any]) -> NDArray[Any]:
    dtype, (start, end) = entry["dtype"], entry["data_offsets"]
    message = f"a tensor of {dtype}, which cannot be read"
    hint = f"save it as one of {', '.join(_SAFETENSORS_DTYPES)}"
    check(dtype in _SAFETENSORS_DTYPES, path, message, hint, DataError)
    message = f"truncated: {offset + end - size:,} bytes are missing"
    check(offset + end <= size, path, message, _COPY_HINT, DataError)
    if start == end:
        return np.empty(entry["shape"], _SAFETENSORS_DTYPES[dtype])
    flat = np.memmap(path, np.uint8, "r", offset=offset + start, shape=(end - start,))
    return flat.view(_SAFETENSORS_DTYPES[dtype]).reshape(entry["shape"])
