"""Sequence-level distillation (Kim and Rush 2016): a small model learns what a larger one says.

The outputs of the teacher are the targets of the student. With references, the target is that of
the teacher's best outputs which is closest to the reference (their "interpolation").
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

import sacrebleu
import torch

from heedful.decoding.translation import Translation
from heedful.errors import check
from heedful.recipes import Recipe, load_recipe
from heedful.storage.compression import Precision
from heedful.tasks.task_data import VocabSizes
from heedful.tasks.translation.translator import TranslationOptions, Translator

TOKENS_PER_UNIT = 16  # vocabulary size by hidden size, about that of the default recipe
_UNITS = range(32, 1025, 16)
_SIZES = ("embedding_size", "hidden_size")
_TOKEN_BYTES = 18  # of a token in a file of subwords
_WEIGHT_BYTES = {"fp32": 4.0, "fp16": 2.0, "int8": 1.0, "int4": 0.5}


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


class StudentSize(NamedTuple):
    """Size of a student: the default recipe with other units and tokens."""

    hidden_size: int
    precision: Precision

    @property
    def vocab_size(self) -> int:
        """The number of subwords of each language."""
        return TOKENS_PER_UNIT * self.hidden_size

    def settings(self) -> dict[str, Any]:
        """Return the settings that differ from the default recipe."""
        parts = [f"model.{part}.{name}" for part in ("encoder", "decoder") for name in _SIZES]
        tokenizers = [f"tokenizers.{side}.vocab_size" for side in ("source", "target")]
        return {
            **dict.fromkeys(parts, self.hidden_size),
            **dict.fromkeys(tokenizers, self.vocab_size),
            "training.saved_precision": self.precision,
        }

    def num_bytes(self) -> int:
        """Estimate the bytes of weights and tokenizers."""
        recipe: Recipe = load_recipe("default", self.settings())
        with torch.device("meta"):
            model = recipe.task.build_model(recipe, VocabSizes(self.vocab_size, self.vocab_size))
        num_weights = sum(weight.numel() for weight in model.parameters())
        return int(_WEIGHT_BYTES[self.precision] * num_weights + 2 * _TOKEN_BYTES * self.vocab_size)


def choose_size(max_bytes: int, precision: Precision) -> StudentSize:
    """Return the largest student of so many bytes; raises ConfigError if none is so small."""
    sizes = [StudentSize(units, precision) for units in _UNITS]
    num_fitting = bisect_right(sizes, max_bytes, key=StudentSize.num_bytes)
    message = f"the smallest student has {sizes[0].num_bytes():,} bytes, not {max_bytes:,}"
    check(num_fitting, "--size", message, "allow more bytes, or choose --precision int4")
    return sizes[num_fitting - 1]
