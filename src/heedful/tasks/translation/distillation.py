"""Sequence-level distillation (Kim and Rush 2016): a small model learns what a larger one says.

The outputs of the teacher are the targets of the student. With references, the target is that of
the teacher's best outputs which is closest to the reference (their "interpolation").
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import sacrebleu

from heedful.decoding.translation import Translation
from heedful.errors import check
from heedful.tasks.translation.translator import TranslationOptions, Translator


def write_outputs(
    teacher: Translator,
    sources: Sequence[str],
    path: Path,
    options: TranslationOptions,
    *,
    references: Sequence[str] | None = None,
    with_progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> None:
    """Write an output for each source, line by line; go on with a file that was cut short."""
    num_done = _drop_torn_line(path)
    hint = "remove it, or give the sources that it was made from"
    check(num_done <= len(sources), str(path), "has more lines than there are sources", hint)
    outputs = teacher.predict(islice(sources, num_done, None), options, start_index=num_done + 1)
    nearest = repeat(None) if references is None else islice(references, num_done, None)
    texts = map(choose_target, with_progress(outputs), nearest)
    with path.open("a", encoding="utf-8") as file:
        for text in texts:
            file.write(" ".join(text.splitlines()) + "\n")
            file.flush()


def _drop_torn_line(path: Path) -> int:
    """Remove what was written of a line when the process was killed; return the lines before."""
    if not path.exists():
        return 0
    with path.open("rb+") as file:
        lines = file.readlines()
        if lines and not lines[-1].endswith(b"\n"):
            file.truncate(file.tell() - len(lines.pop()))
    return len(lines)


def choose_target(output: Translation, reference: str | None) -> str:
    """Return the best output, or the one of the n best that is closest to a reference."""
    if reference is None:
        return output.text
    texts = [output.text, *(other.text for other in output.alternatives)]
    return max(texts, key=lambda text: sacrebleu.sentence_bleu(text, [reference]).score)
