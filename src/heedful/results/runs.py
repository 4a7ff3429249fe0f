"""Training and evaluation of the systems of a result, by the machinery of `comparison`.

A trial is a system with a seed; its record has the outputs and scores of the test set, what
training cost, and versions. Invariants: a trial with a record is not run again, so the test set is
scored once; an interrupted training resumes; choices are made by the dev set only.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch

from heedful.aligners.links import format_pharaoh, sort_links
from heedful.aligners.training import AlignerConfig, align_corpus, number_words
from heedful.comparison.budget import Budget, read_training_cost
from heedful.comparison.results import Failure
from heedful.comparison.test_sets import count_parameters
from heedful.comparison.training import PlannedRun, check_unchanged, train_in_process
from heedful.data.text.token_stream import LMBatch, concatenate_lines
from heedful.data.text_files import read_lines
from heedful.errors import HeedfulError, RunError, check
from heedful.experiment.environment import environment_info, handle_stop_signals
from heedful.parallel import WorkerDiedError, WorkerProcess, available_cores
from heedful.recipes import Recipe, load_recipe
from heedful.results.config import ResultConfig, ResultSystemConfig
from heedful.results.preparation import fill_in, prepare
from heedful.runs import load, resolve_device
from heedful.storage.atomic import write_text
from heedful.storage.json_files import read_json
from heedful.training.distributed import SINGLE_PROCESS

RECORDS = "records"
_WINDOW_BATCH, _WINDOW_SEED = 64, 1337
LogMessage = Callable[[str], None]


class Plan(NamedTuple):
    """How a result is reproduced."""

    name: str
    result: ResultConfig  # with the settings of its miniature, if that is run
    folder: Path
    budget: str
    data: Path | None  # folder of the files
    lines: int | None = None  # that are kept of each file

    @property
    def records(self) -> Path:
        """Folder of the records."""
        return self.folder.parent / RECORDS / self.name

    @property
    def files(self) -> Path:
        """Folder of the files, after preparation."""
        is_cut = self.lines is not None and self.data is not None
        return self.folder / "prepared/data" if is_cut else self.data or self.folder

    def fill_in(self, value: Any) -> Any:
        """Replace the names of folders in settings."""
        return fill_in(value, {"data": self.files, "prepared": self.folder / "prepared"})

    def run_folder(self, system: str, seed: int) -> Path:
        """Return the run folder of a trial."""
        return self.folder / "runs" / f"{system}-{seed}"

    def trials(self) -> Iterator["SystemTrial"]:
        """Yield all trials: those of the first seed first, ensembles last."""
        trained = {name: s for name, s in self.result.systems.items() if not s.ensemble_of}
        for seed in self.result.seeds:
            for name, system in trained.items():
                if system.aligner is None or seed == self.result.seeds[0]:
                    yield SystemTrial(self, name, seed)
        for name, system in self.result.systems.items():
            if system.ensemble_of:
                yield SystemTrial(self, name, self.result.seeds[0])


class SystemTrial(NamedTuple):
    """A system with a seed, or an ensemble of all seeds."""

    plan: Plan
    system: str
    seed: int

    @property
    def config(self) -> ResultSystemConfig:
        """The system."""
        return self.plan.result.systems[self.system]

    @property
    def member(self) -> ResultSystemConfig:
        """The system, or that of the members of an ensemble."""
        return self.plan.result.systems[self.config.ensemble_of or self.system]

    @property
    def budget(self) -> str:
        """Limit of the training."""
        return self.member.budget or self.plan.budget

    @property
    def stage(self) -> int:
        """Trials of a stage need records of earlier stages only."""
        return 2 if self.config.ensemble_of else int(self.config.after is not None)

    @property
    def record(self) -> Path:
        """File of the record."""
        return self.plan.records / f"{self.system}-{self.seed}.json"

    @property
    def folders(self) -> list[Path]:
        """Run folders: of the trial, or of all members of an ensemble."""
        if other := self.config.ensemble_of:
            return [self.plan.run_folder(other, seed) for seed in self.plan.result.seeds]
        return [self.plan.run_folder(self.system, self.seed)]

    def recipe(self) -> Recipe:
        """Return the recipe with all settings."""
        member = self.member
        settings = {**self.plan.result.settings, **member.settings}
        settings["training.seed"] = self.seed
        if member.after:
            settings["training.init_from"] = str(self.plan.run_folder(member.after, self.seed))
        return load_recipe(member.recipe, self.plan.fill_in(settings))

    def __str__(self) -> str:
        what = "ensemble" if self.config.ensemble_of else f"seed {self.seed}"
        return f"{self.plan.name}: {self.system}, {what}"


class TrialJob(NamedTuple):
    """Runs trials in another process."""

    device: str

    def setup(self, *, is_shared: bool) -> Callable[[SystemTrial], str]:
        """Return the function that runs a trial and returns its error message."""
        del is_shared
        return self._run

    def _run(self, trial: SystemTrial) -> str:
        """Run a trial; messages of the training go to a file beside the run."""
        folder = trial.plan.folder / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{trial.system}-{trial.seed}.txt").open("ab") as log:
            os.dup2(log.fileno(), 2)
        return run_trial(trial, self.device)


def run_trial(trial: SystemTrial, device: str) -> str:
    """Train, score the test set and write the record; return an error message, or ""."""
    if trial.config.aligner is not None:
        write_record(trial, _align(trial))
        return ""
    recipe, budget = trial.recipe(), Budget.parse(trial.budget)
    if not trial.config.ensemble_of:
        planned = PlannedRun(trial.system, recipe, trial.folders[0])
        check_unchanged(planned, budget)
        result = train_in_process(planned, budget, device)
        if not result.is_finished:
            return result.error_message or "interrupted"
    write_record(trial, _evaluate(trial, recipe, device))
    return ""


def write_record(trial: SystemTrial, values: Mapping[str, Any]) -> None:
    """Write the record of a trial."""
    facts = environment_info(resolve_device("cpu"), SINGLE_PROCESS)
    record = {
        "result": trial.plan.name,
        "system": trial.system,
        "seed": trial.seed,
        "budget": trial.budget,
        **{name: facts[name] for name in ("heedful", "torch", "python")},
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **values,
    }
    trial.record.parent.mkdir(parents=True, exist_ok=True)
    write_text(trial.record, json.dumps(record) + "\n")


def _commit() -> str | None:
    """Return the commit of the source, if it lies in a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    with suppress(OSError):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip() or os.environ.get("HEEDFUL_COMMIT")
    return os.environ.get("HEEDFUL_COMMIT")


def _evaluate(trial: SystemTrial, recipe: Recipe, device: str) -> dict[str, Any]:
    first, *others = trial.folders
    predictor = load(first, device=device, ensemble_with=others)
    costs = [read_training_cost(folder) for folder in trial.folders]
    values: dict[str, Any] = {
        "device": str(environment_info(resolve_device(device), SINGLE_PROCESS)["device"]),
        "parameters": count_parameters(predictor),
        "steps": sum(cost.steps or 0 for cost in costs),
        "seconds": sum(cost.seconds or 0 for cost in costs),
        "flops": sum(cost.flops or 0 for cost in costs),
        "curve": [point._asdict() for point in costs[0].curve],
        "scores": {},
        "lines": {},
    }
    result, task = trial.plan.result, recipe.task
    if not task.evaluation.has_references:
        examples = task.data.read_examples(recipe.data.test)[: result.max_examples]
        values["scores"] = {score.name: score.value for score in predictor.evaluate(examples)}
        for column, config in result.metrics.items():
            if config.window_loss:
                loss = random_window_loss(predictor, examples, config.window_loss)
                values["scores"][column] = loss
        if hasattr(examples[0], "label"):
            values["lines"] = {"texts": [row.text for row in predictor.classify(examples)]}
        return values
    for test in dict.fromkeys(config.test for config in result.metrics.values()):
        sources, references = read_test(result, recipe, test)
        make = task.evaluation.system_outputs
        outputs = make(predictor, sources, references, lambda predictions, total: predictions)
        for column, config in result.metrics.items():
            if config.test == test:
                lines = outputs.metric_inputs(task.evaluation.test_metrics[config.metric or column])
                is_text = lines is outputs.texts and test is None
                values["lines"]["texts" if is_text else column] = list(lines)
    return values


def read_test(
    result: ResultConfig, recipe: Recipe, test: str | None = None
) -> tuple[list[Any], list[tuple[str, ...]]]:
    """Return sources and references of the test set, or of the additional one of this name."""
    source = recipe.data.additional_tests[test] if test else recipe.data.test
    examples = recipe.task.data.read_examples(source)
    if not recipe.task.evaluation.has_references:
        labels = [str(example.label) for example in examples if hasattr(example, "label")]
        return [], [(label,) for label in labels[: result.max_examples]]
    pairs = [(example.source, tuple(example.references)) for example in examples]
    if result.group_references:
        groups: dict[Any, list[str]] = {}
        for source, references in pairs:
            groups.setdefault(source, []).extend(references)
        pairs = [(source, tuple(references)) for source, references in groups.items()]
    pairs = pairs[: result.max_examples]
    return [source for source, _ in pairs], [references for _, references in pairs]


@torch.inference_mode()
def random_window_loss(predictor: Any, lines: Sequence[str], num_batches: int) -> float:
    """Return the loss in nats over random windows, each from its first token on, as nanoGPT does.

    The first token of a window is predicted from nothing but itself, unlike in `evaluate`, where
    each token has at least half of the context.
    """
    length = predictor.lm_batching.context_length
    tokens = torch.from_numpy(concatenate_lines(lines, predictor.tokenizer)[1:]).long()
    generator, total = np.random.default_rng(_WINDOW_SEED), 0.0
    for _ in range(num_batches):
        starts = torch.from_numpy(generator.integers(len(tokens) - length, size=_WINDOW_BATCH))
        rows = tokens[starts[:, None] + torch.arange(length + 1)].to(predictor.device)
        log_probs = predictor.model(LMBatch(rows[:, :-1], rows[:, 1:])).log_probs
        total -= float(log_probs.gather(-1, rows[:, 1:, None]).double().mean())
    return total / num_batches


def _align(trial: SystemTrial) -> dict[str, Any]:
    """Return the links of a word aligner and their gold links."""
    from pydantic import TypeAdapter

    options = dict(trial.plan.fill_in(trial.config.aligner))
    files, more = options.pop("files"), options.pop("more_files")
    directions = {name: options.pop(name) for name in ("direction", "symmetrization")}
    config: Any = TypeAdapter[Any](AlignerConfig).validate_python(options)
    corpora = [[[line.split() for line in read_lines(path)] for path in f] for f in (files, more)]
    first, *others = number_words(corpora)
    links = align_corpus(config, first, train_corpora=others, **directions)
    texts = [format_pharaoh(sort_links(row)) for row in links]
    return {"device": "cpu", "scores": {}, "lines": {"texts": texts}, "curve": []}


# ----- all trials -----


def run_trials(
    plans: Sequence[Plan], *, device: str, jobs: int, log_message: LogMessage
) -> list[Failure] | None:
    """Run all trials without a record, several at a time; return None if interrupted."""
    for plan in plans:
        prepare(plan.result, plan.data, plan.folder / "prepared", plan.lines)
    open_trials = [trial for plan in plans for trial in plan.trials() if not _is_done(trial)]
    seeds = {id(trial): trial.plan.result.seeds.index(trial.seed) for trial in open_trials}
    failures: list[Failure] = []
    if jobs > 1:
        os.environ.setdefault("OMP_NUM_THREADS", str(max(1, available_cores() // jobs)))
    for stage in range(3):
        trials = [trial for trial in open_trials if trial.stage == stage]
        trials.sort(key=lambda trial: seeds[id(trial)])
        pool = _TrialPool(device, jobs, log_message)
        failures += pool.run(trials)
        if pool.is_interrupted:
            return None
    return failures


def _is_done(trial: SystemTrial) -> bool:
    if not trial.record.exists():
        return False
    budget = read_json(trial.record)["budget"]
    message = f"the record has the budget {budget}, but now it is {trial.budget}"
    hint = "give the same --budget, or another --out"
    check(budget == trial.budget, str(trial.record), message, hint, RunError)
    return True


class _TrialPool:
    """Runs trials in processes of their own, so that one that dies takes no other with it."""

    def __init__(self, device: str, jobs: int, log_message: LogMessage) -> None:
        self.device, self.jobs, self.log_message = device, jobs, log_message
        self.workers: set[WorkerProcess[SystemTrial, str]] = set()
        self.lock, self.is_interrupted = Lock(), False

    def run(self, trials: Sequence[SystemTrial]) -> list[Failure]:
        """Run trials; return those that failed."""
        with (
            handle_stop_signals(on_stop=self._stop) as was_stopped,
            ThreadPoolExecutor(self.jobs) as threads,
        ):
            messages = list(threads.map(self._run, trials))
            self.is_interrupted = self.is_interrupted or was_stopped()
        pairs = zip(trials, messages, strict=True)
        return [Failure(trial.system, str(trial), message) for trial, message in pairs if message]

    def _stop(self) -> None:
        self.is_interrupted = True
        for worker in list(self.workers):
            worker.terminate()

    def _run(self, trial: SystemTrial) -> str:
        if self.is_interrupted:
            return ""
        self.log_message(f"{trial}, for {Budget.parse(trial.budget).text}")
        with WorkerProcess(TrialJob(self.device), name=str(trial)) as worker:
            with self.lock:
                self.workers.add(worker)
            try:
                message: str = worker.run(trial)
            except WorkerDiedError as error:
                message = error.message
            except HeedfulError as error:
                message = str(error)
            except RuntimeError as error:  # an exception of the worker, with its traceback
                message = str(error)
            with self.lock:
                self.workers.discard(worker)
        self.log_message(f"{trial}: {'failed: ' + message if message else 'done'}")
        return message


def read_records(plan: Plan) -> list[dict[str, Any]]:
    """Return the records of a result."""
    return [read_json(trial.record) for trial in plan.trials() if trial.record.exists()]
