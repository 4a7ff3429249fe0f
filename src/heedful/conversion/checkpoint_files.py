"""Reads files of `torch.save` without executing anything in them.

A pickle is a program: it names functions and calls them. Here a name stands for an entry of a short
table (tensors, storages, ordered dicts, options of argparse, numbers of numpy), each of them
implemented in this file; any other name is an error before it is looked up. Both formats of
`torch.save` are read: the zip archive (torch 1.6 and later) and the older sequence of pickles.
Invariant: reading imports nothing, calls nothing outside this file, and gives plain values.
"""

import pickle
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor
from typing_extensions import override

from heedful.errors import DataError, check

_LEGACY_MAGIC, _LEGACY_VERSION = 0x1950A86A20F9469CFC6C, 1001
_ZIP_START = b"PK\x03\x04"
_STORAGE_DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
}
_NUMPY_FORMATS = {
    f"{kind}{size}": code
    for code, kind, size in (
        ("d", "f", 8),
        ("f", "f", 4),
        ("q", "i", 8),
        ("i", "i", 4),
        ("h", "i", 2),
        ("b", "i", 1),
        ("Q", "u", 8),
        ("I", "u", 4),
        ("H", "u", 2),
        ("B", "u", 1),
        ("?", "b", 1),
    )
}
# What a damaged or hostile file can make the interpreter of pickles raise.
_PICKLE_ERRORS = (
    pickle.UnpicklingError, EOFError, struct.error, zipfile.BadZipFile, ArithmeticError,
    AttributeError, LookupError, MemoryError, RecursionError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


class Options:
    """Replacement of `argparse.Namespace`: a record with the options as attributes."""

    def __setstate__(self, state: object) -> None:
        if not isinstance(state, dict):
            raise pickle.UnpicklingError("options are not a dictionary")
        self.__dict__.update(state)


def read_checkpoint(path: Path) -> Any:
    """Return the value that `torch.save` wrote, with tensors on the CPU."""
    location = str(path)
    with _explain_errors(location), path.open("rb") as stream:
        start = stream.read(len(_ZIP_START))
        stream.seek(0)
        if start == _ZIP_START:
            with zipfile.ZipFile(stream) as archive:
                return _read_zip(archive, location)
        return _read_legacy(stream, location)


@contextmanager
def _explain_errors(location: str) -> Iterator[None]:
    hint = "copy the file again; it must be one that `torch.save` wrote"
    try:
        yield
    except FileNotFoundError:
        raise DataError(location, "no such file", "check the path") from None
    except OSError as error:
        reason = error.strerror or "damaged"
        raise DataError(location, f"cannot be read ({reason})", "check the file") from None
    except _PICKLE_ERRORS as error:
        message = f"not a checkpoint, or a damaged one ({type(error).__name__}: {error})"
        raise DataError(location, message, hint) from None


# ----- the two formats


def _read_zip(archive: zipfile.ZipFile, location: str) -> Any:
    entries = {info.filename.partition("/")[2]: info for info in archive.infolist()}
    message = "a zip archive, but without the entry data.pkl of a checkpoint"
    hint = "name a file that `torch.save` wrote"
    check("data.pkl" in entries, location, message, hint, DataError)

    def read(name: str) -> bytes:
        info = entries[name]
        is_plain = info.compress_type == zipfile.ZIP_STORED
        message = f"the entry {name!r} is compressed, which `torch.save` never does"
        check(is_plain, location, message, "do not pack the checkpoint again", DataError)
        return archive.read(info)

    if "byteorder" in entries:
        order = read("byteorder").decode("ascii", "replace")
        message = f"has the byte order {order!r}, but this machine has {sys.byteorder!r}"
        hint = "convert the checkpoint on a machine of its own kind"
        check(order == sys.byteorder, location, message, hint, DataError)
    with archive.open(entries["data.pkl"]) as stream:
        reader = _Reader(stream, location, lambda storage: read(f"data/{storage.key}"))
        return reader.load()


def _read_legacy(stream: BinaryIO, location: str) -> Any:
    magic, version = (_Reader(stream, location).load() for _ in range(2))
    message = "not a file of `torch.save`"
    hint = "name a checkpoint: a file that ends in .pt or .ckpt"
    check((magic, version) == (_LEGACY_MAGIC, _LEGACY_VERSION), location, message, hint, DataError)
    system = _Reader(stream, location).load()
    message = "was written on a machine with another byte order"
    is_little = isinstance(system, dict) and system.get("little_endian") is True
    hint = "convert the checkpoint on a machine of its own kind"
    check(is_little == (sys.byteorder == "little"), location, message, hint, DataError)
    reader = _Reader(stream, location)
    value = reader.load()
    for key in _Reader(stream, location).load():
        storage = reader.storages[str(key)]
        (num_values,) = struct.unpack("<q", stream.read(8))
        if num_values != storage.num_values:
            raise pickle.UnpicklingError(f"storage {key} has another size than its tensors")
        storage.fill(stream.read(num_values * storage.dtype.itemsize))
    if missing := [key for key, storage in reader.storages.items() if not storage.is_filled]:
        raise pickle.UnpicklingError(f"storage {missing[0]} is missing")
    return value


# ----- values


class _StorageType(NamedTuple):
    """The dtype that the name of a storage class means."""

    dtype: torch.dtype


class _Storage:
    """The values that tensors are views of; filled when their bytes have been read."""

    def __init__(self, key: str, dtype: torch.dtype, num_values: int) -> None:
        self.key, self.dtype, self.num_values = key, dtype, num_values
        self.tensor = torch.empty(0, dtype=dtype)
        self.is_filled = False

    def fill(self, data: bytes) -> None:
        """Set the values."""
        if len(data) != self.num_values * self.dtype.itemsize:
            raise pickle.UnpicklingError(f"storage {self.key} is truncated")
        # The tensors that are already views of this storage see the values.
        if data:
            self.tensor.resize_(self.num_values)
            self.tensor.copy_(torch.frombuffer(bytearray(data), dtype=self.dtype))
        self.is_filled = True


class _PlainDict(dict[Any, Any]):
    """A dictionary that drops what the pickle sets on it: versions of modules."""

    def __setstate__(self, state: object) -> None:
        del state


class _NumpyType:
    """Replacement of `numpy.dtype`: the code of a type, without numpy."""

    def __init__(self, code: object = "", *flags: object) -> None:
        del flags
        self.code = str(code)

    def __setstate__(self, state: object) -> None:
        del state


class _Reader(pickle.Unpickler):
    """An unpickler with a table in place of imports."""

    def __init__(
        self,
        stream: Any,
        location: str,
        read_storage: Callable[[_Storage], bytes] | None = None,
    ) -> None:
        super().__init__(stream, encoding="utf-8")
        self.location, self.read_storage = location, read_storage
        self.storages: dict[str, _Storage] = {}
        # Classes of this reader alone: whatever a pickle sets on them is gone after reading.
        options, numpy_type = type("Options", (Options,), {}), type("Type", (_NumpyType,), {})
        self.known: Mapping[tuple[str, str], Any] = {
            ("argparse", "Namespace"): options,
            ("collections", "OrderedDict"): self._make_dict,
            ("torch._utils", "_rebuild_tensor"): self._make_tensor,
            ("torch._utils", "_rebuild_tensor_v2"): self._make_tensor,
            ("torch._utils", "_rebuild_parameter"): self._make_parameter,
            ("torch", "Size"): self._make_tuple,
            ("builtins", "set"): self._make_set,
            ("__builtin__", "set"): self._make_set,
            ("numpy", "dtype"): numpy_type,
            ("numpy.core.multiarray", "scalar"): self._make_number,
            ("numpy._core.multiarray", "scalar"): self._make_number,
            ("_codecs", "encode"): self._make_bytes,
            **{("torch", name): _StorageType(dtype) for name, dtype in _STORAGE_DTYPES.items()},
        }

    @override
    def find_class(self, module_name: str, global_name: str, /) -> Any:
        message = f"contains {module_name}.{global_name}, which is not read: it could run code"
        hint = "only tensors, numbers, texts and containers are read; save these alone"
        key = module_name, global_name
        check(key in self.known, self.location, message, hint, DataError)
        return self.known[key]

    @override
    def persistent_load(self, pid: Any) -> _Storage:
        kind, storage_type, key, _, num_values, *view = pid
        is_storage = kind == "storage" and isinstance(storage_type, _StorageType)
        is_valid = is_storage and isinstance(num_values, int) and not any(view)
        if not is_valid or num_values < 0:
            raise pickle.UnpicklingError("a reference to something that is not a storage")
        key = str(key)
        if key not in self.storages:
            storage = _Storage(key, storage_type.dtype, num_values)
            self.storages[key] = storage
            if self.read_storage is not None:
                storage.fill(self.read_storage(storage))
        return self.storages[key]

    def _make_tensor(
        self, storage: _Storage, offset: int, size: Any, stride: Any, *more: object
    ) -> Tensor:
        del more  # requires_grad, hooks, metadata
        extent = 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
        is_empty = 0 in size
        is_inside = min((offset, *size, *stride)) >= 0 and (
            is_empty or offset + extent <= storage.num_values
        )
        if not is_inside:
            raise pickle.UnpicklingError(f"a tensor reaches beyond storage {storage.key}")
        if not storage.is_filled:  # legacy format: values come later
            storage.tensor.resize_(storage.num_values)
        return storage.tensor.as_strided(tuple(size), tuple(stride), offset)

    def _make_parameter(self, tensor: Tensor, *more: object) -> Tensor:
        del more
        return tensor

    def _make_dict(self, *pairs: Any) -> dict[Any, Any]:
        return _PlainDict(*pairs)

    def _make_tuple(self, *values: Any) -> tuple[Any, ...]:
        return tuple(*values)

    def _make_set(self, *values: Any) -> set[Any]:
        return set(*values)

    def _make_number(self, dtype: _NumpyType, data: bytes) -> Any:
        return struct.unpack(f"<{_NUMPY_FORMATS[dtype.code]}", data)[0]

    def _make_bytes(self, text: str, encoding: str) -> bytes:
        if encoding not in ("latin1", "latin-1"):
            raise pickle.UnpicklingError(f"bytes in the encoding {encoding!r}")
        return text.encode("latin-1")
