"""Text sources: where does running text come from?

Running text is a list of lines. An empty line is text too. As with pairs, `read` checks a source
whole before its first line is given out, and `stream` gives lines as they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from heedful.config import Choice
from heedful.data.lines import STANDARD_INPUT, name_of, read_lines
from heedful.errors import DataError


class TextFilesConfig(Choice):
    """A file of running text, or several one after the other. Also .gz, .xz and "-" for stdin."""

    kind: Literal["text"] = "text"
    path: str | list[str]
    """The file, or a list of files."""

    @property
    def _paths(self) -> list[str]:
        return [self.path] if isinstance(self.path, str) else self.path

    def read(self) -> list[str]:
        """Read the lines of every file."""
        return list(self.stream())

    def stream(self) -> Iterator[str]:
        """Give the lines as they are read."""
        is_empty = True
        for path in self._paths:
            for line in read_lines(path):
                is_empty = is_empty and not line.strip()
                yield line
        if is_empty:
            raise DataError(self.describe(), "holds no text", "give a file with text in it")

    @property
    def is_read_once(self) -> bool:
        """Whether it cannot be gone through a second time."""
        return STANDARD_INPUT in self._paths

    def describe(self) -> str:
        """Name the source in a report."""
        return ", ".join(map(name_of, self._paths)) or "no file"


class BuiltInTextConfig(Choice):
    """One side of a corpus that heedful makes itself, as running text."""

    kind: Literal["built-in-text"] = "built-in-text"
    name: str
    """Which corpus."""
    side: Literal["source", "target"] = "target"
    """Which of the two texts of every pair."""
    split: str = "train"
    """Which part of it; no pair is in two parts."""
    size: PositiveInt
    """How many lines."""
    seed: int = 0
    """The same seed gives the same lines."""

    def read(self) -> list[str]:
        """Make the lines."""
        return list(self.stream())

    def stream(self) -> Iterator[str]:
        """Give the lines as they are made."""
        from heedful.data.synthetic import corpus

        pairs = islice(corpus(self.name).pairs(self.split, seed=self.seed), self.size)
        return (pair.source if self.side == "source" else pair.target for pair in pairs)

    @property
    def is_read_once(self) -> bool:
        """Whether it cannot be gone through a second time."""
        return False

    def describe(self) -> str:
        """Name the source in a report."""
        return (
            f"built-in {self.name}, {self.side}, {self.split}, {self.size} lines, seed {self.seed}"
        )


TextSourceConfig = Annotated[TextFilesConfig | BuiltInTextConfig, Field(discriminator="kind")]
