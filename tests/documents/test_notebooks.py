"""Notebooks run, and their stored outputs are those that running them produces."""

import json
import subprocess
import sys

import pytest

from tests.documents.markdown import ROOT, links, name_of
from tests.documents.notebooks import NOTEBOOKS, code_cells, read, run

MAX_SECONDS = 300
each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)


@pytest.mark.wide
@each_notebook
def test_notebook_returns_stored_outputs(path):
    command = [sys.executable, "-m", "tests.documents.notebooks", str(path)]
    completed = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=MAX_SECONDS, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert json.loads(completed.stdout) == [cell["outputs"] for cell in code_cells(read(path))]


@each_notebook
def test_notebook_has_the_format_that_jupyter_reads(path):
    notebook = read(path)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for number, cell in enumerate(code_cells(notebook), 1):
        assert cell.keys() == {
            *("cell_type", "execution_count", "id", "metadata", "outputs", "source")
        }
        assert cell["execution_count"] == number


@each_notebook
def test_links_of_notebook_resolve(path):
    cells = [cell for cell in read(path)["cells"] if cell["cell_type"] == "markdown"]
    texts = ["".join(cell["source"]) for cell in cells]
    targets = [target for text in texts for target in links(text)]
    assert targets
    assert [target for target in targets if not (path.parent / target).exists()] == []


def test_cell_outputs_are_what_is_printed_and_the_last_value():
    cells = [{"source": ["x = 2\n", "print('x')"]}, {"source": ["print(x)\n", "x + 1"]}]
    printed, both = run(cells)
    assert printed == [{"name": "stdout", "output_type": "stream", "text": ["x\n"]}]
    assert both[0]["text"] == ["2\n"]
    assert both[1]["data"] == {"text/plain": ["3"]}
