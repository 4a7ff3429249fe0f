"""`heedful course`: prepare a session, start exercises, check answers."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from heedful.errors import ConfigError
from heedful.terminal import echo


class Action(StrEnum):
    """What to do with the course."""

    PREPARE = "prepare"
    START = "start"
    CHECK = "check"


def course(
    action: Annotated[Action, Argument(help="prepare, start or check", metavar="ACTION")],
    target: Annotated[
        str | None, Argument(help="prepare, start: a session, 1 to 5; check: a file or folder")
    ] = None,
    *,
    output_dir: Annotated[
        Path, Option("--output-dir", "-o", help="start: folder of the exercises")
    ] = Path("course"),
    user: Annotated[
        str, Option("--id", help="start: your name; decides the numbers on paper")
    ] = "",
    exercise: Annotated[str | None, Option(help="check: only this one, such as 1.2")] = None,
    seed: Annotated[int | None, Option(help="check: seed of the inputs, to repeat a check")] = None,
    print_json: Annotated[bool, Option("--json", help="check: print JSON")] = False,
) -> None:
    r"""Prepare a session of the course, start its exercises, or check answers.

    `prepare` trains the models of a session before class, two at a time; the same command resumes.
    `start` writes the exercises, `check` runs the answers of a file, notebook or folder on random
    inputs in a process of their own, and explains what is wrong. Exit code: 0 if all answers are
    right, 1 if some are wrong, 2 if a file cannot be read.

    Example: heedful course prepare 1
    Example: heedful course start --id anna
    Example: heedful course check course/s1/e2.py
    """
    from heedful.course import checker, classroom

    if action is Action.PREPARE:
        classroom.prepare(_session(target))
    elif action is Action.START:
        session = None if target is None else _session(target)
        for path in classroom.start(output_dir, user=user, session=session):
            echo(str(path))
    else:
        if target is None:
            raise ConfigError("course check", "no file is given", "heedful course check course/s1")
        verdicts = checker.check_answers(Path(target), number=exercise, seed=seed)
        echo(checker.format_verdicts(verdicts, as_json=print_json))
        if not all(verdict.passed for verdict in verdicts):
            raise typer.Exit(1)


def _session(text: str | None) -> int:
    if text is None or not text.isdigit() or not 1 <= int(text) <= 5:
        shown = "none" if text is None else repr(text)
        raise ConfigError(
            "course", f"the session must be 1 to 5, but is {shown}", "heedful course prepare 1"
        )
    return int(text)
