import itertools
import random

import pytest

from heedful.comparison.figures import pareto_front, step_line


def beats(one, other):
    return one[0] <= other[0] and one[1] >= other[1] and one != other


@pytest.mark.parametrize("seed", range(50))
def test_the_front_is_what_nothing_beats(seed):
    draw = random.Random(seed)
    places = [(draw.randint(0, 5), draw.randint(0, 5)) for _ in range(draw.randint(0, 12))]
    front = pareto_front([cost for cost, _ in places], [gain for _, gain in places])
    unbeaten = {
        index
        for index, place in enumerate(places)
        if not any(beats(other, place) for other in places)
    }
    assert set(front) == unbeaten
    assert len(front) == len(unbeaten)
    costs = [places[index][0] for index in front]
    assert costs == sorted(costs)


def test_everything_else_is_beaten_by_something_on_the_front():
    places = [(1, 1), (2, 3), (2, 2), (3, 3), (4, 9), (5, 8)]
    front = pareto_front(*zip(*places, strict=True))
    for index in set(range(len(places))) - set(front):
        assert any(beats(places[best], places[index]) for best in front)


def test_a_staircase_goes_across_and_then_up():
    assert step_line([(1, 1), (3, 5), (4, 6)]) == [(1, 1), (3, 1), (3, 5), (4, 5), (4, 6)]
    for one, two in itertools.pairwise(step_line([(1, 1), (3, 5), (4, 6), (9, 7)])):
        assert (one[0] == two[0]) != (one[1] == two[1])


@pytest.mark.parametrize("front", [[], [(2, 3)]])
def test_a_staircase_of_one_step_is_that_step(front):
    assert step_line(front) == front
