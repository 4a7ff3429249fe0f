"""By rarity: are words said that were seldom seen in training?

Asked in two ways: how good outputs are, by how often the rarest word of their (first) reference was
seen, and how many of the words of references are found in outputs, by how often each was seen.
Words are runs of letters and digits, and signs one by one; case counts.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from heedful.evaluation.groups import Group, Measuring, by_group
from heedful.evaluation.measures import Metric, References, several

EDGES = (0, 1, 2, 5, 10, 100, 1000)
"""The smallest count of each bin."""


def words(text: str) -> list[str]:
    """Part a text into words and signs."""
    return re.findall(r"\w+|[^\w\s]", text)


def count_words(lines: Iterable[str]) -> Counter[str]:
    """Count how often each word is seen."""
    return Counter(word for line in lines for word in words(line))


def by_rarity(
    outputs: Sequence[str],
    references: References,
    measure: Measuring,
    *,
    seen: Mapping[str, int],
    edges: Sequence[int] = EDGES,
    texts: References | None = None,
    least: int = 1,
) -> list[Group]:
    """Measure outputs by how often the rarest word of their reference was seen, rarest first.

    References without a word are in a group of their own. If outputs are held against something
    that has no words, such as links, `texts` are those whose words count.
    """
    bins = _names(edges)
    told_by = several(references if texts is None else texts)
    names = [[_rarest(choices[0], seen, edges, bins)] for choices in told_by]
    order = [*bins, "no word"]
    return by_group(names, outputs, references, measure, order=order, least=least)


def recall_by_rarity(
    outputs: Sequence[str],
    references: References,
    *,
    seen: Mapping[str, int],
    edges: Sequence[int] = EDGES,
) -> list[Group]:
    """The share of the words of first references that outputs have, by how often each was seen.

    A word counts as often as it is in both. Sizes of the groups are words in references.
    """
    found, wanted = _count_found(outputs, references, seen, edges)
    names = _names(edges)
    return [
        Group(names[number], wanted[number], _recall(found[number], wanted[number]))
        for number in sorted(wanted)
    ]


def word_recall(outputs: Sequence[str], references: References) -> Metric:
    """The share of all words of first references that outputs have."""
    found, wanted = _count_found(outputs, references, {}, (0,))
    return _recall(found.total(), wanted.total())


def _count_found(
    outputs: Sequence[str], references: References, seen: Mapping[str, int], edges: Sequence[int]
) -> tuple[Counter[int], Counter[int]]:
    """Count words that were said and that were wanted, by the number of their bin."""
    found, wanted = Counter[int](), Counter[int]()
    for output, choices in zip(outputs, several(references), strict=True):
        said = Counter(words(output))
        for word, times in Counter(words(choices[0])).items():
            number = bisect_right(edges, seen.get(word, 0)) - 1
            found[number] += min(times, said[word])
            wanted[number] += times
    return found, wanted


def _recall(found: int, wanted: int) -> Metric:
    return Metric(
        "word recall", 100 * found / wanted if wanted else 100.0, "case:mixed|tok:words+signs"
    )


def _rarest(
    reference: str, seen: Mapping[str, int], edges: Sequence[int], names: Sequence[str]
) -> str:
    counts = [seen.get(word, 0) for word in words(reference)]
    return names[bisect_right(edges, min(counts)) - 1] if counts else "no word"


def _names(edges: Sequence[int]) -> list[str]:
    assert edges[0] == 0, f"counts begin with 0, and bins with {edges[0]}"
    ends = ((low, high - 1) for low, high in pairwise(edges))
    closed = [f"{low}" if low == high else f"{low}-{high}" for low, high in ends]
    return [*closed, f"{edges[-1]}+"]
