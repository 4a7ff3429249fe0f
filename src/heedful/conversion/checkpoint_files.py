"""Reads files of `torch.save` without executing anything in them.

A pickle is a program. It is run here by an interpreter of its own, whose values are numbers, texts,
containers and tensors; a name stands for an entry of a short table, and any other is an error. Both
formats of `torch.save` are read: the zip archive (torch 1.6 and later) and the older sequence of
pickles. Invariant: memory and time are proportional to the size of the file, whatever it contains.
Why this is not `torch.load`: docs/decisions/0018-checkpoint-reader.md.
"""

import math
import os
import pickletools
import struct
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import torch
from torch import Tensor

from heedful.conversion import joeynmt, opennmt
from heedful.conversion.interface import ImportedRun
from heedful.errors import DataError, check

_LEGACY_MAGIC, _LEGACY_VERSION = 0x1950A86A20F9469CFC6C, 1001
_ZIP_START = b"PK\x03\x04"
_MAX_DIMS = 64  # of a tensor, in torch
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
    **{"f8": "d", "f4": "f", "b1": "?"},
    **{"i8": "q", "i4": "i", "i2": "h", "i1": "b"},
    **{"u8": "Q", "u4": "I", "u2": "H", "u1": "B"},
}
# What a damaged or hostile file can raise.
_ERRORS = (
    EOFError, struct.error, zipfile.BadZipFile, ArithmeticError, LookupError, MemoryError,
    NotImplementedError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


def read_checkpoint(path: Path) -> Any:
    """Return the value that `torch.save` wrote, with tensors on the CPU and options as a dict."""
    location = str(path)
    with _explain_errors(location), path.open("rb") as stream:
        start = stream.read(len(_ZIP_START))
        stream.seek(0)
        if start == _ZIP_START:
            with zipfile.ZipFile(stream) as archive:
                return _read_zip(archive, location, os.fstat(stream.fileno()).st_size)
        return _read_legacy(stream, location, os.fstat(stream.fileno()).st_size)


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
    except _ERRORS as error:
        message = f"not a checkpoint, or a damaged one ({type(error).__name__}: {error})"
        raise DataError(location, message, hint) from None


# ----- the two formats


def _read_zip(archive: zipfile.ZipFile, location: str, size: int) -> Any:
    entries = {info.filename.partition("/")[2]: info for info in archive.infolist()}
    message = "a zip archive, but without the entry data.pkl of a checkpoint"
    hint = "name a file that `torch.save` wrote"
    check("data.pkl" in entries, location, message, hint, DataError)
    for name, info in entries.items():
        is_plain = info.compress_type == zipfile.ZIP_STORED
        message = f"the entry {name!r} is compressed, which `torch.save` never does"
        check(is_plain, location, message, "do not pack the checkpoint again", DataError)
    if sum(info.file_size for info in entries.values()) > size:
        raise ValueError("its entries are larger than the file")
    if "byteorder" in entries:
        order = archive.read(entries["byteorder"]).decode("ascii", "replace")
        message = f"has the byte order {order!r}, but this machine has {sys.byteorder!r}"
        hint = "convert the checkpoint on a machine of its own kind"
        check(order == sys.byteorder, location, message, hint, DataError)

    def fill(key: str, storage: Tensor) -> None:
        info = entries[f"data/{key}"]
        if info.file_size != storage.nbytes:
            raise ValueError(f"storage {key} has another size than its tensors")
        with archive.open(info) as stream:
            _read_into(storage, stream)

    pickled = BytesIO(archive.read(entries["data.pkl"]))
    return _Interpreter(location, size, fill).run(pickled)


def _read_legacy(stream: BinaryIO, location: str, size: int) -> Any:
    interpreter = _Interpreter(location, size)
    magic, version = (interpreter.run(stream) for _ in range(2))
    message = "not a file of `torch.save`"
    hint = "name a checkpoint: a file that ends in .pt or .ckpt"
    check((magic, version) == (_LEGACY_MAGIC, _LEGACY_VERSION), location, message, hint, DataError)
    system = interpreter.run(stream)
    message = "was written on a machine with another byte order"
    is_little = isinstance(system, dict) and system.get("little_endian") is True
    hint = "convert the checkpoint on a machine of its own kind"
    check(is_little == (sys.byteorder == "little"), location, message, hint, DataError)
    value, keys = (interpreter.run(stream) for _ in range(2))
    for key in keys:
        storage = interpreter.storages.pop(str(key))
        if struct.unpack("<q", stream.read(8)) != (len(storage),):
            raise ValueError(f"storage {key} has another size than its tensors")
        _read_into(storage, stream)
    if interpreter.storages:
        raise ValueError(f"storage {next(iter(interpreter.storages))} is missing")
    return value


def _read_into(storage: Tensor, stream: Any) -> None:
    """Fill a storage; tensors that are already views of it see the values."""
    buffer = storage.view(torch.uint8).numpy().data
    if stream.readinto(buffer) != len(buffer):
        raise EOFError("the values of a tensor are truncated")


# ----- the interpreter


class _Name(NamedTuple):
    """A name of the table: how to make the value that a call of it gives."""

    make: Callable[..., Any]


class _StorageType(NamedTuple):
    """The dtype that the name of a storage class means."""

    dtype: torch.dtype


class _NumpyType(NamedTuple):
    """The code of a type of numpy, such as "f8"."""

    code: str


class _Options(dict[str, Any]):
    """The options of an `argparse.Namespace`."""


class _Interpreter:
    """Runs pickles of one file.

    `fill` reads the values of a storage at once; without it the caller fills `storages` later. What
    calls and storages take is paid from a budget, the size of the file, so that no part of the file
    can be used many times over.
    """

    def __init__(
        self, location: str, size: int, fill: Callable[[str, Tensor], None] | None = None
    ) -> None:
        self.location, self.budget, self.fill = location, size, fill
        self.storages: dict[str, Tensor] = {}
        self.names: Mapping[tuple[str, str], _Name | _StorageType] = {
            ("argparse", "Namespace"): _Name(_Options),
            ("collections", "OrderedDict"): _Name(self._make_dict),
            ("torch._utils", "_rebuild_tensor"): _Name(_make_tensor),
            ("torch._utils", "_rebuild_tensor_v2"): _Name(_make_tensor),
            ("torch._utils", "_rebuild_parameter"): _Name(lambda tensor, *more: tensor),
            ("torch", "Size"): _Name(lambda values=(): tuple(self._paid(values))),
            ("builtins", "set"): _Name(self._make_set),
            ("__builtin__", "set"): _Name(self._make_set),
            ("numpy", "dtype"): _Name(lambda code, *flags: _NumpyType(str(code))),
            ("numpy.core.multiarray", "scalar"): _Name(_make_number),
            ("numpy._core.multiarray", "scalar"): _Name(_make_number),
            ("_codecs", "encode"): _Name(self._make_bytes),
            **{("torch", name): _StorageType(dtype) for name, dtype in _STORAGE_DTYPES.items()},
        }

    def run(self, stream: BinaryIO) -> Any:
        """Return the value of the next pickle of a stream."""
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        for instruction, argument, _ in pickletools.genops(stream):
            name = instruction.name
            if name in _PUSHING:
                self.stack.append(argument)
            elif name in _MAKING:
                self.stack.append(_MAKING[name]())
            elif name in _RUNNING:
                _RUNNING[name](self, argument)
            elif name not in _WITHOUT_EFFECT:
                raise ValueError(f"the instruction {name}")
        return self.stack.pop()

    def pop_to_mark(self) -> list[Any]:
        """Remove and return the values since the last mark."""
        start = self.marks.pop()
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def make_tuple(self, size: int) -> None:
        """Put the last values into a tuple."""
        start = len(self.stack) - size
        self.stack[start:] = [tuple(self.stack[start:])]

    def memoize(self, key: int | None) -> None:
        """Keep the last value under a number, the next one by default."""
        self.memo[len(self.memo) if key is None else key] = self.stack[-1]

    def find(self, name: tuple[str, str]) -> None:
        """Push an entry of the table."""
        message = f"contains {'.'.join(name)}, which is not read: it could run code"
        hint = "only tensors, numbers, texts and containers are read; save these alone"
        check(name in self.names, self.location, message, hint, DataError)
        self.stack.append(self.names[name])

    def call(self) -> None:
        """Replace a name and a tuple of arguments by what the name makes of them."""
        arguments, name = self.stack.pop(), self.stack.pop()
        if not isinstance(name, _Name) or not isinstance(arguments, tuple):
            raise TypeError("a call of something that is not a name")
        self.stack.append(name.make(*arguments))

    def set_state(self) -> None:
        """Set options; the attributes of dictionaries and of types of numpy are dropped."""
        state, value = self.stack.pop(), self.stack[-1]
        if isinstance(value, _Options):
            value.update(_with_plain_keys(state.items()))
        elif not isinstance(value, dict | _NumpyType):
            raise TypeError(f"attributes of a {type(value).__name__}")

    def append(self, values: list[Any]) -> None:
        """Append values to the list before them."""
        if not isinstance(self.stack[-1], list):
            raise TypeError("an item of something that is not a list")
        self.stack[-1].extend(values)

    def set_items(self, values: list[Any]) -> None:
        """Enter keys and values, in turn, into the dictionary before them."""
        if not isinstance(self.stack[-1], dict):
            raise TypeError("a key of something that is not a dictionary")
        self.stack[-1].update(_with_plain_keys(zip(values[::2], values[1::2], strict=True)))

    def load_storage(self) -> None:
        """Replace a reference to a storage by its values."""
        kind, storage_type, key, _, num_values, *view = self.stack.pop()
        is_storage = kind == "storage" and isinstance(storage_type, _StorageType)
        if not is_storage or type(num_values) is not int or num_values < 0 or any(view):
            raise ValueError("a reference to something that is not a storage")
        key = str(key)
        if key not in self.storages:
            self._pay(num_values * storage_type.dtype.itemsize)
            self.storages[key] = torch.empty(num_values, dtype=storage_type.dtype)
            if self.fill is not None:
                self.fill(key, self.storages[key])
        self.stack.append(self.storages[key])

    def _pay(self, cost: int) -> None:
        self.budget -= cost
        if self.budget < 0:
            raise ValueError("its values are larger than the file")

    def _paid(self, values: Any) -> Any:
        self._pay(len(values))
        return values

    def _make_dict(self, pairs: Any = ()) -> dict[Any, Any]:
        return dict(_with_plain_keys(self._paid(pairs)))

    def _make_set(self, values: Any = ()) -> set[Any]:
        return {key for key, _ in _with_plain_keys((value, None) for value in self._paid(values))}

    def _make_bytes(self, text: str, encoding: str) -> bytes:
        if encoding not in ("latin1", "latin-1"):
            raise ValueError(f"bytes in the encoding {encoding!r}")
        return str(self._paid(text)).encode("latin-1")


def _with_plain_keys(items: Any) -> Iterator[tuple[Any, Any]]:
    """Yield keys and values; the hash of a key must be cheap, which that of a tuple may not be."""
    for key, value in items:
        is_small = isinstance(key, int | float) and not abs(key) >= 2**63
        if not is_small and not isinstance(key, str | None):
            raise TypeError(f"a key of type {type(key).__name__}")
        yield key, value


def _make_tensor(storage: Tensor, offset: int, size: Any, stride: Any, *more: object) -> Tensor:
    del more  # requires_grad, hooks, metadata
    if max(len(size), len(stride)) > _MAX_DIMS:
        raise ValueError("a tensor of too many dimensions")
    num_values = math.prod(size)
    extent = 1 + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    is_inside = num_values == 0 or offset + max(extent, num_values) <= len(storage)
    if min((offset, *size, *stride)) < 0 or not is_inside:
        raise ValueError("a tensor reaches beyond its storage, or repeats its values")
    return storage.as_strided(tuple(size), tuple(stride), offset)


def _make_number(dtype: _NumpyType, data: bytes) -> Any:
    return struct.unpack(f"<{_NUMPY_FORMATS[dtype.code]}", data)[0]


_PUSHING = {
    *("BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES"),
    *("BINSTRING", "SHORT_BINSTRING"),
}
_MAKING: Mapping[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
}
_WITHOUT_EFFECT = {"PROTO", "FRAME", "STOP"}
_RUNNING: Mapping[str, Callable[[_Interpreter, Any], object]] = {
    "MARK": lambda run, _: run.marks.append(len(run.stack)),
    "POP": lambda run, _: run.stack.pop(),
    "POP_MARK": lambda run, _: run.pop_to_mark(),
    "TUPLE": lambda run, _: run.make_tuple(len(run.stack) - run.marks.pop()),
    "TUPLE1": lambda run, _: run.make_tuple(1),
    "TUPLE2": lambda run, _: run.make_tuple(2),
    "TUPLE3": lambda run, _: run.make_tuple(3),
    "APPEND": lambda run, _: run.append([run.stack.pop()]),
    "APPENDS": lambda run, _: run.append(run.pop_to_mark()),
    "SETITEM": lambda run, _: run.set_items([run.stack.pop(-2), run.stack.pop()]),
    "SETITEMS": lambda run, _: run.set_items(run.pop_to_mark()),
    "BINPUT": lambda run, key: run.memoize(key),
    "LONG_BINPUT": lambda run, key: run.memoize(key),
    "MEMOIZE": lambda run, _: run.memoize(None),
    "BINGET": lambda run, key: run.stack.append(run.memo[key]),
    "LONG_BINGET": lambda run, key: run.stack.append(run.memo[key]),
    "GLOBAL": lambda run, name: run.find(tuple(name.split(" ", 1))),
    "STACK_GLOBAL": lambda run, _: run.find((str(run.stack.pop(-2)), str(run.stack.pop()))),
    "REDUCE": lambda run, _: run.call(),
    "NEWOBJ": lambda run, _: run.call(),
    "BUILD": lambda run, _: run.set_state(),
    "BINPERSID": lambda run, _: run.load_storage(),
}


_SUFFIXES = {".pt", ".pth", ".ckpt", ".hub"}


def can_read(path: Path) -> bool:
    """Whether a path may be a checkpoint."""
    return path.is_file() and path.suffix in _SUFFIXES


def read_run(path: Path) -> ImportedRun:
    """Read a checkpoint of JoeyNMT or OpenNMT-py, without executing anything in it."""
    checkpoint = read_checkpoint(path)
    names = sorted(map(str, checkpoint)) if isinstance(checkpoint, dict) else []
    if "model_state" in names:
        return joeynmt.read_run(path, checkpoint)
    if {"vocab", "opt"} <= set(names):
        return opennmt.read_run(path, checkpoint)
    message = "neither a checkpoint of JoeyNMT (model_state) nor of OpenNMT-py (model, vocab, opt)"
    hint = f"it contains: {', '.join(names) or 'no dictionary'}"
    raise DataError(str(path), message, hint)
