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


def test_wrong_shape_raises():
    assert message_for([[0.5], [0.5]]) == (
        "attention_map: 1 target and 2 source tokens need weights of shape (1, 2), found (2, 1)\n"
        "  give one row per target token and one column per source token"
    )


def test_nonfinite_weights_reported():
    expected = f"attention_map: row 0 ('x'): a weight is not a finite number\n  {HINT}"
    assert message_for([[0.5, np.nan]]) == expected
    assert message_for([[np.inf, 0.5]]) == expected


def test_negative_weights_reported():
    assert message_for([[1.2, -0.2]]) == (
        f"attention_map: row 0 ('x'): a weight is negative: -0.2\n  {HINT}"
    )


def test_row_sum_above_one_raises():
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


def test_byte_tokens_joined_to_the_characters_that_they_spell():
    tokens = ["<0xE2>", "<0x82>", "<0xAC>", "a", "<0xC3>", "<0xC3><0xA9>", "<0x41>"]
    joined = AttentionMap(tokens, ["x"], np.full((1, 7), 1 / 7)).join_bytes()
    assert joined.source == ["\u20ac", "a", "<0xC3>", "\u00e9", "A"]
    np.testing.assert_allclose(joined.weights, np.array([[3, 1, 1, 1, 1]]) / 7)


def test_attention_from_joined_bytes_is_the_mean():
    weights = np.array([[1.0, 0.0], [0.5, 0.5]])
    joined = AttentionMap(["a", "b"], ["<0xC3>", "<0xA9>"], weights, copy_probs=[0, 1])
    joined = joined.join_bytes()
    assert joined.target == ["\u00e9"]
    assert joined.weights.tolist() == [[0.75, 0.25]]
    assert joined.copy_probs == [0.5]


def test_map_without_byte_tokens_is_not_changed():
    plain = AttentionMap(["<0xZZ>", "b"], ["c"], np.array([[0.5, 0.5]]))
    assert plain.join_bytes() is plain
