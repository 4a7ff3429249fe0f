"""Write the notebooks of the lab from its program: one with blanks, one with solutions.

python -m tools.lab     after a change of docs/course/lab_003.py

Cells of the program begin with `# %%`; those that begin with `# %% [markdown]` are text. Lines that
end in `# blank` become blanks, as in the exercises.
"""

import json
import re
from pathlib import Path
from typing import Any

from heedful.course.exercise import make_blanks

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "course"
PROGRAM = FOLDER / "lab_003.py"
NOTEBOOKS = {FOLDER / "lab-003.ipynb": True, FOLDER / "lab-003-solutions.ipynb": False}


def notebook(*, has_blanks: bool) -> str:
    """Return the text of a notebook."""
    parts = re.split(r"^# %%", PROGRAM.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    cells = [_cell(part, number, has_blanks=has_blanks) for number, part in enumerate(parts)]
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


def main() -> None:
    """Write both."""
    for path, has_blanks in NOTEBOOKS.items():
        path.write_text(notebook(has_blanks=has_blanks), encoding="utf-8")
        print(f"wrote {path.name}")


if __name__ == "__main__":
    main()
