"""Before class: models that are trained, and files of exercises."""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from heedful.course.registry import exercises
from heedful.errors import ConfigError, RunError
from heedful.runs import Run
from heedful.storage.atomic import write_text
from heedful.terminal import echo

RUNS = {  # of each session: run, then recipe; docs/course has the commands that use them
    1: {"simple-rnn": "simple-rnn-attention-small", "self-attentive": "selfattentive-rnn-small"},
    2: {"demo": "latin-demo", "captions": "show-attend-tell-2015-soft-small"}
    | {"transformer": "transformer-2017-tiny"},
    3: {"lm": "gpt-tiny", "copynet": "copynet-2016-small"},
    4: {"bahdanau": "bahdanau-2015-small", "luong": "luong-2015-dot-small"},
    5: {"glimpses": "ram-2014-small"},
}


def prepare(session: int, folder: Path = Path("runs"), options: tuple[str, ...] = ()) -> None:
    """Train the models of a session, two at a time; those that are trained stay."""
    with ThreadPoolExecutor(2) as pool:
        jobs = [
            pool.submit(_train, recipe, folder / name, options)
            for name, recipe in RUNS[session].items()
        ]
        for job in jobs:
            echo(job.result())


def _train(recipe: str, run: Path, options: tuple[str, ...]) -> str:
    started = time.monotonic()
    command = [sys.executable, "-m", "heedful", "train", recipe, "--run", str(run), "--quiet"]
    ended = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    if ended.returncode:
        last = (ended.stderr.strip().splitlines() or ["no message"])[-1]
        raise RunError(str(run), f"training failed: {last}", f"heedful train {recipe} --run {run}")
    steps = Run(run).verify()["step"]
    return f"{run}: ready, {recipe}, step {steps} ({time.monotonic() - started:.0f} s)"


def start(folder: Path, *, user: str, session: int | None = None) -> Iterator[Path]:
    """Write the starters of a session or of all; files that are there already stay."""
    if not user:
        raise ConfigError("course start", "--id is missing", "heedful course start --id YOUR-NAME")
    for number, exercise in exercises().items():
        path = folder / f"{exercise.name}.py"
        if session in (None, int(number[0])) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, exercise.starter(user))
            yield path
