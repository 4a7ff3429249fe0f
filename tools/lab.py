"""Write the notebooks of the lab, with blanks and with solutions, and the page of all exercises.

python -m tools.lab     after a change of docs/course/lab_003.py or of an exercise

Cells of the program begin with `# %%`; those that begin with `# %% [markdown]` are text. Lines that
end in `# blank` become blanks, as in the exercises.
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

from heedful.course.exercise import Exercise, make_blanks
from heedful.course.registry import exercises

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "course"
PROGRAM = FOLDER / "lab_003.py"
NOTEBOOKS = {FOLDER / "lab-003.ipynb": True, FOLDER / "lab-003-solutions.ipynb": False}

PAGE = FOLDER / "exercises.md"
_EXERCISES = """# Thirty exercises

`heedful course start --id NAME` writes them as files with blanks, `heedful course check FILE`
checks an answer. The feedback below is what the checker prints if an answer is wrong in that way.
This page is written by `python -m tools.lab`.

"""


def notebook(*, has_blanks: bool) -> str:
    """Return the text of a notebook."""
    parts = re.split(r"^# %%", PROGRAM.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    cells = [_cell(part, number, has_blanks=has_blanks) for number, part in enumerate(parts)]
    if not has_blanks:
        title = cells[0]["source"][0].rstrip()
        cells[0]["source"][0] = f"{title}, with solutions\n"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    written = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4}
    return json.dumps(written | {"nbformat_minor": 5}, indent=1) + "\n"


def _cell(part: str, number: int, *, has_blanks: bool) -> dict[str, Any]:
    head, _, body = part.partition("\n")
    cell = {"id": f"cell-{number}", "metadata": {}}
    if "[markdown]" in head:
        text = re.sub(r"^# ?", "", body, flags=re.MULTILINE).strip()
        return {"cell_type": "markdown", **cell, "source": text.splitlines(keepends=True)}
    source = make_blanks(body.strip()) if has_blanks else body.strip().replace("  # blank", "")
    lines = source.splitlines(keepends=True)
    code = {"cell_type": "code", "execution_count": None, **cell, "outputs": []}
    return {**code, "source": lines}


def exercise_page() -> str:
    """Return the page of all exercises, with the feedback that typical mistakes get."""
    return _EXERCISES + "\n".join(map(_exercise, exercises().values()))


def _exercise(exercise: Exercise) -> str:
    docstring = str(ast.get_docstring(ast.parse(exercise.solution)))
    title, _, text = docstring.partition("\n\n")
    mistakes = "\n".join(f"- {mutant.feedback}" for mutant in exercise.mutants)
    heading = f"## {exercise.number} {title.rstrip('.')}"
    return f"{heading}\n\n{text}\n\nFeedback to typical mistakes:\n\n{mistakes}\n"


def main() -> None:
    """Write all three."""
    PAGE.write_text(exercise_page(), encoding="utf-8")
    for path, has_blanks in NOTEBOOKS.items():
        path.write_text(notebook(has_blanks=has_blanks), encoding="utf-8")
        print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
