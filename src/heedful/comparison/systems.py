"""Systems: runs of the same recipe with different seeds, evaluated and compared.

Two runs belong to one system if their recipes differ only in the seed, the description, and
settings of logging and checkpoints. Runs with the same seed belong to different systems. Runs
joined by `+` are an ensemble.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from heedful.comparison.budget import read_training_cost
from heedful.comparison.results import Comparison, Cost, Failure, RunStatistics, System
from heedful.comparison.test_sets import EvaluationSet, SystemResult
from heedful.config import fields_with_role
from heedful.errors import ConfigError, check, choices_hint, did_you_mean, format_count
from heedful.experiment.environment import environment_info
from heedful.recipes import Recipe
from heedful.runs import Run, resolve_device
from heedful.storage.manifest import read_and_verify_manifest
from heedful.training.config import TrainingConfig
from heedful.training.distributed import SINGLE_PROCESS

ENSEMBLE_SIGN = "+"
IGNORED_SETTINGS = fields_with_role(TrainingConfig, "execution", "seed")
"""Settings of `training` that may differ within a system."""


class SystemRuns(NamedTuple):
    """A system to be compared."""

    name: str
    recipe: Recipe  # of its first run
    folders: Sequence[Path]  # one per seed, or the members of an ensemble
    is_ensemble: bool = False

    @property
    def runs(self) -> list[tuple[Path, ...]]:
        """What is evaluated: each folder alone, or all of them as one ensemble."""
        return [tuple(self.folders)] if self.is_ensemble else [(path,) for path in self.folders]


def split_members(run: Path) -> list[Path]:
    """Return the members of an ensemble, `RUN+RUN`; of a folder that exists, itself."""
    if run.exists() or ENSEMBLE_SIGN not in str(run):
        return [run]
    return [Path(member) for member in str(run).split(ENSEMBLE_SIGN)]


def group_runs(folders: Iterable[Path]) -> list[SystemRuns]:
    """Group trained runs into systems, in the order of their first runs.

    An ensemble, `RUN+RUN`, is a system of its own.
    """
    systems: dict[tuple[str, int], SystemRuns] = {}
    num_runs: Counter[tuple[str, int]] = Counter()
    seen: set[tuple[Path, ...]] = set()
    for folder in folders:
        members = split_members(folder)
        resolved = tuple(member.resolve() for member in members)
        is_new = resolved not in seen and len({*resolved}) == len(members)
        check(is_new, str(folder), "given twice", "name each run once")
        seen.add(resolved)
        for member in members:
            Run(member).verify()
        recipe = Run(members[0]).read_recipe()
        if len(members) > 1:
            systems[str(folder), 0] = SystemRuns("", recipe, members, is_ensemble=True)
            continue
        fingerprint = system_fingerprint(recipe)
        run_key = fingerprint, recipe.training.seed
        # The second run with a seed starts another system.
        key = fingerprint, num_runs[run_key]
        system = systems.get(key, SystemRuns("", recipe, []))
        systems[key] = system._replace(folders=[*system.folders, folder])
        num_runs[run_key] += 1
    names = [_system_name(system) for system in systems.values()]
    return [
        system._replace(name=name if names.count(name) == 1 else str(system.folders[0]))
        for name, system in zip(names, systems.values(), strict=True)
    ]


def system_fingerprint(recipe: Recipe) -> str:
    """Return the settings that all runs of a system share, as JSON."""
    settings = recipe.model_dump(mode="json", exclude={"info", "evaluation"})
    training = settings["training"]
    for name in IGNORED_SETTINGS:
        del training[name]
    return json.dumps(settings, sort_keys=True)


def _system_name(system: SystemRuns) -> str:
    """Return the common prefix of the names of folders, without the start of a number."""
    names = [folder.resolve().name for folder in system.folders]
    if len(names) == 1 or system.is_ensemble:
        return ENSEMBLE_SIGN.join(names)
    common = takewhile(lambda letters: len({*letters}) == 1, zip(*names, strict=False))
    return re.sub(r"[-_.]?\d*$", "", "".join(letters[0] for letters in common)) or names[0]


def check_same_task(systems: Sequence[tuple[str, Recipe]]) -> None:
    """Raise ConfigError for systems of different tasks."""
    (first_name, first), *others = systems
    for name, recipe in others:
        tasks = f"its task is {recipe.task.name}, but that of {first_name} is {first.task.name}"
        check(recipe.task is first.task, name, tasks, "compare systems of one task")


def find_baseline(system_runs: Sequence[SystemRuns], baseline: str) -> int:
    """Return the index of the system with this name or with this run."""
    members = [path.resolve() for path in split_members(Path(baseline))]
    for index, system in enumerate(system_runs):
        runs = [[path.resolve() for path in run] for run in system.runs]
        if baseline == system.name or members in runs:
            return index
    names = [system.name for system in system_runs]
    message = f"no system is called {baseline!r}{did_you_mean(baseline, names)}"
    raise ConfigError("--baseline", message, choices_hint(names))


def compare_runs(
    system_runs: Sequence[SystemRuns],
    evaluation_set: EvaluationSet,
    *,
    command: str,
    budget: str | None = None,
    failures: Sequence[Failure] = (),
    baseline: str | None = None,
    device: str = "auto",
) -> Comparison:
    """Evaluate all systems on the same test set, and read their costs."""
    check_same_task([(system.name, system.recipe) for system in system_runs])
    baseline_index = find_baseline(system_runs, baseline) if baseline else 0
    evaluated = evaluation_set.evaluate(
        [system.runs for system in system_runs], baseline=baseline_index, device=device
    )
    facts = environment_info(resolve_device(device), SINGLE_PROCESS)
    return Comparison(
        title=f"{format_count(len(system_runs), 'system')} compared",
        test_set=evaluation_set.title,
        num_sentences=evaluation_set.size,
        budget=budget,
        baseline=system_runs[baseline_index].name,
        systems=list(map(_make_system, system_runs, evaluated.results)),
        sources=evaluated.sources,
        references=evaluated.references,
        environment={name: str(fact) for name, fact in facts.items() if name != "command"},
        command=command,
        failures=failures,
    )


def _make_system(system: SystemRuns, result: SystemResult) -> System:
    costs = [read_training_cost(folder) for folder in system.folders]
    steps = [
        int(read_and_verify_manifest(folder)["step"]) if cost.steps is None else cost.steps
        for folder, cost in zip(system.folders, costs, strict=True)
    ]

    def over_runs(
        values: Sequence[float | None], total: Callable[[Sequence[float]], float] = sum
    ) -> RunStatistics | None:
        """Return the statistics over runs; None if one of them has not logged the value.

        The cost of an ensemble is the total of its members.
        """
        numbers = [value for value in values if value is not None]
        if len(numbers) < len(values):
            return None
        return RunStatistics.from_values([total(numbers)] if system.is_ensemble else numbers)

    return System(
        system.name,
        system.recipe.info.summary,
        [ENSEMBLE_SIGN.join(map(str, run)) for run in system.runs],
        result.scores,
        Cost(
            result.num_parameters,
            over_runs(steps) or RunStatistics(0),
            over_runs([cost.seconds for cost in costs]),
            over_runs([cost.flops for cost in costs]),
            over_runs([cost.peak_memory for cost in costs], total=max),
            result.sentences_per_second,
            result.tokens_per_second,
        ),
        [] if system.is_ensemble else [cost.curve for cost in costs],
        result.outputs,
    )
