"""Gray images with labels as batches: read from idx files, placed on a larger canvas, cluttered.

An image smaller than the canvas is placed on it at random, among distractors: patches of other
images, added and clipped (Mnih et al. 2014, section 4.1). A batch holds the parts and where they
go; the device of the model joins them. An idx file (of MNIST) is two zero bytes, the type of the
values (8 for bytes, the only one that is read) and the number of dimensions, then their sizes as
big-endian 32-bit integers, then the values. Invariants: training draws new places at every epoch,
while the place of a dev or test image depends only on its row; a stream started from the cursor of
another continues it exactly.
"""

import gzip
import lzma
import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.shuffling import DataCursor, RowBatches, permute_indices
from heedful.data.sources import FileSourceConfig
from heedful.data.text.example_formats import SeriesFormat
from heedful.data.text.held_out import HELD_OUT_DIVISOR, MAX_HELD_OUT_LINES, DevSplit
from heedful.data.text.pair_dataset import TextHashes
from heedful.data.text_files import (
    ALSO_COMPRESSED,
    COMPRESSION_SUFFIXES,
    display_name,
    open_file,
    read_error,
)
from heedful.errors import DataError, check, format_count
from heedful.shapes import Float, Int
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


Integers = NDArray[np.int64]
MAX_CANVAS_SIZE = 4096
_RENDERED_ROWS = 1000  # at once


class LabeledImage(NamedTuple):
    """A gray image and its class."""

    pixels: Bytes  # (height, width), 0 is background
    label: int


class IdxImagesConfig(FileSourceConfig):
    """Images and labels in two idx files, as of MNIST. Also compressed."""

    type: Literal["idx-images"] = "idx-images"
    path: str
    """File of the images."""
    labels: str | None = None
    """File of the labels; by default that beside the images whose name has `labels-idx1` for
    `images-idx3`."""

    row_name = "image"

    @override
    def stream(self) -> Iterator[LabeledImage]:
        images = read_idx(self.path, 3)
        path = self.labels or find_labels(self.path)
        labels = read_idx(path, 1)
        message = (
            f"{format_count(len(labels), 'label')}, but {display_name(self.path)} has "
            f"{format_count(len(images), 'image')}"
        )
        hint = "name the labels of these images"
        check(len(images) == len(labels), display_name(path), message, hint, DataError)
        return map(LabeledImage, images, labels.tolist())

    @property
    @override
    def paths(self) -> Sequence[str]:
        return [self.path, *([self.labels] if self.labels else [])]


class LabeledImageBatchingConfig(BaseConfig):
    """How labeled images become batches; `model.image_size` is the size of the canvas."""

    batch_size: PositiveInt = Field(default=128, le=10**6)
    """Images per batch."""
    num_distractors: NonNegativeInt = Field(default=0, le=1000)
    """Patches of other images that are added to the canvas of an image; 4 on 60 x 60 pixels and 8
    on 100 x 100 in Mnih et al. (2014)."""
    distractor_size: PositiveInt = 8
    """Height and width of such a patch in pixels."""


class LabeledImageBatch(NamedTuple):
    """Images, their labels and, where they are smaller than the canvas, their placement."""

    images: Int[Tensor, "B h w"]  # uint8, as read
    labels: Int[Tensor, "B"]
    offsets: Int[Tensor, "B 2"] | None = None  # row and column of the upper left corner
    distractors: Int[Tensor, "B P p p"] | None = None  # uint8
    distractor_offsets: Int[Tensor, "B P 2"] | None = None

    @property
    def num_targets(self) -> int:
        """Number of images."""
        return len(self.labels)

    @property
    def num_tokens(self) -> int:
        """Number of images."""
        return len(self.labels)

    @property
    def num_positions(self) -> int:
        """Number of images."""
        return len(self.labels)

    def render(self, size: int) -> Float[Tensor, "B size size"]:
        """Return the canvases, with values from 0 to 1; the images if they have no offsets."""
        images = self.images.float() / 255
        if self.offsets is None:
            return images
        canvas = images.new_zeros(len(images), size * size)
        if self.distractors is not None and self.distractor_offsets is not None:
            patches = self.distractors.float() / 255
            indices = _pixel_indices(self.distractor_offsets, patches.shape[-2:], size)
            canvas = canvas.scatter_add(1, indices.flatten(1), patches.flatten(1)).clamp(max=1)
        indices = _pixel_indices(self.offsets, images.shape[-2:], size)
        canvas = canvas.scatter_add(1, indices.flatten(1), images.flatten(1)).clamp(max=1)
        return canvas.unflatten(1, (size, size))


def _pixel_indices(
    offsets: Int[Tensor, "*B 2"], shape: Sequence[int], size: int
) -> Int[Tensor, "*B X"]:
    """Return the indices in a flat canvas of the pixels of patches that begin at offsets."""
    rows, columns = (torch.arange(length, device=offsets.device) for length in shape)
    inside = (rows[:, None] * size + columns).flatten()
    return (offsets[..., 0] * size + offsets[..., 1]).unsqueeze(-1) + inside


class SceneLayouts(NamedTuple):
    """Where images and distractors are placed, and what distractors are cut from."""

    offsets: Integers  # (rows, 2)
    sources: Integers  # (rows, distractors): image that each is cut from
    source_offsets: Integers  # (rows, distractors, 2)
    distractor_offsets: Integers  # (rows, distractors, 2)

    def select(self, rows: Integers) -> "SceneLayouts":
        """Return the layouts of some rows."""
        return SceneLayouts(*(part[rows] for part in self))


@dataclass(frozen=True)
class LabeledImageDataset:
    """Images of one size and labels, and how they become a batch."""

    images: Bytes  # (N, height, width)
    labels: Integers
    canvas_size: int
    batching: LabeledImageBatchingConfig

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def has_scenes(self) -> bool:
        """Whether images are placed on a larger canvas."""
        return self.images.shape[1:] != (self.canvas_size, self.canvas_size)

    def draw_layouts(self, seeds: Sequence[int], count: int) -> SceneLayouts:
        """Draw layouts; the first ones do not depend on how many are drawn."""
        shape, patch = np.array(self.images.shape[1:]), self.batching.distractor_size
        num = self.batching.num_distractors
        limits: list[tuple[tuple[int, ...], object]] = [
            ((2,), self.canvas_size - shape),
            ((num,), len(self.images) - 1),
            ((num, 2), shape - patch),
            ((num, 2), self.canvas_size - patch),
        ]
        parts = []
        for index, (size, limit) in enumerate(limits):
            uniform = np.random.default_rng([*seeds, index]).random((count, *size))
            parts.append((uniform * (np.asarray(limit) + 1)).astype(np.int64))
        return SceneLayouts(*parts)

    @cached_property
    def fixed_layouts(self) -> SceneLayouts:
        """The layouts of all rows for validation and tests."""
        return self.draw_layouts([0], len(self))

    def collate(self, rows: Integers, layouts: SceneLayouts | None = None) -> LabeledImageBatch:
        """Return a batch; with the fixed layouts of the rows unless others are given."""
        images, labels = torch.from_numpy(self.images[rows]), torch.from_numpy(self.labels[rows])
        if not self.has_scenes:
            return LabeledImageBatch(images, labels)
        layouts = self.fixed_layouts.select(rows) if layouts is None else layouts
        offsets = torch.from_numpy(layouts.offsets)
        if not self.batching.num_distractors:
            return LabeledImageBatch(images, labels, offsets)
        distractors = torch.from_numpy(self._cut_distractors(layouts))
        targets = torch.from_numpy(layouts.distractor_offsets)
        return LabeledImageBatch(images, labels, offsets, distractors, targets)

    def _cut_distractors(self, layouts: SceneLayouts) -> Bytes:
        _, height, width = self.images.shape
        inside = np.arange(self.batching.distractor_size)
        pixels = inside[:, None] * width + inside
        starts = layouts.sources * (height * width) + layouts.source_offsets @ np.array([width, 1])
        return self.images.reshape(-1)[starts[..., None, None] + pixels]

    def fingerprint(self) -> str:
        """Return a hash of images and labels."""
        digest = blake2b(digest_size=16)
        digest.update(repr(self.images.shape).encode())
        for array in (self.images, self.labels):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()


def stack_images(
    examples: Sequence[LabeledImage],
    canvas_size: int,
    batching: LabeledImageBatchingConfig,
    *,
    location: str,
) -> LabeledImageDataset:
    """Return images as a dataset; raise DataError if they do not fit on the canvas."""
    shape = examples[0].pixels.shape
    other = next(
        (example.pixels.shape for example in examples if example.pixels.shape != shape), shape
    )
    message = f"images of {_format_shape(shape)} and of {_format_shape(other)} pixels"
    check(other == shape, location, message, "give images of one size", DataError)
    message = (
        f"images of {_format_shape(shape)} pixels do not fit into {canvas_size} x {canvas_size}"
    )
    fits = max(shape) <= canvas_size
    hint = f"give smaller images, or train with model.image_size={max(shape)}"
    check(fits, location, message, hint, DataError)
    patch, has_canvas = batching.distractor_size, shape != (canvas_size, canvas_size)
    message = f"distractors of {patch} x {patch} pixels cannot be cut from {_format_shape(shape)}"
    is_cut = bool(has_canvas and batching.num_distractors)
    hint = "lower data.labeled_images.distractor_size"
    check(not is_cut or patch <= min(shape), location, message, hint, DataError)
    images = np.stack([example.pixels for example in examples])
    labels = np.array([example.label for example in examples], dtype=np.int64)
    return LabeledImageDataset(images, labels, canvas_size, batching)


def render_scenes(
    examples: Sequence[LabeledImage], canvas_size: int | None, num_distractors: int, *, seed: int
) -> tuple[Bytes, Bytes]:
    """Return images and labels as bytes; on canvases of this size, with distractors, if given."""
    batching = LabeledImageBatchingConfig(num_distractors=num_distractors)
    side = max(examples[0].pixels.shape)
    size = canvas_size or side
    message = f"{size} is less than {side}, the size of the images"
    check(size >= side, "--canvas", message, f"give {side} or more")
    dataset = stack_images(examples, size, batching, location="--canvas")
    layouts = dataset.draw_layouts([seed], len(dataset))
    parts = []
    for start in range(0, len(dataset), _RENDERED_ROWS):
        rows = np.arange(start, min(start + _RENDERED_ROWS, len(dataset)))
        rendered = dataset.collate(rows, layouts.select(rows)).render(size)
        parts.append((255 * rendered).round().to(torch.uint8).numpy())
    return np.concatenate(parts), dataset.labels.astype(np.uint8)


def _format_shape(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


class LabeledImageBatchStream(RowBatches):
    """Batches of labeled images; smaller ones than the canvas are placed anew in each epoch."""

    @override
    def collate(self, rows: Integers, position: DataCursor) -> LabeledImageBatch:
        if not self.dataset.has_scenes:
            return self.dataset.collate(rows)
        layouts = self.dataset.draw_layouts([self.seed, *position[:2]], len(rows))
        return self.dataset.collate(rows, layouts)


class LabeledImageFormat(SeriesFormat):
    """Images with labels, in any order."""

    name = "labeled images"
    description = "labeled images"

    @override
    def choose_held_out(self, hashes: TextHashes, *, seed: int, location: str) -> DevSplit:
        message = "one image is not enough: one is needed to train on and one to validate on"
        hint = "give more images, or others to validate on: --dev-digits FILE"
        check(len(hashes) >= 2, location, message, hint, DataError)
        num_held_out = max(1, min(MAX_HELD_OUT_LINES, len(hashes) // HELD_OUT_DIVISOR))
        rows = permute_indices(np.arange(num_held_out), len(hashes), seed=seed, epoch=0)
        return DevSplit(sorted(rows.tolist()))


LABELED_IMAGES = LabeledImageFormat()
