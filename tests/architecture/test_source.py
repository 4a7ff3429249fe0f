"""What holds for every source file."""

import ast

import pytest

from tests.architecture.rules import no_sentence, pickles, swallowing, undocumented, unquoted_shapes
from tests.architecture.source import parse, short, source_files

MAX_LINES = 400
EMPTY_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
NOT_ASCII: dict[str, str] = {}  # file: why its data cannot be plain ASCII


def broken_by(rule):
    return {short(path): found for path in source_files() if (found := list(rule(parse(path))))}


def test_no_file_is_two_ideas():
    lines = {short(path): len(path.read_text("utf-8").splitlines()) for path in source_files()}
    assert {path: count for path, count in lines.items() if count > MAX_LINES} == {}


def test_every_file_and_folder_is_named_for_its_idea():
    names = {short(path): {*path.with_suffix("").parts} for path in source_files()}
    assert {path for path, parts in names.items() if parts & EMPTY_NAMES} == set()


def test_code_is_plain_ascii():
    files = {short(path) for path in source_files() if not path.read_text("utf-8").isascii()}
    assert files == set(NOT_ASCII), "write other characters as escapes, such as \\u2581"


def test_every_public_name_is_documented():
    assert broken_by(undocumented) == {}


def test_every_module_opens_with_a_sentence():
    assert broken_by(no_sentence) == {}


def test_nothing_is_pickled():
    assert broken_by(pickles) == {}


def test_no_function_swallows_unknown_arguments():
    assert broken_by(swallowing) == {}


def test_every_shape_is_quoted():
    assert broken_by(unquoted_shapes) == {}


@pytest.mark.parametrize(
    ("rule", "code", "found"),
    [
        (undocumented, "class A:\n    '''Doc.'''\n    def b(self): ...", ["the module", "A.b"]),
        (undocumented, "'''Doc.'''\ndef f(): ...\ndef _g(): ...", ["f"]),
        (no_sentence, "'''Scores'''", ["'Scores'"]),
        (no_sentence, "import os", ["''"]),
        (pickles, "import pickle\nfrom dill import load", ["pickle", "dill"]),
        (pickles, "torch.load('a')", ["torch.load"]),
        (pickles, "numpy.load('a', allow_pickle=True)", ["allow_pickle"]),
        (unquoted_shapes, "a: Int[Tensor, B]", ["Int[Tensor, B] in line 1"]),
        (swallowing, "def f(a, **options): ...", ["**options in line 1"]),
    ],
)
def test_the_rules_notice_what_breaks_them(rule, code, found):
    assert list(rule(ast.parse(code))) == found
