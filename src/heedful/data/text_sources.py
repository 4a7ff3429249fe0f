"""Text sources: where does running text come from?

Running text is a list of lines. An empty line is text too. As with pairs, a source is read whole
and checked whole before its first line is given out.
"""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from heedful.config import Choice
from heedful.data.lines import name_of, read_lines
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
        lines = [line for path in self._paths for line in read_lines(path)]
        if not any(line.strip() for line in lines):
            raise DataError(self.describe(), "holds no text", "give a file with text in it")
        return lines

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
        from heedful.data.synthetic import corpus

        pairs = islice(corpus(self.name).pairs(self.split, seed=self.seed), self.size)
        return [pair.source if self.side == "source" else pair.target for pair in pairs]

    def describe(self) -> str:
        """Name the source in a report."""
        return (
            f"built-in {self.name}, {self.side}, {self.split}, {self.size} lines, seed {self.seed}"
        )


TextSourceConfig = Annotated[TextFilesConfig | BuiltInTextConfig, Field(discriminator="kind")]
