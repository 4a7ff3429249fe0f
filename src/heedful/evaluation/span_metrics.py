"""F1 of labeled spans: named entities, chunks or slots, written as BIO tags.

A line holds tags separated by white space: O outside, B-TYPE at the start of a span, I-TYPE inside.
A span is correct if its first word, last word and type are (Tjong Kim Sang & De Meulder 2003). An
I-TYPE that continues no span of its type is read in one of two ways:

    bio     it starts a span, as in conlleval; so IOB1 is read, too
    iob2    it belongs to no span: spans start with B-TYPE
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from typing_extensions import override

from heedful.errors import DataError
from heedful.evaluation.base import Array, Direction, SentenceMetric, count_references, percentage

Scheme = Literal["bio", "iob2"]

_TAG = re.compile(r"O|[BI](?:-.*)?")


class Span(NamedTuple):
    """A range of words with a label; `last` is inclusive."""

    first: int
    last: int
    label: str


def extract_spans(tags: Sequence[str], scheme: Scheme = "bio") -> set[Span]:
    """Return the spans that tags mark; invalid tags count as O."""
    spans: set[Span] = set()
    current: Span | None = None
    for index, tag in enumerate(tags):
        prefix, label = (tag[0], tag[2:]) if _TAG.fullmatch(tag) else ("O", "")
        if prefix == "I" and current and current.label == label:
            current = current._replace(last=index)
            continue
        if current:
            spans.add(current)
        is_start = prefix == "B" or (prefix == "I" and scheme == "bio")
        current = Span(index, index, label) if is_start else None
    return spans | {current} if current else spans


@dataclass(frozen=True)
class SpanF1(SentenceMetric):
    """2 correct / (predicted + gold), over the spans of the whole corpus.

    Without predicted and gold spans the score is 100; conlleval says 0.
    """

    name: str = "span F1"
    scheme: Scheme = "bio"
    direction: Direction = "higher"
    num_statistics: ClassVar[int] = 3

    @override
    def sentence_counts(
        self, output: str, references: Sequence[str], line: int
    ) -> tuple[int, int, int]:
        predicted = extract_spans(output.split(), self.scheme)
        golds = [extract_spans(_check_tags(choice, line), self.scheme) for choice in references]
        counts = [(len(predicted & gold), len(predicted), len(gold)) for gold in golds]
        return max(counts, key=_f1)

    @override
    def compute(self, sums: Array) -> Array:
        return percentage(2 * sums[..., 0], sums[..., 1] + sums[..., 2], if_zero=100.0)

    @override
    def signature(self, references: Sequence[Sequence[str]]) -> str:
        return f"{count_references(references)}|scheme:{self.scheme}|match:exact"


def _check_tags(text: str, line: int) -> list[str]:
    tags = text.split()
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise DataError(
                f"line {line} of the references",
                f"{tag!r} is not a tag",
                "write O, B-TYPE or I-TYPE for each word, separated by spaces",
            )
    return tags


def _f1(counts: tuple[int, int, int]) -> tuple[float, int]:
    """Return F1 as a sort key; of equally good references, the one with fewer spans."""
    num_correct, num_predicted, num_gold = counts
    total = num_predicted + num_gold
    return (2 * num_correct / total if total else 1.0), -num_gold
