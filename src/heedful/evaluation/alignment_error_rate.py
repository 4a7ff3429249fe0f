"""Alignment error rate of word alignments in the Pharaoh format of Moses.

A line holds the links of a sentence pair, counted from 0: "0-0 1-2" links source word 0 with target
word 0, and 1 with 2. In gold alignments "1-2" is a sure link and "1?2" or "1p2" a possible one;
sure links are possible, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from typing_extensions import override

from heedful.errors import DataError
from heedful.evaluation.base import Array, Direction, SentenceMetric, count_references

AlignmentLink = tuple[int, int]
"""Indices of a source word and a target word."""

_LINK = re.compile(r"([0-9]+)([-?p])([0-9]+)")


class AlignmentLinks(NamedTuple):
    """Links of a sentence pair."""

    sure: frozenset[AlignmentLink]
    possible: frozenset[AlignmentLink]  # includes the sure ones


def parse_alignment(line: str, *, location: str = "alignment") -> AlignmentLinks:
    """Parse the links of a sentence pair."""
    sure: set[AlignmentLink] = set()
    possible: set[AlignmentLink] = set()
    for word in line.split():
        match = _LINK.fullmatch(word)
        if match is None:
            raise DataError(
                location,
                f"{word!r} is not an alignment link",
                "write 0-2 for a sure link from word 0 to word 2, 0?2 for a possible one",
            )
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return AlignmentLinks(frozenset(sure), frozenset(possible))


@dataclass(frozen=True)
class AlignmentErrorRate(SentenceMetric):
    """AER = 1 - (|A and S| + |A and P|) / (|A| + |S|)  (Och & Ney 2003, section 5.1).

    A are the predicted links, S the sure and P the possible gold links, over the whole corpus. Of
    several references the one with the lowest error rate counts.
    """

    name: str = "AER"
    direction: Direction = "lower"

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> tuple[int, int]:
        predicted = parse_alignment(output, location=f"line {line} of the outputs").possible
        gold = [
            parse_alignment(choice, location=f"line {line} of the references")
            for choice in references
        ]
        counts = [_count_agreement(predicted, links) for links in gold]
        # Of equally good references, the one with fewer links.
        return max(counts, key=lambda row: (row[0] / row[1] if row[1] else 1.0, -row[1]))

    @override
    def compute(self, sums: Array) -> Array:
        return 100 - super().compute(sums)

    @override
    def signature(self, references: Sequence[Sequence[str]]) -> str:
        return f"{count_references(references)}|links:sure+possible"


def _count_agreement(predicted: frozenset[AlignmentLink], gold: AlignmentLinks) -> tuple[int, int]:
    num_agreeing = len(predicted & gold.sure) + len(predicted & gold.possible)
    return num_agreeing, len(predicted) + len(gold.sure)
