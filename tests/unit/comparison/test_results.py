import math

import pytest

from heedful.comparison.results import RunStatistics


def test_several_runs_have_a_mean_and_a_deviation():
    # (1 + 2 + 6) / 3; squares 4, 1, 9 over one less than three.
    assert RunStatistics.from_values([1.0, 2.0, 6.0]) == (3.0, pytest.approx(math.sqrt(7)))


def test_one_run_has_no_deviation():
    assert RunStatistics.from_values([5.0]) == (5.0, None)


def test_a_score_beyond_all_numbers_has_no_deviation():
    assert RunStatistics.from_values([math.inf, 1.0]) == (math.inf, None)
