"""The lab of deck 003: notebooks are those of the program, and their cells run."""

import ast
import os
import subprocess
import sys

import pytest

from tests.documents.notebooks import code_cells, read
from tools.lab import NOTEBOOKS, PAGE, PROGRAM, exercise_page, notebook

WITH_BLANKS, WITH_SOLUTIONS = NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_that_of_the_program(path):
    text = path.read_text(encoding="utf-8")
    assert text == notebook(has_blanks=NOTEBOOKS[path]), "python -m tools.lab"


def test_page_of_exercises_is_current():
    assert PAGE.read_text(encoding="utf-8") == exercise_page(), "python -m tools.lab"


def test_notebooks_differ_in_blanks_alone():
    pairs = zip(code_cells(read(WITH_BLANKS)), code_cells(read(WITH_SOLUTIONS)), strict=True)
    num_blanks = 0
    for cells in pairs:
        blank, solved = ("".join(cell["source"]) for cell in cells)
        ast.parse(blank)
        for line, other in zip(blank.splitlines(), solved.splitlines(), strict=True):
            num_blanks += "___" in line
            assert line == other or line.endswith(" ___")
    assert num_blanks == PROGRAM.read_text(encoding="utf-8").count("# blank") >= 12


def run_cells(path, folder):
    """Run the cells of a notebook in a process of its own, as students do: on after an error."""
    program = folder / "cells.py"
    sources = ["".join(cell["source"]) for cell in code_cells(read(path))]
    program.write_text(
        f"names = {{}}\nfor number, source in enumerate({sources!r}, 1):\n"
        "    try:\n        exec(source, names)\n"
        "    except Exception as error:\n"
        "        print(f'cell {number}: {type(error).__name__}: {error}')\n"
    )
    command = [sys.executable, str(program)]
    environment = {**os.environ, "FAST": "1"}
    ended = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment, check=True
    )
    return ended.stdout


@pytest.mark.wide
def test_notebook_with_solutions_runs(tmp_path):
    printed = run_cells(WITH_SOLUTIONS, tmp_path)
    assert "Error" not in printed
    assert printed.count(": right") == 10


@pytest.mark.wide
def test_notebook_with_blanks_names_each_blank(tmp_path):
    printed = run_cells(WITH_BLANKS, tmp_path)
    assert "NameError: name '___' is not defined" in printed
    assert ": right" not in printed
