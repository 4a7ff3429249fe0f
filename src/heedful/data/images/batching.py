"""Images as model inputs, and batches of captions with their images.

A caption is a row of a pair dataset whose source is the number of its image, so that several
captions share one image in memory. Invariants: images stay as they are stored, pixels as bytes and
features as codes; the batches of a resumed stream are those of an uninterrupted one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import override

from heedful.data.images.captions import ImageStore
from heedful.data.images.features import ImageFeatures
from heedful.data.images.image_files import ImageFit, ImageMode, load_pixels
from heedful.data.text.batching import Batch, BatchStream, SourceBatch
from heedful.data.text.example_formats import PairFormat, Rows
from heedful.data.text.pair_dataset import InMemoryPairDataset, Pair, TextHashes, hash_texts
from heedful.errors import ConfigError, check
from heedful.tokenization.ragged_array import Integers
from heedful.tokenization.tokenizer_pair import TokenizerPair

ImageInputs = NDArray[Any]
"""Pixels (N, C, H, W), or features (N, S, C) or their codes."""
MAX_LOADED_BYTES = 4 << 30  # of images that are decoded once; more are decoded for each batch


class ImageShape(NamedTuple):
    """The input of an encoder for each image: an image, or features of the cells of a grid."""

    num_channels: int
    height: int  # pixels, or rows of cells
    width: int
    fit: ImageFit | None = "pad"  # how images are resized; None for features

    @property
    def has_pixels(self) -> bool:
        """Whether it is an image, not features."""
        return self.fit is not None

    @property
    def mode(self) -> ImageMode:
        """Color or gray."""
        return "RGB" if self.num_channels == 3 else "L"

    def describe(self) -> str:
        """Return it as messages show it."""
        unit = "pixels" if self.has_pixels else "cells"
        return f"{self.height} x {self.width} {unit} with {self.num_channels} channels"

    def describe_fit(self) -> str:
        """Return how images are resized; empty for features."""
        others = {"pad": "get a white border", "crop": "are cropped", "stretch": "are distorted"}
        if self.fit is None:
            return ""
        size = f"images are resized to {self.height} x {self.width} pixels"
        return f"{size}; those of another aspect ratio {others[self.fit]} (model.encoder.fit)"


class ImageReader(Protocol):
    """The images of a data set as model inputs."""

    def __len__(self) -> int:
        """Return the number of images."""

    def read(self, rows: Integers) -> ImageInputs:
        """Return the inputs of these images."""


@dataclass(frozen=True)
class ArrayReader:
    """Images in one array, which may be memory-mapped."""

    array: ImageInputs
    rows: Integers

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, rows: Integers) -> ImageInputs:
        """Return the inputs of these images."""
        return self.array[self.rows[rows]]


@dataclass(frozen=True)
class ImageDecoder:
    """Images that are decoded when they are read."""

    store: Any
    images: Sequence[Any]
    shape: ImageShape
    notes: list[str] | None = None  # what is unusual about the files is added here

    def __len__(self) -> int:
        return len(self.images)

    def read(self, rows: Integers) -> ImageInputs:
        """Return the inputs of these images."""
        keys, (_, height, width, fit) = [self.images[row] for row in rows.tolist()], self.shape
        assert fit is not None
        return load_pixels(
            self.store, keys, height, width, mode=self.shape.mode, fit=fit, notes=self.notes
        )


@dataclass(frozen=True)
class DecodedFeatures:
    """Features whose codes have another step or offset than those of training."""

    features: ImageFeatures
    rows: Integers

    def __len__(self) -> int:
        return len(self.rows)

    def read(self, rows: Integers) -> ImageInputs:
        """Return the inputs of these images."""
        return self.features.read(self.rows[rows])


def open_images(
    store: ImageStore,
    images: Sequence[Any],
    shape: ImageShape,
    *,
    location: str,
    scale: NDArray[np.float32] | None = None,
    notes: list[str] | None = None,
) -> ImageReader:
    """Return the images of a source as inputs of this shape.

    Feature codes are read as they are if their step and offset are `scale`, those of training.
    Warnings about images that are decoded now are added to `notes`.
    """
    if isinstance(store, ImageFeatures):
        check_features(store, shape, location)
        rows = np.array(images, dtype=np.int64)
        is_same = store.scale is None
        if store.scale is not None and scale is not None:
            is_same = np.array_equal(store.scale, scale)
        return ArrayReader(store.values, rows) if is_same else DecodedFeatures(store, rows)
    message = f"the encoder reads features of {shape.describe()}, but the data are images"
    hint = "extract features with `heedful features`, or choose model.encoder.type 'cnn'"
    if not shape.has_pixels:
        raise ConfigError(location, message, hint)
    reader = ImageDecoder(store, images, shape)
    if len(images) * prod(shape[:3]) > MAX_LOADED_BYTES:
        return reader
    rows = np.arange(len(images))
    return ArrayReader(ImageDecoder(store, images, shape, notes).read(rows), rows)


def check_features(features: ImageFeatures, shape: ImageShape, location: str) -> None:
    """Raise ConfigError if features do not have the shape that an encoder reads."""
    message = f"the encoder reads {shape.describe()}, but the data are features"
    hint = "set model.encoder.type to 'features', or give images"
    check(not shape.has_pixels, location, message, hint)
    rows, columns = features.grid
    actual = ImageShape(features.num_channels, rows, columns, fit=None)
    message = (
        f"{features.location} has {actual.describe()}, but the encoder reads {shape.describe()}"
    )
    grid = f"model.encoder.grid to [{actual.height}, {actual.width}]"
    hint = f"set {grid} and model.encoder.num_channels to {actual.num_channels}"
    check(actual == shape, location, message, hint)


@dataclass(frozen=True)
class CaptionDataset:
    """Captions, whose sources are numbers of images, and the images."""

    captions: InMemoryPairDataset
    images: ImageReader
    num_cells: int

    def __len__(self) -> int:
        return len(self.captions)

    def add_images(self, batch: Batch) -> Batch:
        """Return a batch of captions with images in place of their numbers."""
        rows = batch.sources.tokens[:, 0]
        sources = collate_images(self.images.read(rows.numpy()), self.num_cells)
        return batch._replace(sources=sources, reference_ids=rows)

    def fingerprint(self) -> str:
        """Return a hash of all captions and images."""
        digest = blake2b(self.captions.fingerprint().encode(), digest_size=16)
        for start in range(0, len(self.images), 256):
            rows = np.arange(start, min(start + 256, len(self.images)))
            digest.update(np.ascontiguousarray(self.images.read(rows)).data)
        return digest.hexdigest()


def collate_images(inputs: ImageInputs, num_cells: int) -> SourceBatch:
    """Return the tensors of images, all of whose cells are visible."""
    tokens = torch.from_numpy(np.ascontiguousarray(inputs))
    return SourceBatch(tokens, torch.full((len(tokens),), num_cells))


@dataclass
class CaptionBatchStream(BatchStream):
    """Batches of captions with their images, one epoch after another."""

    images: CaptionDataset
    min_rows = 2  # a batch norm may have one value per channel of each image

    @override
    def __iter__(self) -> Iterator[Batch]:
        return map(self.images.add_images, super().__iter__())


class CaptionFormat(PairFormat):
    """Images with one or more captions; its pairs are a number of an image and one caption."""

    name = "images"
    description = "captioned images"
    has_tokens = False
    dev_options = "--dev-captions FILE"
    num_disjoint_sides = 1

    @override
    def hash(self, examples: Sequence[Any]) -> TextHashes:
        return hash_texts([Pair(str(example.image), "") for example in examples])

    @override
    def tokenizer_texts(self, examples: Sequence[Any]) -> tuple[list[str], list[str]]:
        return [], [caption for example in examples for caption in example.captions]

    @override
    def encode(self, examples: Sequence[Pair], tokenizers: TokenizerPair) -> tuple[Rows, Rows]:
        targets = tokenizers.target.encode_batch([pair.target for pair in examples])
        return [[int(pair.source)] for pair in examples], targets

    @override
    def filtered(self, sources: Rows, targets: Rows) -> tuple[Rows, Rows]:
        return targets, targets


CAPTIONED_IMAGES = CaptionFormat()
