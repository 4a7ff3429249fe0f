"""Distillation: from a teacher and texts to a small student, resumable at every line."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from heedful.config import SettingsArgument, check_types, to_overrides
from heedful.data.text_files import read_lines
from heedful.errors import DataError, RunError, check, format_count
from heedful.experiment.plan import load_training_recipe
from heedful.experiment.train import train
from heedful.recipes import Recipe, load_recipe
from heedful.runs import load
from heedful.storage.atomic import write_text
from heedful.storage.compression import Precision
from heedful.tasks.task_data import VocabSizes
from heedful.tasks.translation.distillation import write_outputs
from heedful.tasks.translation.translator import TranslationOptions
from heedful.training.state import TrainingResult

FOLDER = "distilled"
"""Of a student: the texts it learned from, `source.txt` and `target.txt`."""
TOKENS_PER_UNIT = 16  # vocabulary size by hidden size, about that of the default recipe
_UNITS = range(32, 1025, 16)
_SIZES = ("embedding_size", "hidden_size")
_TOKEN_BYTES = 18  # of a token in a file of subwords
_WEIGHT_BYTES = {"fp32": 4.0, "fp16": 2.0, "int8": 1.0, "int4": 0.5}


@check_types
def distill(
    teacher: Path | str,
    run: Path | str,
    *,
    source: Sequence[Path | str],
    target: Sequence[Path | str] = (),
    max_bytes: int = 3_000_000,
    precision: Precision = "int8",
    beam_size: int = 5,
    ensemble_with: Sequence[Path | str] = (),
    settings: SettingsArgument = (),
    device: str | torch.device = "auto",
    console: Console | None = None,
    with_progress: Callable[[Iterable[Any], int], Iterable[Any]] = lambda outputs, total: outputs,
) -> TrainingResult:
    """Train a student of at most `max_bytes` on what a translator, or an ensemble, says.

    With `target` files it learns the output of the beam that is closest to the reference. The same
    call resumes. `settings` change the recipe of the student.
    """
    size, folder = choose_size(max_bytes, precision), Path(run) / FOLDER
    sources, references = _read_texts(source), _read_texts(target)
    _check_texts(sources, references, bool(target))
    folder.mkdir(parents=True, exist_ok=True)
    source_path, target_path = folder / "source.txt", folder / "target.txt"
    _write_sources(sources, source_path)
    model = load(teacher, device=device, ensemble_with=ensemble_with, task="translation")
    options = TranslationOptions(beam_size=beam_size, n_best=beam_size, too_long="cut")
    write_outputs(
        model,
        sources,
        target_path,
        options,
        references=references if target else None,
        with_progress=lambda outputs: with_progress(outputs, len(sources)),
    )
    recipe = size.load_recipe(source_path, target_path, settings)
    return train(recipe, run, device=device, console=console)


def _read_texts(files: Sequence[Path | str]) -> list[str]:
    return list(chain.from_iterable(read_lines(str(file)) for file in files))


def _check_texts(sources: Sequence[str], references: Sequence[str], needs_references: bool) -> None:
    check(sources, "source", "contains no lines", "give a file with text in it", DataError)
    numbers = [format_count(len(lines), "line") for lines in (sources, references)]
    is_parallel = not needs_references or len(sources) == len(references)
    message = f"{numbers[1]}, but {numbers[0]} of sources"
    check(is_parallel, "target", message, "line n of one belongs to line n of the other", DataError)


def _write_sources(sources: Sequence[str], path: Path) -> None:
    text = "".join(f"{line}\n" for line in sources)
    is_same = not path.exists() or path.read_text(encoding="utf-8") == text
    hint = "give the same texts, or another run folder"
    check(is_same, str(path), "this student was begun with other texts", hint, RunError)
    write_text(path, text)


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

    def load_recipe(self, source: Path, target: Path, settings: SettingsArgument) -> Recipe:
        """Return the recipe of a student of these files."""
        data = {"type": "parallel-files", "source": source, "target": target}
        overrides = to_overrides({"data": {"train": data}, **self.settings()})
        return load_training_recipe("default", [*overrides, *to_overrides(settings)], "cpu")

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
