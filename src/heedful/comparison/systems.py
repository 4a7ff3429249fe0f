"""Systems: runs of the same recipe with different seeds, evaluated and compared.

Two runs belong to one system if their recipes differ only in the seed, the description, and
settings of logging and checkpoints. If a limit of time or FLOPs ended a run, its `max_steps` was
estimated from its speed and may differ, too. Runs with the same seed belong to different systems.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from heedful.comparison.budget import TrainingCost, read_training_cost
from heedful.comparison.evaluation_sets import EvaluationSet, SystemResult
from heedful.comparison.results import Comparison, Cost, Failure, RunStatistics, System
from heedful.config import fields_with_role
from heedful.errors import ConfigError, check, choices_hint, did_you_mean
from heedful.experiment.environment import environment_info
from heedful.recipes import Recipe
from heedful.runs import Run, resolve_device
from heedful.storage import read_and_verify_manifest
from heedful.training.config import TrainingConfig
from heedful.training.distributed import SINGLE_PROCESS

IGNORED_SETTINGS = fields_with_role(TrainingConfig, "execution", "seed")
"""Settings of `training` that may differ within a system."""


class SystemRuns(NamedTuple):
    """A system to be compared."""

    name: str
    recipe: Recipe  # of its first run
    folders: Sequence[Path]  # one per seed


def group_runs(folders: Iterable[Path]) -> list[SystemRuns]:
    """Group trained runs into systems, in the order of their first runs."""
    systems: dict[tuple[str, int], list[tuple[Path, Recipe]]] = {}
    num_runs: Counter[tuple[str, int]] = Counter()
    seen: set[Path] = set()
    for folder in folders:
        check(folder.resolve() not in seen, str(folder), "given twice", "name each run once")
        seen.add(folder.resolve())
        run = Run(folder)
        run.verify()
        recipe = run.read_recipe()
        fingerprint = system_fingerprint(recipe)
        key = fingerprint, recipe.training.seed
        # The second run with a seed starts another system.
        systems.setdefault((fingerprint, num_runs[key]), []).append((folder, recipe))
        num_runs[key] += 1
    groups = list(systems.values())
    names = _unique_names([[folder for folder, _ in runs] for runs in groups])
    return [
        SystemRuns(name, runs[0][1], [folder for folder, _ in runs])
        for name, runs in zip(names, groups, strict=True)
    ]


def system_fingerprint(recipe: Recipe) -> str:
    """Return the settings that all runs of a system share, as JSON."""
    settings = recipe.model_dump(mode="json", exclude={"info": True})
    training = settings["training"]
    for name in IGNORED_SETTINGS:
        del training[name]
    if training["max_minutes"] is not None or training["max_flops"] is not None:
        del training["max_steps"]
    return json.dumps(settings, sort_keys=True)


def _unique_names(groups: Sequence[Sequence[Path]]) -> list[str]:
    """Name each system after its folders, or by the path of the first if names are equal."""
    names = [_common_name([folder.resolve().name for folder in folders]) for folders in groups]
    return [
        name if names.count(name) == 1 else str(folders[0])
        for name, folders in zip(names, groups, strict=True)
    ]


def _common_name(names: Sequence[str]) -> str:
    """Return the common prefix of names, without the start of a number."""
    if len(names) == 1:
        return names[0]
    common = takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False))
    prefix = "".join(letters[0] for letters in common)
    return re.sub(r"[-_.]?\d*$", "", prefix) or names[0]


def check_same_task(systems: Sequence[tuple[str, Recipe]]) -> None:
    """Raise ConfigError for systems of different tasks."""
    (first_name, first), *others = systems
    for name, recipe in others:
        check(
            recipe.task is first.task,
            name,
            f"its task is {recipe.task.name}, but that of {first_name} is {first.task.name}",
            "compare systems of one task",
        )


def find_baseline(system_runs: Sequence[SystemRuns], baseline: str) -> int:
    """Return the index of the system with this name or with this run."""
    for index, (name, _, folders) in enumerate(system_runs):
        if baseline == name or Path(baseline).resolve() in [path.resolve() for path in folders]:
            return index
    names = [system.name for system in system_runs]
    raise ConfigError(
        "--baseline",
        f"no system is called {baseline!r}{did_you_mean(baseline, names)}",
        choices_hint(names),
    )


class ComparisonInfo(NamedTuple):
    """How a comparison came about."""

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
    """Evaluate all systems on the same test set, and read what they cost."""
    check_same_task([(system.name, system.recipe) for system in system_runs])
    baseline_index = find_baseline(system_runs, baseline) if baseline else 0
    evaluated = evaluation_set.evaluate(
        [system.folders for system in system_runs], baseline=baseline_index, device=device
    )
    facts = environment_info(resolve_device(device), SINGLE_PROCESS)
    return Comparison(
        title=f"{len(system_runs)} system{'' if len(system_runs) == 1 else 's'} compared",
        test_set=evaluation_set.title,
        num_sentences=evaluation_set.size,
        budget=info.budget,
        baseline=system_runs[baseline_index].name,
        systems=[
            _make_system(system, result)
            for system, result in zip(system_runs, evaluated.results, strict=True)
        ],
        sources=evaluated.sources,
        references=evaluated.references,
        environment={name: str(fact) for name, fact in facts.items() if name != "command"},
        command=info.command,
        failures=info.failures,
    )


def _make_system(system: SystemRuns, result: SystemResult) -> System:
    costs = [read_training_cost(folder) for folder in system.folders]
    steps = [
        _read_model_step(folder) if cost.steps is None else cost.steps
        for folder, cost in zip(system.folders, costs, strict=True)
    ]
    return System(
        system.name,
        system.recipe.info.summary,
        [str(folder) for folder in system.folders],
        result.scores,
        Cost(
            result.num_parameters,
            RunStatistics.from_values(steps),
            _aggregate_if_known(costs, lambda cost: cost.seconds),
            _aggregate_if_known(costs, lambda cost: cost.flops),
            _aggregate_if_known(costs, lambda cost: cost.peak_memory),
            result.sentences_per_second,
            result.tokens_per_second,
        ),
        [cost.curve for cost in costs],
        result.outputs,
    )


def _aggregate_if_known(
    costs: Sequence[TrainingCost], get: Callable[[TrainingCost], float | None]
) -> RunStatistics | None:
    """Return the statistics over runs; None if one of them has not logged the value."""
    values = [value for cost in costs if (value := get(cost)) is not None]
    return RunStatistics.from_values(values) if len(values) == len(costs) else None


def _read_model_step(folder: Path) -> int:
    return int(read_and_verify_manifest(folder)["step"])
