"""Stopping: when has a beam looked far enough?

A policy is asked after every step, and says what is known of the outputs once it stops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple


class SoFar(NamedTuple):
    """What a beam has found, and what it may still find."""

    width: int
    num_ended: int  # of all its hypotheses, kept or not
    worst: float  # score of the last of the best `width` that have ended; -inf while fewer have
    standing: float  # the best score of an open one, were the token it just got its end
    hope: float  # no open one can ever score more, whatever follows


class Stopping(ABC):
    """When a beam stops."""

    @abstractmethod
    def is_done(self, so_far: SoFar) -> bool:
        """Say whether nothing more is to be looked for."""


class Settled(Stopping):
    """Stop when no open hypothesis, were its last token the end, would rank.

    Guarantee: without a length penalty as `Optimal`. With one an open hypothesis might yet rise by
    growing longer; in practice few do, and the search is much shorter.
    """

    def is_done(self, so_far: SoFar) -> bool:
        """Compare as things stand."""
        return so_far.standing <= so_far.worst


class Optimal(Stopping):
    """Stop when no open hypothesis can rank, whatever follows.

    Guarantee: what is found is what would be found if every beam went on to its longest length.
    """

    def is_done(self, so_far: SoFar) -> bool:
        """Compare with the best that can come."""
        return so_far.hope <= so_far.worst


class Patience(Stopping):
    """Stop when factor * width hypotheses have ended (Kasai et al. 2022); with 1, at the first few.

    Guarantee: none but that so many have ended, or that every open one was cut off at its length.
    """

    def __init__(self, factor: float = 1.0) -> None:
        assert factor > 0, f"a beam that waits for nothing finds nothing: {factor}"
        self.factor = factor

    def is_done(self, so_far: SoFar) -> bool:
        """Count."""
        return so_far.num_ended >= self.factor * so_far.width


FIRST = Patience(1.0)
"""Stop as soon as the beam is full of ended hypotheses: first come, first served."""
