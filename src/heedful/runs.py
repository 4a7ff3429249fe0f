"""Runs: a trained model as a folder.

    config.yaml          the resolved recipe, whole
    text/                the tokenizers
    weights.safetensors  the best weights so far
    manifest.json        versions, and the SHA-256 of every file above
    metrics.jsonl        how training went, a line at a time
    state/               what training needs to go on

Nothing in it is pickled, and a file that is lost or altered is noticed before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from heedful.config import parse_override, read_settings, resolve, write_yaml
from heedful.errors import ConfigError, RunError, did_you_mean
from heedful.recipes import Recipe
from heedful.storage import (
    MANIFEST,
    explaining_failures,
    read_manifest,
    replacing,
    write_manifest,
    write_text,
)
from heedful.tasks.language_model import LanguageModel
from heedful.tasks.masked_language_model import MaskedLanguageModel, MaskedLanguageModelConfig
from heedful.text.config import TextPair
from heedful.translator import Translator
from heedful.version import VERSION
from heedful.weights import load_weights, write_weights
from heedful.writer import MaskedWriter, Writer

FORMAT = 1
_CONFIG, _TEXT, _WEIGHTS = "config.yaml", "text", "weights.safetensors"


class Run:
    """A run folder."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.state = self.folder / "state"

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return (self.folder / _CONFIG).exists()

    def begin(self, recipe: Recipe, text: TextPair) -> None:
        """Write what does not change while training."""
        with replacing(self.folder / _TEXT) as temporary:
            temporary.mkdir()
            text.save(temporary)
        write_text(self.folder / _CONFIG, write_yaml(recipe))

    def read_recipe(self) -> Recipe:
        """The recipe this run was trained by."""
        path = self.folder / _CONFIG
        return resolve(Recipe, read_settings(path), origin=str(path))

    def read_text(self, recipe: Recipe) -> TextPair:
        """The tokenizers this run was trained with."""
        return recipe.text.load(self.folder / _TEXT)

    def publish(self, model: nn.Module, *, step: int) -> None:
        """Make these weights the ones the run is used with."""
        with replacing(self.folder / _WEIGHTS) as temporary:
            write_weights(model, temporary)
        files = [path for path in (self.folder / _TEXT).rglob("*") if path.is_file()]
        files += [self.folder / _CONFIG, self.folder / _WEIGHTS]
        facts = {
            "format": FORMAT,
            "heedful": VERSION,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "step": step,
        }
        write_manifest(self.folder, files, facts)

    def log(self, entry: Mapping[str, Any]) -> None:
        """Add a line to the metrics."""
        path = self.folder / "metrics.jsonl"
        with explaining_failures(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def forget_metrics_after(self, step: int) -> None:
        """Drop the lines of steps that will be taken again."""
        path = self.folder / "metrics.jsonl"
        if path.exists():
            lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
            write_text(path, "".join(line for line in lines if _step_of(line) <= step))


def _step_of(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # half a line, from a writer that was killed


def pick_device(name: str = "auto") -> torch.device:
    """The device of this name; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, _, number = name.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else int(name == "cpu")
    if not (number or "0").isdigit() or int(number or 0) >= count:
        raise ConfigError(
            "--device",
            f"there is no device called {name!r}",
            "choose cpu, cuda (or cuda:1 and so on, where there are several), or auto",
        )
    return torch.device(name)


Loaded = Translator | Writer | MaskedWriter


def load(folder: Path | str, *, device: str = "auto", overrides: Sequence[str] = ()) -> Loaded:
    """Load a trained model, after holding every file against the manifest.

    What comes of it depends on what the model is for. `overrides` are settings of decoding, such
    as "decoding.length_penalty=0".
    """
    run = Run(folder)
    _refuse_other_folders(run.folder)
    manifest = read_manifest(run.folder)
    if manifest.get("format") != FORMAT:
        raise RunError(
            str(run.folder / MANIFEST),
            f"the run has format {manifest.get('format')}, and this heedful reads {FORMAT}",
            f"use the heedful that wrote it ({manifest.get('heedful', 'unknown')}) or a newer one",
        )
    recipe = run.read_recipe()
    changes = [parse_override(text) for text in overrides]
    recipe = resolve(Recipe, recipe.model_dump(mode="json"), origin="--set", overrides=changes)
    text = run.read_text(recipe)
    model = recipe.model.build(source_size=len(text.source), target_size=len(text.target))
    load_weights(model, run.folder / _WEIGHTS)
    place, streams = pick_device(device), recipe.data.streams
    if isinstance(model, LanguageModel):
        return Writer(model, text.target, streams, device=place)
    if isinstance(model, MaskedLanguageModel):
        assert isinstance(recipe.model, MaskedLanguageModelConfig)
        return MaskedWriter(model, text.target, streams, recipe.model.masking, device=place)
    return Translator(model, text, recipe.decoding, device=place)


def load_translator(
    folder: Path | str, *, device: str = "auto", overrides: Sequence[str] = ()
) -> Translator:
    """Load a trained model that translates."""
    loaded = load(folder, device=device, overrides=overrides)
    if not isinstance(loaded, Translator):
        raise _other_use(folder, loaded)
    return loaded


def load_writer(folder: Path | str, *, device: str = "auto") -> Writer:
    """Load a trained model that goes on from a beginning."""
    loaded = load(folder, device=device)
    if not isinstance(loaded, Writer):
        raise _other_use(folder, loaded)
    return loaded


def _other_use(folder: Path | str, loaded: Loaded) -> RunError:
    problem, remedy = {
        Translator: ("this run was trained on pairs of texts: it translates", "translate"),
        Writer: ("this run is a language model: it goes on from a beginning", "generate"),
        MaskedWriter: ("this run is a masked language model: it fills gaps", "evaluate"),
    }[type(loaded)]
    return RunError(str(folder), problem, f"use `heedful {remedy} {folder}`")


def _refuse_other_folders(folder: Path) -> None:
    if (folder / MANIFEST).exists():
        return
    if (folder / _CONFIG).exists():
        raise RunError(
            str(folder),
            "training has not saved any weights here yet",
            "wait for the first validation, or give the same `heedful train` command again",
        )
    beside = [path.parent.name for path in folder.parent.glob(f"*/{MANIFEST}")]
    problem = "not a run folder" if folder.exists() else "no such folder"
    raise RunError(
        str(folder),
        f"{problem}{did_you_mean(folder.name, beside)}",
        "name a folder written by `heedful train`",
    )
