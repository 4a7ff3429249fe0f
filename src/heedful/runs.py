"""Run folders: a trained model on disk, and how it is loaded.

    config.yaml          the resolved recipe
    tokenizers/          the tokenizers
    original/            of an imported model: settings and tokenizer files, for the way back
    weights.safetensors  the best parameters so far
    manifest.json        versions, and the SHA-256 of each file above
    metrics.jsonl        training and validation metrics, one line each
    samples.jsonl        predictions for a few dev examples at each validation
    train.log            what training printed, with the time
    checkpoints/         training states to resume from, one folder per step
    token-cache/         tokens of small data, for resuming
    bad-steps/           debug data of non-finite steps

Invariant: nothing is pickled, and a missing or altered file is reported before it is used.
"""

import json
import math
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import Unpack

from heedful.acceleration.precision import Dtype, check_dtype, convert_model
from heedful.config import (
    SettingsArgument,
    check_types,
    read_settings,
    to_overrides,
    to_yaml,
    validate_settings,
)
from heedful.errors import ArgumentError, RunError, check, check_choice
from heedful.models.pretrained import load_pretrained_weights
from heedful.recipes import Recipe
from heedful.storage.atomic import atomic_replace, explain_os_errors, remove_path, write_text
from heedful.storage.compression import Precision, compress_weights
from heedful.storage.json_files import parse_json, read_log_lines
from heedful.storage.manifest import (
    CHECKPOINTS,
    MANIFEST,
    SAMPLES,
    checkpoint_folders,
    locate_run,
    read_and_verify_manifest,
    replace_with_manifest,
    require_folder,
)
from heedful.storage.state_dict import load_weights, read_weights, save_weights
from heedful.tasks.prediction import LoadedRun, Predictor
from heedful.tasks.registry import TASKS
from heedful.tasks.task import Task
from heedful.tasks.task_data import VocabSizes
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.training.callbacks import LoggedSample
from heedful.training.checkpoints import MODEL_FILE
from heedful.version import VERSION

PredictorT = TypeVar("PredictorT", bound=Predictor)

FORMAT_VERSION = 2
_CONFIG, _TOKENIZERS_FOLDER, _WEIGHTS = "config.yaml", "tokenizers", "weights.safetensors"
_ORIGINAL_FOLDER = "original"
_METRICS = "metrics.jsonl"
TOKEN_CACHE, TOKEN_CACHE_KEY = "token-cache", "token_cache"  # folder, and key of its manifest


class Run:
    """A run folder."""

    def __init__(self, run_dir: Path | str) -> None:
        self.folder = Path(run_dir)
        self.checkpoints = self.folder / CHECKPOINTS
        self.original = self.folder / _ORIGINAL_FOLDER

    @classmethod
    def open(cls, run_dir: Path | str) -> "Run":
        """Return a run to read; `demo`, if there is no such folder, comes with heedful."""
        return cls(locate_run(run_dir))

    @property
    def exists(self) -> bool:
        """Whether the folder has a recipe."""
        return (self.folder / _CONFIG).exists()

    @property
    def has_checkpoints(self) -> bool:
        """Whether a checkpoint was saved, even if it is corrupt now."""
        return any(self.checkpoints.glob("[!.]*"))

    @property
    def is_saved(self) -> bool:
        """Whether there are parameters or checkpoints."""
        return (self.folder / MANIFEST).exists() or self.has_checkpoints

    def discard_recipe(self) -> None:
        """Remove the recipe, so that the folder can be initialized again."""
        remove_path(self.folder / _CONFIG)

    def initialize(
        self, recipe: Recipe, tokenizers: TokenizerPair, original_files: Iterable[Path] = ()
    ) -> None:
        """Write recipe and tokenizers, and copy files of an imported model to `original`."""
        with atomic_replace(self.folder / _TOKENIZERS_FOLDER) as temporary:
            temporary.mkdir()
            tokenizers.save(temporary)
        if paths := list(original_files):
            with atomic_replace(self.original) as temporary, explain_os_errors(self.original):
                temporary.mkdir()
                for path in paths:
                    shutil.copyfile(path, temporary / path.name)
        write_text(self.folder / _CONFIG, to_yaml(recipe))

    def original_files(self) -> list[Path]:
        """Return the files of the imported model that this run began with, if there are any."""
        return sorted(self.original.glob("*"))

    def read_recipe(self, settings: SettingsArgument = ()) -> Recipe:
        """Read the recipe, changed by `settings`."""
        path, parsed = self.folder / _CONFIG, to_overrides(settings)
        return validate_settings(Recipe, read_settings(path), location=str(path), overrides=parsed)

    def read_tokenizers(self, recipe: Recipe) -> TokenizerPair:
        """Load the tokenizers."""
        return recipe.tokenizers.load(self.folder / _TOKENIZERS_FOLDER)

    def replace_recipe(self, recipe: Recipe) -> None:
        """Replace the recipe, and update the manifest if there is one."""
        if (self.folder / MANIFEST).exists():
            metadata = read_and_verify_manifest(self.folder)
            del metadata["files"]
            text = to_yaml(recipe)
            self._replace(_CONFIG, lambda path: path.write_text(text, encoding="utf-8"), metadata)
        else:
            write_text(self.folder / _CONFIG, to_yaml(recipe))

    def save_model(
        self, state_dict: Mapping[str, Tensor], *, step: int, precision: Precision = "fp32"
    ) -> None:
        """Save the parameters that the run is used with, compressed unless they are fp32."""
        metadata = {
            "format": FORMAT_VERSION,
            "heedful": VERSION,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "step": step,
        }
        tensors, file_metadata = compress_weights(state_dict, precision)
        write = partial(save_weights, tensors, metadata=file_metadata)
        self._replace(_WEIGHTS, write, metadata)

    def _replace(self, name: str, write: Callable[[Path], Any], metadata: dict[str, Any]) -> None:
        files = [path for path in (self.folder / _TOKENIZERS_FOLDER).rglob("*") if path.is_file()]
        files += [*self.original_files(), self.folder / _CONFIG, self.weights_file]
        unchanged = [path for path in files if path != self.folder / name]
        replace_with_manifest(self.folder, {name: write}, unchanged, metadata)

    def verify(self) -> dict[str, Any]:
        """Verify each file against the manifest, and return it."""
        path = self.folder / MANIFEST
        message = "training has not saved parameters here yet"
        hint = "wait for the first validation, or run the same `heedful train` command again"
        check(path.exists() or not self.exists, str(self.folder), message, hint, RunError)
        require_folder(self.folder, "run folder", "name a folder written by `heedful train`")
        manifest = read_and_verify_manifest(self.folder)
        version, writer = manifest.get("format"), manifest.get("heedful", "unknown")
        message = f"has format {version}, but this version of heedful reads format {FORMAT_VERSION}"
        hint = f"use the version that wrote it ({writer}), or train again"
        check(version == FORMAT_VERSION, str(path), message, hint, RunError)
        return manifest

    def read_held_out(self) -> list[Any]:
        """Return the dev examples that were held out of small training data, as JSON values."""
        folder = self.folder / TOKEN_CACHE
        saved = read_and_verify_manifest(folder)[TOKEN_CACHE_KEY] if folder.exists() else {}
        examples: list[Any] = (saved.get("held_out") or [[]])[0]
        return examples

    @property
    def weights_file(self) -> Path:
        """The file of the parameters."""
        return self.folder / _WEIGHTS

    def load_weights_into(self, model: nn.Module, checkpoint: int | None = None) -> None:
        """Load the parameters, or those of the checkpoint of a step, into a model."""
        if checkpoint is None:
            load_weights(model, self.weights_file)
            return
        folders = checkpoint_folders(self.checkpoints)
        message = f"there is no checkpoint of step {checkpoint}"
        hint = f"choose from: {', '.join(map(str, folders))}" if folders else "leave it out"
        check(checkpoint in folders, "checkpoint", message, hint)
        read_and_verify_manifest(folders[checkpoint])
        load_weights(model, folders[checkpoint] / MODEL_FILE)

    def load_features_into(self, model: nn.Module) -> None:
        """Load the parameters into the pretrained encoder of another model."""
        weights = read_weights(self.weights_file)
        load_pretrained_weights(model, weights, location=str(self.weights_file))

    def append_metrics(self, entry: Mapping[str, Any]) -> None:
        """Append a line to the metrics."""
        self._append_lines(_METRICS, [entry])

    def append_samples(self, step: int, samples: Iterable[LoggedSample]) -> None:
        """Append the predictions of a validation."""
        self._append_lines(SAMPLES, [{"step": step, **sample._asdict()} for sample in samples])

    def _append_lines(self, name: str, entries: Sequence[Mapping[str, Any]]) -> None:
        path = self.folder / name
        with explain_os_errors(path), path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in entries)

    def truncate_logs_after(self, step: int, log: Callable[[str], None]) -> None:
        """Remove log lines of later steps, and damaged ones, before training goes on at `step`."""
        for path in (self.folder / _METRICS, self.folder / SAMPLES):
            lines_to_keep, num_dropped, num_damaged = [], 0, 0
            with explain_os_errors(path):
                for line in read_log_lines(path):
                    if (line_step := _read_step(line)) <= step:
                        lines_to_keep.append(line)
                        continue
                    num_dropped += 1
                    # not counting the incomplete last line of a killed process
                    num_damaged += math.isinf(line_step) and line.endswith(b"\n")
            if num_damaged:
                log(f"{path}: damaged lines removed: {num_damaged}")
            if num_dropped:
                with atomic_replace(path) as temporary:
                    temporary.write_bytes(b"".join(lines_to_keep))


def _read_step(line: bytes) -> float:
    try:
        return float(parse_json(line)["step"]) if line.endswith(b"\n") else math.inf
    except (ValueError, KeyError, TypeError, OverflowError):
        return math.inf  # damaged


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """Return the device of this name; "auto" is a GPU if there is one: cuda, else mps."""
    name, has_mps = str(device), torch.backends.mps.is_available()
    if name == "auto":
        gpu = "cuda" if torch.cuda.is_available() else "mps" if has_mps else None
        return torch.device(gpu or "cpu")
    device_type, _, index = name.partition(":")
    count = torch.cuda.device_count() if device_type == "cuda" else int(name == "cpu")
    is_known = (index or "0").isdigit() and int(index or 0) < count
    message, hint = f"there is no device called {name!r}", "choose cpu, cuda, cuda:1, mps or auto"
    if name == "mps":
        is_known, message = has_mps, "there is no GPU of a Mac that this PyTorch can use"
    check(is_known, "--device", message, hint)
    return torch.device(name)


class LoadOptions(TypedDict, total=False):
    """The arguments of `load` that do not decide what it returns."""

    device: str | torch.device
    dtype: Dtype
    settings: SettingsArgument
    ensemble_with: Sequence[Path | str]


def load_as(
    run: Path | str, predictor_class: type[PredictorT], **options: Unpack[LoadOptions]
) -> PredictorT:
    """Load a run whose predictor is of this class, which type checkers then know."""
    predictor = load(run, **options)
    if isinstance(predictor, predictor_class):
        return predictor
    expected, actual = predictor_class.__name__, type(predictor).__name__
    message = f"its predictor is a {actual}, not a {expected}"
    raise RunError(str(run), message, f"load it as {actual}")


@check_types
def load(
    run: Path | str,
    *,
    task: str | None = None,
    device: str | torch.device = "auto",
    dtype: Dtype = "fp32",
    settings: SettingsArgument = (),
    ensemble_with: Sequence[Path | str] = (),
    checkpoint: int | None = None,
) -> Any:
    """Load a trained model as a `Predictor`, after verifying each file against the manifest.

    Its task decides the class, such as `Translator`, `TextGenerator`, `Classifier` or `Forecaster`;
    `load_as` names it for type checkers. A run of another task than `task` is an error.
    `dtype` is that of the computation: "bf16" or "int8" where the processor has it.
    `settings` change those of the run: {"decoding.beam_size": 10}; `ensemble_with` are further runs
    that form an ensemble with this one; `checkpoint` is the step of a checkpoint of the training,
    whose parameters are used instead of the saved ones.
    """
    if task is not None:
        check_choice(task, TASKS, "task", location="task", error=ArgumentError)
    torch_device = resolve_device(device)
    load_member = partial(load_run, device=torch_device, dtype=dtype)
    first = load_member(run, settings=settings, checkpoint=checkpoint)
    run_task: Task = first.config.task
    hint = f"use `heedful {run_task.next_command.format(run=run)}`"
    is_expected = task in (None, run_task.name)
    check(is_expected, str(run), f"this run {run_task.description}", hint, RunError)
    members = [first, *map(load_member, ensemble_with)]
    return run_task.combine_runs(members, torch_device, load_member)


def load_run(
    run_dir: Path | str,
    device: torch.device | None = None,
    dtype: Dtype = "fp32",
    settings: SettingsArgument = (),
    checkpoint: int | None = None,
) -> LoadedRun:
    """Load the contents of a run, with its plain model, by default on the CPU."""
    device = device or torch.device("cpu")
    run = Run.open(run_dir)
    run.verify()
    recipe = run.read_recipe(settings)
    if not (dtype == "int8" and recipe.decoding.backend == "ct2"):  # it has kernels of its own
        check_dtype(dtype, device)
    tokenizers = run.read_tokenizers(recipe)
    model = recipe.task.build_model(recipe, VocabSizes.from_tokenizers(tokenizers))
    run.load_weights_into(model, checkpoint)
    model = convert_model(model.eval().to(device), dtype)
    return LoadedRun(run.folder, recipe, tokenizers, model)
