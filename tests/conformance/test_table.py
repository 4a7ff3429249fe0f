"""The table of conformance: every test it names exists, and no test here goes unnamed."""

import ast
import re

import pytest

from tests.documents.markdown import ROOT

FOLDER = ROOT / "tests" / "conformance"
TABLE = ROOT / "docs" / "attention" / "conformance.md"
NAMED = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", TABLE.read_text(encoding="utf-8"))))


def names_in(path):
    return {
        node.name
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize(("file", "test"), NAMED, ids=lambda each: each)
def test_every_test_named_in_the_table_exists(file, test):
    path = ROOT / file if "/" in file else FOLDER / file
    assert path.is_file()
    assert test in names_in(path)


def test_every_file_of_conformance_tests_is_named_in_the_table():
    files = {path.name for path in FOLDER.glob("test_*.py")} - {"test_table.py"}
    assert files == {file for file, _ in NAMED if "/" not in file}


def test_every_row_of_the_table_names_a_test_or_says_that_there_is_none():
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    headed = [number for number, line in enumerate(lines) if line.endswith("| shown by |")]
    assert len(headed) == 3
    for number in headed:
        width = lines[number].count("|")
        for line in lines[number + 2 : lines.index("", number)]:
            assert line.count("|") == width, line
            assert "::test_" in line or line.endswith("| none yet |"), line


def test_the_versions_in_the_table_are_those_that_are_installed_for_the_tests():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    text = TABLE.read_text(encoding="utf-8")
    peers = {
        "torch": "torch",
        "keras": "Keras",
        "entmax": "entmax",
        "transformers": "Hugging Face transformers",
    }
    for name, called in peers.items():
        (version,) = [pin.partition("==")[2] for pin in pins if pin.startswith(f"{name}==")]
        assert f"{called} {version}" in text
