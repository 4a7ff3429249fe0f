"""The pages of heedful.nn: every option of the other library and every test is named."""

import ast
import inspect
import re

import pytest
from torch import nn

from tests.documents.markdown import ROOT

TESTS = {
    "from-keras.md": ("conformance/test_nn_keras.py", "unit/nn/test_layers.py"),
    "from-torch.md": ("conformance/test_nn_torch.py", "unit/nn/test_layers.py"),
}
each_page = pytest.mark.parametrize("page", TESTS)


def text_of(page):
    return (ROOT / "docs" / page).read_text(encoding="utf-8")


def defined_in(path):
    tree = ast.parse((ROOT / "tests" / path).read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@each_page
def test_every_difference_names_the_test(page):
    table = text_of(page).split("## Differences")[1]
    rows = [line for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) >= 8
    defined = set().union(*map(defined_in, TESTS[page]))
    for row in rows:
        (name,) = re.findall(r"`(test_\w+)` \|$", row)
        assert name in defined, row


def test_every_option_of_torch_is_on_the_page():
    words = set(re.findall(r"\w+", text_of("from-torch.md")))
    for function in (nn.MultiheadAttention.__init__, nn.MultiheadAttention.forward):
        assert set(inspect.signature(function).parameters) - {"self"} <= words
