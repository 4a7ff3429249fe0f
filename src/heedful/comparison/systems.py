"""Comparing: from trained runs to all that is known of them, side by side."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from heedful.comparison.budget import TrainingCost, read_training_cost
from heedful.comparison.evaluation_sets import EvaluationResults, EvaluationSet, SystemResult
from heedful.comparison.results import Comparison, Cost, Failure, RunStatistics, System
from heedful.errors import ConfigError, choices_hint, did_you_mean
from heedful.experiment.environment import environment_info
from heedful.recipes import Recipe
from heedful.runs import Run, resolve_device
from heedful.storage import read_and_verify_manifest
from heedful.training.distributed import SINGLE_PROCESS

# Grouping: which runs are one system?
#
# Runs of the same recipe but of other seeds. What says only where a recipe comes from, how a run was
# looked at and what was kept of it makes no other system; nor do the most steps of a run that a limit
# of time or of operations ends, since they are then found by measuring (`budgets`). Runs that share
# their seed, too, are systems apart: there is something else that differs.

IGNORED_SETTINGS = (
    "seed",
    "validate_every",
    "max_eval_samples",
    "num_logged_samples",
    "save_every",
    "checkpoints",
    "max_nonfinite_steps",
    "distributed_strategy",
)
"""Settings of training that differ within a system."""


class SystemRuns(NamedTuple):
    """A system that is to be compared."""

    name: str
    recipe: Recipe  # of its first run
    folders: Sequence[Path]  # one for each seed


def group_runs(folders: Iterable[Path]) -> list[SystemRuns]:
    """Group trained runs into systems, in the order of their first runs."""
    systems = dict[tuple[str, int], list[tuple[Path, Recipe]]]()
    seeds, seen = Counter[tuple[str, int]](), set[Path]()
    for folder in folders:
        _check_not_repeated(folder, seen)
        run = Run(folder)
        run.verify()
        recipe = run.read_recipe()
        system = system_fingerprint(recipe)
        turn = seeds[system, recipe.training.seed]  # the second run of a seed begins a new system
        seeds[system, recipe.training.seed] += 1
        systems.setdefault((system, turn), []).append((folder, recipe))
    groups = list(systems.values())
    names = _unique_names([[folder for folder, _ in runs] for runs in groups])
    return [
        SystemRuns(name, runs[0][1], [folder for folder, _ in runs])
        for name, runs in zip(names, groups, strict=True)
    ]


def system_fingerprint(recipe: Recipe) -> str:
    """What two recipes have in common if they are of one system."""
    settings = recipe.model_dump(mode="json", exclude={"info": True})
    training = settings["training"]
    for name in IGNORED_SETTINGS:
        del training[name]
    if training["max_minutes"] is not None or training["max_flops"] is not None:
        del training["max_steps"]
    return json.dumps(settings, sort_keys=True)


def _check_not_repeated(folder: Path, seen: set[Path]) -> None:
    if folder.resolve() in seen:
        raise ConfigError(str(folder), "this run is named twice", "name each run once")
    seen.add(folder.resolve())


def _unique_names(groups: Sequence[Sequence[Path]]) -> list[str]:
    """Name each system after its folders: by their names, or by their paths if those are alike."""
    names = [_common_name([folder.resolve().name for folder in folders]) for folders in groups]
    counts = Counter(names)
    return [
        name if counts[name] == 1 else str(folders[0])
        for name, folders in zip(names, groups, strict=True)
    ]


def _common_name(names: Sequence[str]) -> str:
    """Give what the names of runs begin with, less the beginning of a number."""
    if len(names) == 1:
        return names[0]
    alike = takewhile(lambda signs: len({*signs}) == 1, zip(*names, strict=False))
    shared = "".join(signs[0] for signs in alike)
    return re.sub(r"[-_.]?\d*$", "", shared) or names[0]


class ComparisonInfo(NamedTuple):
    """What a comparison says of itself."""

    command: str
    budget: str | None = None
    failures: Sequence[Failure] = ()


def compare_runs(
    system_runs: Sequence[SystemRuns],
    evaluation_set: EvaluationSet,
    *,
    info: ComparisonInfo,
    baseline: str | None = None,
    device: str = "auto",
) -> Comparison:
    """Ask all systems the same, and put what they cost beside what they said."""
    check_same_task([(entrant.name, entrant.recipe) for entrant in system_runs])
    baseline_index = find_baseline(system_runs, baseline) if baseline else 0
    held = evaluation_set.evaluate(
        [entrant.folders for entrant in system_runs], baseline=baseline_index, device=device
    )
    return Comparison(
        title=f"{len(system_runs)} system{'' if len(system_runs) == 1 else 's'} compared",
        test_set=evaluation_set.title,
        num_sentences=evaluation_set.size,
        budget=info.budget,
        baseline=system_runs[baseline_index].name,
        systems=_systems(system_runs, held),
        sources=held.sources,
        references=held.references,
        environment=_environment(device),
        command=info.command,
        failures=info.failures,
    )


def check_same_task(systems: Sequence[tuple[str, Recipe]]) -> None:
    """Refuse systems that cannot be asked the same."""
    first, kind = systems[0][0], _task_name(systems[0][1])
    for name, recipe in systems[1:]:
        if _task_name(recipe) != kind:
            raise ConfigError(
                name,
                f"this {_task_name(recipe)}, and {first} {kind}: they cannot be asked the same",
                "compare systems of one kind",
            )


def _task_name(recipe: Recipe) -> str:
    article = f"is a {recipe.model.type.replace('-', ' ')}"
    return article if recipe.is_monolingual else "translates"


def find_baseline(system_runs: Sequence[SystemRuns], named: str) -> int:
    """Find the system of this name, or the one that a run belongs to."""
    for index, (name, _, folders) in enumerate(system_runs):
        if named == name or Path(named).resolve() in [folder.resolve() for folder in folders]:
            return index
    names = [entrant.name for entrant in system_runs]
    raise ConfigError(
        "--baseline",
        f"no system is called {named!r}{did_you_mean(named, names)}",
        choices_hint(names),
    )


def _systems(system_runs: Sequence[SystemRuns], eval_results: EvaluationResults) -> list[System]:
    systems = list[System]()
    for (name, recipe, folders), result in zip(system_runs, eval_results.results, strict=True):
        training_costs = [read_training_cost(folder) for folder in folders]
        systems.append(
            System(
                name,
                recipe.info.summary,
                [str(folder) for folder in folders],
                result.scores,
                _cost(result, training_costs, [_read_model_step(folder) for folder in folders]),
                [each.curve for each in training_costs],
                result.outputs,
            )
        )
    return systems


def _cost(
    result: SystemResult, training_costs: Sequence[TrainingCost], published: Sequence[int]
) -> Cost:
    steps = [
        step if each.steps is None else each.steps
        for each, step in zip(training_costs, published, strict=True)
    ]
    return Cost(
        result.num_parameters,
        RunStatistics.from_values(steps),
        _aggregate_if_known(training_costs, lambda each: each.seconds),
        _aggregate_if_known(training_costs, lambda each: each.flops),
        _aggregate_if_known(training_costs, lambda each: each.peak_memory),
        result.sentences_per_second,
        result.tokens_per_second,
    )


def _aggregate_if_known(
    training_costs: Sequence[TrainingCost], get: Callable[[TrainingCost], float | None]
) -> RunStatistics | None:
    """Sum up what runs have told; what one of them has not is not known of the system."""
    values = [found for each in training_costs if (found := get(each)) is not None]
    return RunStatistics.from_values(values) if len(values) == len(training_costs) else None


def _read_model_step(folder: Path) -> int:
    return int(read_and_verify_manifest(folder)["step"])


def _environment(device: str) -> Mapping[str, str]:
    facts = environment_info(resolve_device(device), SINGLE_PROCESS)
    return {name: str(fact) for name, fact in facts.items() if name != "command"}
