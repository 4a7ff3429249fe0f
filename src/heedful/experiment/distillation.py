"""Distillation: from a teacher and texts to a small student, resumable at every line."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from heedful.config import SettingsArgument, check_types, flatten_settings, to_overrides
from heedful.data.text_files import read_lines
from heedful.errors import DataError, RunError, check, format_count
from heedful.experiment.plan import load_training_recipe
from heedful.experiment.train import train
from heedful.recipes import Recipe, load_recipe
from heedful.recipes.recipe import DEFAULT_RECIPE
from heedful.runs import load
from heedful.storage.atomic import write_text
from heedful.storage.compression import Precision, num_compressed_bytes
from heedful.tasks.task_data import VocabSizes
from heedful.tasks.translation.distillation import write_outputs
from heedful.tasks.translation.task import TASK as TRANSLATION
from heedful.tasks.translation.translator import TranslationOptions
from heedful.training.state import TrainingResult

FOLDER = "distilled"
"""Of a student: the texts it learned from, `source.txt` and `target.txt`."""
TOKENS_PER_UNIT = 16  # subwords of a language by hidden size, about those of the default recipe
_UNITS = range(32, 1025, 16)
_SIZES = ("embedding_size", "hidden_size", "intermediate_size")
_TOKEN_BYTES = 18  # of a token in a file of subwords
_TENSOR_BYTES = 150  # of the entry of a tensor in a file of weights


@check_types
def distill(
    teacher: Path | str,
    run: Path | str,
    *,
    source: Sequence[Path | str],
    target: Sequence[Path | str] = (),
    recipe: Path | str = DEFAULT_RECIPE,
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
    call resumes. `settings` change the recipe of the student, after its sizes were chosen.
    """
    size, folder = choose_size(max_bytes, precision, recipe), Path(run) / FOLDER
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
    sized = size.load_recipe(source_path, target_path, settings)
    return train(sized, run, device=device, console=console)


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
    """Size of a student: a recipe whose sizes are in proportion to its number of units."""

    hidden_size: int
    precision: Precision
    recipe: Path | str = DEFAULT_RECIPE

    def settings(self) -> dict[str, Any]:
        """Return the settings that give the recipe this size."""
        recipe = load_recipe(self.recipe)
        tokenizers = recipe.tokenizers.model_dump(exclude_unset=True)
        model = recipe.model.model_dump(mode="json", exclude_unset=True)
        vocab_size = (
            TOKENS_PER_UNIT * self.hidden_size * (2 if tokenizers["type"] == "shared" else 1)
        )
        factor = self.hidden_size / next(_find_values(model, "hidden_size"))
        sizes = {
            "model": _replace_values(model, _SIZES, lambda size: round(size * factor)),
            "tokenizers": _replace_values(tokenizers, ("vocab_size",), lambda _: vocab_size),
            "training": {"saved_precision": self.precision},
        }
        before = dict(flatten_settings({"model": model, "tokenizers": tokenizers}))
        settings = flatten_settings(sizes)
        return {name: value for name, value in settings if before.get(name) != value}

    def load_recipe(self, source: Path, target: Path, settings: SettingsArgument) -> Recipe:
        """Return the recipe of a student of these files."""
        data = {"type": "parallel-files", "source": source, "target": target}
        overrides = to_overrides({"data": {"train": data}, **self.settings()})
        return load_training_recipe(self.recipe, [*overrides, *to_overrides(settings)], "cpu")

    def num_bytes(self) -> int:
        """Estimate the bytes of weights and tokenizers."""
        recipe: Recipe = load_recipe(self.recipe, self.settings())
        vocab_sizes = list(_find_values(recipe.tokenizers.model_dump(), "vocab_size"))
        with torch.device("meta"):
            model = recipe.task.build_model(recipe, VocabSizes(vocab_sizes[0], vocab_sizes[-1]))
        weights = list(model.parameters())
        num_entries = len(weights) + sum(weight.dim() > 1 for weight in weights)  # their scales
        num_bytes = sum(num_compressed_bytes(weight, self.precision) for weight in weights)
        return num_bytes + _TENSOR_BYTES * num_entries + _TOKEN_BYTES * sum(vocab_sizes)


def choose_size(
    max_bytes: int, precision: Precision, recipe: Path | str = DEFAULT_RECIPE
) -> StudentSize:
    """Return the largest student of so many bytes; raises ConfigError if none is so small."""
    _check_recipe(recipe)
    sizes = [StudentSize(units, precision, recipe) for units in _UNITS]
    num_fitting = bisect_right(sizes, max_bytes, key=StudentSize.num_bytes)
    message = f"the smallest student has {sizes[0].num_bytes():,} bytes, not {max_bytes:,}"
    check(num_fitting, "--size", message, "allow more bytes, or choose --precision int4")
    return sizes[num_fitting - 1]


def _check_recipe(name: Path | str) -> None:
    recipe = load_recipe(name)
    has_subwords = any(_find_values(recipe.tokenizers.model_dump(), "vocab_size"))
    message = f"{name} has no size that follows from bytes: a student translates between subwords"
    hint = f"choose another recipe, such as {DEFAULT_RECIPE} or transformer-2017-small"
    check(recipe.task is TRANSLATION and has_subwords, "--recipe", message, hint)


def _find_values(values: Any, name: str) -> Iterator[int]:
    """Return the values of this name in nested settings."""
    for key, value in values.items() if isinstance(values, Mapping) else enumerate(values):
        if key == name:
            yield value
        elif isinstance(value, Mapping | list):
            yield from _find_values(value, name)


def _replace_values(values: Any, names: Sequence[str], replace: Callable[[int], int]) -> Any:
    """Return nested settings with other values of these names."""
    if isinstance(values, list):
        return [_replace_values(value, names, replace) for value in values]
    if not isinstance(values, Mapping):
        return values
    return {
        key: replace(value) if key in names else _replace_values(value, names, replace)
        for key, value in values.items()
    }
