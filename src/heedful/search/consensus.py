"""Consensus: which of several outputs would the others agree with most?

Minimum Bayes risk decoding: what is chosen is not the likeliest output but the one that can be
expected to gain most, if the truth is as likely to be any output as the model says (Kumar & Byrne
2004); outputs that were drawn stand for all there are (Eikema & Aziz 2020). A gain says how good
one output is if another were the truth. Law: of one output, that one is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Output = TypeVar("Output")


class Distinct(NamedTuple):
    """Outputs without those that are there already, and how often each was there."""

    places: list[int]  # where each was first
    counts: list[int]


def count_distinct(outputs: Sequence[Hashable]) -> Distinct:
    """Count equal outputs, so that what is gained by each is asked for once."""
    firsts = dict[Hashable, int]()
    for place, output in enumerate(outputs):
        firsts.setdefault(output, place)
    tally = dict.fromkeys(firsts, 0)
    for output in outputs:
        tally[output] += 1
    return Distinct(list(firsts.values()), list(tally.values()))


def gains_between(
    outputs: Sequence[Output], gain: Callable[[Output, Output], float]
) -> NDArray[np.float64]:
    """Ask how good each output (a row) is if each (a column) were the truth."""
    return np.array([[gain(output, truth) for truth in outputs] for output in outputs])


def expected_gains(
    gains: NDArray[np.float64], counts: Sequence[int] | None = None
) -> NDArray[np.float64]:
    """Say what each output can be expected to gain: sum_j n_j gain(i, j) / sum_j n_j.

    An output is among those that may be the truth, as often as it was drawn.
    """
    assert gains.shape == (len(gains), len(gains)), f"not a table of pairs: {gains.shape}"
    assert np.isfinite(gains).all(), "a gain is not a number"
    weights = np.ones(len(gains)) if counts is None else np.array(counts, dtype=np.float64)
    # Exact sums: what is equally good must not differ by the order in which it is added up.
    return np.array([math.fsum(row) for row in gains * weights]) / weights.sum()


def choose_by_consensus(gains: NDArray[np.float64], counts: Sequence[int] | None = None) -> int:
    """Give the number of the output that can be expected to gain most; of equal ones the first."""
    return int(expected_gains(gains, counts).argmax())
