"""Code in documents runs, commands exist and links resolve."""

import ast
import re
from pathlib import Path

import pytest

import heedful
from heedful.errors import ConfigError
from heedful.models.masked_language_model import MaskedLanguageModelConfig
from heedful.models.pretrained import PretrainedEncoderConfig
from heedful.recipes import load_recipe
from heedful.tasks.registry import data_table
from tests.documents.commands import (
    inline_commands,
    inline_mistakes,
    mistakes,
    shell_lines,
)
from tests.documents.markdown import (
    DOCUMENTS,
    ROOT,
    anchors,
    blocks,
    links,
    name_of,
    python_of,
    without_blocks,
)
from tests.forking import run_program

README = ROOT / "README.md"
MAX_SECONDS = 300  # for the Python of one document
PYTHON_FILES = [
    path.relative_to(ROOT)
    for folder in ("src", "tests", "tools", "benchmarks", "experiments", "docs")
    for path in (ROOT / folder).rglob("*.py")
]
TEXTS = {document: document.read_text(encoding="utf-8") for document in DOCUMENTS}
PROGRAMS = [document for document, text in TEXTS.items() if python_of(text).strip()]


@pytest.mark.wide
@pytest.mark.parametrize("document", PROGRAMS, ids=name_of)
def test_python_in_document_runs(document, tmp_path):
    """Trainings without settings are cut to 20 steps."""
    text = python_of(document.read_text(encoding="utf-8"))
    text = re.sub(r'(heedful\.train\("[\w-]+", "[\w/-]+")\)', r"\1, steps=20)", text)
    program = tmp_path / "document.py"
    program.write_text(text, encoding="utf-8")
    exit_code, output = run_program(program, max_seconds=MAX_SECONDS)
    assert exit_code == 0, output


def test_readme_has_python():
    assert README in PROGRAMS


RECIPES = [
    pytest.param(block.text, id=f"{name_of(document)}:{block.line}")
    for document, text in TEXTS.items()
    for block in blocks(text)
    if block.language == "yaml"
]


@pytest.mark.parametrize("text", RECIPES)
def test_yaml_in_document_is_a_valid_recipe(text, tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text(text, encoding="utf-8")
    model = load_recipe(str(file)).model
    encoder = getattr(model, "encoder", None)
    if isinstance(encoder, PretrainedEncoderConfig):  # as from BERT
        filled = encoder.with_model_of(MaskedLanguageModelConfig())
        model = model.model_copy(update={"encoder": filled})
    assert model.build(source_vocab_size=9, target_vocab_size=9)


def test_table_of_data_is_that_of_the_tasks():
    page = (ROOT / "docs" / "start" / "first-model.md").read_text(encoding="utf-8")
    rows = [
        f"| {data} | `{options}` | {model} | `heedful {command}` |"
        for data, options, model, command in data_table()
    ]
    assert [row for row in rows if row not in page] == []


def test_readme_has_commands():
    lines = list(shell_lines(README.read_text(encoding="utf-8")))
    assert any(line.startswith("make demo") for line in lines)
    assert any("heedful train" in line for line in lines)


def test_readme_is_short_and_leads_to_the_nine_first_pages():
    text = README.read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    targets = [link for link in links(text) if not re.match("https:|docs/images/", link)]
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    first = re.findall(r"^start/[\w-]+$", index, re.MULTILINE)
    assert (targets, len(first)) == ([f"docs/{page}.md" for page in first], 9)


def test_commands_in_documents_exist():
    unknown = {
        (name_of(document), line): found
        for document, text in TEXTS.items()
        for line in shell_lines(text)
        if (found := mistakes(line))
    }
    assert unknown == {}


def test_commands_named_in_prose_exist():
    unknown = [
        (name_of(document), command)
        for document, text in TEXTS.items()
        for command in inline_commands(text)
        if inline_mistakes(command)
    ]
    assert unknown == []


def test_commands_named_in_docstrings_exist():
    unknown = {
        (path.as_posix(), command)
        for path in PYTHON_FILES
        for docstring in docstrings(ROOT / path)
        for command in inline_commands(docstring)
        if inline_mistakes(command)
    }
    assert unknown == set()


def docstrings(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
    return [ast.get_docstring(node) or "" for node in nodes]


@pytest.mark.parametrize(
    "command",
    ["heedful teach", "heedful train --rune", "make tests", "tool test", "python -m benchmarks.no"],
)
def test_unknown_inline_commands_found(command):
    assert [*inline_commands(f"run `{command}` now")] == [command]
    assert inline_mistakes(command)


FOREIGN_NAMES = {
    "encoder_out",
    "memory_bank",
    "normalize_before",
    "eval_steps",
    "save_steps",
    "snake_case",
    "is_of_text",
    "use_fast_path",
    "use_deterministic_algorithms",
    "safe_globals",
    "find_class",
    "__setstate__",
    "swa_utils",
    "AveragedModel",
}
"""Names of other toolkits, and former names, that decision records speak of."""


def test_identifiers_in_decision_records_exist():
    """Names of tests may be cut short, as after `pytest -k`."""
    files = [path for path in PYTHON_FILES if path.parts[0] != "tests"]
    tests = [(ROOT / path).read_text("utf-8") for path in PYTHON_FILES if path not in files]
    names_of_tests = " ".join(
        name for text in tests for name in re.findall(r"def (test_\w+)", text)
    )
    names = {*FOREIGN_NAMES}
    names |= {path.stem for path in PYTHON_FILES}
    for path in [*files, *(ROOT / "src").rglob("*.yaml"), ROOT / "pyproject.toml"]:
        names |= {path.stem, *re.findall(r"\w+", (ROOT / path).read_text(encoding="utf-8"))}
    missing = {
        (document.name, name)
        for document in (ROOT / "docs" / "decisions").glob("*.md")
        for code in re.findall(r"`([^`\n]+)`", without_blocks(document.read_text("utf-8")))
        for name in re.findall(r"\b[A-Za-z]*_\w+|\b[A-Z][a-z]+[A-Z]\w+", code)
        if name not in names and name not in names_of_tests
    }
    assert missing == set()


def test_links_of_documents_resolve():
    broken = [
        (name_of(document), target)
        for document, text in TEXTS.items()
        for target in links(text)
        if not re.match(r"[a-z]+:", target) and not resolves(document, target)
    ]
    assert broken == []


def resolves(document: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = document.parent / path if path else document
    return file.exists() and (not anchor or anchor in anchors(file.read_text(encoding="utf-8")))


def test_python_files_named_in_documents_exist():
    missing = [
        (name_of(document), name)
        for document, text in TEXTS.items()
        for name in re.findall(r"`([a-z_/]+\.py)`", text)
        if not any(ends_with(name, path) for path in PYTHON_FILES)
    ]
    assert missing == []


def ends_with(name: str, path: Path) -> bool:
    return f"/{path.as_posix()}".endswith(f"/{name}")


def test_message_in_contributing_is_what_is_printed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = "extends: bahdanau-2015\nmodel: {decoder: {attention: {score: {type: aditive}}}}\n"
    Path("recipe.yaml").write_text(recipe, encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        load_recipe("recipe.yaml")
    assert f"\n{error.value}\n" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_changelog_has_this_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[?([0-9.]+)", changelog, re.MULTILINE)
    assert heedful.__version__ in versions
