"""Scores of parts of a test set: by source length, word frequency, sentence type or label.

Each group is scored by itself; groups smaller than `min_size` are only counted.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from heedful.evaluation import base
from heedful.evaluation.base import Metric, MetricScore, References

SENTENCE_TYPES = ("question", "digits", "name", "plain")
FREQUENCY_BIN_EDGES = (0, 1, 2, 5, 10, 100, 1000)
"""The smallest count of each bin."""

_QUESTION_MARKS = ("?", "\uff1f", "\u061f", "\u037e")  # also full-width, Arabic and Greek
_CLOSING = " \"')]\u201c\u201d\u2019\u00bb\u00ab"


class GroupScore(NamedTuple):
    """Size and score of a group of sentences."""

    name: str
    size: int
    score: MetricScore | None  # None if the group is too small


class Breakdown:
    """Groups of the sentences of a test set; applies to the outputs of any system.

    `names` are the groups of each sentence, any number of them. Groups come in the given order, the
    others after them by name; `title` is the column header of their names.
    """

    def __init__(
        self, title: str, names: Sequence[Sequence[str]], order: Sequence[str] = ()
    ) -> None:
        self.title, self.names, self.order = title, names, order

    def score_groups(
        self, metric: Metric, outputs: Sequence[str], references: References, *, min_size: int = 1
    ) -> list[GroupScore]:
        """Score each group by its share of the statistics; empty groups are left out."""
        members: dict[str, list[int]] = {name: [] for name in self.order}
        for row, (groups, _, _) in enumerate(zip(self.names, outputs, references, strict=True)):
            for name in groups:
                members.setdefault(name, []).append(row)
        choices = base.as_multi_reference(references)
        # Of all sentences at once: those of CIDEr-D depend on the whole test set.
        statistics = metric.sentence_statistics(outputs, choices)
        result = []
        for name in [*self.order, *sorted(members.keys() - set(self.order))]:
            if rows := members[name]:
                value = float(metric.compute(statistics[rows].sum(axis=0)))
                signature = metric.signature([choices[row] for row in rows])
                is_scored = len(rows) >= min_size
                score = MetricScore(metric.name, value, signature) if is_scored else None
                result.append(GroupScore(name, len(rows), score))
        return result


class LengthBreakdown(Breakdown):
    """By the number of source words, which are separated by white space.

    Bins have equal width, the first from 1 word on; sources without words have one of their own.
    """

    def __init__(self, sources: Sequence[str], bin_width: int = 5) -> None:
        assert bin_width >= 1, f"bin_width must be at least 1, but is {bin_width}"
        bins = [-(-len(source.split()) // bin_width) for source in sources]
        names, self.middles = {}, {}
        for index in sorted(set(bins)):
            low, high = ((index - 1) * bin_width + 1 if index else 0), index * bin_width
            names[index] = f"{high}" if low == high else f"{low}-{high}"
            self.middles[names[index]] = (low + high) / 2  # x coordinates in a plot
        groups = [[names[index]] for index in bins]
        super().__init__("words of the source", groups, list(names.values()))


class LabelBreakdown(Breakdown):
    """By the labels of a file; sentences with an empty label are left out."""

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__("label", [[label] if label else [] for label in map(str.strip, labels)])


class SentenceTypeBreakdown(Breakdown):
    """By the types of the sources; a source of two types counts in both."""

    def __init__(self, sources: Sequence[str]) -> None:
        super().__init__("type of source", list(map(sentence_types, sources)), SENTENCE_TYPES)


def sentence_types(source: str) -> list[str]:
    """Return whether a source is a question, has digits or has a name; else it is plain.

    A name is a capitalized word, not the first of the text; capitalized nouns also count.
    """
    later_words = [word for word in tokenize_words(source) if word[0].isalnum()][1:]
    properties = {
        "question": source.rstrip(_CLOSING).endswith(_QUESTION_MARKS),
        "digits": any(character.isdigit() for character in source),
        "name": any(word[0].isupper() for word in later_words),
    }
    return [name for name, applies in properties.items() if applies] or ["plain"]


# ----- by word frequency -----


def tokenize_words(text: str) -> list[str]:
    """Split into words and punctuation marks; case is kept."""
    return re.findall(r"\w+|[^\w\s]", text)


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Count the words of a text."""
    return Counter(word for line in lines for word in tokenize_words(line))


class WordFrequencyBreakdown(Breakdown):
    """By the training count of the rarest word of the first text; texts without words are a group.

    The texts are the references, or what belongs to them if they are no texts but, say, links.
    """

    def __init__(
        self,
        word_counts: Mapping[str, int],
        texts: References,
        edges: Sequence[int] = FREQUENCY_BIN_EDGES,
    ) -> None:
        assert edges[0] == 0, f"the first bin must start at 0, but starts at {edges[0]}"
        ranges = ((low, high - 1) for low, high in pairwise(edges))
        self.bins = [f"{low}" if low == high else f"{low}-{high}" for low, high in ranges]
        self.bins.append(f"{edges[-1]}+")
        self.word_counts, self.edges = word_counts, edges
        names = []
        for choices in base.as_multi_reference(texts):
            rarest = min(tokenize_words(choices[0]), key=self._count, default=None)
            names.append(["no word" if rarest is None else self._bin(rarest)])
        super().__init__("count of the rarest word", names, [*self.bins, "no word"])

    def _count(self, word: str) -> int:
        return self.word_counts.get(word, 0)

    def _bin(self, word: str) -> str:
        return self.bins[bisect_right(self.edges, self._count(word)) - 1]

    def recall_by_count(self, outputs: Sequence[str], references: References) -> list[GroupScore]:
        """Return the recall of reference words by training count; sizes are numbers of words."""
        recalled: Counter[str] = Counter()
        total: Counter[str] = Counter()
        for word, num_recalled, num_expected in _count_recalled(outputs, references):
            recalled[self._bin(word)] += num_recalled
            total[self._bin(word)] += num_expected
        counts = [(name, recalled[name], total[name]) for name in self.bins if name in total]
        return [GroupScore(name, size, _recall(count, size)) for name, count, size in counts]


def word_recall(outputs: Sequence[str], references: References) -> MetricScore:
    """Return the percentage of the words of first references that the outputs have."""
    counts = list(_count_recalled(outputs, references))
    return _recall(sum(count for _, count, _ in counts), sum(count for _, _, count in counts))


def _count_recalled(
    outputs: Sequence[str], references: References
) -> Iterator[tuple[str, int, int]]:
    """Yield each reference word of each sentence with its counts in output and reference."""
    for output, choices in zip(outputs, base.as_multi_reference(references), strict=True):
        output_words = Counter(tokenize_words(output))
        for word, count in Counter(tokenize_words(choices[0])).items():
            yield word, min(count, output_words[word]), count


def _recall(num_recalled: int, num_expected: int) -> MetricScore:
    value = 100 * num_recalled / num_expected if num_expected else 100.0
    return MetricScore("word recall", value, "case:mixed|tok:words+signs")
