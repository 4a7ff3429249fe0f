"""Runs: a trained model as a folder.

    config.yaml          the resolved recipe, whole
    text/                the tokenizers
    weights.safetensors  the best weights so far
    manifest.json        versions, and the SHA-256 of every file above
    metrics.jsonl        how training went, a line at a time
    samples.jsonl        what the model made of a few texts at each validation
    checkpoints/         what training needs to go on, a folder for each step that is kept
    bad-steps/           what is needed to look at steps that went wrong

Nothing in it is pickled, and a file that is lost or altered is noticed before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heedful.config import parse_override, read_settings, resolve, write_yaml
from heedful.decoding.company import (
    refuse_company,
    refuse_other_text,
    refuse_other_vocabularies,
    refused_language_model,
    refused_member,
)
from heedful.errors import ConfigError, RunError, did_you_mean
from heedful.recipes import Recipe
from heedful.storage import (
    MANIFEST,
    explaining_failures,
    read_manifest,
    replace_listed,
    replacing,
    write_text,
)
from heedful.tasks.decodable import Decodable
from heedful.tasks.ensembles import Ensemble
from heedful.tasks.fusion import Fused
from heedful.tasks.language_model import LanguageModel
from heedful.tasks.masked_language_model import MaskedLanguageModel, MaskedLanguageModelConfig
from heedful.tasks.model import Model
from heedful.text.config import TextPair
from heedful.training.observers import Sample
from heedful.translator import Translator
from heedful.version import VERSION
from heedful.weights import load_weights, write_weights
from heedful.writer import MaskedWriter, Writer

FORMAT = 1
_CONFIG, _TEXT, _WEIGHTS = "config.yaml", "text", "weights.safetensors"
_METRICS, _SAMPLES = "metrics.jsonl", "samples.jsonl"


class Run:
    """A run folder."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.checkpoints = self.folder / "checkpoints"

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

    def replace_recipe(self, recipe: Recipe) -> None:
        """Write a recipe in the place of the one this run was begun by."""
        if (self.folder / MANIFEST).exists():
            facts = read_manifest(self.folder)
            del facts["files"]
            self._replace({_CONFIG: lambda path: _write_config(recipe, path)}, facts)
        else:
            write_text(self.folder / _CONFIG, write_yaml(recipe))

    def publish(self, weights: Mapping[str, Tensor], *, step: int) -> None:
        """Make these weights the ones the run is used with."""
        facts = {
            "format": FORMAT,
            "heedful": VERSION,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "step": step,
        }
        self._replace({_WEIGHTS: lambda path: write_weights(weights, path)}, facts)

    def _replace(
        self, writers: Mapping[str, Callable[[Path], None]], facts: dict[str, Any]
    ) -> None:
        files = [path for path in (self.folder / _TEXT).rglob("*") if path.is_file()]
        files += [self.folder / _CONFIG, self.folder / _WEIGHTS]
        kept = [path for path in files if path.name not in writers]
        replace_listed(self.folder, writers, kept, facts)

    def verify(self) -> dict[str, Any]:
        """Hold every file against the manifest, and give that."""
        _refuse_other_folders(self.folder)
        manifest = read_manifest(self.folder)
        if manifest.get("format") != FORMAT:
            raise RunError(
                str(self.folder / MANIFEST),
                f"the run has format {manifest.get('format')}, and this heedful reads {FORMAT}",
                f"use the heedful that wrote it ({manifest.get('heedful', 'unknown')}) "
                "or a newer one",
            )
        return manifest

    def put_weights_into(self, model: nn.Module) -> None:
        """Give a model the weights of this run."""
        load_weights(model, self.folder / _WEIGHTS)

    def log(self, entry: Mapping[str, Any]) -> None:
        """Add a line to the metrics."""
        self._add_lines(_METRICS, [entry])

    def log_samples(self, step: int, samples: Iterable[Sample]) -> None:
        """Add what the model made of a few texts."""
        self._add_lines(_SAMPLES, [{"step": step, **sample._asdict()} for sample in samples])

    def _add_lines(self, name: str, entries: Sequence[Mapping[str, Any]]) -> None:
        path = self.folder / name
        with explaining_failures(path), path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)

    def forget_after(self, step: int) -> None:
        """Drop the lines of steps that will be taken again."""
        for name in (_METRICS, _SAMPLES):
            path = self.folder / name
            if path.exists():
                lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
                write_text(path, "".join(line for line in lines if _step_of(line) <= step))


def _write_config(recipe: Recipe, path: Path) -> None:
    path.write_text(write_yaml(recipe), encoding="utf-8")


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


class Opened(NamedTuple):
    """What a run folder holds, put together."""

    folder: Path | str
    recipe: Recipe
    text: TextPair
    model: nn.Module

    def placed(self, device: torch.device) -> Opened:
        """Make the model ready to be asked where it is to be asked."""
        return self._replace(model=self.model.eval().to(device))


def load(
    folder: Path | str,
    *,
    device: str = "auto",
    overrides: Sequence[str] = (),
    others: Sequence[Path | str] = (),
) -> Loaded:
    """Load a trained model, after holding every file against the manifest.

    What comes of it depends on what the model is for. `overrides` are settings of decoding, such
    as "decoding.length_penalty=0". `others` are further runs, whose models are asked together with
    this one.
    """
    place = pick_device(device)
    opened = _open(folder, overrides).placed(place)
    _, recipe, text, model = opened
    if isinstance(model, Model):
        asked_together = [opened, *(_open(other).placed(place) for other in others)]
        return Translator(_together(asked_together, place), text, recipe.decoding, device=place)
    refuse_company(recipe.decoding, others, kind=recipe.model.kind)
    streams = recipe.data.streams
    if isinstance(model, LanguageModel):
        return Writer(model, text.target, streams, device=place)
    assert isinstance(model, MaskedLanguageModel), type(model)
    assert isinstance(recipe.model, MaskedLanguageModelConfig), recipe.model.kind
    return MaskedWriter(model, text.target, streams, recipe.model.masking, device=place)


def _open(folder: Path | str, overrides: Sequence[str] = ()) -> Opened:
    run = Run(folder)
    run.verify()
    recipe = run.read_recipe()
    changes = [parse_override(text) for text in overrides]
    recipe = resolve(Recipe, recipe.model_dump(mode="json"), origin="--set", overrides=changes)
    text = run.read_text(recipe)
    model = recipe.model.build(source_size=len(text.source), target_size=len(text.target))
    run.put_weights_into(model)
    return Opened(folder, recipe, text, model)


def _together(runs: Sequence[Opened], device: torch.device) -> Decodable:
    """Join the models of several runs, and the language model that the first of them names."""
    first, decoding = runs[0], runs[0].recipe.decoding
    models = list[Decodable]()
    for run in runs:
        if not isinstance(run.model, Model):
            raise refused_member(run.folder, run.recipe.model.kind)
        refuse_other_vocabularies(first.text, run.text, folder=run.folder)
        models.append(run.model)
    joined = Ensemble(models, decoding.ensemble) if len(models) > 1 else models[0]
    if decoding.language_model is None:
        return joined
    said = _open(decoding.language_model.run).placed(device)
    if not isinstance(said.model, LanguageModel):
        raise refused_language_model(said.folder, said.recipe.model.kind)
    refuse_other_text(first.text.target, said.text.target, folder=said.folder)
    weight, context = decoding.language_model.weight, said.recipe.data.streams.context
    return Fused(joined, said.model, weight=weight, context=context)


def load_translator(
    folder: Path | str,
    *,
    device: str = "auto",
    overrides: Sequence[str] = (),
    others: Sequence[Path | str] = (),
) -> Translator:
    """Load a trained model that translates, and others to be asked together with it."""
    loaded = load(folder, device=device, overrides=overrides, others=others)
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
