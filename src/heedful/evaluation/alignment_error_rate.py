"""Alignment errors: are words linked with the words that they translate?

A text is the links of a sentence as Moses writes them, counted from 0: "0-0 1-2" links word 0 of
the source with word 0 of the target, and 1 with 2. People who made a reference were sure of some
links, "1-2", and thought others possible, "1?2" or "1p2". Sure links are possible, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from heedful.errors import DataError
from heedful.evaluation.base import Array, Direction, count_references, percentage, zip_references

AlignmentLink = tuple[int, int]
"""A word of the source and one of the target."""

_LINK = re.compile(r"([0-9]+)([-?p])([0-9]+)")


class AlignmentLinks(NamedTuple):
    """What is linked in a sentence."""

    sure: frozenset[AlignmentLink]
    possible: frozenset[AlignmentLink]  # the sure ones among them


def parse_alignment(line: str, *, location: str = "alignment") -> AlignmentLinks:
    """Read the links of a sentence."""
    sure, possible = set[AlignmentLink](), set[AlignmentLink]()
    for word in line.split():
        found = _LINK.fullmatch(word)
        if found is None:
            raise DataError(
                location,
                f"{word!r} is no link",
                "write 0-2 for a sure link from word 0 to word 2, 0?2 for a possible one",
            )
        link = int(found[1]), int(found[3])
        possible.add(link)
        if found[2] == "-":
            sure.add(link)
    return AlignmentLinks(frozenset(sure), frozenset(possible))


@dataclass(frozen=True)
class AlignmentErrorRate:
    """AER = 1 - (|A and S| + |A and P|) / (|A| + |S|)  (Och & Ney 2003, section 5.1).

    A are the links found, S the sure ones, P the possible ones, over all sentences together. One
    reference for each sentence is expected.
    """

    name: str = "AER"
    direction: Direction = "lower"

    def sentence_statistics(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Array:
        """|A and S| + |A and P|, and |A| + |S|; of several references the best."""
        rows = list[tuple[int, int]]()
        for number, (output, choices) in enumerate(zip_references(outputs, references), start=1):
            found = parse_alignment(output, location=f"line {number} of the outputs").possible
            wanted = (
                parse_alignment(each, location=f"line {number} of the references")
                for each in choices
            )
            rows.append(max((_count_agreement(found, each) for each in wanted), key=_ratio))
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    def compute(self, sums: Array) -> Array:
        """What is wrong with links; where none is found and none is sure, nothing."""
        return 100 - percentage(sums[..., 0], sums[..., 1], if_zero=100.0)

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """How links are compared."""
        return f"{count_references(references)}|links:sure+possible"


def _count_agreement(predicted: frozenset[AlignmentLink], gold: AlignmentLinks) -> tuple[int, int]:
    agreeing = len(predicted & gold.sure) + len(predicted & gold.possible)
    return agreeing, len(predicted) + len(gold.sure)


def _ratio(counted: tuple[int, int]) -> tuple[float, int]:
    """How good it is; of equals the one that wants least is the nearest."""
    agreeing, whole = counted
    return (agreeing / whole if whole else 1.0), -whole
