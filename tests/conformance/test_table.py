"""The conformance tables: every named test exists, and every file here is named."""

import ast
import re
from functools import cache

from tests.documents.markdown import ROOT

FOLDER = ROOT / "tests" / "conformance"
TABLE = ROOT / "docs" / "attention" / "conformance.md"
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", TABLE.read_text(encoding="utf-8"))))


@cache
def names_in(path):
    return {
        node.name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_test_in_table_exists():
    for file, test in NAMED:
        assert test in names_in(ROOT / file if "/" in file else FOLDER / file), file


def test_every_conformance_test_file_is_in_table():
    files = {path.name for path in FOLDER.glob("test_*.py")} - {"test_table.py"}
    assert files == {file for file, _ in NAMED if "/" not in file}


def test_every_table_row_names_test_or_none():
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    header_lines = [index for index, line in enumerate(lines) if line.endswith("| shown by |")]
    assert len(header_lines) == 4
    for index in header_lines:
        width = lines[index].count("|")
        for line in lines[index + 2 : lines.index("", index)]:
            assert line.count("|") == width, line
            assert "::test_" in line or line.endswith("| none yet |"), line


def test_versions_in_table_match_constraints():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    text = TABLE.read_text(encoding="utf-8")
    peers = {
        "torch": "torch",
        "keras": "Keras",
        "entmax": "entmax",
        "transformers": "Hugging Face transformers",
    }
    for name, title in peers.items():
        (version,) = [pin.partition("==")[2] for pin in pins if pin.startswith(f"{name}==")]
        assert f"{title} {version}" in text
