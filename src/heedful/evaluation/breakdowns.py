"""Scores of parts of a test set: by source length, word frequency, sentence type or label.

A breakdown assigns every sentence to groups and scores each group by itself. Groups smaller than
`min_group_size` are counted but not scored.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from typing_extensions import override

from heedful.evaluation.base import (
    Metric,
    MetricScore,
    References,
    as_multi_reference,
    compute_score,
)

MetricFunction = Callable[[Sequence[str], References], MetricScore]


class GroupScore(NamedTuple):
    """Size and score of a group of sentences."""

    name: str
    size: int
    score: MetricScore | None  # None if the group is too small


def scores_by_group(
    names: Iterable[Sequence[str]],
    outputs: Sequence[str],
    references: References,
    metric: MetricFunction,
    *,
    order: Sequence[str] = (),
    min_group_size: int = 1,
) -> list[GroupScore]:
    """Score outputs by group; `names` are the groups of each sentence, any number of them.

    Groups come in the given order, the others after them by name; empty groups are left out.
    """
    members: dict[str, list[int]] = {name: [] for name in order}
    for row, (groups, _, _) in enumerate(zip(names, outputs, references, strict=True)):
        for name in groups:
            members.setdefault(name, []).append(row)
    result = []
    for name in [*order, *sorted(members.keys() - set(order))]:
        if rows := members[name]:
            score = _score_rows(rows, outputs, references, metric, min_group_size)
            result.append(GroupScore(name, len(rows), score))
    return result


def _score_rows(
    rows: Sequence[int],
    outputs: Sequence[str],
    references: References,
    metric: MetricFunction,
    min_group_size: int,
) -> MetricScore | None:
    if len(rows) < min_group_size:
        return None
    return metric([outputs[row] for row in rows], [references[row] for row in rows])


# ----- by word frequency -----

FREQUENCY_BIN_EDGES = (0, 1, 2, 5, 10, 100, 1000)
"""The smallest count of each bin."""


def tokenize_words(text: str) -> list[str]:
    """Split into words and punctuation marks; case is kept."""
    return re.findall(r"\w+|[^\w\s]", text)


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Count the words of a text."""
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
    """Score outputs by the training count of the rarest word of their first reference.

    References without words form a group. If the references are no texts, such as alignment links,
    `texts` are the ones whose words count.
    """
    bins = _bin_names(edges)
    choices = as_multi_reference(references if texts is None else texts)
    names = [[_rarest_word_bin(texts[0], word_counts, edges, bins)] for texts in choices]
    return scores_by_group(
        names,
        outputs,
        references,
        metric,
        order=[*bins, "no word"],
        min_group_size=min_group_size,
    )


def recall_by_word_frequency(
    outputs: Sequence[str],
    references: References,
    *,
    word_counts: Mapping[str, int],
    edges: Sequence[int] = FREQUENCY_BIN_EDGES,
) -> list[GroupScore]:
    """Return the recall of reference words by their training count; sizes are numbers of words."""
    recalled, total = _count_recalled(outputs, references, word_counts, edges)
    names = _bin_names(edges)
    return [
        GroupScore(names[index], total[index], _recall(recalled[index], total[index]))
        for index in sorted(total)
    ]


def word_recall(outputs: Sequence[str], references: References) -> MetricScore:
    """Return the percentage of the words of first references that the outputs have."""
    recalled, total = _count_recalled(outputs, references, {}, (0,))
    return _recall(recalled.total(), total.total())


def _count_recalled(
    outputs: Sequence[str],
    references: References,
    word_counts: Mapping[str, int],
    edges: Sequence[int],
) -> tuple[Counter[int], Counter[int]]:
    """Return by bin the number of reference words in outputs, and the number of reference words."""
    recalled: Counter[int] = Counter()
    total: Counter[int] = Counter()
    for output, choices in zip(outputs, as_multi_reference(references), strict=True):
        output_words = Counter(tokenize_words(output))
        for word, count in Counter(tokenize_words(choices[0])).items():
            index = bisect_right(edges, word_counts.get(word, 0)) - 1
            recalled[index] += min(count, output_words[word])
            total[index] += count
    return recalled, total


def _recall(num_recalled: int, num_expected: int) -> MetricScore:
    value = 100 * num_recalled / num_expected if num_expected else 100.0
    return MetricScore("word recall", value, "case:mixed|tok:words+signs")


def _rarest_word_bin(
    text: str, word_counts: Mapping[str, int], edges: Sequence[int], names: Sequence[str]
) -> str:
    counts = [word_counts.get(word, 0) for word in tokenize_words(text)]
    return names[bisect_right(edges, min(counts)) - 1] if counts else "no word"


def _bin_names(edges: Sequence[int]) -> list[str]:
    assert edges[0] == 0, f"the first bin must start at 0, but starts at {edges[0]}"
    ranges = ((low, high - 1) for low, high in pairwise(edges))
    names = [f"{low}" if low == high else f"{low}-{high}" for low, high in ranges]
    return [*names, f"{edges[-1]}+"]


# ----- by sentence type or label -----

SentenceClassifier = Callable[[str], Sequence[str]]
"""Returns the types of a source, which may be several."""

SENTENCE_TYPES = ("question", "digits", "name", "plain")

_QUESTION_MARKS = ("?", "\uff1f", "\u061f", "\u037e")  # also full-width, Arabic and Greek
_CLOSING = " \"')]\u201c\u201d\u2019\u00bb\u00ab"


def sentence_types(source: str, known: Container[str] = ()) -> list[str]:
    """Return whether a source is a question, has digits or has a name; else it is plain.

    A name is a capitalized word, not the first of the text, that is not in `known`, such as the
    words of the training text. Where nouns are capitalized, they count unless they are known.
    """
    later_words = [word for word in tokenize_words(source) if word[0].isalnum()][1:]
    properties = {
        "question": source.rstrip(_CLOSING).endswith(_QUESTION_MARKS),
        "digits": any(character.isdigit() for character in source),
        "name": any(word[0].isupper() and word not in known for word in later_words),
    }
    return [name for name, holds in properties.items() if holds] or ["plain"]


def scores_by_sentence_type(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: References,
    metric: MetricFunction,
    *,
    classify: SentenceClassifier = sentence_types,
    min_group_size: int = 1,
) -> list[GroupScore]:
    """Score outputs by the types of their sources; a source of two types counts in both."""
    return scores_by_group(
        [classify(source) for source in sources],
        outputs,
        references,
        metric,
        order=SENTENCE_TYPES if classify is sentence_types else (),
        min_group_size=min_group_size,
    )


def scores_by_label(
    labels: Sequence[str],
    outputs: Sequence[str],
    references: References,
    metric: MetricFunction,
    *,
    min_group_size: int = 1,
) -> list[GroupScore]:
    """Score outputs by label; sentences with an empty label are left out."""
    names = [[label] if label else [] for label in map(str.strip, labels)]
    return scores_by_group(names, outputs, references, metric, min_group_size=min_group_size)


# ----- by source length -----


class LengthBin(NamedTuple):
    """Size and score of the outputs whose sources have `min_length` to `max_length` words."""

    min_length: int
    max_length: int
    size: int
    score: MetricScore | None  # None if the bin is too small

    @property
    def name(self) -> str:
        """The range of lengths, as in "6-10"."""
        is_one = self.min_length == self.max_length
        return f"{self.max_length}" if is_one else f"{self.min_length}-{self.max_length}"

    @property
    def middle(self) -> float:
        """The x coordinate of the bin in a plot."""
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
    """Score outputs by the number of words of their sources, shortest first.

    The first bin holds 1 to `width` words; sources without words have a bin of their own, and empty
    bins are left out. Words are separated by white space.
    """
    assert width >= 1, f"width must be at least 1, but is {width}"
    members: dict[int, list[int]] = {}
    for row, (source, _, _) in enumerate(zip(sources, outputs, references, strict=True)):
        members.setdefault(-(-len(source.split()) // width), []).append(row)
    bins = []
    for index, rows in sorted(members.items()):
        min_length = (index - 1) * width + 1 if index else 0
        score = _score_rows(rows, outputs, references, metric, min_group_size)
        bins.append(LengthBin(min_length, index * width, len(rows), score))
    return bins


# ----- breakdowns of a test set -----


class Breakdown(ABC):
    """A way to group the sentences of one test set; applies to the outputs of any system."""

    title: str  # column header of the group names

    @abstractmethod
    def score_groups(
        self, metric: Metric, outputs: Sequence[str], references: References
    ) -> list[GroupScore]:
        """Score each group."""


@dataclass(frozen=True)
class LengthBreakdown(Breakdown):
    """By the number of source words, in bins of equal width."""

    sources: Sequence[str]
    bin_width: int = 5
    title: str = "words of the source"

    @override
    def score_groups(
        self, metric: Metric, outputs: Sequence[str], references: References
    ) -> list[GroupScore]:
        score = partial(compute_score, metric)
        bins = scores_by_length(self.sources, outputs, references, score, width=self.bin_width)
        return [GroupScore(part.name, part.size, part.score) for part in bins]


@dataclass(frozen=True)
class WordFrequencyBreakdown(Breakdown):
    """By the training count of the rarest word of the first reference."""

    word_counts: Mapping[str, int]
    texts: References
    title: str = "count of the rarest word"

    @override
    def score_groups(
        self, metric: Metric, outputs: Sequence[str], references: References
    ) -> list[GroupScore]:
        score = partial(compute_score, metric)
        return scores_by_word_frequency(
            outputs, references, score, word_counts=self.word_counts, texts=self.texts
        )


@dataclass(frozen=True)
class SentenceTypeBreakdown(Breakdown):
    """By the type of the source sentence."""

    sources: Sequence[str]
    title: str = "type of source"

    @override
    def score_groups(
        self, metric: Metric, outputs: Sequence[str], references: References
    ) -> list[GroupScore]:
        score = partial(compute_score, metric)
        return scores_by_sentence_type(self.sources, outputs, references, score)


@dataclass(frozen=True)
class LabelBreakdown(Breakdown):
    """By the labels of a file."""

    labels: Sequence[str]
    title: str = "label"

    @override
    def score_groups(
        self, metric: Metric, outputs: Sequence[str], references: References
    ) -> list[GroupScore]:
        return scores_by_label(self.labels, outputs, references, partial(compute_score, metric))
