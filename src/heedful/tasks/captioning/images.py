"""Images as requests: names of files, rows of feature files and sheets, or arrays.

`features.npy#12` names row 12 of a feature file or an image sheet. Invariant: an image has the same
inputs by whatever name it is requested.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.data.images.array_files import open_array_file
from heedful.data.images.batching import ImageShape, check_features
from heedful.data.images.features import ImageFeatures
from heedful.data.images.image_files import (
    IMAGE_SUFFIXES,
    ImageArray,
    ImageFiles,
    Pixels,
    resize_image,
)
from heedful.errors import DataError, RunError, check, format_count

ARRAY_SUFFIXES = (".npy", ".npy.gz", ".safetensors")
_ROW_MARK = "#"


class StoredImage(str):
    """The name of an image that a store holds under a key."""

    store: Any
    key: Any
    __slots__ = ("key", "store")

    def __new__(cls, name: str, store: Any, key: Any) -> "StoredImage":
        image = super().__new__(cls, name)
        image.store, image.key = store, key
        return image

    def __reduce__(self) -> Any:
        return StoredImage, (str(self), self.store, self.key)


ImageRequest = str | Path | NDArray[Any]
"""A file, `FILE#ROW`, or an array: pixels (H, W) or (H, W, C), features (S, C) or (R, C, D)."""


class LoadedImage(NamedTuple):
    """An image as the input of a model."""

    name: str
    inputs: NDArray[Any]  # pixels (C, H, W) or features (S, C)
    pixels: Pixels | None  # (H, W, C), as the model sees it; None of features


class ImageLoader:
    """Loads images in the shape that an encoder reads.

    Codes of features without step and offset are decoded with those of training.
    """

    def __init__(
        self, shape: ImageShape, scale: tuple[NDArray[Any], NDArray[Any]] | None = None
    ) -> None:
        self.shape = shape
        self._scale = scale
        self._stores: dict[str, Any] = {}
        self.notes: list[str] = []  # what is unusual about the images that were read

    def load(self, request: ImageRequest) -> LoadedImage:
        """Load an image."""
        if isinstance(request, np.ndarray):
            return self._from_array(request)
        if isinstance(request, StoredImage):
            return self._from_store(str(request), request.store, request.key)
        name = str(request)
        path, mark, row = name.rpartition(_ROW_MARK)
        if mark and path.endswith(ARRAY_SUFFIXES) and row.isdecimal():
            return self._from_store(name, self._open(path), int(row))
        if name.endswith(ARRAY_SUFFIXES):
            hint = f"name one of its rows, such as {name}{_ROW_MARK}0"
            raise DataError(name, "a file of several images", hint)
        return self._from_store(name, ImageFiles(), name)

    def expand(self, names: Iterable[str]) -> list[str]:
        """Return the names of all images in folders, feature files and sheets among `names`."""
        expanded: list[str] = []
        for name in names:
            if name.endswith(ARRAY_SUFFIXES):
                store = self._open(name)
                count = len(store.array if isinstance(store, ImageArray) else store)
                expanded += (f"{name}{_ROW_MARK}{row}" for row in range(count))
            else:
                expanded += list_images(name)
        return expanded

    def _open(self, path: str) -> Any:
        if path not in self._stores:
            if self.shape.has_pixels:
                self._stores[path] = ImageArray.open(path)
            else:
                self._stores[path] = self._open_features(path)
        return self._stores[path]

    def _open_features(self, path: str) -> ImageFeatures:
        file = open_array_file(path)
        values, grid = file.find("", "features"), (self.shape.height, self.shape.width)
        if values is not None:
            self._check_cells(path, values)
        is_code = values is not None and values.dtype == np.uint8 and file.find("scale") is None
        message = "8- or 4-bit codes without a scale, but this run was trained on numbers"
        hint = "give float features, or a .safetensors file with codes and their scale"
        check(not is_code or self._scale is not None, path, message, hint, DataError)
        if values is None or not is_code or self._scale is None:
            return ImageFeatures.open(path, grid=grid)
        values = values.reshape(len(values), -1, values.shape[-1])
        return ImageFeatures(path, values, np.stack(self._scale), grid, file.metadata)

    def _check_cells(self, path: str, values: NDArray[Any]) -> None:
        num_cells, expected = math.prod(values.shape[1:-1]), self.shape.describe()
        message = f"{format_count(num_cells, 'cell')} for each image, but this run reads {expected}"
        hint = "extract features as for the training of the run"
        fits = values.ndim < 3 or num_cells == self.shape.height * self.shape.width
        check(fits, path, message, hint, DataError)

    def _from_store(self, name: str, store: Any, key: Any) -> LoadedImage:
        if isinstance(store, ImageFeatures):
            check_features(store, self.shape, name)
            return LoadedImage(name, store.read([key])[0], None)
        self._check_image(name)
        (pixels,) = store.read([key], self.shape.mode, notes=self.notes)
        return self._from_pixels(name, pixels)

    def _check_image(self, name: str) -> None:
        message = f"this run reads features ({self.shape.describe()}), not images"
        hint = "extract them with `heedful features`, and name FILE.npy#ROW"
        check(self.shape.has_pixels, name, message, hint, RunError)  # not of one image

    def _from_pixels(self, name: str, pixels: Pixels) -> LoadedImage:
        _, height, width, fit = self.shape
        assert fit is not None
        resized = resize_image(pixels, height, width, fit)
        return LoadedImage(name, resized.transpose(2, 0, 1), resized)

    def _from_array(self, array: NDArray[Any]) -> LoadedImage:
        if self.shape.has_pixels:
            is_image = array.dtype == np.uint8 and array.ndim in (2, 3)
            message = f"{array.dtype} of shape {array.shape} is not an image"
            hint = "give uint8 (height, width) or (height, width, channels)"
            check(is_image, "image", message, hint, DataError)
            array_of_one = ImageArray(array[None], None, "image")
            return self._from_pixels("image", array_of_one.read([0], self.shape.mode)[0])
        expected = (self.shape.height * self.shape.width, self.shape.num_channels)
        features = array.reshape(-1, array.shape[-1]) if array.ndim == 3 else array
        message = f"features of shape {array.shape}, but the model reads {self.shape.describe()}"
        hint = f"give floating-point numbers of shape {expected}"
        is_valid = features.shape == expected and features.dtype.kind == "f"
        check(is_valid, "image", message, hint, DataError)
        return LoadedImage("image", features.astype(np.float32), None)


def list_images(name: str) -> list[str]:
    """Return the names of all images in a folder; any other name as it is."""
    if not Path(name).is_dir():
        return [name]
    files = sorted(Path(name).iterdir())
    images = [str(file) for file in files if file.suffix.lower() in IMAGE_SUFFIXES]
    hint = "name a folder with images, or the images"
    check(images, name, "contains no images", hint, DataError)
    return images


def name_images(store: Any, keys: Sequence[Any]) -> list[str]:
    """Return images of a store as requests whose text names them."""
    if isinstance(store, ImageFiles):
        return [str(key) for key in keys]
    return [StoredImage(f"{store.location}{_ROW_MARK}{key}", store, key) for key in keys]
