"""Images as arrays: files in the formats of Pillow, and sheets of equally large images.

Images are uint8 (rows, columns, channels) in RGB or gray, upright, over white where they are
transparent. Invariant: a file is returned whole or is an error that names it; of many files, all
that cannot be read are listed. Pillow, the extra `vision`, is imported when a file is read.
"""

import base64
import os
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from heedful.data.images.array_files import open_array_file
from heedful.data.text_files import read_error
from heedful.errors import DataError, HeedfulError, check, format_count

Pixels = NDArray[np.uint8]
ImageMode = Literal["RGB", "L"]
ImageFit = Literal["crop", "pad", "stretch"]
MAX_PIXELS = 50_000_000
"""Larger images are refused before they are decoded; 50 million are 150 MB in RGB."""
_SUFFIXES = "apng avif bmp dib gif heic heif j2k jfif jp2 jpe jpeg jpg pbm pgm png pnm ppm tga tif"
IMAGE_SUFFIXES = frozenset(f".{suffix}" for suffix in f"{_SUFFIXES} tiff webp".split())
"""Files of a folder that are images; one that cannot be decoded is an error, not left out."""
NUM_CHANNELS: dict[ImageMode, int] = {"RGB": 3, "L": 1}
# Not EPS and the like, which start other programs.
_FORMATS = ["AVIF", "BMP", "DIB", "GIF", "HEIF", "JPEG", "JPEG2000", "MPO", "PNG", "PPM", "TGA"]
_FORMATS += ["TIFF", "WEBP"]
_SENT_FORMATS, _MAX_SENT_PIXELS, _SENT_IMAGE = ("JPEG", "PNG", "WEBP"), 20_000_000, "image"
_CONVERT_HINT = "convert it to PNG or JPEG, for example with `magick INPUT OUTPUT.png`"
_COPY_HINT = "copy or download the file again"
_OTHER_FORMATS = (  # bytes at the start, what they mean, what to do
    ((b"ftyphei", b"ftypmif1", b"ftypmsf1"), "HEIC, the format of iPhones", _CONVERT_HINT),
    ((b"ftypavif", b"ftypavis"), "AVIF, which this version of Pillow lacks", _CONVERT_HINT),
    ((b"ftyp", b"matroska", b"webm"), "a video", "save one of its frames as an image"),
    ((b"<svg", b"<?xml"), "SVG or XML", _CONVERT_HINT),
    ((b"<html", b"<!doctype"), "a web page", "download the image itself"),
    ((b"%pdf",), "PDF", _CONVERT_HINT),
    ((b"%!ps",), "PostScript", _CONVERT_HINT),
    ((b"version https://git-lfs",), "a pointer of Git LFS", "fetch it with `git lfs pull`"),
    ((b"pk\x03\x04",), "a zip archive", "unpack it and name the images in it"),
    ((b"\x1f\x8b",), "gz data", "decompress it with gunzip"),
)
_WHITE = 255
Key = TypeVar("Key")
Value = TypeVar("Value")


class FileListError(DataError):
    """An error about several files or lines, all of which are listed."""

    def __init__(self, location: str, message: str, hint: str, problems: Sequence[str]) -> None:
        super().__init__(location, message, hint)
        self.problems = tuple(problems)
        listed = "".join(f"\n  {problem}" for problem in self.problems)
        self.args = (f"{self.location}: {self.message}{listed}\n  {self.hint}",)


class ImageFiles:
    """Images in files, named by their paths."""

    def read(
        self, images: Sequence[str], mode: ImageMode = "RGB", *, notes: list[str] | None = None
    ) -> list[Pixels]:
        """Return the images of these files; all that cannot be read are one error."""
        return read_all(images, lambda path: load_image(path, mode, notes=notes))


@dataclass(frozen=True, eq=False)
class ImageArray:
    """Equally large images in one array, named by their rows."""

    array: NDArray[Any]  # (images, rows, columns), or channels behind them
    palette: Pixels | None  # (256, 3), if the array contains indices of colors
    location: str

    @classmethod
    def open(cls, path: str, palette: str | None = None) -> "ImageArray":
        """Open a .npy, .npy.gz or .safetensors file of uint8; `palette` has the colors."""
        array = _only_array(path)
        message = f"an array of {array.dtype} with shape {array.shape} is not a sheet of images"
        hint = "save uint8 as (images, rows, columns) or (images, rows, columns, channels)"
        is_image_array = array.dtype in (np.uint8, np.bool_) and array.ndim in (3, 4) and array.size
        is_image_array = is_image_array and (array.ndim == 3 or array.shape[3] in (1, 3, 4))
        check(is_image_array, path, message, hint, DataError)
        if palette is None:
            return cls(array, None, path)
        colors = _only_array(palette)
        message = f"an array of {colors.dtype} with shape {colors.shape} is not a palette"
        hint = "save uint8 (256, 3): red, green and blue of each color"
        is_palette = colors.dtype == np.uint8 and colors.shape == (256, 3)
        check(is_palette, palette, message, hint, DataError)
        message = "has channels, but a palette needs one index per pixel"
        check(array.ndim == 3, path, message, "leave out the palette", DataError)
        return cls(array, np.asarray(colors), path)

    def __len__(self) -> int:
        return len(self.array)

    def read(
        self, images: Sequence[int], mode: ImageMode = "RGB", *, notes: list[str] | None = None
    ) -> list[Pixels]:
        """Return the images of these rows."""
        del notes
        check_rows(images, len(self.array), self.location)
        return [self._convert(np.asarray(self.array[row]), mode) for row in images]

    def _convert(self, pixels: NDArray[Any], mode: ImageMode) -> Pixels:
        if self.palette is not None:
            pixels = self.palette[pixels]
        if pixels.dtype == np.bool_:
            pixels = pixels * np.uint8(_WHITE)
        if pixels.ndim == 2:
            pixels = pixels[:, :, None]
        if pixels.shape[2] == 4:
            alpha = pixels[:, :, 3:].astype(np.float32) / 255
            pixels = pixels[:, :, :3] * alpha + _WHITE * (1 - alpha)
            pixels = pixels.round().astype(np.uint8)
        if mode == "L" and pixels.shape[2] == 3:  # as Pillow: ITU-R 601-2 in 16-bit fractions
            luma = pixels.astype(np.uint32) @ np.array([19595, 38470, 7471], np.uint32)
            return ((luma + 0x8000) >> 16).astype(np.uint8)[:, :, None]
        return np.repeat(pixels, NUM_CHANNELS[mode] // pixels.shape[2], axis=2)


def _only_array(path: str) -> NDArray[Any]:
    file = open_array_file(path)
    message, hint = f"contains {len(file.arrays)} arrays", "give a file of one array"
    check(len(file.arrays) == 1, path, message, hint, DataError)
    return next(iter(file.arrays.values()))


def check_rows(rows: Iterable[int], count: int, location: str) -> None:
    """Raise DataError if a row is not in a file of `count` rows."""
    outside = [row for row in rows if not 0 <= row < count]
    message = f"there is no row {outside[0] if outside else ''}; rows are 0 to {count - 1}"
    check(not outside, location, message, "give the file that the captions belong to", DataError)


def read_all(keys: Sequence[Key], read: Callable[[Key], Value]) -> list[Value]:
    """Read every image, and raise one error that lists all that cannot be read."""
    images: list[Value] = []
    errors: list[DataError] = []
    for key in keys:
        try:
            images.append(read(key))
        except DataError as error:
            if isinstance(error, MissingExtraError):
                raise
            errors.append(error)
    if len(errors) > 1:
        problems = [f"{error.location}: {error.message}" for error in errors]
        location = f"{len(errors):,} of {format_count(len(keys), 'image')}"
        hint = "replace or remove them"
        raise FileListError(location, "cannot be read", hint, problems)
    if errors:
        raise errors[0]
    return images


class MissingExtraError(DataError):
    """A package that is not installed."""


def load_image(
    path: str | Path, mode: ImageMode = "RGB", *, notes: list[str] | None = None
) -> Pixels:
    """Return the image of a file as uint8 (rows, columns, channels).

    What a user may want to know, such as that only the first frame was read, is added to `notes`.
    """
    location = str(path)
    pillow = _import_pillow(location)
    try:
        is_special = not stat.S_ISREG(os.stat(path).st_mode) and not os.path.isdir(path)
        check(not is_special, location, "not a regular file", "name an image", DataError)
        with open(path, "rb") as file:
            return _decode(file, location, mode, pillow, notes if notes is not None else [])
    except OSError as error:
        raise read_error(location, error) from None
    except ValueError:  # a null character in the path
        raise DataError(repr(location), "not a path", "check the path") from None


def decode_base64_image(text: str, mode: ImageMode = "RGB") -> Pixels:
    """Return an image that a client sent: PNG, JPEG or WebP in base64, of at most 20 megapixels."""
    try:
        contents = base64.b64decode(text, validate=True)
    except ValueError:  # also of characters beyond ASCII
        hint = "send the contents of a PNG, JPEG or WebP file in base64"
        raise DataError(_SENT_IMAGE, "is not base64", hint) from None
    pillow = _import_pillow(_SENT_IMAGE)
    return _decode(
        BytesIO(contents),
        _SENT_IMAGE,
        mode,
        pillow,
        [],
        formats=_SENT_FORMATS,
        max_pixels=_MAX_SENT_PIXELS,
    )


def _import_pillow(location: str) -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError:
        message = "reading images needs the package Pillow"
        hint = "install it with: pip install 'heedful[vision]'"
        raise MissingExtraError(location, message, hint) from None


def _decode(
    file: BinaryIO,
    location: str,
    mode: ImageMode,
    pillow: Any,
    notes: list[str],
    *,
    formats: Sequence[str] = _FORMATS,
    max_pixels: int = MAX_PIXELS,
) -> Pixels:
    image = _open(file, location, pillow, formats)
    width, height = image.size
    message = f"{width} x {height} pixels; the limit is {max_pixels:,}"
    hint = "make it smaller, for example with `magick INPUT -resize 2000x2000 OUTPUT.png`"
    check(0 < width * height <= max_pixels, location, message, hint, DataError)
    with _broken_files(location):
        num_frames = getattr(image, "n_frames", 1)
        if num_frames > 1 and image.format != "MPO":  # MPO: one photograph in several sizes
            notes.append(f"{location}: only the first of {num_frames} frames or pages is read")
        expected = pillow.EXTENSION.get(Path(location).suffix.lower(), image.format)
        if expected != image.format and {expected, image.format} != {"JPEG", "MPO"}:
            notes.append(f"{location}: named as {expected}, but contains {image.format}")
        image.seek(0)
        image.load()
        has_16_bits = image.mode.startswith("I;16") or (
            image.mode == "I" and image.format in ("PNG", "PPM")
        )
        image = import_module("PIL.ImageOps").exif_transpose(image)
        if has_16_bits:
            notes.append(f"{location}: 16 bits per pixel are reduced to 8")
            values = (np.asarray(image).astype(np.int64) * 255 + 32767) // 65535
            image = pillow.fromarray(values.clip(0, 255).astype(np.uint8))
        return _to_array(image, location, mode, pillow, notes)


@contextmanager
def _broken_files(location: str) -> Iterator[None]:
    """Turn the errors of decoders, which are of many types, into a DataError."""
    try:
        yield
    except (HeedfulError, MemoryError):
        raise
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        message = f"broken or truncated ({reason})"
        raise DataError(location, message, _COPY_HINT) from None


def _open(file: BinaryIO, location: str, pillow: Any, formats: Sequence[str]) -> Any:
    """Open an image without decoding it; the format follows from its contents."""
    start = file.read(512)
    check(start, location, "the file is empty", _COPY_HINT, DataError)
    file.seek(0)
    pillow.init()
    formats = [name for name in formats if name in pillow.OPEN]
    with _broken_files(location), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of large images, which have an error of ours
        try:
            return pillow.open(file, formats=formats)
        except pillow.DecompressionBombError:
            message = f"has far more pixels than the limit of {MAX_PIXELS:,}"
            hint = "make it smaller, if it is an image at all"
            raise DataError(location, message, hint) from None
        except import_module("PIL").UnidentifiedImageError:
            raise _unknown_format(start, location) from None


def _unknown_format(start: bytes, location: str) -> DataError:
    for marks, name, hint in _OTHER_FORMATS:
        if any(mark in start[:64].lower() for mark in marks):
            return DataError(location, f"not an image but {name}", hint)
    if all(byte in b"\t\r\n" or byte >= 32 for byte in start) and b"\0" not in start:
        return DataError(location, "not an image but text", "name an image")
    message = "not an image, or broken, or in a format that Pillow cannot read"
    return DataError(location, message, _CONVERT_HINT)


def _to_array(image: Any, location: str, mode: ImageMode, pillow: Any, notes: list[str]) -> Pixels:
    """Return a decoded image as 8 bits per channel, over white where it is transparent."""
    message = f"pixels are {'fractions' if image.mode == 'F' else '32-bit numbers'}"
    message += ", whose range is not known"
    hint = "scale them to 0..255 and save them with 8 bits, or as an image sheet (.npy)"
    check(image.mode not in ("I", "F"), location, message, hint, DataError)
    if image.mode == "CMYK":
        notes.append(f"{location}: CMYK is converted without its color profile")
    has_alpha = image.mode in ("RGBA", "RGBa", "LA", "La", "PA")
    if has_alpha or "transparency" in image.info:
        image = image.convert("RGBA")
        background = pillow.new("RGBA", image.size, (_WHITE, _WHITE, _WHITE, _WHITE))
        image = pillow.alpha_composite(background, image)
    if image.mode == "P":
        image = image.convert("RGB")
    pixels = np.array(image.convert(mode), dtype=np.uint8)
    return pixels[:, :, None] if pixels.ndim == 2 else pixels


def resize_image(image: Pixels, height: int, width: int, fit: ImageFit = "pad") -> Pixels:
    """Return an image of this size, resampled linearly; what shrinks is averaged.

    `crop` keeps the middle of what is too wide or too high, `pad` adds white on both sides,
    `stretch` changes the proportions.
    """
    old_height, old_width = image.shape[:2]
    ratios = height / old_height, width / old_width
    scale = {"crop": max(ratios), "pad": min(ratios)}.get(fit)
    inner_height = height if scale is None else max(1, round(old_height * scale))
    inner_width = width if scale is None else max(1, round(old_width * scale))
    image = _resample(image, inner_height, inner_width)
    top, left = (inner_height - height) // 2, (inner_width - width) // 2
    image = image[max(0, top) : max(0, top) + height, max(0, left) : max(0, left) + width]
    if image.shape[:2] == (height, width):
        return image
    resized = np.full((height, width, image.shape[2]), _WHITE, np.uint8)
    resized[
        max(0, -top) : inner_height - min(top, 0), max(0, -left) : inner_width - min(left, 0)
    ] = image
    return resized


def _resample(image: Pixels, height: int, width: int) -> Pixels:
    if image.shape[:2] == (height, width):
        return image
    pixels = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)[None].float()
    resized = interpolate(pixels, (height, width), mode="bilinear", antialias=True)
    return resized[0].permute(1, 2, 0).round().clamp(0, 255).byte().numpy()


def load_pixels(
    store: ImageFiles | ImageArray,
    images: Sequence[Any],
    height: int,
    width: int,
    *,
    mode: ImageMode = "RGB",
    fit: ImageFit = "pad",
    notes: list[str] | None = None,
) -> Pixels:
    """Return images in one size, (images, channels, height, width)."""

    def read(image: Any) -> Pixels:
        pixels = store.read([image], mode, notes=notes)[0]
        return resize_image(pixels, height, width, fit).transpose(2, 0, 1)

    batch = np.empty((len(images), NUM_CHANNELS[mode], height, width), np.uint8)
    for row, pixels in enumerate(read_all(images, read)):
        batch[row] = pixels
    return batch
