"""By kind: which kinds of sentences go wrong?

What kinds a source has is told by a function of it, or by labels that somebody wrote. The kinds
told here are told by signs that need no knowledge of a language; a source may have several, and is
plain if it has none.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Protocol

from heedful.evaluation.base import (
    Metric,
    MetricScore,
    References,
    as_multi_reference,
    compute_score,
)

# Groups: are some sentences harder than others?
#
# Sentences are sorted into groups by name, each is in any number of them, and every group is measured
# by itself. A group of few outputs says little: below a given number it is counted but not measured.

MetricFunction = Callable[[Sequence[str], References], MetricScore]
"""What is to be known of outputs and their references."""


class GroupScore(NamedTuple):
    """Outputs that have something in common, and how good they are."""

    name: str
    size: int  # outputs
    score: MetricScore | None  # None where they are too few to tell


def scores_by_group(
    names: Iterable[Sequence[str]],
    outputs: Sequence[str],
    references: References,
    metric: MetricFunction,
    *,
    order: Sequence[str] = (),
    min_group_size: int = 1,
) -> list[GroupScore]:
    """Measure outputs by the names of their groups.

    Groups come in the order given, and others after them by name. Groups without outputs are left
    out; groups of fewer than `least` are not measured.
    """
    members: dict[str, list[int]] = {name: [] for name in order}
    for row, (found, _, _) in enumerate(zip(names, outputs, references, strict=True)):
        for name in found:
            members.setdefault(name, []).append(row)
    ordered = [*order, *sorted(members.keys() - set(order))]
    return [
        GroupScore(name, len(rows), _score_rows(rows, outputs, references, metric, min_group_size))
        for name in ordered
        if (rows := members[name])
    ]


def _score_rows(
    rows: list[int],
    outputs: Sequence[str],
    references: References,
    metric: MetricFunction,
    min_group_size: int,
) -> MetricScore | None:
    if len(rows) < min_group_size:
        return None
    return metric([outputs[row] for row in rows], [references[row] for row in rows])


# By rarity: are words said that were seldom seen in training?
#
# Asked in two ways: how good outputs are, by how often the rarest word of their (first) reference was
# seen, and how many of the words of references are found in outputs, by how often each was seen.
# Words are runs of letters and digits, and signs one by one; case counts.

FREQUENCY_BIN_EDGES = (0, 1, 2, 5, 10, 100, 1000)
"""The smallest count of each bin."""


def tokenize_words(text: str) -> list[str]:
    """Part a text into words and signs."""
    return re.findall(r"\w+|[^\w\s]", text)


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Count how often each word is seen."""
    return Counter(word for line in lines for word in tokenize_words(line))


def scores_by_word_frequency(
    outputs: Sequence[str],
    references: References,
    metric: MetricFunction,
    *,
    word_counts: Mapping[str, int],
    edges: Sequence[int] = FREQUENCY_BIN_EDGES,
    texts: References | None = None,
    min_group_size: int = 1,
) -> list[GroupScore]:
    """Measure outputs by how often the rarest word of their reference was seen, rarest first.

    References without a word are in a group of their own. If outputs are held against something
    that has no words, such as links, `texts` are those whose words count.
    """
    bins = _bin_names(edges)
    told_by = as_multi_reference(references if texts is None else texts)
    names = [[_rarest_word_bin(choices[0], word_counts, edges, bins)] for choices in told_by]
    order = [*bins, "no word"]
    return scores_by_group(
        names, outputs, references, metric, order=order, min_group_size=min_group_size
    )


def recall_by_word_frequency(
    outputs: Sequence[str],
    references: References,
    *,
    word_counts: Mapping[str, int],
    edges: Sequence[int] = FREQUENCY_BIN_EDGES,
) -> list[GroupScore]:
    """The share of the words of first references that outputs have, by how often each was seen.

    A word counts as often as it is in both. Sizes of the groups are words in references.
    """
    found, wanted = _count_recalled(outputs, references, word_counts, edges)
    names = _bin_names(edges)
    return [
        GroupScore(names[number], wanted[number], _recall(found[number], wanted[number]))
        for number in sorted(wanted)
    ]


def word_recall(outputs: Sequence[str], references: References) -> MetricScore:
    """The share of all words of first references that outputs have."""
    found, wanted = _count_recalled(outputs, references, {}, (0,))
    return _recall(found.total(), wanted.total())


def _count_recalled(
    outputs: Sequence[str],
    references: References,
    word_counts: Mapping[str, int],
    edges: Sequence[int],
) -> tuple[Counter[int], Counter[int]]:
    """Count words that were said and that were wanted, by the number of their bin."""
    found, wanted = Counter[int](), Counter[int]()
    for output, choices in zip(outputs, as_multi_reference(references), strict=True):
        output_words = Counter(tokenize_words(output))
        for word, times in Counter(tokenize_words(choices[0])).items():
            number = bisect_right(edges, word_counts.get(word, 0)) - 1
            found[number] += min(times, output_words[word])
            wanted[number] += times
    return found, wanted


def _recall(num_found: int, num_expected: int) -> MetricScore:
    return MetricScore(
        "word recall",
        100 * num_found / num_expected if num_expected else 100.0,
        "case:mixed|tok:words+signs",
    )


def _rarest_word_bin(
    reference: str, word_counts: Mapping[str, int], edges: Sequence[int], names: Sequence[str]
) -> str:
    counts = [word_counts.get(word, 0) for word in tokenize_words(reference)]
    return names[bisect_right(edges, min(counts)) - 1] if counts else "no word"


def _bin_names(edges: Sequence[int]) -> list[str]:
    assert edges[0] == 0, f"counts begin with 0, and bins with {edges[0]}"
    ends = ((low, high - 1) for low, high in pairwise(edges))
    closed = [f"{low}" if low == high else f"{low}-{high}" for low, high in ends]
    return [*closed, f"{edges[-1]}+"]


SentenceClassifier = Callable[[str], Sequence[str]]
"""Tells what kinds a source has."""

SENTENCE_TYPES = ("question", "digits", "name", "plain")

_QUESTION_MARKS = ("?", "\uff1f", "\u061f", "\u037e")  # also full-width, Arabic and Greek
_CLOSING = " \"')]\u201c\u201d\u2019\u00bb\u00ab"


def sentence_types(source: str, known: Container[str] = ()) -> list[str]:
    """Tell whether a source asks, has digits, or has a name.

    A name is a word with a capital letter, not the first of the text, that is not among those that
    are known: the words of the training text, say. Where nouns have capital letters, they count
    unless they are known.
    """
    later = [word for word in tokenize_words(source) if word[0].isalnum()][1:]
    signs = {
        "question": source.rstrip(_CLOSING).endswith(_QUESTION_MARKS),
        "digits": any(character.isdigit() for character in source),
        "name": any(word[0].isupper() and word not in known for word in later),
    }
    return [kind for kind, is_so in signs.items() if is_so] or ["plain"]


def scores_by_sentence_type(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: References,
    metric: MetricFunction,
    *,
    classify: SentenceClassifier = sentence_types,
    min_group_size: int = 1,
) -> list[GroupScore]:
    """Measure outputs by the kinds of their sources; one is measured in each kind that it has."""
    found = [classify(source) for source in sources]
    order = SENTENCE_TYPES if classify is sentence_types else ()
    return scores_by_group(
        found, outputs, references, metric, order=order, min_group_size=min_group_size
    )


def scores_by_label(
    labels: Sequence[str],
    outputs: Sequence[str],
    references: References,
    metric: MetricFunction,
    *,
    min_group_size: int = 1,
) -> list[GroupScore]:
    """Measure outputs by labels, of which each has one; an empty label is no group."""
    found = [[label] if label else [] for label in map(str.strip, labels)]
    return scores_by_group(found, outputs, references, metric, min_group_size=min_group_size)


# By length: does quality fall as sources grow?
#
# Outputs are parted by how many words their sources have, into bins of one width, and every bin is
# measured by itself. A bin of few outputs says little: below a given number it is counted but not
# measured. Law: every output is in one bin.


class LengthBin(NamedTuple):
    """Outputs whose sources are about equally long, and how good they are."""

    min_length: int  # words
    max_length: int
    size: int  # outputs
    score: MetricScore | None  # None where they are too few to tell

    @property
    def name(self) -> str:
        """The lengths in it, as a table shows them."""
        is_one = self.min_length == self.max_length
        return f"{self.max_length}" if is_one else f"{self.min_length}-{self.max_length}"

    @property
    def middle(self) -> float:
        """The length it stands for on an axis."""
        return (self.min_length + self.max_length) / 2


def scores_by_length(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: References,
    metric: MetricFunction,
    *,
    width: int = 1,
    min_group_size: int = 1,
) -> list[LengthBin]:
    """Measure outputs by the length of their sources, shortest first.

    Bins hold 1 to `width` words, the next `width` lengths, and so on; texts without a word have a
    bin of their own, and lengths that do not occur have none. Words are what white space parts.
    Bins of fewer than `least` outputs are not measured.
    """
    assert width >= 1, f"no bin is {width} wide"
    found: dict[int, list[tuple[str, str | Sequence[str]]]] = {}
    for source, output, reference in zip(sources, outputs, references, strict=True):
        number = -(-len(source.split()) // width)  # from 1; 0 without a word
        found.setdefault(number, []).append((output, reference))
    return [
        LengthBin(
            min_length=(number - 1) * width + 1 if number else 0,
            max_length=number * width,
            size=len(pairs),
            score=_score_pairs(pairs, metric) if len(pairs) >= min_group_size else None,
        )
        for number, pairs in sorted(found.items())
    ]


def _score_pairs(
    pairs: Sequence[tuple[str, str | Sequence[str]]], metric: MetricFunction
) -> MetricScore:
    outputs, references = zip(*pairs, strict=True)
    return metric(outputs, references)


# Partings: by what can a test set be parted, and its parts be measured one by one?
#
# Each parting has read what it needs to know of the test set, and parts any outputs of it alike.


class Breakdown(Protocol):
    """A way to part a test set."""

    @property
    def title(self) -> str:
        """What tells the parts from one another."""
        ...

    def score_groups(
        self, metric: Metric, outputs: Sequence[str], references: References
    ) -> list[GroupScore]:
        """Measure each part."""
        ...


@dataclass(frozen=True)
class LengthBreakdown:
    """By words of the source, so many to a bin."""

    sources: Sequence[str]
    bin_width: int = 5
    title: str = "words of the source"

    def score_groups(
        self, metric: Metric, outputs: Sequence[str], references: References
    ) -> list[GroupScore]:
        """Measure each bin."""
        metric_function = partial(compute_score, metric)
        bins = scores_by_length(
            self.sources, outputs, references, metric_function, width=self.bin_width
        )
        return [GroupScore(each.name, each.size, each.score) for each in bins]


@dataclass(frozen=True)
class WordFrequencyBreakdown:
    """By how often the rarest word of a text, the first of several, was seen in training."""

    word_counts: Mapping[str, int]
    texts: References
    title: str = "times the rarest word was seen"

    def score_groups(
        self, metric: Metric, outputs: Sequence[str], references: References
    ) -> list[GroupScore]:
        """Measure each bin."""
        metric_function = partial(compute_score, metric)
        return scores_by_word_frequency(
            outputs, references, metric_function, word_counts=self.word_counts, texts=self.texts
        )


@dataclass(frozen=True)
class SentenceTypeBreakdown:
    """By what kind of sentence the source is."""

    sources: Sequence[str]
    title: str = "kind of source"

    def score_groups(
        self, metric: Metric, outputs: Sequence[str], references: References
    ) -> list[GroupScore]:
        """Measure each kind."""
        return scores_by_sentence_type(
            self.sources, outputs, references, partial(compute_score, metric)
        )


@dataclass(frozen=True)
class LabelBreakdown:
    """By labels that somebody gave."""

    labels: Sequence[str]
    title: str = "label"

    def score_groups(
        self, metric: Metric, outputs: Sequence[str], references: References
    ) -> list[GroupScore]:
        """Measure each label."""
        return scores_by_label(self.labels, outputs, references, partial(compute_score, metric))
