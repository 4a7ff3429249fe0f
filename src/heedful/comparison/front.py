"""The front: which systems are not beaten at once in cost and in quality?

A system is beaten by one that costs no more and is no worse, and that costs less or is better.
Law: everything that is not on the front is beaten by something on it; equals stand together.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Place = tuple[float, float]


def pareto_front(costs: Sequence[float], gains: Sequence[float]) -> list[int]:
    """Find what no other beats, the cheapest first; lower costs and higher gains are better."""
    places = list(zip(costs, gains, strict=True))
    by_cost = sorted(range(len(places)), key=lambda index: (costs[index], -gains[index]))
    front = list[int]()
    for index in by_cost:
        # Cheaper ones came before: only their gains are still to be beaten, or all of an equal.
        if not front or gains[index] > gains[front[-1]] or places[index] == places[front[-1]]:
            front.append(index)
    return front


def staircase(front: Sequence[Place]) -> list[Place]:
    """The way along a front: what is reached at one cost holds until the next is affordable."""
    corners = [(later[0], earlier[1]) for earlier, later in pairwise(front)]
    steps = [place for pair in zip(front, corners, strict=False) for place in pair]
    return [*steps, *front[-1:]]
