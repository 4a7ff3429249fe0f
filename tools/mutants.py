"""Break a line of the code at random, many times, and print the changes that no test of CI notices.

    python -m tools.mutants [--number 60] [--seed 0] [--jobs 2] [--only tasks experiment data]

A mutant is a copy of `src` in which one comparison, sum, condition or number is another one. Tests
that name its module run first, then those of its package and, for models, the laws. A mutant that
survives either computes the same or shows a test that is missing.
"""

import argparse
import ast
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "heedful"
LEFT_OUT = ("acceleration/triton", "acceleration/cuda", "course/solutions")
"""Code that only a GPU runs, and code that the course tests by experiments of minutes."""
OF_MODELS = {"acceleration", "attention", "decoding", "layers", "models", "search", "training"}
TIMEOUT = 400  # seconds; an endless loop is noticed, too
OPERATORS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}


class Mutant(NamedTuple):
    """A change of one place of a file."""

    path: Path  # relative to `SOURCE`
    line: int
    start: int  # offsets of the text that is replaced
    end: int
    replacement: str

    def apply(self, text: str) -> str:
        """Return the changed text of the file."""
        return text[: self.start] + self.replacement + text[self.end :]

    def describe(self, text: str) -> str:
        """Return the place and the line, before and after."""
        lines = (version.splitlines()[self.line - 1] for version in (text, self.apply(text)))
        before, after = (line.strip() for line in lines)
        return f"{self.path}:{self.line}: {before}  ->  {after}"


def find_mutants(path: Path) -> Iterator[Mutant]:
    """Return every mutant of a file."""
    text = (SOURCE / path).read_text(encoding="utf-8")
    if not text.isascii():  # offsets of `ast` count bytes
        return
    starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def span(node: ast.expr) -> slice:
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        return slice(starts[node.lineno - 1] + node.col_offset, end)

    for node in _executed(ast.parse(text), is_function=False):
        if isinstance(node, ast.Constant) and type(node.value) in {bool, int}:
            value = not node.value if isinstance(node.value, bool) else node.value + 1
            place = span(node)
            yield Mutant(path, node.lineno, place.start, place.stop, repr(value))
        elif operation := _operation(node):
            kind, left, right = operation
            old, new = OPERATORS.get(kind, ("", ""))
            begin = span(left).stop
            gap = text[begin : span(right).start]
            found = re.search(rf"(?<!\S){re.escape(old)}(?!\S)", gap) if old else None
            if found and "\n" not in gap:
                yield Mutant(path, right.lineno, begin + found.start(), begin + found.end(), new)


def _operation(node: ast.AST) -> tuple[type[ast.AST], ast.expr, ast.expr] | None:
    """Return the operator of a node between two operands."""
    match node:
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            return type(operator), left, right
        case ast.BinOp(left=left, op=operator, right=right):
            return type(operator), left, right
        case ast.BoolOp(op=operator, values=[left, right, *_]):
            return type(operator), left, right
    return None


def _executed(node: ast.AST, *, is_function: bool) -> Iterator[ast.AST]:
    """Walk over the code of functions, without annotations, assertions and errors."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            is_left_out = name in {"annotation", "returns", "decorator_list"}
            is_left_out |= isinstance(child, ast.Assert | ast.Raise)
            is_left_out |= isinstance(child, ast.keyword) and child.arg in {"strict", "check"}
            if isinstance(child, ast.AST) and not is_left_out:
                if is_function:
                    yield child
                is_inside = is_function or isinstance(child, ast.FunctionDef)
                yield from _executed(child, is_function=is_inside)


def choose(packages: list[str], number: int, seed: int) -> list[Mutant]:
    """Draw mutants, at most two of a file."""
    rng = random.Random(seed)
    chosen: list[Mutant] = []
    for path in sorted(file.relative_to(SOURCE) for file in SOURCE.rglob("*.py")):
        is_chosen = not packages or any(str(path).startswith(package) for package in packages)
        if is_chosen and not str(path).startswith(LEFT_OUT):
            mutants = list(find_mutants(path))
            chosen += rng.sample(mutants, min(2, len(mutants)))
    return rng.sample(chosen, min(number, len(chosen)))


def suites(path: Path) -> Iterator[list[str]]:
    """Return the tests of a module: those that name it, those of its package, the laws."""
    module = ".".join(("heedful", *path.with_suffix("").parts)).removesuffix(".__init__")
    name = re.compile(rf"\b{re.escape(module)}\b|\b{module.rpartition('.')[2]}\b")
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    mirrored = [file for file in files if file.stem.startswith(f"test_{path.stem}")]
    named = [file for file in files if module in texts[file] and file not in mirrored]
    related = [file for file in files if name.search(texts[file])]
    package = sorted((ROOT / "tests" / "unit" / path.parts[0]).rglob("test_*.py"))
    folders = ("laws", "equivalence") if path.parts[0] in OF_MODELS else ()
    laws = [file for folder in folders for file in files if folder in file.parts]
    done: set[Path] = set()
    for suite in (mirrored, named, [*related, *package], laws):
        rest = [file for file in dict.fromkeys(suite) if file not in done]
        done.update(rest)
        if rest:
            yield [str(file.relative_to(ROOT)) for file in rest]


def is_caught(mutant: Mutant) -> str:
    """Return the test that fails, or an empty text."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / "heedful"
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(SOURCE, copy, ignore=ignored)
        text = (SOURCE / mutant.path).read_text(encoding="utf-8")
        (copy / mutant.path).write_text(mutant.apply(text), encoding="utf-8")
        environment = {**os.environ, "CI": "1", "PYTHONPATH": folder, "OMP_NUM_THREADS": "1"}
        marks = "not slow and not learning and not gpu"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-m",
            marks,
            "-p",
            "no:cacheprovider",
        ]
        for files in suites(mutant.path):
            try:
                run = subprocess.run(
                    [*command, *files],
                    cwd=ROOT,
                    env=environment,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=TIMEOUT,
                )
            except subprocess.TimeoutExpired:
                return f"no end in {TIMEOUT} seconds"
            if failed := re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE):
                return failed.group(1)
    return ""


def main() -> None:
    """Print each mutant with the test that notices it, then those that survive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--number", type=int, default=60, help="mutants")
    parser.add_argument("--seed", type=int, default=0, help="which ones")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--only", nargs="*", default=[], metavar="FOLDER", help="below src/heedful")
    parser.add_argument("--list", action="store_true", help="print the mutants, run nothing")
    arguments = parser.parse_args()
    mutants = choose(arguments.only, arguments.number, arguments.seed)
    texts = [(SOURCE / mutant.path).read_text(encoding="utf-8") for mutant in mutants]
    titles = [mutant.describe(text) for mutant, text in zip(mutants, texts, strict=True)]
    if arguments.list:
        print(*titles, sep="\n")
        return
    survivors = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for title, test in zip(titles, pool.map(is_caught, mutants), strict=True):
            print(f"{'caught  ' if test else 'SURVIVED'} {title}\n         {test}", flush=True)
            survivors += [] if test else [title]
    print(
        f"{len(mutants) - len(survivors)} of {len(mutants)} mutants are caught",
        *survivors,
        sep="\n",
    )


if __name__ == "__main__":
    main()
