"""Files of image features: a grid of vectors for each image, memory-mapped.

Values are float16, float32, or codes of 8 or 4 bits with a step and an offset per channel:
value = code * step + offset. Two 4-bit codes share a byte, the even channel in its low half. Cells
are stored row by row. Invariants: reading rows in any order and number gives the same values; what
is written is read back as the same numbers, up to half a step of the codes that are not clipped.
"""

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from heedful.data.images.array_files import open_array_file
from heedful.data.images.image_files import check_rows
from heedful.errors import ConfigError, DataError, check, format_count
from heedful.storage.atomic import atomic_replace, check_free_space, explain_os_errors
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
        message = (
            f"{format_count(values.shape[1], 'cell')} cannot be a grid of {grid[0]} x {grid[1]}"
        )
        is_grid = math.prod(grid) == values.shape[1]
        check(is_grid, path, message, "correct `features_grid`", DataError)
        return cls(path, values, scale_values, grid, metadata, scale)

    def __len__(self) -> int:
        return len(self.values)

    def __reduce__(self) -> Any:  # a copy in another process maps the file again
        return partial(ImageFeatures.open, grid=self.grid), (self.location, self.scale_path)

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


# ----- writing

FeatureBits = Literal[32, 16, 8, 4]
FEATURE_SUFFIXES = (".safetensors", ".npy")
_CHUNK = 256  # images
_MAX_SAMPLED_CELLS = 100_000
_ALIGNMENT = 8
_DTYPES: Mapping[int, tuple[str, type[Any]]] = {
    32: ("F32", np.float32),
    16: ("F16", np.float16),
    8: ("U8", np.uint8),
    4: ("U8", np.uint8),
}


class FeatureWriter:
    """Writes the features of images to one file, image by image."""

    def __init__(self, raw: BinaryIO, raw_path: Path, shape: tuple[int, int, int]) -> None:
        self._raw, self._raw_path, self._shape = raw, raw_path, shape
        self.images: list[str] = []

    def append(self, images: Sequence[str], features: FeatureArray) -> None:
        """Add images, (images, cells, channels)."""
        rows, columns, channels = self._shape
        assert features.shape == (len(images), rows * columns, channels), features.shape
        self.images += images
        self._raw.write(np.ascontiguousarray(features, np.float32).data)

    def rows(self) -> NDArray[np.float32]:
        """Return all that was added so far, memory-mapped."""
        self._raw.flush()
        rows, columns, channels = self._shape
        shape = len(self.images), rows * columns, channels
        return np.memmap(self._raw_path, np.float32, "r", shape=shape)


@contextmanager
def write_features(
    path: Path,
    shape: tuple[int, int, int],
    *,
    bits: FeatureBits = 16,
    num_images: int,
    metadata: Mapping[str, str],
) -> Iterator[FeatureWriter]:
    """Yield a writer; the file is written at the end, unless an error or an interrupt comes first.

    `shape` is (rows, columns, channels). A .npy file has its metadata in a .json file
    of the same name.
    """
    check_feature_path(path, bits)
    num_values = num_images * shape[0] * shape[1] * shape[2]
    check_free_space(path, num_values * 4 + num_values * bits // 8)
    with atomic_replace(path) as temporary:
        raw_path = temporary.with_name(f"{temporary.name}.raw")
        try:
            with raw_path.open("wb") as raw:
                writer = FeatureWriter(raw, raw_path, shape)
                yield writer
                described = {
                    **metadata,
                    "grid": f"{shape[0]}x{shape[1]}",
                    "images": json.dumps(writer.images, ensure_ascii=False),
                }
                with explain_os_errors(path):
                    _write(temporary, writer.rows(), bits, described, path)
        finally:
            raw_path.unlink(missing_ok=True)


def check_feature_path(path: Path, bits: int) -> None:
    """Raise ConfigError unless features can be written to a file of this name."""
    suffixes = " or ".join(FEATURE_SUFFIXES)
    message, hint = f"a feature file is called {suffixes}", f"rename it to {path.stem}.safetensors"
    check(path.suffix in FEATURE_SUFFIXES, str(path), message, hint, ConfigError)
    message = f"codes of {bits} bits need steps and offsets, which .npy has no place for"
    is_possible = path.suffix == ".safetensors" or bits > 8
    check(is_possible, str(path), message, f"write {path.stem}.safetensors", ConfigError)


def _write(
    temporary: Path,
    rows: NDArray[np.float32],
    bits: FeatureBits,
    metadata: Mapping[str, str],
    path: Path,
) -> None:
    scale = fit_scale(rows, bits) if bits <= 8 else None
    num_images, num_cells, num_channels = rows.shape
    shape = [num_images, num_cells, num_channels // 2 if bits == 4 else num_channels]
    with temporary.open("wb") as file:
        if path.suffix == ".npy":
            dtype = np.dtype(_DTYPES[bits][1])
            header = {"descr": dtype.str, "fortran_order": False, "shape": tuple(shape)}
            np.lib.format.write_array_header_1_0(file, header)
            with atomic_replace(path.with_suffix(".json")) as sidecar:
                sidecar.write_text(json.dumps(metadata, ensure_ascii=False), encoding="utf-8")
        else:
            _write_safetensors_header(file, shape, bits, scale, metadata)
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            values = chunk.astype(_DTYPES[bits][1]) if scale is None else encode(chunk, scale, bits)
            file.write(np.ascontiguousarray(values).data)


def _write_safetensors_header(
    file: BinaryIO,
    shape: list[int],
    bits: FeatureBits,
    scale: FeatureArray | None,
    metadata: Mapping[str, str],
) -> None:
    """Write the header and the scale; float32 comes first, so that each tensor is aligned."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    if scale is not None:
        end = scale.nbytes
        header["scale"] = {"dtype": "F32", "shape": [*scale.shape], "data_offsets": [0, end]}
    dtype_name, dtype = _DTYPES[bits]
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    offsets = [end, end + size]
    header["features"] = {"dtype": dtype_name, "shape": shape, "data_offsets": offsets}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    file.write(struct.pack("<Q", len(text)) + text)
    if scale is not None:
        file.write(scale.data)


def fit_scale(rows: NDArray[np.float32], bits: int) -> FeatureArray:
    """Return step and offset of each channel: of several ranges, the one of least squared error.

    Values beyond the ends are clipped, so a smaller range has a finer step.
    """
    num_cells, num_channels = rows.shape[0] * rows.shape[1], rows.shape[2]
    every = max(1, -(-num_cells // _MAX_SAMPLED_CELLS))
    sample = rows.reshape(num_cells, num_channels)[::every].astype(np.float64)
    low, high = sample.min(0), sample.max(0)
    middle, half = (low + high) / 2, np.maximum((high - low) / 2, 1e-12)
    mean, num_steps = sample.mean(0), 2**bits - 1
    best = np.full(num_channels, np.inf)
    scale = np.zeros((2, num_channels), np.float32)
    for share in np.linspace(0.1, 1, 19):
        center = mean + (middle - mean) * share  # all of the range at 1, around the mean below
        step = 2 * half * share / num_steps
        candidate = np.stack([step, center - half * share]).astype(np.float32)
        codes = np.clip(np.round((sample - candidate[1]) / candidate[0]), 0, num_steps)
        error = ((codes * candidate[0] + candidate[1] - sample) ** 2).mean(0)
        is_better = error < best
        best = np.where(is_better, error, best)
        scale[:, is_better] = candidate[:, is_better]
    return scale


def encode(rows: NDArray[np.float32], scale: FeatureArray, bits: int) -> NDArray[np.uint8]:
    """Return the nearest codes; of 4 bits, two in a byte, the even channel in its low half."""
    codes = np.clip(np.round((rows - scale[1]) / scale[0]), 0, 2**bits - 1).astype(np.uint8)
    return codes if bits == 8 else codes[..., ::2] | (codes[..., 1::2] << 4)
