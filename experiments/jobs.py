"""Trainings of an experiment, several at a time, whose results are kept."""

from __future__ import annotations

import json
import multiprocessing
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

import torch
import typer

from heedful.storage.json_files import read_json_lines

Result = dict[str, Any]
JobT = TypeVar("JobT", bound=tuple[Any, ...])


def run_jobs(
    jobs: Sequence[JobT],
    train: Callable[[JobT], Result],
    results: Path,
    *,
    workers: int,
    needed: Callable[[JobT], Iterable[JobT]] = lambda job: (),
    max_minutes: float = float("inf"),
) -> list[Result]:
    """Train what has no result yet, in order; append each result to a file of JSON lines.

    A job, a named tuple, begins when those that it needs have ended; after `max_minutes` none does.
    One that fails is named, and has no result.
    """
    kind, known = type(jobs[0]), {job_of(type(jobs[0]), item) for item in read_json_lines(results)}
    waiting = [job for job in jobs if job not in known]
    total, deadline = len(waiting), time.monotonic() + 60 * max_minutes
    numbers, running = count(1), dict[Future[Result | str], JobT]()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_use_one_core) as pool:
        while waiting or running:
            blocked = {*waiting, *running.values()}
            ready = [job for job in waiting if blocked.isdisjoint(needed(job))]
            if time.monotonic() < deadline:
                started = ready[: workers - len(running)]
                running.update({pool.submit(_run, train, job): job for job in started})
                waiting = [job for job in waiting if job not in started]
            if not running:
                break
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                _keep(future, running.pop(future), results, f"{next(numbers)} of {total}")
    wanted = set(jobs)
    return [item for item in read_json_lines(results) if job_of(kind, item) in wanted]


def _run(train: Callable[[JobT], Result], job: JobT) -> Result | str:
    """Return the result of a job, or what it raised: not all exceptions can leave a process."""
    try:
        return train(job)
    except Exception as error:
        traceback.print_exc()
        return f"{type(error).__name__}: {error}"


def _keep(future: Future[Result | str], job: Any, results: Path, progress: str) -> None:
    name = " ".join(map(str, job))
    outcome = future.result()
    if isinstance(outcome, str):
        typer.echo(f"{progress}: {name} failed: {outcome}")
        return
    result = {**job._asdict(), **outcome}
    with results.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result) + "\n")
    figures = [f"{key} {value}" for key, value in result.items() if key not in job._fields]
    typer.echo(f"{progress}: {name}: {', '.join(figures)}")


def _use_one_core() -> None:
    torch.set_num_threads(1)


def job_of(kind: type[JobT], result: Mapping[str, Any]) -> JobT:
    """Return the job of a result."""
    fields = getattr(kind, "_fields", ())
    return kind(*(result.get(name) for name in fields))


def format_scores(scores: Iterable[float]) -> str:
    """Return mean and standard deviation; nothing without scores."""
    values = list(scores)
    if not values:
        return ""
    spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
    return f"{fmean(values):.1f}{spread}"
