import itertools
import random

import pytest

from heedful.comparison.figures import pareto_front, step_line


def dominates(one, other):
    return one[0] <= other[0] and one[1] >= other[1] and one != other


@pytest.mark.parametrize("seed", range(50))
def test_pareto_front_is_what_nothing_dominates(seed):
    draw = random.Random(seed)
    points = [(draw.randint(0, 5), draw.randint(0, 5)) for _ in range(draw.randint(0, 12))]
    front = pareto_front([cost for cost, _ in points], [gain for _, gain in points])
    expected = {
        index
        for index, point in enumerate(points)
        if not any(dominates(other, point) for other in points)
    }
    assert set(front) == expected
    assert len(front) == len(expected)
    costs = [points[index][0] for index in front]
    assert costs == sorted(costs)


def test_other_points_dominated_by_the_front():
    points = [(1, 1), (2, 3), (2, 2), (3, 3), (4, 9), (5, 8)]
    front = pareto_front(*zip(*points, strict=True))
    for index in set(range(len(points))) - set(front):
        assert any(dominates(points[best], points[index]) for best in front)


def test_step_line_is_horizontal_then_vertical():
    assert step_line([(1, 1), (3, 5), (4, 6)]) == [(1, 1), (3, 1), (3, 5), (4, 5), (4, 6)]
    for one, two in itertools.pairwise(step_line([(1, 1), (3, 5), (4, 6), (9, 7)])):
        assert (one[0] == two[0]) != (one[1] == two[1])


@pytest.mark.parametrize("front", [[], [(2, 3)]])
def test_step_line_of_one_point_is_that_point(front):
    assert step_line(front) == front
