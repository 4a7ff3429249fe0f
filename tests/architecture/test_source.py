"""Rules that hold for every source file."""

import ast
import re
import tomllib
from collections import Counter

import pytest

from tests.architecture.rules import (
    british,
    class_names,
    generic_alias_calls,
    keyword_dicts,
    namesake_not_first,
    no_statement,
    pickles,
    uncounted_plurals,
    undocumented,
    unnamed_modules,
    unquoted_shapes,
)
from tests.architecture.source import ROOT, SOURCE, parse, short, source_files
from tools.retired_words import ALLOWED, identifiers, is_retired

MAX_LINES = 500
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
NOT_ASCII: dict[str, str] = {}  # file: why its data cannot be plain ASCII
KEYWORD_DICTS = {
    "src/heedful/cli/options.py": "typer passes options to commands by keyword",
    "src/heedful/experiment/train.py": "files by the names that tasks give them, checked",
    "src/heedful/experiment/evaluation.py": "files by the names that tasks give them, checked",
    "src/heedful/config/base.py": "a config passes sizes on, a decorator what it gets",
    "src/heedful/runs.py": "a TypedDict of the keywords of `load`",
    "src/heedful/tasks/captioning/predictor.py": "overloads with a TypedDict",
    "src/heedful/tasks/translation/translator.py": "overloads with a TypedDict",
}

PLURALS = {  # why a number before a plural cannot be 1, or is a text
    "src/heedful/cli/options.py": "side of a pair",
    "src/heedful/comparison/tables.py": "more than one run",
    "src/heedful/conversion/hf_export.py": "eight samples",
    "src/heedful/conversion/hf_language_models.py": "eight samples",
    "src/heedful/conversion/exporting.py": "eight samples; vocabularies have special tokens",
    "src/heedful/conversion/safetensors_export.py": "eight samples; models have many tensors",
    "src/heedful/conversion/torch_export.py": "eight samples",
    "src/heedful/evaluation/score_table.py": "a thousand samples",
    "src/heedful/evaluation/significance.py": "an assertion",
    "src/heedful/layers/embeddings.py": "vocabularies have special tokens",
    "src/heedful/models/captioning.py": "name of a head",
    "src/heedful/training/objectives.py": "name of an objective",
}

KERAS_NAMES = {"Attention", "MultiHeadAttention"}  # heedful.nn has the names of Keras


RULES = [
    *(british, class_names, generic_alias_calls, keyword_dicts, no_statement),
    *(pickles, uncounted_plurals, undocumented, unquoted_shapes),
]


@pytest.fixture(scope="module")
def violations():
    """What each rule yields, by file; every file is parsed once."""
    found = {rule: {} for rule in RULES}
    for path in source_files():
        tree = parse(path)
        for rule in RULES:
            if broken := list(rule(tree)):
                found[rule][short(path)] = broken
    return found


def test_no_file_is_longer_than_one_idea():
    lines = {short(path): len(path.read_text("utf-8").splitlines()) for path in source_files()}
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}


def test_no_file_has_an_empty_name():
    names = {short(path): {*path.with_suffix("").parts} for path in source_files()}
    assert {path for path, parts in names.items() if parts & EMPTY_NAMES} == set()


def test_source_is_ascii():
    files = {short(path) for path in source_files() if not path.read_text("utf-8").isascii()}
    assert files == set(NOT_ASCII), "write other characters as escapes, such as \\u2581"


def test_public_names_documented(violations):
    assert violations[undocumented] == {}


def test_module_docstrings_are_statements(violations):
    assert violations[no_statement] == {}


def test_class_names_are_unique(violations):
    counts = Counter(name for names in violations[class_names].values() for name in names)
    assert {name for name, count in counts.items() if count > 1} == KERAS_NAMES


def test_spelling_is_american(violations):
    assert violations[british] == {}


def test_no_generic_alias_is_called(violations):
    assert violations[generic_alias_calls] == {}


def test_nothing_is_pickled(violations):
    assert violations[pickles] == {}


def test_no_function_accepts_unknown_keywords(violations):
    assert violations[keyword_dicts].keys() == KEYWORD_DICTS.keys()


def test_numbers_agree_with_nouns(violations):
    assert violations[uncounted_plurals].keys() == PLURALS.keys(), "use format_count"


def test_shapes_quoted(violations):
    assert violations[unquoted_shapes] == {}


@pytest.mark.parametrize(
    ("rule", "code", "broken"),
    [
        (undocumented, "class A:\n    '''Doc.'''\n    def b(self): ...", ["the module", "A.b"]),
        (undocumented, "'''Doc.'''\ndef f(): ...\ndef _g(): ...", ["f"]),
        (undocumented, "'''D.'''\nclass A:\n    '''D.'''\n    def build(self): ...", []),
        (undocumented, "'''D.'''\nclass A:\n    '''D.'''\n    @override\n    def b(self): ...", []),
        (no_statement, "'''Scores'''", ["'Scores'"]),
        (no_statement, "'''Scores: what fits?'''", ["'Scores: what fits?'"]),
        (no_statement, "import os", ["''"]),
        (british, "normalised = 1", ["normalised in line 1"]),
        (british, "normalized = 'center'", []),
        (generic_alias_calls, "x = list[int]()", ["list[int]() in line 1"]),
        (generic_alias_calls, "x: list[int] = []", []),
        (pickles, "import pickle\nfrom dill import load", ["pickle", "dill"]),
        (pickles, "torch.load('a')", ["torch.load"]),
        (pickles, "torch.load('a', weights_only=False)", ["torch.load"]),
        (pickles, "torch.load('a', weights_only=True)", []),
        (pickles, "numpy.load('a', allow_pickle=True)", ["allow_pickle"]),
        (unquoted_shapes, "a: Int[Tensor, B]", ["Int[Tensor, B] in line 1"]),
        (uncounted_plurals, "f'{len(a):,} source tokens'", ["len(a) source tokens"]),
        (uncounted_plurals, "f'{MAX} lines', f'{a:.1f} steps', f'{side_name} pairs'", []),
        (keyword_dicts, "def f(a, **options): ...", ["**options in line 1"]),
    ],
)
def test_rules_find_violations(rule, code, broken):
    assert list(rule(ast.parse(code))) == broken


CORE_PACKAGES = ("attention", "layers", "models", "models/recurrent")


def test_class_that_a_file_of_the_core_is_named_after_comes_first():
    first = {}
    for path in (path for name in CORE_PACKAGES for path in (SOURCE / name).glob("*.py")):
        if path.stem == "config":  # composes the configs before it
            continue
        stem = path.stem.replace("_", "")
        names = {stem, stem.removesuffix("s"), path.parent.name + stem}
        first[short(path)] = namesake_not_first(parse(path), names)
    assert {path: name for path, name in first.items() if name is not None} == {}


def test_class_before_the_namesake_is_found():
    code = "class Output(NamedTuple): ...\nclass Base: ...\nclass Cell(Base): ...\nclass Rest: ..."
    assert namesake_not_first(ast.parse(code), {"cell"}) is None
    assert namesake_not_first(ast.parse(code), {"rest"}) == "Base"
    assert namesake_not_first(ast.parse(code), {"other"}) is None


def test_every_package_names_the_modules_in_reading_order():
    unnamed = {}
    for init in SOURCE.glob("*/**/__init__.py"):
        files = {path.stem for path in init.parent.glob("*.py")} - {"__init__"}
        modules = files | {path.parent.name for path in init.parent.glob("*/__init__.py")}
        unnamed[short(init)] = unnamed_modules(ast.get_docstring(parse(init)) or "", modules)
    assert {path: names for path, names in unnamed.items() if names} == {}


def test_unnamed_module_is_found():
    assert unnamed_modules("Read `scores`, then masks.", {"scores", "masks"}) == {"masks"}


def test_retired_words_stay_only_with_a_reason():
    texts = {short(path): path.read_text("utf-8") for path in source_files()}
    files = {name: path for path, text in texts.items() for name, _ in identifiers(text)}
    unused = {pattern for pattern in ALLOWED if not any(re.fullmatch(pattern, n) for n in files)}
    left = {files[name]: name for name in files if is_retired(name)}
    assert (left, unused) == ({}, set())


def test_every_extra_is_offered_by_a_message():
    """An extra that nothing uses would promise what does not work."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    extras = project["optional-dependencies"].keys() - {
        "dev",
        "dev-serve",
        "dev-triton",
        "dev-vision",
        "docs",  # of `make site`
    }
    assert [extra for extra in extras if f"heedful[{extra}]" not in source] == []
