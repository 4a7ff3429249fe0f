import subprocess
import sys

import numpy as np
import pytest

from heedful.errors import DataError
from heedful.inspection.attention_map import AttentionMap

REMEDY = "give the shares of one word's attention: none negative, at most one in all"


def message_for(weights, source=("a", "b"), target=("x",)):
    with pytest.raises(DataError) as caught:
        AttentionMap(source, target, np.array(weights))
    return str(caught.value)


def test_weights_of_another_shape_are_refused():
    assert message_for([[0.5], [0.5]]) == (
        "attention_map: 1 target and 2 source tokens need weights of shape (1, 2), found (2, 1)\n"
        "  give one row per target token and one column per source token"
    )


def test_weights_that_are_not_numbers_are_refused():
    expected = f"attention_map: row 0 ('x'): a weight is not a finite number\n  {REMEDY}"
    assert message_for([[0.5, np.nan]]) == expected
    assert message_for([[np.inf, 0.5]]) == expected


def test_negative_weights_are_refused():
    assert message_for([[1.2, -0.2]]) == (
        f"attention_map: row 0 ('x'): a weight is negative: -0.2\n  {REMEDY}"
    )


def test_a_row_of_more_than_one_is_refused_and_named():
    assert message_for([[0.5, 0.5], [0.5, 0.75]], target=("x", "y")) == (
        f"attention_map: row 1 ('y'): the weights sum to 1.25\n  {REMEDY}"
    )


def test_a_row_may_hold_less_than_one_and_half_precision_may_round():
    AttentionMap(["a", "b"], ["x", "y"], np.array([[0.0, 0.0], [0.3, 0.2]]))
    AttentionMap(["a"] * 3, ["x"], np.array([[0.334, 0.334, 0.334]], dtype=np.float16))


@pytest.mark.parametrize(("rows", "columns"), [(0, 0), (0, 2), (3, 0)])
def test_an_attention_map_without_words_is_empty(rows, columns):
    assert AttentionMap(["a"] * columns, ["x"] * rows, np.zeros((rows, columns))).is_empty


def test_pictures_cost_no_import_of_torch():
    modules = ", ".join(f"heedful.inspection.{name}" for name in ("terminal", "heatmap", "report"))
    check = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
