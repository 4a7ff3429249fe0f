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
from typing import Any

import torch
from torch import Tensor, nn

from heedful.config import parse_override, read_settings, to_yaml, validate_settings
from heedful.errors import ConfigError, RunError, check, did_you_mean
from heedful.recipes import Recipe
from heedful.storage import (
    MANIFEST,
    atomic_replace,
    explain_os_errors,
    read_and_verify_manifest,
    replace_with_manifest,
    write_text,
)
from heedful.storage.state_dict import load_weights, save_weights
from heedful.tasks.language_modeling.generator import TextGenerator
from heedful.tasks.task import LoadedRun, Task, VocabSizes
from heedful.tasks.translation.translator import Translator
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.training.callbacks import LoggedSample
from heedful.version import VERSION

FORMAT_VERSION = 1
_CONFIG, _TOKENIZERS_FOLDER, _WEIGHTS = "config.yaml", "tokenizers", "weights.safetensors"
_METRICS, _SAMPLES = "metrics.jsonl", "samples.jsonl"


class Run:
    """A run folder."""

    def __init__(self, run_dir: Path | str) -> None:
        self.folder = Path(run_dir)
        self.checkpoints = self.folder / "checkpoints"

    @property
    def exists(self) -> bool:
        """Whether a run was begun here."""
        return (self.folder / _CONFIG).exists()

    def initialize(self, recipe: Recipe, tokenizers: TokenizerPair) -> None:
        """Write what does not change while training."""
        with atomic_replace(self.folder / _TOKENIZERS_FOLDER) as temporary:
            temporary.mkdir()
            tokenizers.save(temporary)
        write_text(self.folder / _CONFIG, to_yaml(recipe))

    def read_recipe(self) -> Recipe:
        """The recipe this run was trained by."""
        path = self.folder / _CONFIG
        return validate_settings(Recipe, read_settings(path), location=str(path))

    def read_tokenizers(self, recipe: Recipe) -> TokenizerPair:
        """The tokenizers this run was trained with."""
        return recipe.tokenizers.load(self.folder / _TOKENIZERS_FOLDER)

    def replace_recipe(self, recipe: Recipe) -> None:
        """Write a recipe in the place of the one this run was begun by."""
        if (self.folder / MANIFEST).exists():
            facts = read_and_verify_manifest(self.folder)
            del facts["files"]
            self._replace({_CONFIG: lambda path: _write_config(recipe, path)}, facts)
        else:
            write_text(self.folder / _CONFIG, to_yaml(recipe))

    def save_model(self, state_dict: Mapping[str, Tensor], *, step: int) -> None:
        """Make these weights the ones the run is used with."""
        facts = {
            "format": FORMAT_VERSION,
            "heedful": VERSION,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "step": step,
        }
        self._replace({_WEIGHTS: lambda path: save_weights(state_dict, path)}, facts)

    def _replace(
        self, writers: Mapping[str, Callable[[Path], None]], metadata: dict[str, Any]
    ) -> None:
        files = [path for path in (self.folder / _TOKENIZERS_FOLDER).rglob("*") if path.is_file()]
        files += [self.folder / _CONFIG, self.folder / _WEIGHTS]
        kept = [path for path in files if path.name not in writers]
        replace_with_manifest(self.folder, writers, kept, metadata)

    def verify(self) -> dict[str, Any]:
        """Hold every file against the manifest, and give that."""
        _check_is_run(self.folder)
        manifest = read_and_verify_manifest(self.folder)
        if manifest.get("format") != FORMAT_VERSION:
            raise RunError(
                str(self.folder / MANIFEST),
                f"the run has format {manifest.get('format')}, and this heedful reads {FORMAT_VERSION}",
                f"use the heedful that wrote it ({manifest.get('heedful', 'unknown')}) "
                "or a newer one",
            )
        return manifest

    def load_weights_into(self, model: nn.Module) -> None:
        """Give a model the weights of this run."""
        load_weights(model, self.folder / _WEIGHTS)

    def append_metrics(self, entry: Mapping[str, Any]) -> None:
        """Add a line to the metrics."""
        self._append_lines(_METRICS, [entry])

    def append_samples(self, step: int, samples: Iterable[LoggedSample]) -> None:
        """Add what the model made of a few texts."""
        self._append_lines(_SAMPLES, [{"step": step, **sample._asdict()} for sample in samples])

    def _append_lines(self, name: str, entries: Sequence[Mapping[str, Any]]) -> None:
        path = self.folder / name
        with explain_os_errors(path), path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)

    def truncate_logs_after(self, step: int) -> None:
        """Drop the lines of steps that will be taken again."""
        for name in (_METRICS, _SAMPLES):
            path = self.folder / name
            if path.exists():
                lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
                write_text(path, "".join(line for line in lines if _read_step(line) <= step))


def _write_config(recipe: Recipe, path: Path) -> None:
    path.write_text(to_yaml(recipe), encoding="utf-8")


def _read_step(line: str) -> float:
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")  # half a line, from a writer that was killed


def resolve_device(name: str = "auto") -> torch.device:
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


def load(
    run_dir: Path | str,
    *,
    device: str = "auto",
    overrides: Sequence[str] = (),
    ensemble_with: Sequence[Path | str] = (),
    task_name: str | None = None,
) -> Any:
    """Load a trained model, after verifying every file against the manifest.

    Its task decides the type: a `Translator`, a `TextGenerator` and so on. `overrides` are
    settings of decoding, such as "decoding.beam_size=10"; `ensemble_with` are further runs whose
    models form an ensemble with this one. A run of another task than `task_name` is an error.
    """
    torch_device = resolve_device(device)

    def load_run(folder: Path | str) -> LoadedRun:
        return _load_run(folder, torch_device)

    first = _load_run(run_dir, torch_device, overrides)
    task: Task = first.config.task
    check(
        task_name in (None, task.name),
        str(run_dir),
        f"this run {task.description}",
        f"use `heedful {task.next_command.format(run=run_dir)}`",
        RunError,
    )
    members = [first, *map(load_run, ensemble_with)]
    return task.build_predictor(members, torch_device, load_run)


def _load_run(
    run_dir: Path | str, device: torch.device, overrides: Sequence[str] = ()
) -> LoadedRun:
    run = Run(run_dir)
    run.verify()
    recipe = validate_settings(
        Recipe,
        run.read_recipe().model_dump(mode="json"),
        location="--set",
        overrides=[parse_override(text) for text in overrides],
    )
    tokenizers = run.read_tokenizers(recipe)
    model = recipe.task.build_model(recipe, VocabSizes.from_tokenizers(tokenizers))
    run.load_weights_into(model)
    return LoadedRun(run_dir, recipe, tokenizers, model.eval().to(device))


def load_translator(
    run_dir: Path | str,
    *,
    device: str = "auto",
    overrides: Sequence[str] = (),
    ensemble_with: Sequence[Path | str] = (),
) -> Translator:
    """Load a translation model, or an ensemble of them."""
    return load(
        run_dir,
        device=device,
        overrides=overrides,
        ensemble_with=ensemble_with,
        task_name="translation",
    )


def load_text_generator(run_dir: Path | str, *, device: str = "auto") -> TextGenerator:
    """Load a language model."""
    return load(run_dir, device=device, task_name="language-modeling")


def _check_is_run(run_dir: Path) -> None:
    if (run_dir / MANIFEST).exists():
        return
    if (run_dir / _CONFIG).exists():
        raise RunError(
            str(run_dir),
            "training has not saved any weights here yet",
            "wait for the first validation, or give the same `heedful train` command again",
        )
    siblings = [path.parent.name for path in run_dir.parent.glob(f"*/{MANIFEST}")]
    problem = "not a run folder" if run_dir.exists() else "no such folder"
    raise RunError(
        str(run_dir),
        f"{problem}{did_you_mean(run_dir.name, siblings)}",
        "name a folder written by `heedful train`",
    )
