"""Back-translation (Sennrich et al. 2016): monolingual target texts become training pairs.

A reverse model is trained on the pairs and translates the texts. Each output is the source of its
text, after the tag `<BT>` (Caswell et al. 2019), which tells the model that people did not write
it. Invariant: both models are validated on the same held-out pairs, which neither is trained on,
and an interrupted call resumes where it stopped.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from rich.console import Console

from heedful.config import Override
from heedful.data.text.example_formats import PAIRS
from heedful.data.text.pair_dataset import Pair
from heedful.data.text.pair_files import PAIR_SOURCES
from heedful.data.text_files import read_lines
from heedful.errors import ConfigError, DataError, RunError, check, format_count
from heedful.experiment.train import train
from heedful.recipes import Recipe
from heedful.runs import load
from heedful.storage.atomic import write_text
from heedful.tasks.translation.distillation import write_outputs
from heedful.tasks.translation.task import TASK as TRANSLATION
from heedful.tasks.translation.translator import TranslationOptions
from heedful.training.progress import print_line

FOLDER = "back-translation"
"""Of a run: its pairs, the reverse model, and the back-translations."""
TAG = "<BT>"
"""Before the source of each back-translation."""
BLANK = "<BLANK>"
_DROP_RATE = _BLANK_RATE = 0.1  # Edunov et al. 2018, section 3, as their distance of moved words
_MAX_MOVE = 3


class BackTranslationFiles(NamedTuple):
    """Files in `RUN/back-translation`."""

    folder: Path

    @property
    def pairs(self) -> Path:
        """The training pairs without those that are held out."""
        return self.folder / "pairs.jsonl"

    @property
    def dev(self) -> Path:
        """The pairs to validate on."""
        return self.folder / "dev.jsonl"

    @property
    def texts(self) -> Path:
        """The monolingual texts."""
        return self.folder / "texts.jsonl"

    @property
    def outputs(self) -> Path:
        """Their translations by the reverse model, line by line."""
        return self.folder / "outputs.txt"

    @property
    def back_translations(self) -> Path:
        """The pairs that are added."""
        return self.folder / "back-translations.jsonl"

    @property
    def reverse(self) -> Path:
        """The run of the reverse model."""
        return self.folder / "reverse"


def add_back_translations(
    load_recipe: Callable[[Sequence[Override]], Recipe],
    run: Path,
    monolingual: Sequence[Path | str],
    *,
    with_noise: bool = False,
    device: str | torch.device = "auto",
    console: Console | None = None,
    with_progress: Callable[[Iterable[Any], int], Iterable[Any]] = lambda outputs, total: outputs,
) -> Recipe | None:
    """Return a recipe whose data has back-translations of monolingual files; None if interrupted.

    `load_recipe` loads the recipe, with other data if it gets some: the reverse model has the same
    recipe. Pairs are repeated until they are as many as the back-translations. The same call
    resumes.
    """
    files, console = BackTranslationFiles(run / FOLDER), console or Console(stderr=True)
    recipe = load_recipe(())
    _check_data(recipe)
    texts = _prepare(recipe, files, monolingual, console)
    swapped = {"source_column": "target", "target_column": "source"}
    print_line(console, f"training the reverse model in {files.reverse}")
    reverse = load_recipe(_data_overrides(_jsonl(files.pairs, swapped), _jsonl(files.dev, swapped)))
    if not train(reverse, files.reverse, device=device, console=console).stop_reason:
        return None
    print_line(console, f"translating {format_count(len(texts), 'text')} with it")
    model = load(files.reverse, device=device, task="translation")
    write_outputs(
        model,
        texts,
        files.outputs,
        TranslationOptions(beam_size=1, too_long="cut"),
        with_progress=lambda outputs: with_progress(outputs, len(texts)),
    )
    sources = read_lines(str(files.outputs))
    noise = Random(recipe.training.seed)
    pairs = [
        Pair(f"{TAG} {add_noise(source, noise) if with_noise else source}", text)
        for source, text in zip(sources, texts, strict=True)
        if source
    ]
    hint = "train the reverse model for longer"
    check(pairs, str(files.reverse), "its outputs are all empty", hint, RunError)
    _write_pairs(files.back_translations, pairs)
    with files.pairs.open(encoding="utf-8") as lines:
        weight = max(1.0, round(len(pairs) / sum(1 for _ in lines), 1))
    corpora = [
        {"weight": weight, "source": _jsonl(files.pairs)},
        {"source": _jsonl(files.back_translations)},
    ]
    mixture = {"type": "mixture", "corpora": corpora}
    return load_recipe(_data_overrides(mixture, _jsonl(files.dev)))


def add_noise(text: str, random: Random) -> str:
    """Return a text with words dropped, blanked and moved by less than three positions.

    As Edunov et al. 2018, section 3: each word is dropped or replaced with probability 0.1.
    """
    words = [word for word in text.split() if random.random() >= _DROP_RATE]
    words = [BLANK if random.random() < _BLANK_RATE else word for word in words]
    keys = [index + random.uniform(0, _MAX_MOVE) for index in range(len(words))]
    order = sorted(range(len(words)), key=keys.__getitem__)
    return " ".join(words[index] for index in order) or text


def _check_data(recipe: Recipe) -> None:
    """Raise ConfigError unless a recipe translates pairs of texts."""
    location, train_source = "--monolingual", recipe.data.train
    message = f"adds pairs to those of a translator, but the model {recipe.task.description}"
    check(recipe.task is TRANSLATION, location, message, "leave it out")
    if not isinstance(train_source, PAIR_SOURCES):
        message = "needs training pairs in files: " + (
            "this recipe has none" if train_source is None else f"not {train_source.type!r} data"
        )
        raise ConfigError(location, message, "give them with --source and --target, or --pairs")


def _prepare(
    recipe: Recipe, files: BackTranslationFiles, monolingual: Sequence[Path | str], console: Console
) -> list[str]:
    """Write pairs, dev pairs and texts, or compare them; return the texts."""
    train_source, dev = recipe.data.train, recipe.data.dev
    assert train_source is not None
    pairs = train_source.read()
    dev_pairs = dev.read() if dev else []
    if not dev:
        location, seed = train_source.describe(), recipe.training.seed
        held_out = PAIRS.choose_held_out(PAIRS.hash(pairs), seed=seed, location=location)
        dev_pairs = [pairs[row] for row in held_out.rows]
        left_out = set(held_out.all_rows)
        pairs = [pair for row, pair in enumerate(pairs) if row not in left_out]
    dev_targets = {pair.target for pair in dev_pairs}
    lines = chain.from_iterable(read_lines(str(path)) for path in monolingual)
    all_texts = list(dict.fromkeys(line for line in lines if line.strip()))
    texts = [text for text in all_texts if text not in dev_targets]
    hint = "give a file with text in it"
    check(texts, str(monolingual[0]), "contains no texts to translate", hint, DataError)
    if num_known := len(all_texts) - len(texts):
        line = f"{format_count(num_known, 'text')} left out: targets of dev pairs"
        print_line(console, f"monolingual: {line}")
    files.folder.mkdir(parents=True, exist_ok=True)
    _write_pairs(files.pairs, pairs, is_input=True)
    _write_pairs(files.dev, dev_pairs, is_input=True)
    _write_pairs(files.texts, [Pair("", text) for text in texts], is_input=True)
    return texts


def _write_pairs(path: Path, pairs: Iterable[Pair], *, is_input: bool = False) -> None:
    """Write pairs as JSON lines; raise RunError if these inputs were others before."""
    text = "".join(f"{json.dumps(pair._asdict(), ensure_ascii=False)}\n" for pair in pairs)
    is_same = path.exists() and path.read_text(encoding="utf-8") == text
    message, hint = "this run was begun with other texts", "give the same, or another run folder"
    check(is_same or not (is_input and path.exists()), str(path), message, hint, RunError)
    if not is_same:
        write_text(path, text)


def _jsonl(path: Path, columns: dict[str, str] | None = None) -> dict[str, Any]:
    return {"type": "jsonl", "path": str(path), **(columns or {})}


def _data_overrides(train_data: dict[str, Any], dev_data: dict[str, Any]) -> list[Override]:
    return [Override(("data", "train"), train_data), Override(("data", "dev"), dev_data)]
