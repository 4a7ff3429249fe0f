"""Files of image features: a grid of vectors for each image, memory-mapped.

Values are float16, float32, or codes of 8 or 4 bits with a step and an offset per channel:
value = code * step + offset. Two 4-bit codes share a byte, the even channel in its low half. Cells
are stored row by row. Invariant: reading rows in any order and number gives the same values.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.data.images.array_files import open_array_file
from heedful.data.images.image_files import check_rows
from heedful.errors import DataError, check
from heedful.storage.json_files import read_json

FeatureArray = NDArray[np.float32]
_CODES_HINT = (
    "name the file of steps and offsets, float32 (2, channels), with `features_scale` "
    "(`--features-scale`)"
)


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """Feature grids in a file, named by their rows."""

    location: str
    values: NDArray[Any]  # (images, cells, channels), or half as many of 4-bit codes
    scale: FeatureArray | None  # (2, channels): step and offset
    grid: tuple[int, int]  # rows and columns
    metadata: Mapping[str, str]  # what the encoder was
    scale_path: str | None = None

    @classmethod
    def open(
        cls, path: str, scale: str | None = None, *, grid: tuple[int, int] | None = None
    ) -> "ImageFeatures":
        """Open a .npy or .safetensors file; `scale` is a .npy file of steps and offsets.

        The grid is that of the array or of the file's metadata; else cells form a square if they
        can, and one row if not.
        """
        file = open_array_file(path)
        values = file.find("", "features")
        names = ", ".join(sorted(file.arrays)) or "none"
        hint = f"save the array under the name 'features'; arrays found: {names}"
        check(values is not None, path, "no array is called 'features'", hint, DataError)
        assert values is not None
        message = f"an array of shape {values.shape}, not a grid of features for each image"
        hint = "save (images, cells, channels) or (images, rows, columns, channels)"
        check(values.ndim in (3, 4) and values.size, path, message, hint, DataError)
        metadata = dict(file.metadata) or _read_sidecar(path)
        if values.ndim == 4:
            grid = values.shape[1], values.shape[2]
            values = values.reshape(len(values), -1, values.shape[3])
        scale_values = _read_scale(scale or path) if scale or "scale" in file.arrays else None
        _check_dtype(path, values, scale_values)
        grid = grid or _find_grid(path, metadata, values.shape[1])
        message = f"{values.shape[1]} cells are not a grid of {grid[0]} x {grid[1]}"
        is_grid = math.prod(grid) == values.shape[1]
        check(is_grid, path, message, "correct `features_grid`", DataError)
        return cls(path, values, scale_values, grid, metadata, scale)

    def __len__(self) -> int:
        return len(self.values)

    def __reduce__(self) -> Any:  # a copy in another process maps the file again
        return _reopen, (self.location, self.scale_path, self.grid)

    @property
    def bits(self) -> int:
        """Bits per value: 4, 8, 16 or 32."""
        is_packed = self.scale is not None and self.scale.shape[1] == 2 * self.values.shape[2]
        return 4 if is_packed else 8 * self.values.dtype.itemsize

    @property
    def num_channels(self) -> int:
        """Channels of each cell."""
        return self.values.shape[2] * (2 if self.bits == 4 else 1)

    @cached_property
    def images(self) -> tuple[str, ...]:
        """Paths of the images, as far as the file has them."""
        text = self.metadata.get("images", "[]")
        names = json.loads(text) if isinstance(text, str) else text
        message, hint = f"images named: {len(names)}, but it has {len(self)}", "extract it again"
        check(not names or len(names) == len(self), self.location, message, hint, DataError)
        return tuple(map(str, names))

    def read(self, indices: Sequence[int] | NDArray[Any]) -> FeatureArray:
        """Return the features of these rows, (images, cells, channels)."""
        check_rows(np.asarray(indices, np.int64).tolist(), len(self), self.location)
        values = self.values[np.asarray(indices, dtype=np.int64)]
        if self.bits == 4:
            pairs = np.stack([values & 15, values >> 4], axis=-1)
            values = pairs.reshape(*values.shape[:-1], -1)
        numbers = values.astype(np.float32)
        if self.scale is not None:
            numbers *= self.scale[0]
            numbers += self.scale[1]
        elif not np.isfinite(numbers).all():
            broken = np.flatnonzero(~np.isfinite(numbers).all((1, 2)))[0]
            message = f"row {indices[broken]} contains NaN or infinity"
            raise DataError(self.location, message, "extract the features of this image again")
        return numbers

    def fingerprint(self) -> str:
        """Return a hash of the values and of their scale."""
        digest = blake2b(repr((self.values.shape, str(self.values.dtype), self.grid)).encode())
        for start in range(0, len(self), 1024):
            digest.update(np.ascontiguousarray(self.values[start : start + 1024]).data)
        digest.update(b"" if self.scale is None else self.scale.tobytes())
        return digest.hexdigest()[:32]


def _reopen(path: str, scale: str | None, grid: tuple[int, int]) -> ImageFeatures:
    return ImageFeatures.open(path, scale, grid=grid)


def _check_dtype(path: str, values: NDArray[Any], scale: FeatureArray | None) -> None:
    if values.dtype.kind == "f" and values.dtype.itemsize <= 8:
        message, hint = "numbers need no steps and offsets", "leave out `features_scale`"
        check(scale is None, path, f"{values.dtype} {message}", hint, DataError)
        return
    message = f"an array of {values.dtype}; features are float16, float32 or codes in uint8"
    hint = "convert it: numpy.save(path, array.astype(numpy.float16))"
    check(values.dtype == np.uint8, path, message, hint, DataError)
    message = "8- or 4-bit codes without the steps and offsets that make numbers of them"
    check(scale is not None, path, message, _CODES_HINT, DataError)
    assert scale is not None
    stored, channels = values.shape[2], scale.shape[1]
    message = f"{stored} bytes per cell are neither {channels} channels of 8 bits nor of 4"
    hint = "give the steps and offsets that were written with this file"
    check(channels in (stored, 2 * stored), path, message, hint, DataError)


def _read_scale(path: str) -> FeatureArray:
    file = open_array_file(path)
    scale = file.find("scale", "")
    shape = None if scale is None else scale.shape
    message = f"an array of shape {shape}, not (2, channels): a step and an offset per channel"
    is_scale = scale is not None and scale.ndim == 2 and len(scale) == 2 and scale.dtype.kind == "f"
    check(is_scale, path, message, "give the file that came with the features", DataError)
    numbers = np.array(scale, np.float32)
    message = "contains NaN or infinity"
    check(np.isfinite(numbers).all(), path, message, "extract the features again", DataError)
    return numbers


def _read_sidecar(path: str) -> dict[str, Any]:
    """Return the metadata that `heedful features` wrote for a .npy file."""
    sidecar = Path(path).with_suffix(".json")
    if not sidecar.is_file():
        return {}
    try:
        contents = read_json(sidecar)
    except ValueError:
        contents = None
    is_ours = isinstance(contents, dict) and "images" in contents
    return contents if is_ours else {}


def _find_grid(path: str, metadata: Mapping[str, Any], num_cells: int) -> tuple[int, int]:
    if "grid" in metadata:
        parts = str(metadata["grid"]).split("x")
        message, hint = f"the grid {metadata['grid']!r} is not as 7x7", "set `features_grid`"
        is_valid = len(parts) == 2 and all(part.strip().isdecimal() for part in parts)
        check(is_valid, path, message, hint, DataError)
        return int(parts[0]), int(parts[1])
    side = math.isqrt(num_cells)
    return (side, side) if side * side == num_cells else (1, num_cells)
