"""A system under test in its own process, driven by JSON lines."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from benchmarks.peers.environments import ROOT
from benchmarks.peers.workload import NUM_STEPS, Workload


class BrokenSystemError(Exception):
    """A system died or decoded something else; the message is one line."""


class System:
    """A process that waits for workloads."""

    def __init__(self, name: str, process: subprocess.Popen[str], errors: IO[str]) -> None:
        self.name = name
        self._process = process
        self._errors = errors
        self.num_parameters: int = self._read()["num_parameters"]

    def seconds(self, task: Workload) -> float:
        """Decode a workload and return the seconds it took."""
        assert self._process.stdin is not None
        print(json.dumps(task), file=self._process.stdin, flush=True)
        answer = self._read()
        if answer["steps"] != [NUM_STEPS]:
            raise BrokenSystemError(f"{self.name} took {answer['steps']} steps, not {NUM_STEPS}")
        return answer["seconds"]

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise BrokenSystemError(f"it ended: {self._last_error()}")
        return json.loads(line)

    def _last_error(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        return (self._errors.read().strip().splitlines() or ["no error message"])[-1]


@contextmanager
def running(
    name: str, python: Path, module: str, *arguments: str, root: Path = ROOT
) -> Iterator[System]:
    """Run a module of this package, or of another checkout, with the given Python."""
    with (
        TemporaryFile("w+") as errors,
        subprocess.Popen(
            [python, "-m", f"benchmarks.peers.{module}", *arguments],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root.resolve() / "src")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        yield System(name, process, errors)
