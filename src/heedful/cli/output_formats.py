"""Output of `heedful translate`: the lines of each output type, and the files they go to.

Every text gives the same number of lines: one of JSON, else one for each of its `n_best` outputs,
empty ones if there are fewer. Lines do not depend on other texts, so that several processes can
format them. Files are written before standard output: whoever has read a line of it finds the
matching lines in the files.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.cli.options import handle_stdout_errors
from heedful.errors import check

if TYPE_CHECKING:
    from heedful.decoding.translation import Translation
    from heedful.decoding.word_alignment import Aligner


@dataclass(frozen=True)
class OutputFormat:
    """How the translations of one model are written."""

    n_best: int
    aligner: Aligner

    def format_lines(self, output_type: str, translation: Translation) -> list[str]:
        """Return all lines of one output type for a text."""
        if output_type in _JSON_WRITERS:
            fields = translation.to_json(**_JSON_WRITERS[output_type])
            return [json.dumps(fields, ensure_ascii=False)]
        outputs = [translation, *translation.alternatives][: self.n_best]
        lines = [_LINE_WRITERS[output_type](output, self.aligner) for output in outputs]
        return lines + [""] * (self.n_best - len(outputs))


def _text_line(output: Translation, _: Aligner) -> str:
    return output.text.replace("\n", " ")  # a model may generate line breaks


def _score_line(output: Translation, _: Aligner) -> str:
    """Return score, log-probability, and log-probabilities of all tokens and EOS."""
    log_probs = " ".join(f"{log_prob:.6f}" for log_prob in output.log_probs.tolist())
    return f"{output.score:.6f}\t{output.log_prob:.6f}\t{log_probs}"


def _alignment_line(output: Translation, aligner: Aligner) -> str:
    from heedful.decoding.word_alignment import format_pharaoh, word_alignment

    return format_pharaoh(word_alignment(output, aligner))


_LINE_WRITERS: Mapping[str, Callable[[Translation, Aligner], str]] = {
    "text": _text_line,
    "scores": _score_line,
    "alignments": _alignment_line,
}
_JSON_WRITERS = {
    "json": {"weights": False, "tree": False},
    "attention": {"weights": True, "tree": False},
    "tree": {"weights": False, "tree": True},
}
OUTPUT_TYPES = (*_LINE_WRITERS, *_JSON_WRITERS)


@contextmanager
def open_outputs(paths: Sequence[Path]) -> Iterator[Callable[[Sequence[str]], None]]:
    """Return a function that writes its first text to standard output and the others to files."""
    from heedful.storage import explain_os_errors

    with ExitStack() as stack:
        files = []
        for path in paths:
            with explain_os_errors(path):
                files.append(path.open("w", encoding="utf-8", newline="\n"))
            stack.callback(_close, path, files[-1].close)

        def write(texts: Sequence[str]) -> None:
            for path, file, text in zip(paths, files, texts[1:], strict=True):
                with explain_os_errors(path):
                    file.write(text)
                    file.flush()
            with handle_stdout_errors():
                # UTF-8 like the input, whatever the encoding of the terminal is.
                sys.stdout.buffer.write(texts[0].encode("utf-8"))

        yield write


def _close(path: Path, close: Callable[[], None]) -> None:
    from heedful.storage import explain_os_errors

    with explain_os_errors(path):
        close()


def check_distinct_files(outputs: Mapping[str, Path], inputs: Sequence[str]) -> None:
    """Raise ConfigError if two options write to one file, or one to an input file."""
    uses = {Path(file).resolve(): f"is read ({file})" for file in inputs if Path(file).is_file()}
    for option, path in outputs.items():
        resolved = path.resolve()
        use = uses.get(resolved)
        check(use is None, option, f"{path} {use}", "name another file")
        if resolved.is_file() or not resolved.exists():  # /dev/null may be used several times
            uses[resolved] = f"is already written by {option}"
