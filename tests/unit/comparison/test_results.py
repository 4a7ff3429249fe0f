import math

import pytest

from heedful.comparison.results import Over


def test_several_runs_have_a_mean_and_a_deviation():
    # (1 + 2 + 6) / 3; squares 4, 1, 9 over one less than three.
    assert Over.of([1.0, 2.0, 6.0]) == (3.0, pytest.approx(math.sqrt(7)))


def test_one_run_has_no_deviation():
    assert Over.of([5.0]) == (5.0, None)


def test_a_score_beyond_all_numbers_has_no_deviation():
    assert Over.of([math.inf, 1.0]) == (math.inf, None)
