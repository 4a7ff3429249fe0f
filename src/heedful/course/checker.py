"""Check answers: run them in a child process, compare in this one, and explain what is wrong.

The inputs are random, from a seed that is printed; the outputs are compared with those of the
solution. Wrong outputs are compared with those of each mutant, whose feedback is printed. Neither
the solution nor its outputs are.
"""

import ast
import io
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from heedful.course import child
from heedful.course.exercise import Exercise, Inputs, load_text, paper_seed
from heedful.course.registry import exercises, find
from heedful.errors import ConfigError, DataError, HeedfulError, format_count
from heedful.experiment.evaluation import evaluate
from heedful.recipes import load_recipe
from heedful.runs import Run

MAX_OUTPUT = 64 * 2**10
_OUT_OF_TIME = {-signal.SIGKILL, -getattr(signal, "SIGXCPU", signal.SIGKILL)}
SOURCE = Path(__file__).resolve().parents[2]
_HEADER = re.compile(r"^# exercise (\d\.\d)$", re.MULTILINE)


class Verdict(NamedTuple):
    """What the checker says of an answer."""

    exercise: str
    passed: bool
    message: str
    seed: int


class CannotRunError(Exception):
    """An answer that returned nothing, and why."""


def check_file(path: Path, *, number: str | None = None, seed: int | None = None) -> list[Verdict]:
    """Check the answers of a file, which is a program or a notebook."""
    try:
        text = path.read_text(encoding="utf-8")
        text = _notebook_program(json.loads(text)) if path.suffix == ".ipynb" else text
        tree = ast.parse(text)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise DataError(
            str(path), f"cannot be read: {error}", "give a .py file or a notebook"
        ) from error
    except SyntaxError as error:
        raise DataError(f"{path}:{error.lineno}", str(error.msg), "correct the syntax") from error
    numbers = [number] if number else list(dict.fromkeys(_numbers(text, tree)))
    if not numbers:
        hint = "begin it with a line such as # exercise 1.2, or give --exercise 1.2"
        raise DataError(str(path), "no exercise is answered here", hint)
    return [check(find(number), text, seed=seed) for number in numbers]


def check_answers(path: Path, *, number: str | None, seed: int | None) -> list[Verdict]:
    """Check a file, or all files of a folder."""
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    if not files:
        raise DataError(str(path), "the folder has no .py files", "heedful course start --id NAME")
    return [verdict for file in files for verdict in check_file(file, number=number, seed=seed)]


def format_verdicts(verdicts: list[Verdict], *, as_json: bool) -> str:
    """Return verdicts as lines or as JSON."""
    if as_json:
        return json.dumps([verdict._asdict() for verdict in verdicts])
    rows = [
        f"{one.exercise}  {'right' if one.passed else f'wrong  {one.message} (--seed {one.seed})'}"
        for one in verdicts
    ]
    passed = sum(verdict.passed for verdict in verdicts)
    return "\n".join([*rows, f"{passed} of {len(verdicts)} right"])


def check(exercise: Exercise, text: str, *, seed: int | None = None) -> Verdict:
    """Check one answer, given as a program."""
    seed = secrets.randbelow(10**6) if seed is None else seed
    try:
        message = _check(exercise, text, seed)
    except CannotRunError as error:
        message = str(error)
    return Verdict(exercise.number, message is None, message or "right", seed)


def _check(exercise: Exercise, text: str, seed: int) -> str | None:
    blanks = list(_blank_lines(text))
    if blanks and exercise.num_instances:
        return f"line {blanks[0]} is still ___"
    if exercise.runs:
        instances = exercise.instances(seed)
        outputs = [_measure_runs(exercise, _literal(text, "ANSWER"))]
    elif exercise.is_paper:
        user, answer = _literal(text, "ID"), _literal(text, "ANSWER")
        instances = exercise.instances(paper_seed(str(user)))
        outputs = [answer]
    else:
        instances = exercise.instances(seed)
        outputs = _run_child(exercise, text, instances)
    expected = _outputs_of(exercise, exercise.solution, instances)
    wrong = [
        (index, problem)
        for index, (got, right) in enumerate(zip(outputs, expected, strict=True))
        if (problem := _problem(exercise, got, right, instances[index]))
    ]
    if not wrong:
        return None
    index, problem = wrong[0]
    feedback = _feedback(exercise, instances, outputs, expected)
    where = "" if len(instances) == 1 else f"instance {index + 1}: "
    return f"{feedback} [{where}{problem}]" if feedback else f"{where}{problem}"


def _problem(exercise: Exercise, got: Any, right: Any, inputs: Inputs) -> str | None:
    if isinstance(got, dict) and isinstance(got.get("error"), str):
        return got["error"]
    if exercise.accept is not None:
        return exercise.accept(got, inputs)
    return _difference(got, right, exercise.tolerance)


def _difference(got: Any, right: Any, tolerance: float, path: str = "") -> str | None:
    """Say where two values first differ: in kind, in shape, or by which index; never the value."""
    at = f" of {path}" if path else ""
    if isinstance(right, dict):
        if not isinstance(got, dict) or set(got) != set(right):
            return f"the names{at} should be {', '.join(right)}"
        pairs = [(f"{path}[{key!r}]", got[key], right[key]) for key in right]
    elif isinstance(right, list | tuple):
        if not isinstance(got, list | tuple) or len(got) != len(right):
            return f"the number of values{at} should be {len(right)}"
        pairs = [(f"{path}[{n}]", g, r) for n, (g, r) in enumerate(zip(got, right, strict=True))]
    else:
        return _leaf_difference(got, right, tolerance, at)
    problems = (_difference(g, r, tolerance, name) for name, g, r in pairs)
    return next((problem for problem in problems if problem), None)


def _leaf_difference(got: Any, right: Any, tolerance: float, at: str) -> str | None:
    if isinstance(right, str | bool) or right is None:
        return None if got == right else f"the value{at} is {got!r}"
    if not isinstance(got, int | float | torch.Tensor):
        return f"the value{at} is no number: {got!r}"
    ours = torch.as_tensor(got, dtype=torch.float64)
    theirs = torch.as_tensor(right, dtype=torch.float64)
    if ours.shape != theirs.shape:
        return f"the shape{at} is {tuple(ours.shape)}, expected {tuple(theirs.shape)}"
    close = torch.isclose(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)
    if close.all():
        return None
    if not ours.shape:
        return f"the value{at} is {ours.item():.6g}"
    index = (~close).nonzero()[0].tolist()
    return f"the first wrong entry{at} is {index}: {ours[tuple(index)].item():.6g}"


def _feedback(exercise: Exercise, instances: list[Inputs], outputs: Any, expected: Any) -> str:
    """Return the feedback of the mutant whose outputs these are."""
    for mutant in exercise.mutants:
        if mutant.is_seen is not None:
            if not _is_error(outputs[0]) and mutant.is_seen(outputs[0]):
                return mutant.feedback
            continue
        wrong = _outputs_of(exercise, exercise.mutated(mutant), instances)
        triples = list(zip(outputs, wrong, expected, strict=True))
        if all(_is_same_mistake(*triple, exercise.tolerance) for triple in triples):
            return mutant.feedback
    return ""


def _is_error(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"error"}


def _is_same_mistake(got: Any, mutant: Any, right: Any, tolerance: float) -> bool:
    """Whether an answer is wrong in entries where the mutant is wrong, and as the mutant is."""
    if _is_error(got) or _is_error(mutant):
        kinds = [str(value["error"]).split(":")[0] for value in (got, mutant) if _is_error(value)]
        return len(kinds) == 2 and kinds[0] == kinds[1]
    if isinstance(right, dict) and isinstance(got, dict) and set(got) == set(right):
        keys = [key for key in right if _difference(got[key], right[key], tolerance)]
        return bool(keys) and all(not _difference(got[k], mutant[k], tolerance) for k in keys)
    return not _difference(got, mutant, tolerance)


def _outputs_of(exercise: Exercise, text: str, instances: list[Inputs]) -> list[Any]:
    if exercise.accept is not None and exercise.seconds > 10:
        return [None] * len(instances)  # an experiment: its outputs are judged by themselves
    answer = load_text(text)
    return [child.call(exercise, answer, inputs) for inputs in instances]


def _run_child(exercise: Exercise, text: str, instances: list[Inputs]) -> list[Any]:
    """Return the outputs of an answer for each instance."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "answer.py").write_text(text, encoding="utf-8")
        child.write_values(folder, "inputs", instances)
        command = [sys.executable, "-I", str(child.__file__), str(SOURCE), name, exercise.number]
        printed = _run_limited(command, exercise.seconds)
        if not (folder / "outputs.json").exists():
            last = printed.strip().splitlines()[-1:] or ["the process ended by itself"]
            raise CannotRunError(f"no outputs: {last[0][:200]}")
        outputs = child.read_values(folder, "outputs")
    if _is_error(outputs):
        raise CannotRunError(outputs["error"])
    return list(outputs)


def _run_limited(command: list[str], seconds: int) -> str:
    """Run a command in its own process group; return the end of what it printed."""
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **threads},
        )
        try:
            code = process.wait(timeout=60 + 5 * seconds)  # much else may run on the machine
        except subprocess.TimeoutExpired:
            code = -int(signal.SIGKILL)
        finally:
            _kill_group(process)
        if code in _OUT_OF_TIME:
            raise CannotRunError(
                f"stopped after {format_count(seconds, 'second')}: is there an endless loop?"
            )
        size = output.seek(0, io.SEEK_END)
        output.seek(max(0, size - MAX_OUTPUT))
        return output.read().decode("utf-8", "replace")


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    try:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    except ProcessLookupError:
        pass
    process.wait()


def _measure_runs(exercise: Exercise, answer: Any) -> Inputs:
    """Verify runs, compare their recipes, and evaluate them again."""
    count = len(exercise.runs)
    values = [answer.get(key) for key in ("runs", "scores")] if isinstance(answer, dict) else []
    lists = [value for value in values if isinstance(value, list) and len(value) == count]
    if len(lists) != 2:
        raise CannotRunError(f"ANSWER has two lists, runs and scores, each of length {count}")
    measured = []
    for folder, (recipe, settings) in zip(lists[0], exercise.runs, strict=True):
        try:
            run = Run.open(folder)
            run.verify()
            actual, expected = run.read_recipe(), load_recipe(recipe, settings)
            if (actual.model, actual.data) != (expected.model, expected.data):
                raise CannotRunError(f"{folder} is no run of {' --set '.join((recipe, *settings))}")
            metrics = [exercise.metric] if exercise.metric else []
            measured.append(evaluate(folder, metrics=metrics, device="cpu")[0].value)
        except HeedfulError as error:
            raise CannotRunError(str(error).splitlines()[0]) from None
    return {"given": lists[1], "measured": measured}


def _blank_lines(text: str) -> Iterator[int]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME and token.string == "___":
            yield token.start[0]


def _literal(text: str, name: str) -> Any:
    """Return the value of a name without running the program; fractions are computed."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
            try:
                return ast.literal_eval(_Arithmetic().visit(node.value))
            except (ValueError, ZeroDivisionError) as error:
                raise CannotRunError(f"{name} is no literal: {error}") from None
    raise CannotRunError(f"{name} is missing")


class _Arithmetic(ast.NodeTransformer):
    """Computes quotients and negative numbers."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Div):
            return ast.Constant(ast.literal_eval(node.left) / ast.literal_eval(node.right))
        return node


def _numbers(text: str, tree: ast.Module) -> Iterator[str]:
    """Yield the exercises of a program: by its headers, else by the functions it defines."""
    if headers := _HEADER.findall(text):
        yield from headers
        return
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    yield from (number for number, one in exercises().items() if one.function in defined)


def _notebook_program(notebook: Any) -> str:
    """Return the code cells as one program, without magics and cells tagged skip-check."""
    if not isinstance(notebook, dict) or "cells" not in notebook:
        raise ConfigError("notebook", "it has no cells", "save it in Jupyter's format")
    parts = []
    for number, cell in enumerate(notebook["cells"], 1):
        is_skipped = "skip-check" in cell.get("metadata", {}).get("tags", [])
        if cell["cell_type"] == "code" and not is_skipped:
            lines = "".join(cell["source"]).splitlines()
            kept = ["" if line.lstrip().startswith(("%", "!")) else line for line in lines]
            parts += [f"# cell {number}", *kept]
    return "\n".join(parts) + "\n"
