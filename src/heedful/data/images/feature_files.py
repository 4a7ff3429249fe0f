"""Writing of feature files: grids as float32, float16, or codes of 8 or 4 bits.

Rows are appended to a temporary file next to the output, so that a data set need not fit in memory,
and the output appears when it is complete. Invariant: what is written is read back by
`ImageFeatures` as the same numbers, up to half a step of the codes where they are not clipped.
"""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from heedful.data.images.features import FeatureArray
from heedful.errors import ConfigError, check
from heedful.storage.atomic import atomic_replace, check_free_space, explain_os_errors

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
