"""Averages: one model from several, each weight the mean of theirs.

Several checkpoints of one run, as Vaswani et al. (2017, section 6.1) average theirs, or several
runs of one model and vocabulary; the mean of runs that began with unlike weights is no good model,
which cannot be seen from here. Law: the mean of a model with itself is that model, and the order
of what is averaged has no say; sums are in double precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor, nn

from heedful.errors import RunError
from heedful.recipes import Recipe
from heedful.runs import Run
from heedful.storage import MANIFEST, read_manifest, replacing
from heedful.training.checkpoints import WEIGHTS, list_checkpoints
from heedful.weights import distinct_weights, put_weights, read_weights


class Member(NamedTuple):
    """One of the models that an average is made of."""

    run: Run
    step: int
    checkpoint: Path | None = None  # the weights that the run is used with, if there is none
    score: float | None = None  # smaller is better; None where it was not validated

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.checkpoint or self.run.folder


def average(
    folders: Sequence[Path | str],
    to: Path | str,
    *,
    last: int | None = None,
    best: int | None = None,
) -> list[Member]:
    """Write a run folder whose weights are the mean of others; say of which.

    Of each run the newest checkpoints are taken (`last`), or those with the best scores (`best`),
    or, where neither is said, the weights it is used with.
    """
    runs, to = [Run(folder) for folder in folders], Path(to)
    _refuse_what_is_there(to)
    members = [each for run in runs for each in _members(run, last=last, best=best)]
    if len(members) == 1:
        raise RunError(
            str(members[0].folder),
            "the mean of one model is that model",
            "name several runs, or take several checkpoints with --last or --best",
        )
    recipe = runs[0].read_recipe()
    for run in runs[1:]:
        _refuse_unlike(runs[0], run)
    text = runs[0].read_text(recipe)
    model = recipe.model.build(source_size=len(text.source), target_size=len(text.target))
    weights = mean(_weights(member, model) for member in members)
    with replacing(to) as temporary:
        new = Run(temporary)
        new.begin(recipe, text)
        new.publish(weights, step=max(member.step for member in members))
    return members


def mean(models: Iterable[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight; whole numbers, which have none, are those of the last model."""
    totals, count, weights = dict[str, Tensor](), 0, dict[str, Tensor]()
    for count, weights in enumerate(models, start=1):  # noqa: B007
        for name, weight in weights.items():
            totals[name] = weight.double() + totals.get(name, 0)
    return {
        name: (totals[name] / count).to(weight.dtype) if weight.is_floating_point() else weight
        for name, weight in weights.items()
    }


def _weights(member: Member, model: nn.Module) -> dict[str, Tensor]:
    """The weights of a member, having gone through the model they must belong to."""
    if member.checkpoint is None:
        member.run.put_weights_into(model)
    else:
        read_manifest(member.checkpoint)
        path = member.checkpoint / WEIGHTS
        put_weights(model, read_weights(path), at=str(path))
    return distinct_weights(model)


def _members(run: Run, *, last: int | None, best: int | None) -> list[Member]:
    if last is None and best is None:
        return [Member(run, run.verify()["step"])]
    if not run.exists or (run.folder / MANIFEST).exists():
        run.verify()
    found = [
        Member(run, saved.step, saved.folder, saved.score)
        for saved in list_checkpoints(run.checkpoints)
    ]
    if last is not None:
        return _enough(run, found, last, "checkpoints")[-last:]
    for saved in found:
        if saved.score is None and saved.checkpoint is not None:
            read_manifest(saved.checkpoint)  # a score may be lost, and not only never given
    scored = [(each.score, each.step, each) for each in found if each.score is not None]
    ranked = [each for _, _, each in sorted(scored, key=lambda entry: entry[:2])]
    return _enough(run, ranked, best or 0, "checkpoints that were validated")[:best]


def _enough(run: Run, found: list[Member], wanted: int, what: str) -> list[Member]:
    if len(found) < wanted:
        raise RunError(
            str(run.checkpoints),
            f"{wanted} {what} are asked for, and there are {len(found)}",
            "ask for fewer, or train with a larger training.checkpoints.last or .best",
        )
    return found


def _refuse_what_is_there(folder: Path) -> None:
    if folder.exists():
        raise RunError(
            str(folder), "there is something here already", "name a folder that does not exist yet"
        )


def _refuse_unlike(first: Run, other: Run) -> None:
    """Refuse a run whose weights do not mean the same as those of the first."""
    recipes = first.read_recipe(), other.read_recipe()
    mine, its = (_settings(recipe) for recipe in recipes)
    if mine != its:
        name = next(name for name in [*mine, *its] if mine.get(name) != its.get(name))
        raise RunError(
            str(other.folder),
            f"this model has {name}={its.get(name)}, and that of {first.folder} {mine.get(name)}",
            "average runs of one model",
        )
    vocabularies = (
        _pieces(run, recipe) for run, recipe in zip((first, other), recipes, strict=True)
    )
    for side, here, there in zip(("source", "target"), *vocabularies, strict=True):
        if here != there:
            raise RunError(
                str(other.folder),
                f"its {side} tokens are not those of {first.folder}",
                "average runs with one vocabulary: training.initial begins with that of another",
            )


def _pieces(run: Run, recipe: Recipe) -> list[list[str]]:
    """Every token of the source and of the target."""
    return [tokenizer.pieces(range(len(tokenizer))) for tokenizer in run.read_text(recipe)]


def _settings(recipe: Recipe) -> dict[str, Any]:
    """What decides which weights a model has and what they mean, by dotted name."""
    return dict(_flat({"model": recipe.model.model_dump(), "text": recipe.text.model_dump()}))


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
