"""Sources of examples: the interface, parallel files, text files and synthetic corpora.

`read` returns a whole source after checking all of it, so no model trains on the valid half of a
broken file. `stream` yields examples as they are read, for data that does not fit in memory:
whoever uses it reads it to the end before training on it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, PositiveInt, model_validator
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.text.columnar_files import ColumnarSource, columnar_format
from heedful.data.text.pair_dataset import Pair
from heedful.data.text_files import (
    STANDARD_INPUT,
    UTF_8,
    check_encoding,
    check_file_of_lines,
    display_name,
    nonempty_lines,
    read_lines,
)
from heedful.errors import DataError, check, format_count

COLUMN_OPTIONS = "--source-column and --target-column"
Encoding = Annotated[str, AfterValidator(check_encoding)]


class SourceConfig(BaseConfig, ABC):
    """A source of pairs or of lines."""

    @abstractmethod
    def stream(self) -> Iterator[Any]:
        """Yield the examples as they are read."""

    @abstractmethod
    def describe(self) -> str:
        """Name the source in messages."""

    def locate(self, row: int) -> str:
        """Name an example in messages; rows are counted from 0."""
        return f"{self.describe()}, row {row + 1}"

    def read(self) -> list[Any]:
        """Return all examples."""
        return list(self.stream())

    @property
    def parts(self) -> Sequence["SourceConfig"]:
        """The sources that it joins; by default itself."""
        return [self]

    @property
    def weights(self) -> list[float]:
        """Passes over each of its parts per epoch."""
        return [1.0]

    @property
    def paths(self) -> Sequence[str]:
        """The files that it reads."""
        return ()

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about it, for the user to check."""
        return ()

    @property
    def is_single_pass(self) -> bool:
        """Whether it can be read only once."""
        return STANDARD_INPUT in self.paths


class ParallelFilesConfig(SourceConfig):
    """Two files whose lines n belong together. Also compressed, and "-" for stdin."""

    type: Literal["parallel-files"] = "parallel-files"
    source: str
    """File of the source texts, one per line."""
    target: str
    """File of the target texts, one per line."""
    encoding: Encoding = UTF_8
    """Encoding of both files, such as cp1252 for files of Windows."""

    @model_validator(mode="after")
    def _check_stdin(self) -> Self:
        message = "both are '-', but standard input can only be one of them"
        hint = "name a file for one side, or send both as columns: {type: tsv, path: '-'}"
        check(not self.source == self.target == STANDARD_INPUT, "source, target", message, hint)
        return self

    @override
    def stream(self) -> Iterator[Pair]:
        hint = "line n of one must belong to line n of the other: look for lost or added lines"
        for path in self.paths:
            check_file_of_lines(path)
        sources, targets = (
            nonempty_lines(path, encoding=self.encoding) for path in (self.source, self.target)
        )
        for index, (source, target) in enumerate(zip_longest(sources, targets)):
            if source is None or target is None:
                longer = 1 + index + sum(1 for _ in chain(sources, targets))
                counts = (longer, index) if target is None else (index, longer)
                other = f"{display_name(self.target)} has {counts[1]:,}"
                message = f"{format_count(counts[0], 'line')}, but {other}"
                raise DataError(display_name(self.source), message, hint)
            yield Pair(source, target)

    @override
    def locate(self, row: int) -> str:
        return f"{self.describe()}, line {row + 1}"

    @property
    @override
    def paths(self) -> Sequence[str]:
        return self.source, self.target

    @property
    @override
    def warnings(self) -> Sequence[str]:
        source, target = Path(self.source), Path(self.target)
        if source.exists() and target.exists() and source.samefile(target):
            return (f"source and target are the same file, {source}: the model learns to copy",)
        return ()

    @override
    def describe(self) -> str:
        return f"{display_name(self.source)} and {display_name(self.target)}"


class FileSourceConfig(SourceConfig):
    """A source that is one file."""

    type: str  # first, so that it is written first
    path: str
    """The file; also compressed, and "-" for stdin."""

    row_name: ClassVar[str] = "row"

    @property
    @override
    def paths(self) -> Sequence[str]:
        return (self.path,)

    @override
    def describe(self) -> str:
        return display_name(self.path)

    @override
    def locate(self, row: int) -> str:
        return f"{display_name(self.path)}, {self.row_name} {row + 1}"


class PairFileConfig(FileSourceConfig):
    """A file with a column of sources and one of targets."""

    source_column: int | str | None
    target_column: int | str | None

    @override
    def describe(self) -> str:
        source, target = self.source_column, self.target_column
        columns = f", columns {source!r} and {target!r}" if source and target else ""
        return display_name(self.path) + columns


def column_options(source: int | str | None, target: int | str | None) -> str:
    """Return the options that name the columns; one alone if only one column is read."""
    return "--source-column" if source and source == target else COLUMN_OPTIONS


class SyntheticConfig(SourceConfig):
    """Settings of a corpus that heedful generates."""

    default_sizes: ClassVar[Mapping[str, int]] = {"train": 100_000, "dev": 500, "test": 1000}
    """Numbers of examples by split where only the name of a corpus is given; a split that is not
    here is held out from the training data."""
    unit: ClassVar[str] = "pair"
    """What the examples are called in messages."""
    type: str
    name: str
    """Name of the corpus."""
    split: str = "train"
    """Split of the corpus; no pair is in two splits."""
    num_examples: PositiveInt
    """Number of pairs or lines."""
    seed: int = 0
    """The same seed gives the same pairs or lines."""

    @classmethod
    def corpus_names(cls) -> Sequence[str]:
        """Return the names of the corpora of this type."""
        from heedful.data.synthetic import SYNTHETIC_CORPORA

        return list(SYNTHETIC_CORPORA)

    @override
    def describe(self) -> str:
        size = format_count(self.num_examples, self.unit)
        return f"built-in {self.name}, {self.split}, {size}, seed {self.seed}"

    def pairs(self) -> Iterator[Pair]:
        """Generate the pairs."""
        from heedful.data.synthetic import get_corpus

        return islice(get_corpus(self.name).pairs(self.split, seed=self.seed), self.num_examples)


class SyntheticPairsConfig(SyntheticConfig):
    """Pairs of a corpus that heedful generates."""

    type: Literal["synthetic"] = "synthetic"

    @override
    def stream(self) -> Iterator[Pair]:
        return self.pairs()


class TextFilesConfig(SourceConfig):
    """One or more files of running text, concatenated. Also compressed, and "-" for stdin."""

    type: Literal["text"] = "text"
    path: str | list[str]
    """The file, or a list of files."""
    encoding: Encoding = UTF_8
    """Encoding of the files, such as cp1252 for files of Windows."""

    @property
    @override
    def paths(self) -> Sequence[str]:
        return [self.path] if isinstance(self.path, str) else self.path

    @override
    def stream(self) -> Iterator[str]:
        is_empty = True
        for path in self.paths:
            check_file_of_lines(path)
            for line in read_lines(path, encoding=self.encoding):
                is_empty = is_empty and not line.strip()
                yield line
        if is_empty:
            raise DataError(self.describe(), "contains no text", "give a file with text in it")

    @override
    def describe(self) -> str:
        return ", ".join(map(display_name, self.paths)) or "no file"


class TextColumnConfig(SourceConfig):
    """Running text in a column of a Parquet or Arrow file, or of a folder that `datasets` saved.

    A text may have several lines. Needs the extra `parquet` (pyarrow).
    """

    type: Literal["text-column"] = "text-column"
    path: str
    """The file (.parquet, .arrow, .feather; also compressed), or the folder."""
    text_column: PositiveInt | str = "text"
    """Column of the texts: its name, or its number, counted from 1."""
    split: str | None = None
    """Split, if the folder has several."""

    @property
    def columnar_source(self) -> ColumnarSource:
        """How the file is read."""
        return ColumnarSource(self.path, columnar_format(self.path) or "arrow", self.split)

    @property
    @override
    def paths(self) -> Sequence[str]:
        with suppress(DataError):
            return self.columnar_source.data_files()
        return (self.path,)

    @override
    def stream(self) -> Iterator[str]:
        source, options, is_empty = self.columnar_source, "--text-column", True
        (name,) = source.column_names([self.text_column], options=options)
        for row, record in enumerate(source.rows([self.text_column], options=options)):
            text: Any = record
            for part in [name] if name in record else name.split("."):
                text = text.get(part) if isinstance(text, dict) else None
            message = f"the value of {name!r} is not a text"
            hint = "every value must be a text; convert or remove the others"
            check(isinstance(text, str), self.locate(row), message, hint, DataError)
            is_empty = is_empty and not text.strip()
            yield from text.split("\n")
        if is_empty:
            raise DataError(self.describe(), "contains no text", "give a file with text in it")

    @override
    def describe(self) -> str:
        return f"{self.path}, column {self.text_column}"


class SyntheticTextConfig(SyntheticConfig):
    """One side of a corpus that heedful generates, as running text."""

    type: Literal["synthetic-text"] = "synthetic-text"
    side: Literal["source", "target"] = "target"
    """Which text of every pair."""

    @override
    def stream(self) -> Iterator[str]:
        return (pair.source if self.side == "source" else pair.target for pair in self.pairs())

    @override
    def describe(self) -> str:
        size = f"{format_count(self.num_examples, 'line')}, seed {self.seed}"
        return f"built-in {self.name}, {self.side}, {self.split}, {size}"
