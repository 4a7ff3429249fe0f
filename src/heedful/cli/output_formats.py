"""Outlets: where do lines go that belong together?

The first part of a block goes to standard output, each further one to its file. Files come first:
whoever has read a line of standard output finds what belongs to it in the files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from heedful.cli.options import handle_stdout_errors
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.decoding.translation import Translation
    from heedful.decoding.word_alignment import Aligner


WriteBlock = Callable[[Sequence[str]], None]


@contextmanager
def open_outputs(paths: Sequence[Path]) -> Iterator[WriteBlock]:
    """Give a function that writes the parts of a block where they belong."""
    with ExitStack() as stack:
        files = [stack.enter_context(_open_output(path)) for path in paths]

        def write(parts: Sequence[str]) -> None:
            for path, file, part in zip(paths, files, parts[1:], strict=True):
                _write(path, file, part)
            with handle_stdout_errors():
                # Text comes out as it went in, in UTF-8, whatever the terminal is set to.
                sys.stdout.buffer.write(parts[0].encode("utf-8"))

        yield write


@contextmanager
def _open_output(path: Path) -> Iterator[TextIO]:
    from heedful.storage import explain_os_errors

    with explain_os_errors(path):
        file = path.open("w", encoding="utf-8", newline="\n")
    try:
        yield file
    finally:
        with explain_os_errors(path):
            file.close()


def _write(path: Path, file: TextIO, text: str) -> None:
    from heedful.storage import explain_os_errors

    with explain_os_errors(path):
        file.write(text)
        file.flush()


def check_distinct_files(written: Mapping[str, Path], read: Sequence[str]) -> None:
    """Refuse to write two things into one file, or over what is read."""
    taken = {Path(file).resolve(): f"is read ({file})" for file in read if Path(file).is_file()}
    for option, path in written.items():
        resolved = path.resolve()
        if resolved in taken:
            raise ConfigError(option, f"{path} {taken[resolved]}", "name another file")
        if (
            resolved.is_file() or not resolved.exists()
        ):  # any number of things may go into /dev/null
            taken[resolved] = f"is written by {option} already"


# Lines: how is a translation written down?
#
# Every text gives the same number of lines, whatever became of it: one where lines are JSON, else
# one for each output that was asked for, empty where there are fewer. A line says nothing of its
# neighbours, so lines can be written in several processes and put together.

_DIGITS = 6


@dataclass(frozen=True)
class OutputFormat:
    """How translations of one model are written down."""

    n_best: int
    """Outputs of a text."""
    aligner: Aligner
    """How weights become links between words."""

    def format_lines(self, output_type: str, translation: Translation) -> list[str]:
        """All lines of one kind that a translation gives."""
        if output_type in _JSON:
            fields = translation.to_json(**_JSON[output_type])
            return [json.dumps(fields, ensure_ascii=False)]
        outputs = [translation, *translation.alternatives][: self.n_best]
        write = {"text": to_text, "scores": to_score_line, "alignments": self._as_alignment}[
            output_type
        ]
        return [write(output) for output in outputs] + [""] * (self.n_best - len(outputs))

    def _as_alignment(self, translation: Translation) -> str:
        from heedful.decoding.word_alignment import format_pharaoh, word_alignment

        return format_pharaoh(word_alignment(translation, self.aligner))


_JSON = {
    "json": {"weights": False, "tree": False},
    "attention": {"weights": True, "tree": False},
    "tree": {"weights": False, "tree": True},
}
OUTPUT_TYPES = ("text", "scores", "alignments", *_JSON)


def to_text(translation: Translation) -> str:
    """The output as one line, even where a model wrote the sign that ends lines."""
    return translation.text.replace("\n", " ")


def to_score_line(translation: Translation) -> str:
    """The score, the log-probability, and that of each token and the end, parted by tabs."""
    each = " ".join(_decimal(number) for number in translation.log_probs.tolist())
    return "\t".join([_decimal(translation.score), _decimal(translation.log_prob), each])


def _decimal(value: float) -> str:
    return f"{value:.{_DIGITS}f}"
