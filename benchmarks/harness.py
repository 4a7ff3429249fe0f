"""What all benchmarks share: systems that take turns, medians with quartiles, Markdown tables.

Invariants: systems alternate within a round, so that a busy machine slows them alike; rounds of
warm-up are not counted; a ratio is the median over rounds of the ratio within each.
"""

import argparse
import importlib.metadata
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

ROOT = Path(__file__).parents[1]
MIN_ROUNDS = 3

Times = dict[str, list[float]]  # seconds of every round, by name of the system
Work = Callable[[], object]


def parse_no_options(description: str | None) -> None:
    """Read the command line of a benchmark without options: --help prints its description."""
    argparse.ArgumentParser(description=(description or "").splitlines()[0]).parse_args()


class Spread(NamedTuple):
    """Median and quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarize at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high)

    def format(self, style: str = ",.0f") -> str:
        """Return the median with the quartiles in brackets."""
        return f"{self.median:{style}} ({self.low:{style}}-{self.high:{style}})"


def seconds_of(work: Work, device: str = "cpu") -> Callable[[], float]:
    """Return a function that runs the work and returns its seconds."""

    def measure() -> float:
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - start

    return measure


def take_turns(
    systems: Mapping[str, Callable[[], float]],
    *,
    rounds: int | None = None,
    seconds: float = 1.0,
    num_warmup: int = 1,
) -> Times:
    """Return the seconds of every round, in which each system is measured once.

    The order alternates. Without `rounds` it goes on for `seconds` for each system. A system that
    fails is left out, with a message.
    """
    measured = dict(systems)
    for name, measure in systems.items():
        try:
            for _ in range(num_warmup):
                measure()
        except (RuntimeError, TypeError, ValueError) as error:  # out of memory among them
            print(f"left out: {name}: {(str(error).splitlines() or [repr(error)])[0][:120]}")
            del measured[name]
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
    times: Times = {name: [] for name in measured}
    end = time.perf_counter() + seconds * len(measured)
    index = 0
    while measured and (
        index < rounds if rounds else index < MIN_ROUNDS or time.perf_counter() < end
    ):
        for name in measured if index % 2 else reversed(measured):
            times[name].append(measured[name]())
        index += 1
    return times


def ratios(times: Times, name: str, other: str) -> Spread:
    """Return how many times as fast a system is as another."""
    pairs = zip(times[other], times[name], strict=True)
    return Spread.of([theirs / ours for theirs, ours in pairs])


def best_of(times: Times, names: Sequence[str]) -> str:
    """Return the fastest of these systems."""
    return min(names, key=lambda name: statistics.median(times[name]))


class Table:
    """A Markdown table whose rows are printed as they come."""

    def __init__(self, *columns: str) -> None:
        print("\n" + self._line(columns))
        print(self._line(["---"] * len(columns)), flush=True)

    def add(self, *cells: object) -> None:
        """Print a row."""
        print(self._line([str(cell) for cell in cells]), flush=True)

    @staticmethod
    def _line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cells) + " |"


def add_rows(table: Table, work: str, times: Times, *, count: float, style: str = ",.0f") -> None:
    """Print a row for each system: items per second, and the first system beside it."""
    first = next(iter(times), "")
    for name, taken in times.items():
        speed = Spread.of([count / seconds for seconds in taken])
        ratio = "" if name == first else ratios(times, first, name).format(".2f")
        table.add(work, name, speed.format(style), ratio)


def describe_machine() -> str:
    """Return device, versions, threads and load: what a figure depends on."""
    names = ("triton", "transformers", "ctranslate2")
    parts = [_device_name(), f"torch {torch.__version__}"]
    parts += [f"{name} {version}" for name in names if (version := _version(name))]
    parts += [f"Python {platform.python_version()}", f"{torch.get_num_threads()} threads"]
    parts += [f"load {os.getloadavg()[0]:.1f}", f"heedful {_commit()}", time.strftime("%Y-%m-%d")]
    return ", ".join(parts)


def _device_name() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    table = Path("/proc/cpuinfo")
    lines = table.read_text().splitlines() if table.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = models[0] if models else platform.processor() or platform.machine()
    return f"{name}, {os.cpu_count()} cores"


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return _version("heedful") or "(no commit)"
    return shown.stdout.strip()
