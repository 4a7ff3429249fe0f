"""Averages: one model from several, each weight the mean of theirs.

Several checkpoints of one run, as Vaswani et al. (2017, section 6.1) average theirs, or several
runs of one model and vocabulary; the mean of runs that began with unlike weights is no good model,
which cannot be seen from here. Law: the mean of a model with itself is that model, and the order
of what is averaged has no say; sums are in double precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from heedful.config import flatten_settings
from heedful.errors import RunError
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.storage import MANIFEST, atomic_replace, read_and_verify_manifest
from heedful.storage.state_dict import load_into_model, read_weights, unique_weights
from heedful.training.checkpoints import MODEL_FILE, list_checkpoints


class AveragingInput(NamedTuple):
    """One of the models that an average is made of."""

    run: Run
    step: int
    checkpoint: Path | None = None  # the weights that the run is used with, if there is none
    score: float | None = None  # smaller is better; None where it was not validated

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.checkpoint or self.run.folder


def average_checkpoints(
    folders: Sequence[Path | str],
    output_dir: Path | str,
    *,
    num_last: int | None = None,
    num_best: int | None = None,
) -> list[AveragingInput]:
    """Write a run folder whose weights are the mean of others; say of which.

    Of each run the newest checkpoints are taken (`last`), or those with the best scores (`keep_best`),
    or, where neither is said, the weights it is used with.
    """
    runs, output_dir = [Run(folder) for folder in folders], Path(output_dir)
    _check_does_not_exist(output_dir)
    members = [
        each for run in runs for each in _select_members(run, num_last=num_last, num_best=num_best)
    ]
    if len(members) == 1:
        raise RunError(
            str(members[0].folder),
            "the mean of one model is that model",
            "name several runs, or take several checkpoints with --num-last or --num-best",
        )
    recipe = runs[0].read_recipe()
    for run in runs[1:]:
        _check_compatible(runs[0], run)
    text = runs[0].read_tokenizers(recipe)
    model = recipe.model.build(
        source_vocab_size=len(text.source), target_vocab_size=len(text.target)
    )
    weights = average_state_dicts(_weights(member, model) for member in members)
    with atomic_replace(output_dir) as temporary:
        new = Run(temporary)
        new.initialize(recipe, text)
        new.save_model(weights, step=max(member.step for member in members))
    return members


def average_state_dicts(models: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight; whole numbers, which have none, are those of the last model."""
    cumulative_log_probs, count, weights = dict[str, Tensor](), 0, dict[str, Tensor]()
    for count, weights in enumerate(models, start=1):  # noqa: B007
        for name, weight in weights.items():
            cumulative_log_probs[name] = weight.double() + cumulative_log_probs.get(name, 0)
    return {
        name: (cumulative_log_probs[name] / count).to(weight.dtype)
        if weight.is_floating_point()
        else weight
        for name, weight in weights.items()
    }


def _weights(member: AveragingInput, model: nn.Module) -> dict[str, Tensor]:
    """The weights of a member, having gone through the model they must belong to."""
    if member.checkpoint is None:
        member.run.load_weights_into(model)
    else:
        read_and_verify_manifest(member.checkpoint)
        path = member.checkpoint / MODEL_FILE
        load_into_model(model, read_weights(path), location=str(path))
    return unique_weights(model)


def _select_members(
    run: Run, *, num_last: int | None, num_best: int | None
) -> list[AveragingInput]:
    if num_last is None and num_best is None:
        return [AveragingInput(run, run.verify()["step"])]
    if not run.exists or (run.folder / MANIFEST).exists():
        run.verify()
    found = [
        AveragingInput(run, saved.step, saved.folder, saved.score)
        for saved in list_checkpoints(run.checkpoints)
    ]
    if num_last is not None:
        return _check_enough(run, found, num_last, "checkpoints")[-num_last:]
    for saved in found:
        if saved.score is None and saved.checkpoint is not None:
            read_and_verify_manifest(
                saved.checkpoint
            )  # a score may be lost, and not only never given
    scored = [(each.score, each.step, each) for each in found if each.score is not None]
    ranked = [each for _, _, each in sorted(scored, key=lambda entry: entry[:2])]
    return _check_enough(run, ranked, num_best or 0, "checkpoints that were validated")[:num_best]


def _check_enough(
    run: Run, members: list[AveragingInput], num_required: int, description: str
) -> list[AveragingInput]:
    if len(members) < num_required:
        raise RunError(
            str(run.checkpoints),
            f"{num_required} {description} are asked for, and there are {len(members)}",
            "ask for fewer, or train with a larger training.checkpoints.keep_last or .best",
        )
    return members


def _check_does_not_exist(folder: Path) -> None:
    if folder.exists():
        raise RunError(
            str(folder), "there is something here already", "name a folder that does not exist yet"
        )


def _check_compatible(first: Run, other: Run) -> None:
    """Refuse a run whose weights do not mean the same as those of the first."""
    recipes = first.read_recipe(), other.read_recipe()
    mine, its = (_model_settings(recipe) for recipe in recipes)
    if mine != its:
        name = next(name for name in [*mine, *its] if mine.get(name) != its.get(name))
        raise RunError(
            str(other.folder),
            f"this model has {name}={its.get(name)}, and that of {first.folder} {mine.get(name)}",
            "average runs of one model",
        )
    vocabularies = (
        _all_tokens(run, recipe) for run, recipe in zip((first, other), recipes, strict=True)
    )
    for side, here, there in zip(("source", "target"), *vocabularies, strict=True):
        if here != there:
            raise RunError(
                str(other.folder),
                f"its {side} tokens are not those of {first.folder}",
                "average runs with one vocabulary: training.init_from begins with that of another",
            )


def _all_tokens(run: Run, recipe: Recipe) -> list[list[str]]:
    """Every token of the source and of the target."""
    return [
        tokenizer.ids_to_tokens(range(len(tokenizer))) for tokenizer in run.read_tokenizers(recipe)
    ]


def _model_settings(recipe: Recipe) -> dict[str, Any]:
    """What decides which weights a model has and what they mean, by dotted name."""
    sections = {"model": recipe.model.model_dump(), "tokenizers": recipe.tokenizers.model_dump()}
    return dict(flatten_settings(sections))
