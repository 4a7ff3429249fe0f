"""Comparing: from trained runs to all that is known of them, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from heedful.comparison.exams import Exam, Held, Result
from heedful.comparison.grouping import Entrant
from heedful.comparison.results import Comparison, Cost, Failure, Over, System
from heedful.comparison.spending import Spent, read_spending
from heedful.errors import ConfigError, choose_from, did_you_mean
from heedful.experiment.environment import environment
from heedful.recipes import Recipe
from heedful.runs import pick_device
from heedful.storage import read_manifest
from heedful.training.ranks import ALONE


class About(NamedTuple):
    """What a comparison says of itself."""

    command: str
    budget: str | None = None
    failures: Sequence[Failure] = ()


def compare_runs(
    entrants: Sequence[Entrant],
    exam: Exam,
    *,
    about: About,
    baseline: str | None = None,
    device: str = "auto",
) -> Comparison:
    """Ask all systems the same, and put what they cost beside what they said."""
    refuse_mixed([(entrant.name, entrant.recipe) for entrant in entrants])
    place = find_baseline(entrants, baseline) if baseline else 0
    held = exam.hold([entrant.folders for entrant in entrants], baseline=place, device=device)
    return Comparison(
        title=f"{len(entrants)} system{'' if len(entrants) == 1 else 's'} compared",
        test=exam.title,
        num_sentences=exam.size,
        budget=about.budget,
        baseline=entrants[place].name,
        systems=_systems(entrants, held),
        sources=held.sources,
        references=held.references,
        environment=_environment(device),
        command=about.command,
        failures=about.failures,
    )


def refuse_mixed(systems: Sequence[tuple[str, Recipe]]) -> None:
    """Refuse systems that cannot be asked the same."""
    first, kind = systems[0][0], _kind(systems[0][1])
    for name, recipe in systems[1:]:
        if _kind(recipe) != kind:
            raise ConfigError(
                name,
                f"this {_kind(recipe)}, and {first} {kind}: they cannot be asked the same",
                "compare systems of one kind",
            )


def _kind(recipe: Recipe) -> str:
    article = f"is a {recipe.model.kind.replace('-', ' ')}"
    return article if recipe.is_of_text else "translates"


def find_baseline(entrants: Sequence[Entrant], named: str) -> int:
    """Find the system of this name, or the one that a run belongs to."""
    for place, (name, _, folders) in enumerate(entrants):
        if named == name or Path(named).resolve() in [folder.resolve() for folder in folders]:
            return place
    names = [entrant.name for entrant in entrants]
    raise ConfigError(
        "--baseline",
        f"no system is called {named!r}{did_you_mean(named, names)}",
        choose_from(names),
    )


def _systems(entrants: Sequence[Entrant], held: Held) -> list[System]:
    systems = list[System]()
    for (name, recipe, folders), result in zip(entrants, held.results, strict=True):
        spent = [read_spending(folder) for folder in folders]
        systems.append(
            System(
                name,
                recipe.about.summary,
                [str(folder) for folder in folders],
                result.judged,
                _cost(result, spent, [_published_step(folder) for folder in folders]),
                [each.curve for each in spent],
                result.outputs,
            )
        )
    return systems


def _cost(result: Result, spent: Sequence[Spent], published: Sequence[int]) -> Cost:
    steps = [
        step if each.steps is None else each.steps
        for each, step in zip(spent, published, strict=True)
    ]
    return Cost(
        result.num_parameters,
        Over.of(steps),
        _known(spent, lambda each: each.seconds),
        _known(spent, lambda each: each.operations),
        _known(spent, lambda each: each.memory),
        result.sentences_per_second,
        result.tokens_per_second,
    )


def _known(spent: Sequence[Spent], ask: Callable[[Spent], float | None]) -> Over | None:
    """Sum up what runs have told; what one of them has not is not known of the system."""
    told = [found for each in spent if (found := ask(each)) is not None]
    return Over.of(told) if len(told) == len(spent) else None


def _published_step(folder: Path) -> int:
    return int(read_manifest(folder)["step"])


def _environment(device: str) -> Mapping[str, str]:
    facts = environment(pick_device(device), ALONE)
    return {name: str(fact) for name, fact in facts.items() if name != "command"}
