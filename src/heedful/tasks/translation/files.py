"""The files of `heedful translate`: requests in, output lines out.

Line n of each input file belongs to line n of the others; all are read together. Each text gives
the same number of output lines: one of JSON, else one for each of its `n_best` outputs, empty ones
if there are fewer. Files are written before standard output: whoever has read a line of it finds
the matching lines in the files.
"""

import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice, zip_longest
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from time import monotonic
from typing import Any, NamedTuple, NoReturn, TextIO, TypeVar

from heedful.aligners.links import format_pharaoh
from heedful.data.text_files import (
    COMPRESSION_SUFFIXES,
    STANDARD_INPUT,
    UTF_8,
    check_encoding,
    display_name,
    read_lines,
)
from heedful.decoding.requests import Request
from heedful.decoding.translation import Translation
from heedful.decoding.word_alignment import Aligner, word_alignment
from heedful.errors import DataError, check, choices_hint, did_you_mean
from heedful.storage.atomic import explain_os_errors
from heedful.storage.json_files import MAX_BYTES, parse_json
from heedful.tasks.text_input import TextInput
from heedful.terminal import handle_stdout_errors

Item = TypeVar("Item")

MAX_WAIT_SECONDS = 0.02  # how long a line waits for others: unnoticed by people
_BLOCK_SIZE = 2**20  # bytes
_EXAMPLE_HINT = 'write {} for no constraints, or {"required_phrases": ["a phrase"]}, for example'


# ----- requests


class RequestFiles(NamedTuple):
    """The input files of `heedful translate`; `-` is standard input."""

    texts: str
    targets: str | None = None
    constraints: str | None = None
    column: str | None = None  # of the texts in a table
    delimiter: str | None = None
    encoding: str | None = None

    @property
    def files(self) -> list[str]:
        """The files that are given, texts first."""
        files = self.texts, self.targets, self.constraints
        return [file for file in files if file is not None]

    @property
    def text_input(self) -> TextInput:
        """The file of the texts, which may be a table."""
        return TextInput(self.texts, self.column, self.delimiter, self.encoding)


def read_requests(request_files: RequestFiles) -> Iterator[Request]:
    """Yield one request per line."""
    for line_number, lines in enumerate(_zip_lines(request_files), start=1):
        others = iter(lines[1:])
        target = None if request_files.targets is None else next(others)
        constraints: dict[str, Any] = {}
        if request_files.constraints is not None:
            location = f"{display_name(request_files.constraints)}:{line_number}"
            constraints = parse_constraints(next(others), location)
        yield Request(lines[0], target=target, **constraints)


def _zip_lines(request_files: RequestFiles) -> Iterator[tuple[str, ...]]:
    files = request_files.files
    encoding = check_encoding(request_files.encoding or UTF_8)
    others = [read_lines(file, MAX_BYTES, encoding) for file in files[1:]]
    streams = [request_files.text_input.read(), *others]
    for index, lines in enumerate(zip_longest(*streams)):
        if None in lines:
            counts = []
            for line, file, stream in zip(lines, files, streams, strict=True):
                if line is None:
                    counts.append(str(index))
                elif is_streamed(file):  # it may never end
                    counts.append(f"at least {index + 1}")
                else:
                    counts.append(str(index + 1 + sum(1 for _ in stream)))
            raise_unequal_lengths(files, counts)
        yield lines


def raise_unequal_lengths(files: list[str], counts: list[str]) -> NoReturn:
    """Raise DataError for the first file with another number of lines than the texts."""
    file, count = next(
        (file, count) for file, count in zip(files, counts, strict=True) if count != counts[0]
    )
    message = f"{count} line{'s' * (count != '1')}, but {display_name(files[0])} has {counts[0]}"
    hint = "line n of one file must belong to line n of the other: check for missing or extra lines"
    raise DataError(display_name(file), message, hint)


def count_lines(request_files: RequestFiles) -> int | None:
    """Return the number of lines, or None if a file must be read to know it.

    Raises DataError if the files have different numbers of lines.
    """
    files, counts = request_files.files, []
    if request_files.text_input.type is not None or request_files.encoding is not None:
        return None
    for file in files:
        is_compressed = file.lower().endswith(COMPRESSION_SUFFIXES)
        if file == STANDARD_INPUT or is_compressed or not Path(file).is_file():
            return None
        count, last = 0, b"\n"
        with Path(file).open("rb") as stream:
            while block := stream.read(_BLOCK_SIZE):
                count += block.count(b"\n")
                last = block[-1:]
        counts.append(str(count + (last != b"\n")))
    if len(set(counts)) > 1:
        raise_unequal_lengths(files, counts)
    return int(counts[0])


def is_streamed(file: str) -> bool:
    """Return True for a pipe or a terminal, whose lines arrive one by one."""
    if file != STANDARD_INPUT:
        return Path(file).exists() and not Path(file).is_file()
    try:
        return not stat.S_ISREG(os.fstat(sys.stdin.fileno()).st_mode)
    except (OSError, ValueError):  # standard input has no file descriptor: all of it is in memory
        return False


def check_single_stdin(request_files: RequestFiles) -> None:
    """Raise ConfigError if two files are standard input."""
    message = "only one file can be read from it"
    hint = "replace one - by a file"
    check(request_files.files.count(STANDARD_INPUT) <= 1, "standard input", message, hint)


def parse_constraints(line: str, location: str) -> dict[str, Any]:
    """Read the constraints on one output from a JSON object."""
    try:
        constraints = parse_json(line)
    except ValueError as error:
        raise DataError(location, f"not JSON ({error})", _EXAMPLE_HINT) from None
    if not isinstance(constraints, dict):
        message = f"must be a JSON object, but is {_shorten(constraints)}"
        raise DataError(location, message, _EXAMPLE_HINT)
    return check_constraints(constraints, location)


def check_constraints(constraints: dict[str, Any], location: str) -> dict[str, Any]:
    """Return the constraints of a JSON object; raise DataError for others."""
    for key, value in constraints.items():
        message = f"unknown constraint {key!r}{did_you_mean(key, _CONSTRAINT_FORMATS)}"
        hint = choices_hint(_CONSTRAINT_FORMATS)
        check(key in _CONSTRAINT_FORMATS, location, message, hint, DataError)
        is_valid, example = _CONSTRAINT_FORMATS[key]
        message = f"{key!r} cannot be {_shorten(value)}"
        check(is_valid(value), location, message, f"write {example}", DataError)
    return constraints


def _shorten(value: object, max_length: int = 60) -> str:
    text = json.dumps(value)
    return text if len(text) <= max_length else f"{text[:max_length]}..."


def _is_phrase(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _are_phrases(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_phrase, value))


def _are_phrases_or_alternatives(value: object) -> bool:
    return isinstance(value, list) and all(
        _is_phrase(phrase) or (bool(phrase) and _are_phrases(phrase)) for phrase in value
    )


def _are_token_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(token) is int for token in value)


# How a constraint is checked, and an example of it.
_CONSTRAINT_FORMATS: dict[str, tuple[Callable[[object], bool], str]] = {
    "required_phrases": (
        _are_phrases_or_alternatives,
        'a list of phrases: "required_phrases": ["one", ["this", "or this"]]',
    ),
    "forbidden_phrases": (
        _are_phrases,
        'a list of phrases: "forbidden_phrases": ["one", "another"]',
    ),
    "prefix": (lambda value: isinstance(value, str), 'a text: "prefix": "how it begins"'),
    "prefix_tokens": (_are_token_ids, 'a list of token ids: "prefix_tokens": [17, 4]'),
}
_PHRASES = {"type": "array", "items": {"type": "string", "pattern": r"\S"}}
REQUEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "target": {"type": ["string", "null"]},
        "prefix": {"type": "string"},
        "prefix_tokens": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "required_phrases": {
            "type": "array",
            "items": {"anyOf": [_PHRASES["items"], {**_PHRASES, "minItems": 1}]},
        },
        "forbidden_phrases": _PHRASES,
    },
    "required": ["text"],
    "additionalProperties": False,
}
"""JSON schema of a text with constraints."""


# ----- chunks of a stream


def fixed_size_chunks(items: Iterable[Item], *, max_size: int) -> Iterator[list[Item]]:
    """Yield chunks of `max_size` items; the last may be shorter.

    Here and below, an error while reading is raised after the items before it were yielded.
    """
    iterator = iter(items)
    while True:
        chunk: list[Item] = []
        try:
            for item in islice(iterator, max_size):
                chunk.append(item)  # one by one: an error leaves what was read before it
        except Exception:
            if chunk:
                yield chunk
            raise
        if not chunk:
            return
        yield chunk


def chunks_as_available(
    items: Iterable[Item], *, max_size: int, max_wait: float = MAX_WAIT_SECONDS
) -> Iterator[list[Item]]:
    """Yield chunks of what has arrived, 1 to `max_size` items; a thread reads ahead by as many.

    For pipes: the writer may wait for the answer to a line before it sends the next.
    """
    queue: Queue[Item | _End] = Queue(maxsize=max_size)
    Thread(target=_fill_queue, args=(items, queue), daemon=True).start()
    while True:
        chunk: list[Item] = []
        item = queue.get()
        deadline = monotonic() + max_wait
        while not isinstance(item, _End):
            chunk.append(item)
            if len(chunk) == max_size:
                break
            try:
                item = queue.get(timeout=max(0.0, deadline - monotonic()))
            except Empty:
                break
        if chunk:
            yield chunk
        if isinstance(item, _End):
            if item.error is not None:
                raise item.error
            return


class _End(NamedTuple):
    """The end of the items, or the error that ended them."""

    error: Exception | None


def _fill_queue(items: Iterable[Item], queue: Queue[Item | _End]) -> None:
    # Python closes standard input at exit and crashes if a thread reads it; a reference keeps it.
    stdin, error = sys.stdin, None
    try:
        for item in items:
            queue.put(item)
    except Exception as caught:
        error = caught
    queue.put(_End(error))
    del stdin


# ----- outputs


def _score_line(output: Translation, _: Aligner) -> str:
    """Return score, log-probability, and log-probabilities of all tokens and EOS."""
    log_probs = " ".join(f"{log_prob:.6f}" for log_prob in output.log_probs.tolist())
    return f"{output.score:.6f}\t{output.log_prob:.6f}\t{log_probs}"


def to_line(text: str) -> str:
    """Return a text in one line; a model may generate line breaks."""
    return text.replace("\n", " ")


_LINE_WRITERS: Mapping[str, Callable[[Translation, Aligner], str]] = {
    "text": lambda output, _: to_line(output.text),
    "scores": _score_line,
    "alignments": lambda output, aligner: format_pharaoh(word_alignment(output, aligner)),
}
_JSON_WRITERS = {
    "json": {"weights": False, "tree": False},
    "attention": {"weights": True, "tree": False},
    "tree": {"weights": False, "tree": True},
}
OUTPUT_TYPES = (*_LINE_WRITERS, *_JSON_WRITERS)


def format_lines(
    output_type: str, translation: Translation, n_best: int, aligner: Aligner
) -> list[str]:
    """Return all lines of an output type for a text."""
    if output_type in _JSON_WRITERS:
        fields = translation.to_json(**_JSON_WRITERS[output_type])
        return [json.dumps(fields, ensure_ascii=False)]
    outputs = [translation, *translation.alternatives][:n_best]
    lines = [_LINE_WRITERS[output_type](output, aligner) for output in outputs]
    return lines + [""] * (n_best - len(outputs))


@contextmanager
def open_outputs(
    paths: Sequence[Path], *, output: Path | None = None
) -> Iterator[Callable[[Sequence[str]], None]]:
    """Return a function that writes its first text to `output` and the others to `paths`.

    Without `output`, the first text goes to standard output.
    """
    with ExitStack() as stack:
        all_paths = [*paths, *([output] if output else [])]
        files = [stack.enter_context(_open_output(path)) for path in all_paths]

        def write(texts: Sequence[str]) -> None:
            for path, file, text in zip(all_paths, files, [*texts[1:], texts[0]], strict=False):
                with explain_os_errors(path):
                    file.write(text)
                    file.flush()
            if output:
                return
            with handle_stdout_errors():
                # UTF-8 like the input, whatever the encoding of the terminal is.
                sys.stdout.buffer.write(texts[0].encode("utf-8"))

        yield write


@contextmanager
def _open_output(path: Path) -> Iterator[TextIO]:
    with explain_os_errors(path):
        file = path.open("w", encoding="utf-8", newline="\n")
    try:
        yield file
    finally:
        with explain_os_errors(path):
            file.close()


def check_distinct_files(outputs: Mapping[str, Path], inputs: Sequence[str]) -> None:
    """Raise ConfigError if two options write to one file, or one to an input file."""
    uses = {Path(file).resolve(): f"is read ({file})" for file in inputs if Path(file).is_file()}
    for option, path in outputs.items():
        resolved = path.resolve()
        use = uses.get(resolved)
        check(use is None, option, f"{path} {use}", "name another file")
        if resolved.is_file() or not resolved.exists():  # /dev/null may be used several times
            uses[resolved] = f"is already written by {option}"
