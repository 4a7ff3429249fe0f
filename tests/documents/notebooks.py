"""Run the code cells of a notebook in order, as Jupyter would, and compare or store their outputs.

python -m tests.documents.notebooks docs/notebooks/NAME.ipynb --write     after a change of it
"""

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.documents.markdown import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def read(path: Path) -> dict[str, Any]:
    """Return a notebook."""
    return json.loads(path.read_text(encoding="utf-8"))


def code_cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the cells that run."""
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run(cells: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Run cells in one namespace; return the outputs of each, in the format of notebooks."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [_run_cell("".join(cell["source"]), namespace, n) for n, cell in enumerate(cells, 1)]


def _run_cell(source: str, namespace: dict[str, Any], count: int) -> list[dict[str, Any]]:
    body = ast.parse(source).body
    value = None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        if body and isinstance(body[-1], ast.Expr):
            exec(compile(ast.Module(body[:-1], []), f"cell {count}", "exec"), namespace)
            value = eval(
                compile(ast.Expression(body[-1].value), f"cell {count}", "eval"), namespace
            )
        else:
            exec(compile(ast.Module(body, []), f"cell {count}", "exec"), namespace)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        lines = text.splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
    if value is not None:
        lines = repr(value).splitlines(keepends=True)
        data = {"data": {"text/plain": lines}, "metadata": {}}
        outputs.append({**data, "execution_count": count, "output_type": "execute_result"})
    return outputs


def store(path: Path, outputs: list[list[dict[str, Any]]]) -> None:
    """Write the outputs of the code cells into a notebook."""
    notebook = read(path)
    for count, (cell, parts) in enumerate(zip(code_cells(notebook), outputs, strict=True), 1):
        cell |= {"outputs": parts, "execution_count": count}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    """Run a notebook in an empty folder, and print its outputs as JSON or store them."""
    path = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        outputs = run(code_cells(read(path)))
        os.chdir(ROOT)
    if "--write" in sys.argv:
        store(path, outputs)
    else:
        sys.stdout.write(json.dumps(outputs))


if __name__ == "__main__":
    main()
