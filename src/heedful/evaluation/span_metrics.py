"""Spans: are the names, chunks or slots that tags mark the right ones?

A text is its tags, parted by white space: O outside, B-TYPE where a span begins, I-TYPE where it
goes on. A span is right if its first word, its last word and its type are (Tjong Kim Sang &
De Meulder 2003). How an I-TYPE is read that goes on from nothing, or from a span of another type:

    bio     it begins a span, as conlleval reads it; so IOB1 is read too
    iob2    it belongs to no span, for a span begins with B-TYPE
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from heedful.errors import DataError
from heedful.evaluation.base import Array, Direction, count_references, percentage, zip_references

Scheme = Literal["bio", "iob2"]

_TAG = re.compile(r"O|[BI](?:-.*)?")


class Span(NamedTuple):
    """A run of words of one type."""

    first: int
    last: int
    label: str


def extract_spans(tags: Sequence[str], scheme: Scheme = "bio") -> set[Span]:
    """The spans that tags mark; what is no tag lies outside."""
    found, begun = set[Span](), list[Span]()
    for index, (letter, kind) in enumerate(map(_parse_tag, tags)):
        if letter == "I" and begun and begun[-1].label == kind:
            begun[-1] = begun[-1]._replace(last=index)
            continue
        found.update(begun)
        begins = letter == "B" or (letter == "I" and scheme == "bio")
        begun = [Span(index, index, kind)] if begins else []
    return found.union(begun)


def _parse_tag(tag: str) -> tuple[str, str]:
    return (tag[0], tag[2:]) if _TAG.fullmatch(tag) else ("O", "")


@dataclass(frozen=True)
class SpanF1:
    """The harmonic mean of precision and recall of spans, over all sentences together.

    Where there is no span to be found and none is, all is right; conlleval says 0.
    """

    name: str = "span F1"
    scheme: Scheme = "bio"
    direction: Direction = "higher"

    def sentence_statistics(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Array:
        """Spans that are right, that were found, and that were wanted."""
        rows = list[tuple[int, int, int]]()
        for number, (output, choices) in enumerate(zip_references(outputs, references), start=1):
            found = extract_spans(output.split(), self.scheme)
            wanted = (extract_spans(_parse_tags(each, number), self.scheme) for each in choices)
            counted = ((len(found & each), len(found), len(each)) for each in wanted)
            rows.append(max(counted, key=_f1))
        return np.array(rows, dtype=np.float64).reshape(-1, 3)

    def compute(self, sums: Array) -> Array:
        """Twice the right ones, by all that were found or wanted."""
        return percentage(2 * sums[..., 0], sums[..., 1] + sums[..., 2], if_zero=100.0)

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """How tags are read."""
        return f"{count_references(references)}|scheme:{self.scheme}|match:exact"


def _parse_tags(line: str, number: int) -> list[str]:
    tags = line.split()
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise DataError(
                f"line {number} of the references",
                f"{tag!r} is no tag",
                "write O, B-TYPE or I-TYPE for each word, parted by spaces",
            )
    return tags


def _f1(counted: tuple[int, int, int]) -> tuple[float, int]:
    """How good it is; of equals the one that wants least is the nearest."""
    right, found, wanted = counted
    return (2 * right / (found + wanted) if found + wanted else 1.0), -wanted
