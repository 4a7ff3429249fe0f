"""Checkpoint averaging: a model whose parameters are the mean of several.

Of checkpoints of one run (Vaswani et al. 2017, section 6.1), or of runs with one model, vocabulary
and initialization. Invariants: the average of a model with itself is that model, and order does not
matter; sums are float64.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from torch import Tensor, nn

from heedful.config import differences
from heedful.errors import CorruptRunError, RunError, check
from heedful.runs import Run
from heedful.storage.atomic import atomic_replace
from heedful.storage.manifest import MANIFEST, read_and_verify_manifest
from heedful.storage.state_dict import load_weights, unique_weights
from heedful.tasks.task_data import VocabSizes
from heedful.training.checkpoints import MODEL_FILE, list_checkpoints

MAX_GAP_RATIO = 3  # of the longest to the shortest distance in steps, without a warning
MAX_SCORE_LOSS = 0.1  # of the best score, without a warning


class AveragingInput(NamedTuple):
    """A model to average."""

    run: Run
    step: int
    checkpoint: Path | None = None  # None: the saved weights of the run
    score: float | None = None  # lower is better; None if it was not validated

    @property
    def folder(self) -> Path:
        """The folder of the checkpoint or run."""
        return self.checkpoint or self.run.folder


def average_checkpoints(
    folders: Sequence[Path | str],
    output_dir: Path | str,
    *,
    num_last: int | None = None,
    num_best: int | None = None,
) -> list[AveragingInput]:
    """Write a run folder with averaged parameters, and return its inputs.

    Of each run the `num_last` newest or `num_best` best checkpoints, or else its saved weights. If
    a trainer removes one of them meanwhile, they are selected again.
    """
    runs, output_dir = [Run(folder) for folder in folders], Path(output_dir)
    hint = "use a folder that does not exist yet"
    check(not output_dir.exists(), str(output_dir), "already exists", hint, RunError)
    while True:
        checkpoints = [set(run.checkpoints.glob("step-*")) for run in runs]
        try:
            return _write_average(runs, output_dir, num_last, num_best)
        except (CorruptRunError, FileNotFoundError):
            if checkpoints == [set(run.checkpoints.glob("step-*")) for run in runs]:
                raise


def _write_average(
    runs: Sequence[Run], output_dir: Path, num_last: int | None, num_best: int | None
) -> list[AveragingInput]:
    inputs = [item for run in runs for item in _select_inputs(run, num_last, num_best)]
    message = "there is only one model to average"
    hint = "name several runs, or several checkpoints with --num-last or --num-best"
    check(len(inputs) > 1, str(inputs[0].folder), message, hint, RunError)
    recipe = runs[0].read_recipe()
    for run in runs[1:]:
        _check_compatible(runs[0], run)
    tokenizers = runs[0].read_tokenizers(recipe)
    model = recipe.task.build_model(recipe, VocabSizes.from_tokenizers(tokenizers))
    state_dict = average_state_dicts(_load_state_dict(item, model) for item in inputs)
    with atomic_replace(output_dir) as temporary:
        run = Run(temporary)
        run.initialize(recipe, tokenizers, runs[0].original_files())
        run.save_model(state_dict, step=max(item.step for item in inputs))
    return inputs


def averaging_warnings(inputs: Sequence[AveragingInput]) -> list[str]:
    """Return a line for checkpoints that are far apart, and for those much worse than the best."""
    warnings = []
    for run in {item.run.folder: item.run for item in inputs}.values():
        infos = list_checkpoints(run.checkpoints)
        scores = [info.score for info in infos if info.score is not None]
        members = [item for item in inputs if item.run is run and item.checkpoint]
        steps = sorted(item.step for item in members)
        gaps = [after - before for before, after in pairwise(steps)]
        if gaps and max(gaps) > MAX_GAP_RATIO * min(gaps):
            listed = ", ".join(map(str, steps))
            warnings.append(f"{run.folder}: these checkpoints are far apart: steps {listed}")
        for item in members:
            limit = min(scores, default=0.0) + MAX_SCORE_LOSS * abs(min(scores, default=0.0))
            if item.score is not None and item.score > limit:
                warnings.append(
                    f"{item.folder}: its score is more than {MAX_SCORE_LOSS:.0%} worse than the "
                    "best of this run; --num-best averages the best ones"
                )
    return warnings


def average_state_dicts(state_dicts: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of each tensor; of integer tensors, the last."""
    sums: dict[str, Tensor] = {}
    last: dict[str, Tensor] = {}
    count = 0
    for state_dict in state_dicts:
        count, last = count + 1, state_dict
        for name, tensor in state_dict.items():
            sums[name] = tensor.double() + sums.get(name, 0)
    return {
        name: (sums[name] / count).to(tensor.dtype) if tensor.is_floating_point() else tensor
        for name, tensor in last.items()
    }


def _load_state_dict(item: AveragingInput, model: nn.Module) -> dict[str, Tensor]:
    """Return the parameters, checked by loading them into the model."""
    if item.checkpoint is None:
        item.run.load_weights_into(model)
    else:
        read_and_verify_manifest(item.checkpoint)
        load_weights(model, item.checkpoint / MODEL_FILE)
    return unique_weights(model)


def _select_inputs(run: Run, num_last: int | None, num_best: int | None) -> list[AveragingInput]:
    if num_last is None and num_best is None:
        return [AveragingInput(run, run.verify()["step"])]
    if not run.exists or (run.folder / MANIFEST).exists():
        run.verify()
    infos = list_checkpoints(run.checkpoints)
    if num_last is not None:
        chosen, num_required, description = infos[-num_last:], num_last, "checkpoints"
    else:
        for info in infos:
            if info.score is None:
                read_and_verify_manifest(info.folder)  # its score may be lost
        scored = sorted((info.score, info.step, info) for info in infos if info.score is not None)
        chosen = [info for _, _, info in scored[:num_best]]
        num_required, description = num_best or 0, "validated checkpoints"
    message = f"{num_required} {description} requested, but there are {len(chosen)}"
    hint = "use fewer, or train with a larger training.checkpoints.keep_last or keep_best"
    check(len(chosen) >= num_required, str(run.checkpoints), message, hint, RunError)
    return [AveragingInput(run, info.step, info.folder, info.score) for info in chosen]


def _check_compatible(first: Run, other: Run) -> None:
    """Raise RunError if model or vocabulary of two runs differ."""
    recipes = [run.read_recipe() for run in (first, other)]
    model, other_model = (recipe.model_dump(include={"model", "tokenizers"}) for recipe in recipes)
    for name, expected, value in differences(model, other_model):
        message = f"this model has {name}={value}, but that of {first.folder} has {expected}"
        raise RunError(str(other.folder), message, "average runs of one model")
    tokenizers = first.read_tokenizers(recipes[0]), other.read_tokenizers(recipes[1])
    for side, *pair in zip(("source", "target"), *tokenizers, strict=True):
        tokens, other_tokens = (vocab.ids_to_tokens(range(len(vocab))) for vocab in pair)
        message = f"its {side} vocabulary is not that of {first.folder}"
        hint = "average runs with one vocabulary: training.init_from reuses that of another run"
        check(tokens == other_tokens, str(other.folder), message, hint, RunError)
