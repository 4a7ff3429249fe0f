"""Documents: their code runs, their commands exist, their links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import heedful
from heedful.config import validate_settings
from heedful.config.loading import read_yaml
from heedful.recipes import Recipe
from tests.documents.commands import mistakes, shell_lines
from tests.documents.markdown import DOCUMENTS, ROOT, anchors, blocks, links, name_of, python_of

README = ROOT / "README.md"
LONGEST = 300  # seconds that the Python of a document may take
PROGRAMS = [each for each in DOCUMENTS if python_of(each.read_text(encoding="utf-8")).strip()]
each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)


@pytest.mark.parametrize("document", PROGRAMS, ids=name_of)
def test_the_python_in_a_document_runs(document, tmp_path):
    program = python_of(document.read_text(encoding="utf-8"))
    (tmp_path / "document.py").write_text(program, encoding="utf-8")
    outcome = subprocess.run(
        [sys.executable, "document.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_the_readme_shows_python():
    assert README in PROGRAMS


@each_document
def test_the_yaml_in_a_document_is_part_of_a_recipe(document):
    for block in blocks(document.read_text(encoding="utf-8")):
        if block.language == "yaml":
            settings = read_yaml(block.text, location=f"{name_of(document)}:{block.line}")
            recipe = validate_settings(Recipe, settings, location=name_of(document))
            assert recipe.model.build(source_vocab_size=9, target_vocab_size=9)


def test_the_readme_shows_commands():
    lines = list(shell_lines(README.read_text(encoding="utf-8")))
    assert any(line.startswith("make demo") for line in lines)
    assert any("heedful train" in line for line in lines)


@each_document
def test_every_command_in_a_document_exists(document):
    lines = shell_lines(document.read_text(encoding="utf-8"))
    assert {line: found for line in lines if (found := mistakes(line))} == {}


@each_document
def test_every_link_of_a_document_leads_somewhere(document):
    targets = links(document.read_text(encoding="utf-8"))
    inside = [target for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in inside if not leads_somewhere(document, target)] == []


def leads_somewhere(document: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = document.parent / path if path else document
    return file.exists() and (not anchor or anchor in anchors(file.read_text(encoding="utf-8")))


def test_the_changelog_tells_of_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[?([0-9.]+)", changelog, re.MULTILINE)
    assert heedful.__version__ in versions
