"""Python programs in processes that have imported torch and heedful already.

A new interpreter takes two seconds to import them; a fork of one that has takes none.
"""

import multiprocessing
import os
import runpy
from pathlib import Path

FORKING = multiprocessing.get_context("forkserver")
FORKING.set_forkserver_preload(["heedful.experiment", "heedful.runs", "heedful.data.synthetic"])


def run_program(path: Path, *, max_seconds: float) -> tuple[int | None, str]:
    """Run a program in its folder; return its exit code, None after so long, and its output."""
    output = path.with_suffix(".out")
    process = FORKING.Process(target=_run, args=(str(path), str(output)))
    process.start()
    process.join(max_seconds)
    exit_code = process.exitcode
    process.kill()
    return exit_code, output.read_text(encoding="utf-8") if output.exists() else ""


def _run(path: str, output: str) -> None:
    with open(output, "wb") as file:
        for descriptor in (1, 2):
            os.dup2(file.fileno(), descriptor)
    os.chdir(os.path.dirname(path))
    runpy.run_path(path, run_name="__main__")
