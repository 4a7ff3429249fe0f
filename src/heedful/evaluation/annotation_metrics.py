"""Metrics of lines that are not text: word alignments, tags of words, numbers of tokens.

`AlignmentErrorRate` reads alignment links, `SpanF1` BIO tags, `PerTokenMetric` a model's numbers.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from heedful.aligners.links import AlignmentLinks, Link, parse_alignment
from heedful.errors import DataError, check
from heedful.evaluation import base
from heedful.evaluation.base import Array, Counts, Direction, ReferenceLists, SentenceMetric

# ----- word alignments -----


@dataclass(frozen=True)
class AlignmentErrorRate(SentenceMetric):
    """AER = 1 - (|A and S| + |A and P|) / (|A| + |S|)  (Och & Ney 2003, section 5.1).

    A: predicted, S: sure, P: possible gold links of the corpus. The nearest reference counts.
    """

    name: str = "AER"
    direction: Direction = "lower"

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        predicted = parse_alignment(output, location=f"line {line} of the outputs").possible
        location = f"line {line} of the references"
        golds = [parse_alignment(reference, location=location) for reference in references]
        return base.best_ratio(self.link_counts(predicted, gold) for gold in golds)

    def link_counts(self, predicted: frozenset[Link], gold: AlignmentLinks) -> tuple[int, int]:
        """Return the part and the whole of a sentence."""
        num_agreeing = len(predicted & gold.sure) + len(predicted & gold.possible)
        return num_agreeing, len(predicted) + len(gold.sure)

    @override
    def compute(self, sums: Array) -> Array:
        return 100 - super().compute(sums)

    @override
    def signature(self, references: ReferenceLists) -> str:
        return f"{base.count_references(references)}|links:sure+possible"


@dataclass(frozen=True)
class AlignmentPrecision(AlignmentErrorRate):
    """|A and P| / |A|  (Och & Ney 2003, section 5.1)."""

    name: str = "alignment precision"
    direction: Direction = "higher"

    @override
    def link_counts(self, predicted: frozenset[Link], gold: AlignmentLinks) -> tuple[int, int]:
        return len(predicted & gold.possible), len(predicted)

    @override
    def compute(self, sums: Array) -> Array:
        return 100 - super().compute(sums)


@dataclass(frozen=True)
class AlignmentRecall(AlignmentPrecision):
    """|A and S| / |S|  (Och & Ney 2003, section 5.1)."""

    name: str = "alignment recall"

    @override
    def link_counts(self, predicted: frozenset[Link], gold: AlignmentLinks) -> tuple[int, int]:
        return len(predicted & gold.sure), len(gold.sure)


# ----- labeled spans -----

Scheme = Literal["bio", "iob2"]
"""How an I-TYPE that continues no span of its type is read: in `bio` it starts a span, as in
conlleval, so IOB1 is read, too; in `iob2` it belongs to no span."""

_TAG = re.compile(r"O|[BIES](?:-.*)?")


class Span(NamedTuple):
    """A range of words with a label; `last` is inclusive."""

    first: int
    last: int
    label: str


def extract_spans(tags: Sequence[str], scheme: Scheme = "bio") -> set[Span]:
    """Return the spans of tags: O outside, B-TYPE at the start, I-TYPE inside; others are O.

    In BIOES, E-TYPE is the last word of a span and S-TYPE the only one.
    """
    spans: set[Span] = set()
    current: Span | None = None
    for index, tag in enumerate(tags):
        prefix, label = (tag[0], tag[2:]) if _TAG.fullmatch(tag) else ("O", "")
        if prefix in "IE" and current and current.label == label:
            current = current._replace(last=index)
        else:
            if current:
                spans.add(current)
            is_start = prefix in "BS" or (prefix in "IE" and scheme == "bio")
            current = Span(index, index, label) if is_start else None
        if current and prefix in "ES":
            spans.add(current)
            current = None
    return spans | {current} if current else spans


def are_span_tags(tags: Iterable[str]) -> bool:
    """Whether all tags are tags of spans, and not all O."""
    different = set(tags)
    return different > {"O"} and all(map(_TAG.fullmatch, different))


@dataclass(frozen=True)
class SpanF1(SentenceMetric):
    """2 correct / (predicted + gold), over the spans of the whole corpus.

    A span is correct if its first word, last word and type are (Tjong Kim Sang & De Meulder 2003).
    Without predicted and gold spans the score is 100; with conlleval it is 0.
    """

    name: str = "span F1"
    scheme: Scheme = "bio"
    direction: Direction = "higher"

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        predicted = extract_spans(output.split(), self.scheme)
        counts, location = [], f"line {line} of the references"
        hint = "write O, B-TYPE or I-TYPE for each word, separated by spaces"
        for tags in map(str.split, references):
            for tag in tags:
                check(_TAG.fullmatch(tag), location, f"{tag!r} is not a tag", hint, DataError)
            gold = extract_spans(tags, self.scheme)
            counts.append((2 * len(predicted & gold), len(predicted) + len(gold)))
        return base.best_ratio(counts)

    @override
    def signature(self, references: ReferenceLists) -> str:
        return f"{base.count_references(references)}|scheme:{self.scheme}|match:exact"


# ----- numbers of tokens -----

_MIN_SUM = -1e12  # of a sentence: -inf times a count of 0 would be NaN


@dataclass(frozen=True)
class PerTokenMetric(SentenceMetric):
    """Mean of per-token numbers over the corpus, or exp(-mean) if they are log-probabilities.

    An output is a line of numbers, one per token: log-probabilities, EOS included, or attention
    entropies. Per word, the sum is divided by the words of the first reference and one for EOS.
    """

    name: str
    unit: str
    is_per_word: bool = False
    is_perplexity: bool = True
    direction: Direction = "lower"

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        numbers = parse_numbers(output, location=f"line {line} of the outputs")
        count = len(references[0].split()) + 1 if self.is_per_word else len(numbers)
        return max(sum(numbers), _MIN_SUM), count

    @override
    def compute(self, sums: Array) -> Array:
        mean = sums[..., 0] / np.maximum(sums[..., 1], 1)
        with np.errstate(over="ignore"):  # an overflow is an infinite perplexity
            return np.exp(-mean) if self.is_perplexity else mean

    @override
    def signature(self, references: ReferenceLists) -> str:
        return f"per:{self.unit}"


PERPLEXITY = PerTokenMetric("perplexity per token", "token|end:counted")
PERPLEXITY_PER_WORD = PerTokenMetric("perplexity per word", "word|end:counted", is_per_word=True)
"""Comparable across tokenizers."""
ATTENTION_ENTROPY = PerTokenMetric(
    "attention entropy", "token|end:left out|unit:nat", is_perplexity=False
)
"""Mean entropy of the attention rows: log n if uniform over n positions, 0 if on one. Lower is
sharper, which is not always better."""


def format_numbers(numbers: Iterable[float]) -> str:
    """Format the numbers of a sentence so that they parse back exactly."""
    return " ".join(repr(float(number)) for number in numbers)


def parse_numbers(line: str, *, location: str) -> list[float]:
    """Parse the numbers of a sentence."""
    numbers, hint = [], "write one number per token, separated by spaces, or evaluate a run"
    for word in line.split():
        try:
            number = float(word)
        except ValueError:
            number = math.nan
        check(not math.isnan(number), location, f"{word!r} is not a number", hint, DataError)
        numbers.append(number)
    return numbers


def attention_entropies(weights: NDArray[np.floating[Any]]) -> Array:
    """Return the entropy of each attention row (T, S) in nats: -sum_j a_j log a_j.

    Rows are normalized to sum to one first; rows of zeros are left out.
    """
    rows = weights[weights.sum(axis=-1) > 0].astype(np.float64)
    rows = rows / rows.sum(axis=-1, keepdims=True)
    return -(rows * np.log(np.where(rows > 0, rows, 1))).sum(axis=-1)
