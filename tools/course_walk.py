"""Follow the course from its first command to its last, and print how long each took.

python -m tools.course_walk [SESSION ...] [--fresh] [--quick] [--folder FOLDER]

For each session: the models, the commands of its page in order, the files of exercises, the
solutions. `--fresh` builds the wheel and installs it in a new environment, which sees the installed
dependencies; commands run in an empty folder. `--quick` trains ten steps and leaves out exercises
that take longer than ten seconds.
"""

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

from heedful.course.classroom import RUNS
from heedful.course.exercise import Exercise, load_text, paper_seed
from heedful.course.registry import exercises

ROOT = Path(__file__).resolve().parents[1]
USER = "walker"


def install_in_fresh_environment(folder: Path) -> Path:
    """Build the wheel, install it in a new environment, and return the folder of its programs."""
    environment = folder / "env"
    venv.create(environment, with_pip=False)
    (packages,) = environment.glob("lib/python*/site-packages")
    # The dependencies, but not the checkout that a developer has installed beside them.
    installed = map(Path, sysconfig.get_paths().values())
    seen = [path for path in installed if path.name == "site-packages"]
    (packages / "dependencies.pth").write_text("\n".join({str(path) for path in seen}) + "\n")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", folder, ROOT], check=True, timeout=300)
    (wheel,) = folder.glob("heedful-*.whl")
    install = [sys.executable, "-m", "pip", "--python", environment / "bin" / "python", "install"]
    options = ["--quiet", "--no-deps", "--ignore-installed"]
    subprocess.run([*install, *options, wheel], check=True, timeout=300)
    return environment / "bin"


class Walk:
    """Commands in a folder, with their times and exit codes."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self.programs = programs
        self.failed: list[str] = []

    def run(self, command: str) -> str:
        """Run a command, print its time, and return what it printed."""
        name, *words = shlex.split(command)
        path = self.programs / name
        program = [str(path)] if path.exists() else [sys.executable, "-m", name]
        if name == "python":
            program = [str(self.programs / "python")]
        started = time.monotonic()
        ended = subprocess.run(
            [*program, *words],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": self.python_path},
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"{time.monotonic() - started:7.1f} s  {command}", flush=True)
        if ended.returncode:
            self.failed.append(command)
            print(ended.stderr[-2000:] or ended.stdout[-2000:], flush=True)
        return ended.stdout

    @property
    def python_path(self) -> str:
        """The experiments of the checkout; without a new environment its source, too."""
        is_fresh = self.programs.parent.name == "env"
        return str(ROOT) if is_fresh else f"{ROOT / 'src'}{os.pathsep}{ROOT}"


def commands_of(page: Path) -> Iterator[str]:
    """Yield the commands in the console blocks of a page."""
    blocks = re.findall(
        r"^```console\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    for block in blocks:
        lines = block.replace("\\\n", " ").splitlines()
        yield from (line[2:] for line in lines if line.startswith("$ "))


def answer_of(exercise: Exercise) -> str:
    """Return the file of a student who knows the solution."""
    if not exercise.is_paper:
        return f"# exercise {exercise.number}\n{exercise.solution}"
    inputs = exercise.instances(paper_seed(USER))[0]
    answer = exercise.run(load_text(exercise.solution), inputs)
    starter = exercise.starter(USER)
    return f"{starter[: starter.index('ANSWER = ')]}ANSWER = {answer!r}\n"


def measured_answer(walk: Walk, exercise: Exercise) -> str:
    """Train the runs of an exercise, evaluate them, and return the file with their scores."""
    runs, scores = [], []
    for place, (recipe, settings) in enumerate(exercise.runs, 1):
        runs.append(f"runs/{exercise.number}-{place}")
        changes = "".join(f" --set {shlex.quote(setting)}" for setting in settings)
        walk.run(f"heedful train {recipe} --run {runs[-1]} --quiet{changes}")
        metrics = f" --metrics {exercise.metric}" if exercise.metric else ""
        printed = walk.run(f"heedful evaluate {runs[-1]}{metrics} --json")
        scores.append(json.loads(printed)[0]["value"])
    starter = exercise.starter(USER)
    answer = {"runs": runs, "scores": scores}
    return f"{starter[: starter.index('ANSWER = ')]}ANSWER = {answer!r}\n"


def walk_session(walk: Walk, session: int, *, is_quick: bool) -> None:
    """Follow a session."""
    print(f"session {session}", flush=True)
    if is_quick:
        for name, recipe in RUNS[session].items():
            walk.run(f"heedful train {recipe} --run runs/{name} --quiet --steps 10")
    else:
        walk.run(f"heedful course prepare {session}")
    for command in commands_of(ROOT / "docs" / "course" / f"session-{session}.md"):
        walk.run(command)
    walk.run(f"heedful course start {session} --id {USER}")
    for number, exercise in exercises().items():
        is_long = bool(exercise.runs) or exercise.seconds > 10
        if number.startswith(f"{session}.") and not (is_quick and is_long):
            text = measured_answer(walk, exercise) if exercise.runs else answer_of(exercise)
            path = walk.folder / "course" / f"{exercise.name}.py"
            path.write_text(text, encoding="utf-8")
            walk.run(f"heedful course check course/{exercise.name}.py")


def main(words: Sequence[str]) -> None:
    """Follow some sessions, or all of them; the exit code is 1 if a command failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sessions", type=int, nargs="*", default=[])
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args(words)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="course-"))
    folder.mkdir(parents=True, exist_ok=True)
    programs = install_in_fresh_environment(folder) if arguments.fresh else Path(sys.prefix) / "bin"
    walk = Walk(folder, programs)
    for session in arguments.sessions or range(1, 6):
        walk_session(walk, session, is_quick=arguments.quick)
    if walk.failed:
        sys.exit("\n".join(["failed:", *walk.failed]))


if __name__ == "__main__":
    main(sys.argv[1:])
