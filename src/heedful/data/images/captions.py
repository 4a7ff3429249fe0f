"""Sources of captioned images: files with images, image sheets or features, and folders.

An example is one image with all of its captions; lines of one image need not be adjacent. Images
are named by a path or, in a sheet or a feature file, by a row. Invariant: every line of the split
is in exactly one example, or the source is an error that lists all that is missing.
"""

import os
import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, PositiveInt
from typing_extensions import override

from heedful.data.images.caption_files import (
    CaptionColumns,
    CaptionFileFormat,
    Column,
    read_caption_lines,
)
from heedful.data.images.features import ImageFeatures
from heedful.data.images.image_files import IMAGE_SUFFIXES, FileListError, ImageArray, ImageFiles
from heedful.data.sources import Encoding, SourceConfig
from heedful.data.text_files import (
    STANDARD_INPUT,
    UTF_8,
    display_name,
    file_suffix,
    read_error,
    read_lines,
)
from heedful.errors import DataError, check, check_choice, format_count

ImageStore = ImageFiles | ImageArray | ImageFeatures
"""What the images of a source are read from."""
RowsBy = Literal["auto", "names", "numbers", "order"]
_FOLDER_HINT = "name it with `images` (--images)"
_ARRAY_SUFFIXES = (".npy", ".npy.gz", ".safetensors")
_FORMATS: dict[str, CaptionFileFormat] = {
    ".csv": "csv",
    ".json": "jsonl",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}


class CaptionedImage(NamedTuple):
    """An image and its captions."""

    image: str | int  # a path, or a row of an image sheet or a feature file
    captions: tuple[str, ...]

    @property
    def references(self) -> tuple[str, ...]:
        """The texts that outputs are scored against: all captions."""
        return self.captions


class CaptionSourceConfig(SourceConfig):
    """A source of captioned images."""

    type: str  # first, so that it is written first
    features: str | None = None
    """Feature file to read instead of images: .npy or .safetensors, (images, cells, channels) or
    (images, rows, columns, channels); float16, float32, or 8- or 4-bit codes."""
    features_scale: str | None = None
    """Step and offset of each channel of 8- and 4-bit codes: .npy of float32, (2, channels)."""
    features_grid: tuple[PositiveInt, PositiveInt] | None = None
    """Rows and columns of the feature grid; by default those of the file, else a square."""
    rows: RowsBy = "auto"
    """How an image is found in a sheet or feature file: by the names stored there, by numbers in
    the image column (counted from 0), or by the order of the images of the split. By default
    names if the file has them, numbers if every image is the number of a row, else order."""

    @abstractmethod
    def read_captions(self) -> dict[str, list[str]]:
        """Return the captions of each image by its name in the source."""

    @property
    @abstractmethod
    def image_folder(self) -> str:
        """The folder that names of images are relative to."""

    def open_images(self) -> ImageStore:
        """Return the store that the images of the examples are read from."""
        if self.features is None:
            message, hint = "given without `features`", "name the feature file with `features`"
            check(self.features_scale is None, "features_scale", message, hint)
            return ImageFiles()
        return ImageFeatures.open(self.features, self.features_scale, grid=self.features_grid)

    @override
    def stream(self) -> Iterator[CaptionedImage]:
        return iter(self.read())

    @override
    def read(self) -> list[CaptionedImage]:
        captions, store = self.read_captions(), self.open_images()
        keys: list[str] | list[int]
        if isinstance(store, ImageFiles):
            keys = find_images(list(captions), self.image_folder, location=self.describe())
        else:
            keys = find_rows(list(captions), store, self.rows, location=self.describe())
        grouped: dict[str | int, list[str]] = {}  # two names may be one image: a and ./a
        for index, texts in enumerate(captions.values()):
            grouped.setdefault(keys[index], []).extend(texts)
        return [CaptionedImage(key, tuple(texts)) for key, texts in grouped.items()]

    @override
    def locate(self, row: int) -> str:
        return f"{self.describe()}, image {row + 1}"

    @property
    def feature_paths(self) -> list[str]:
        """Feature file and its scale."""
        return [path for path in (self.features, self.features_scale) if path]


class CaptionFileConfig(CaptionSourceConfig):
    """A file of images and captions: TSV, CSV or JSON lines. Also compressed, and "-" for stdin."""

    type: Literal["captions"] = "captions"
    path: str
    """The file; an image may have several lines, and a line several captions."""
    format: Literal["auto"] | CaptionFileFormat = "auto"
    """Format of the file; by default that of its name, else tab-separated columns."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """What separates the columns of a CSV file; by default a comma."""
    encoding: Encoding = UTF_8
    """Encoding of the file, such as cp1252 for files of Windows."""
    image_column: Column | None = None
    """Column of the images: its number, counted from 1, its name in the first line, or a key of
    JSON. By default `image`, `file_name`, `path`, `index` or the like, else the first."""
    caption_column: Column | list[Column] | None = None
    """Column of the captions, or several. By default `caption`, `captions`, `text`, `name` or the
    like, else the second; a key of JSON may have an array of captions."""
    split_column: Column | None = None
    """Column that names the split of a line; by default `split`, if there is one."""
    split: str | None = None
    """Which lines to read, for example `train`; default: all."""
    images: str | None = None
    """Folder of the images, or an image sheet: uint8 in .npy or .npy.gz, (images, rows, columns)
    or (images, rows, columns, channels). Default: the folder of the file."""
    palette: str | None = None
    """Colors of an image sheet that has color indices: .npy of uint8, (256, 3)."""

    @override
    def read_captions(self) -> dict[str, list[str]]:
        captions: dict[str, list[str]] = {}
        splits: set[str] = set()
        texts = self.caption_column
        columns = CaptionColumns(
            self.image_column,
            texts if texts is None or isinstance(texts, list) else [texts],
            self.split_column,
            needs_split=self.split is not None,
        )
        reading = {"delimiter": self.delimiter or ",", "encoding": self.encoding}
        for line in read_caption_lines(self.path, self._format, columns, **reading):
            splits.add(line.split)
            if self.split in (None, line.split):
                captions.setdefault(line.image, []).extend(line.captions)
        location = display_name(self.path)
        if self.split is not None:
            check_choice(self.split, splits, "split", location=location, error=DataError)
        check(captions, location, "contains no captions", "add lines", DataError)
        return captions

    @override
    def open_images(self) -> ImageStore:
        if self._has_image_array:
            assert self.images is not None
            return ImageArray.open(self.images, self.palette)
        message = "colors are given, but images are not a sheet"
        hint = "name the sheet (.npy or .npy.gz) with `images`, or leave out `palette`"
        check(self.palette is None, "palette", message, hint)
        return super().open_images()

    @property
    @override
    def image_folder(self) -> str:
        default = "." if self.path == STANDARD_INPUT else str(Path(self.path).parent)
        return default if self.images is None else self.images

    @property
    @override
    def paths(self) -> Sequence[str]:
        sheet = [self.images, self.palette] if self._has_image_array else []
        return [self.path, *self.feature_paths, *filter(None, sheet)]

    @override
    def describe(self) -> str:
        return display_name(self.path) + (f", split {self.split!r}" if self.split else "")

    @property
    def _has_image_array(self) -> bool:
        is_image_array = self.images is not None and self.images.lower().endswith(_ARRAY_SUFFIXES)
        return is_image_array and self.features is None

    @property
    def _format(self) -> CaptionFileFormat:
        if self.format != "auto":
            return self.format
        return "csv" if self.delimiter else _FORMATS.get(file_suffix(self.path), "tsv")


class ImageFolderConfig(CaptionSourceConfig):
    """A folder of images whose captions are their names, or text files of the same name."""

    type: Literal["image-folder"] = "image-folder"
    path: str
    """The folder; folders in it are read, too."""
    captions: Literal["text-files", "names"] = "text-files"
    """Captions of `a/red-hat.png`: the lines of `a/red-hat.txt`, or the name, "red hat"."""

    @override
    def read_captions(self) -> dict[str, list[str]]:
        images = self._list_images()
        captions: dict[str, list[str]] = {}
        for image in images:
            name = image.relative_to(self.path).as_posix()
            if self.captions == "names":
                captions[name] = [" ".join(re.split(r"[-_\s]+", image.stem.strip("-_ ")))]
                continue
            text_file = image.with_suffix(".txt")
            lines = read_lines(str(text_file)) if text_file.is_file() else ()
            captions[name] = [" ".join(line.split()) for line in lines if line.strip()]
        empty = [name for name, texts in captions.items() if not any(texts)]
        if empty:
            hint = "add a text file beside each, with a caption per line; or set `captions: names`"
            if tables := sorted(Path(self.path).glob("*.tsv")):
                hint = f"name the file of captions instead of the folder: {tables[0]}"
            message = f"{len(empty):,} of {format_count(len(images), 'image')} without a caption"
            raise FileListError(self.path, message, hint, empty)
        return captions

    def _list_images(self) -> list[Path]:
        folder = Path(self.path)
        try:
            os.listdir(folder)
        except NotADirectoryError:
            hint = "name a folder of images, or give the file with `type: captions`"
            raise DataError(self.path, "this is a file, not a folder", hint) from None
        except FileNotFoundError:
            raise DataError(self.path, "no such folder", "check the path") from None
        except OSError as error:
            raise read_error(self.path, error) from None
        files = (path for path in sorted(folder.rglob("*")) if not path.name.startswith("."))
        images = [path for path in files if path.suffix.lower() in IMAGE_SUFFIXES]
        message, hint = "contains no images", f"add some: {', '.join(sorted(IMAGE_SUFFIXES))}"
        check(images, self.path, message, hint, DataError)
        return images

    @property
    @override
    def image_folder(self) -> str:
        return self.path

    @property
    @override
    def paths(self) -> Sequence[str]:
        return [self.path, *self.feature_paths]

    @override
    def describe(self) -> str:
        return self.path


CAPTION_SOURCES: tuple[type[SourceConfig], ...] = (CaptionFileConfig, ImageFolderConfig)


def find_images(names: Sequence[str], folder: str, *, location: str) -> list[str]:
    """Return the paths of images in a folder; raise one error that lists all that are missing.

    A name without suffix, such as an id, is the image of that name with any suffix.
    """
    stems: dict[str, list[str]] | None = None
    paths: list[str] = []
    missing: list[str] = []
    for name in names:
        path = os.path.join(folder, name)
        if "\0" not in name and os.path.isfile(path):
            paths.append(os.path.normpath(path))
            continue
        if stems is None:
            stems = _images_by_stem(folder)
        candidates = stems.get(name, [])
        if len(candidates) == 1:
            paths.append(os.path.normpath(os.path.join(folder, candidates[0])))
        else:
            choices = f": {', '.join(candidates)}" if candidates else ""
            missing.append(f"{name}: several images{choices}" if candidates else name)
    if missing:
        is_folder = os.path.isdir(folder)
        message = f"{len(missing):,} of {format_count(len(names), 'image')} missing in {folder!r}"
        hint = "copy them there, remove their lines, or name their folder with `images` (--images)"
        if not is_folder:
            raise DataError(location, f"there is no folder {folder!r}", _FOLDER_HINT)
        raise FileListError(location, message, hint, missing)
    return paths


def _images_by_stem(folder: str) -> dict[str, list[str]]:
    stems: dict[str, list[str]] = {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        stem, suffix = os.path.splitext(name)
        if suffix.lower() in IMAGE_SUFFIXES:
            stems.setdefault(stem, []).append(name)
    return stems


def find_rows(
    names: Sequence[str], store: ImageArray | ImageFeatures, rows: RowsBy, *, location: str
) -> list[int]:
    """Return the rows of images in a sheet or a feature file."""
    path, count = store.location, len(store)
    stored = store.images if isinstance(store, ImageFeatures) else ()
    if rows == "names" or (rows == "auto" and stored):
        return _rows_by_name(names, stored, path)
    numbers = [int(name) for name in names if name.isdecimal()]
    is_numbered = len(numbers) == len(names) and max(numbers) < count
    if rows == "numbers" or (rows == "auto" and is_numbered):
        outside = [name for name in names if not name.isdecimal() or int(name) >= count]
        if outside:
            images = format_count(len(names), "image")
            message = f"not rows 0 to {count - 1} of {path}: {len(outside):,} of {images}"
            hint = "number the images from 0, or set `rows: order`"
            raise FileListError(location, message, hint, outside)
        return numbers
    message = f"{format_count(len(names), 'image')}, but {path} has {format_count(count, 'row')}"
    hint = "choose the split that the file was made of, or number the rows in the image column"
    check(len(names) == count, location, message, hint, DataError)
    return list(range(count))


def _rows_by_name(names: Sequence[str], stored: Sequence[str], location: str) -> list[int]:
    """Find rows by path, else by file name, else by file name without suffix."""
    hint = "set `rows: order` if rows have the order of the images"
    check(stored, location, "the file has no names of images", hint, DataError)
    tables = [_unique_rows(stored, key) for key in (str, os.path.basename, _stem)]
    rows: list[int] = []
    missing: list[str] = []
    for name in names:
        keys = name, os.path.basename(name), _stem(name)
        matches = [table[key] for table, key in zip(tables, keys, strict=True) if key in table]
        rows += matches[:1]
        missing += [] if matches else [name]
    if missing:
        count = f"{len(missing):,} of {format_count(len(names), 'image')}"
        message = f"has no features of {count}, or of several so named"
        hint = "extract them with `heedful features`, or remove their lines"
        raise FileListError(location, message, hint, missing)
    return rows


def _unique_rows(stored: Sequence[str], key: Callable[[str], str]) -> dict[str, int]:
    counts = Counter(map(key, stored))
    return {key(name): row for row, name in enumerate(stored) if counts[key(name)] == 1}


def _stem(name: str) -> str:
    return os.path.splitext(os.path.basename(name))[0]
