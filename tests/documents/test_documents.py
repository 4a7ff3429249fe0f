"""Code in documents runs, commands exist and links resolve."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import heedful
from heedful.models.masked_language_model import MaskedLanguageModelConfig
from heedful.models.pretrained import PretrainedEncoderConfig
from heedful.recipes import load_recipe
from heedful.tasks.registry import data_table
from tests.documents.commands import mistakes, shell_lines
from tests.documents.markdown import DOCUMENTS, ROOT, anchors, blocks, links, name_of, python_of

README = ROOT / "README.md"
MAX_SECONDS = 300  # for the Python of one document
PROGRAMS = [path for path in DOCUMENTS if python_of(path.read_text(encoding="utf-8")).strip()]
PYTHON_FILES = [
    path.relative_to(ROOT)
    for folder in ("src", "tests", "tools", "benchmarks", "experiments")
    for path in (ROOT / folder).rglob("*.py")
]
each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)


@pytest.mark.wide
@pytest.mark.parametrize("document", PROGRAMS, ids=name_of)
def test_python_in_document_runs(document, tmp_path):
    program = python_of(document.read_text(encoding="utf-8"))
    (tmp_path / "document.py").write_text(program, encoding="utf-8")
    completed = subprocess.run(
        [sys.executable, "document.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=MAX_SECONDS,
        check=False,
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr


def test_readme_has_python():
    assert README in PROGRAMS


@each_document
def test_yaml_in_document_is_a_valid_recipe(document, tmp_path):
    for block in blocks(document.read_text(encoding="utf-8")):
        if block.language == "yaml":
            file = tmp_path / f"line-{block.line}.yaml"
            file.write_text(block.text, encoding="utf-8")
            model = load_recipe(str(file)).model
            encoder = getattr(model, "encoder", None)
            if isinstance(encoder, PretrainedEncoderConfig):  # as from BERT
                filled = encoder.with_model_of(MaskedLanguageModelConfig())
                model = model.model_copy(update={"encoder": filled})
            assert model.build(source_vocab_size=9, target_vocab_size=9)


def test_readme_table_of_data_is_that_of_the_tasks():
    rows = [
        f"| {data} | `{options}` | {model} | `heedful {command}` |"
        for data, options, model, command in data_table()
    ]
    assert "\n".join(rows) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_readme_has_commands():
    lines = list(shell_lines(README.read_text(encoding="utf-8")))
    assert any(line.startswith("make demo") for line in lines)
    assert any("heedful train" in line for line in lines)


@each_document
def test_commands_in_document_exist(document):
    lines = shell_lines(document.read_text(encoding="utf-8"))
    assert {line: unknown for line in lines if (unknown := mistakes(line))} == {}


@each_document
def test_links_of_document_resolve(document):
    targets = links(document.read_text(encoding="utf-8"))
    internal = [target for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in internal if not resolves(document, target)] == []


def resolves(document: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = document.parent / path if path else document
    return file.exists() and (not anchor or anchor in anchors(file.read_text(encoding="utf-8")))


@each_document
def test_python_files_named_in_document_exist(document):
    names = re.findall(r"`([a-z_/]+\.py)`", document.read_text(encoding="utf-8"))
    assert [name for name in names if not any(ends_with(name, path) for path in PYTHON_FILES)] == []


def ends_with(name: str, path: Path) -> bool:
    return f"/{path.as_posix()}".endswith(f"/{name}")


def test_changelog_has_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[?([0-9.]+)", changelog, re.MULTILINE)
    assert heedful.__version__ in versions
