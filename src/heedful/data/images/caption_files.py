"""Lines of caption files: TSV, CSV and JSON lines with an image and one or more captions.

Invariant: the same images and captions in any of the formats are the same lines; a line that has
no image or an empty caption is an error that names it.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

from pydantic import PositiveInt

from heedful.data.text.pair_files import get_json_value, read_json_objects, type_name
from heedful.data.text.table_files import find_column, read_csv_rows
from heedful.data.text_files import UTF_8, display_name, nonempty_lines
from heedful.errors import DataError, check, format_count
from heedful.tokenization.tokenizer import check_text

CaptionFileFormat = Literal["tsv", "csv", "jsonl"]
Column = PositiveInt | str
IMAGE_NAMES = ("image", "image_path", "file_name", "filename", "file", "path", "image_id", "index")
CAPTION_NAMES = ("captions", "caption", "text", "sentence", "sentences", "name")
SPLIT_NAMES = ("split",)
_COLUMN_SETTINGS = "image_column and caption_column"
_JSON_HINT = 'each line must be an object such as {"image": "a.jpg", "captions": ["...", "..."]}'
_NUMBERED = re.compile(r"(.+\.\w+)#\d+")  # image.jpg#0, as in Flickr8k.token.txt


class CaptionColumns(NamedTuple):
    """Columns by number, counted from 1, or by name; None for the usual ones."""

    image: Column | None = None
    captions: Sequence[Column] | None = None
    split: Column | None = None
    needs_split: bool = False

    def with_numbers(self) -> "CaptionColumns":
        """Return the columns of a table, where "2" is a number, as the command line gives it."""
        captions = None if self.captions is None else [_to_number(name) for name in self.captions]
        return self._replace(
            image=None if self.image is None else _to_number(self.image),
            captions=captions,
            split=None if self.split is None else _to_number(self.split),
        )


def _to_number(column: Column) -> Column:
    is_number = isinstance(column, str) and column.isdecimal() and int(column) > 0
    return int(column) if is_number else column


class CaptionLine(NamedTuple):
    """One line of a file."""

    location: str
    image: str
    captions: tuple[str, ...]
    split: str  # "" if the file has none


def read_caption_lines(
    path: str,
    file_format: CaptionFileFormat,
    columns: CaptionColumns,
    *,
    delimiter: str = ",",
    encoding: str = UTF_8,
) -> Iterator[CaptionLine]:
    """Yield the lines of a file after checking them."""
    if file_format == "jsonl":
        yield from _read_json(path, columns, encoding)
        return
    if file_format == "csv":
        rows = read_csv_rows(path, delimiter, encoding)
    else:
        lines = enumerate(nonempty_lines(path, encoding=encoding), start=1)
        rows = ((number, line.split("\t")) for number, line in lines)
    yield from _read_table(path, rows, columns.with_numbers(), file_format)


def _read_table(
    path: str,
    rows: Iterator[tuple[int, list[str]]],
    columns: CaptionColumns,
    file_format: CaptionFileFormat,
) -> Iterator[CaptionLine]:
    first_line, first = next(rows)
    table = _Table(path, first, file_format)
    image, captions, split = table.find_columns(columns)
    if not table.has_header(columns):
        rows = chain([(first_line, first)], rows)
    for number, row in rows:
        location = f"{display_name(path)}:{number}"
        message = f"{format_count(len(row), 'column')}, but line 1 has {len(first)}"
        hint = "look for lost or added tabs; a caption must not contain any"
        if file_format == "csv":
            hint = "put captions that contain commas in quotation marks"
        check(len(row) == len(first), location, message, hint, DataError)
        texts = [row[index] for index in captions]
        # Further columns may be empty: not every image has as many captions.
        present = [texts[0], *(text for text in texts[1:] if text.strip())]
        split_name = "" if split is None else row[split].strip()
        yield _check_line(location, row[image], present, split_name)


class _Table(NamedTuple):
    """The first line of a table, which may name its columns."""

    path: str
    names: list[str]
    file_format: CaptionFileFormat

    def has_header(self, columns: CaptionColumns) -> bool:
        """Return whether the first line names the columns."""
        chosen = (columns.image, *(columns.captions or ()), columns.split)
        if any(isinstance(column, str) for column in chosen):
            return True
        lower = [name.strip().lower() for name in self.names]
        return any(name in lower for name in IMAGE_NAMES) and any(
            name in lower for name in CAPTION_NAMES
        )

    def find_columns(self, columns: CaptionColumns) -> tuple[int, list[int], int | None]:
        """Return the indices of image, captions and split."""
        has_header = self.has_header(columns)
        image = self._find(columns.image, IMAGE_NAMES if has_header else (), default=0)
        chosen = columns.captions or (None,)
        names = CAPTION_NAMES if has_header else ()
        captions = [self._find(column, names, default=1) for column in chosen]
        split: int | None = None
        lower = [name.strip().lower() for name in self.names]
        if columns.split is not None or (has_header and "split" in lower):
            split = self._find(columns.split, SPLIT_NAMES, default=0)
        message = "a split is chosen, but no column names the split"
        hint = "give its number or its name with split_column"
        is_known = split is not None or not columns.needs_split
        check(is_known, f"{display_name(self.path)}:1", message, hint, DataError)
        return image, captions, split

    def _find(self, column: Column | None, usual: Sequence[str], default: int) -> int:
        location = f"{display_name(self.path)}:1"
        if isinstance(column, str):
            return find_column(column, self.names, location, options=_COLUMN_SETTINGS)
        lower = [name.strip().lower() for name in self.names]
        name = next((name for name in usual if name in lower), None) if column is None else None
        if name is not None:
            return find_column(name, lower, location, options=_COLUMN_SETTINGS)
        index = default if column is None else column - 1
        kind = "comma-separated" if self.file_format == "csv" else "tab-separated"
        plural = "" if len(self.names) == 1 else "s"
        message = f"{len(self.names)} {kind} column{plural}, but column {index + 1} is needed"
        hint = f"give {_COLUMN_SETTINGS}; for commas or JSON set `format: csv` or `format: jsonl`"
        check(index < len(self.names), location, message, hint, DataError)
        return index


def _read_json(path: str, columns: CaptionColumns, encoding: str) -> Iterator[CaptionLine]:
    for location, record in read_json_objects(path, _JSON_HINT, encoding):
        image = _get(record, columns.image, IMAGE_NAMES, location)
        captions: list[str] = []
        for column in columns.captions or (None,):
            key, value = _get(record, column, CAPTION_NAMES, location)
            texts = value if isinstance(value, list) else [value]
            message = f"the value of {key!r} is {type_name(value)}, not a text or an array of texts"
            is_text = texts and all(isinstance(text, str) for text in texts)
            check(is_text, location, message, _JSON_HINT, DataError)
            captions += texts
        split: Any = ""
        if columns.split is not None or columns.needs_split:
            _, split = _get(record, columns.split, SPLIT_NAMES, location)
        elif isinstance(record.get("split"), str):
            split = record["split"]
        message = f"the value of {image[0]!r} is {type_name(image[1])}, not a text or a number"
        is_name = isinstance(image[1], str | int) and not isinstance(image[1], bool)
        check(is_name, location, message, _JSON_HINT, DataError)
        yield _check_line(location, str(image[1]), captions, str(split))


def _get(
    record: dict[str, Any], column: Column | None, usual: Sequence[str], location: str
) -> tuple[str, Any]:
    """Return a key and its value."""
    message = f"column {column} is given by its number, but JSON has keys"
    check(not isinstance(column, int), location, message, "give the key", DataError)
    key = str(column or next((name for name in usual if name in record), usual[0]))
    settings = "split_column" if usual is SPLIT_NAMES else _COLUMN_SETTINGS
    return key, get_json_value(record, key, location, options=settings)


def _check_line(location: str, image: str, captions: Sequence[str], split: str) -> CaptionLine:
    image = image.strip()
    check(image, location, "the image is empty", "name an image, or remove the line", DataError)
    numbered = _NUMBERED.fullmatch(image)
    texts = [" ".join(caption.split()) for caption in captions]  # a caption is one line
    for text in texts:
        check(text, location, "the caption is empty", "add one, or remove the line", DataError)
        check_text(text, location=location)
    return CaptionLine(location, numbered[1] if numbered else image, tuple(texts), split)
