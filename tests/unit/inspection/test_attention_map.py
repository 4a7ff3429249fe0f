import subprocess
import sys

import numpy as np
import pytest

from heedful.errors import DataError
from heedful.inspection.attention_map import AttentionMap

HINT = "give attention weights: none negative, each row summing to at most one"


def message_for(weights, source=("a", "b"), target=("x",)):
    with pytest.raises(DataError) as caught:
        AttentionMap(source, target, np.array(weights))
    return str(caught.value)


def test_wrong_shape_is_reported():
    assert message_for([[0.5], [0.5]]) == (
        "attention_map: 1 target and 2 source tokens need weights of shape (1, 2), found (2, 1)\n"
        "  give one row per target token and one column per source token"
    )


def test_nonfinite_weights_are_reported():
    expected = f"attention_map: row 0 ('x'): a weight is not a finite number\n  {HINT}"
    assert message_for([[0.5, np.nan]]) == expected
    assert message_for([[np.inf, 0.5]]) == expected


def test_negative_weights_are_reported():
    assert message_for([[1.2, -0.2]]) == (
        f"attention_map: row 0 ('x'): a weight is negative: -0.2\n  {HINT}"
    )


def test_row_sum_above_one_is_reported():
    assert message_for([[0.5, 0.5], [0.5, 0.75]], target=("x", "y")) == (
        f"attention_map: row 1 ('y'): the weights sum to 1.25\n  {HINT}"
    )


def test_row_sum_may_be_less_than_one_or_rounded():
    partial = np.array([[0.0, 0.0], [0.3, 0.2]])
    assert np.array_equal(AttentionMap(["a", "b"], ["x", "y"], partial).weights, partial)
    rounded = np.array([[0.334, 0.334, 0.334]], dtype=np.float16)
    assert np.array_equal(AttentionMap(["a"] * 3, ["x"], rounded).weights, rounded)


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (0, 2), (3, 0)])
def test_map_without_tokens_is_empty(rows, columns):
    assert AttentionMap(["a"] * columns, ["x"] * rows, np.zeros((rows, columns))).is_empty


def test_figures_import_no_torch():
    modules = "heedful.inspection.attention_map, heedful.inspection.run_report"
    check = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
