import math

import pytest

from heedful.comparison.results import RunStatistics


def test_statistics_of_several_runs():
    # (1 + 2 + 6) / 3; squares 4, 1, 9 over one less than three.
    assert RunStatistics.from_values([1.0, 2.0, 6.0]) == (3.0, pytest.approx(math.sqrt(7)))


def test_single_run_has_no_standard_deviation():
    assert RunStatistics.from_values([5.0]) == (5.0, None)


def test_infinite_score_has_no_standard_deviation():
    assert RunStatistics.from_values([math.inf, 1.0]) == (math.inf, None)
