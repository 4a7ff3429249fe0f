"""Accuracy: how much of an output is exactly right?

Of several references the one that flatters most counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heedful.evaluation.measures import Array, Direction, count_references, paired, per_cent


@dataclass(frozen=True)
class ExactMatch:
    """The share of outputs equal to a reference, character for character."""

    name: str = "exact match"
    better: Direction = "higher"

    def statistics(self, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Array:
        """Whether an output is right, and one for each output."""
        rows = [(output in choices, 1) for output, choices in paired(outputs, references)]
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    def total(self, sums: Array) -> Array:
        """The share of outputs."""
        return per_cent(sums[..., 0], sums[..., 1], of_nothing=100.0)

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """How texts are compared."""
        several = count_references(references)
        return f"{'' if several == 'nrefs:1' else f'{several}|'}case:mixed|space:kept"


@dataclass(frozen=True)
class TokenAccuracy:
    """The share of places at which output and reference have the same word.

    Places are those of the longer one, so words too many count as much as words too few.
    """

    name: str = "token accuracy"
    better: Direction = "higher"

    def statistics(self, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Array:
        """Words at their places, and places."""
        rows = [
            max((_right(output.split(), each.split()) for each in choices), key=_share)
            for output, choices in paired(outputs, references)
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    def total(self, sums: Array) -> Array:
        """The share of places."""
        return per_cent(sums[..., 0], sums[..., 1], of_nothing=100.0)

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """How texts are compared."""
        return f"{count_references(references)}|case:mixed|tok:space|places:longer"


def _right(output: list[str], reference: list[str]) -> tuple[int, int]:
    equal = sum(map(str.__eq__, output, reference))
    return equal, max(len(output), len(reference))


def _share(counted: tuple[int, int]) -> tuple[float, int]:
    right, places = counted
    return (right / places if places else 1.0), places
