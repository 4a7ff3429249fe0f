"""ROUGE: how much of a reference text is in a summary, and of the summary in the reference?

(Lin 2004), as the package rouge-score counts it: precision, recall and their harmonic mean are
taken text by text and averaged over texts; of several references the one with the best mean
counts. Words are lower-cased runs of a-z and 0-9, all other letters part words, which suits
English only: `unicode_words` keeps them. Words are compared as they are unless a stemmer is given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from heedful.evaluation.measures import Array, Direction, count_references, paired, per_cent
from heedful.evaluation.sequences import common_length, in_common, n_grams

Part = Literal["f", "precision", "recall"]
Overlap = Callable[[Sequence[str], Sequence[str]], tuple[int, int, int]]
"""What two texts share, out of how much of the first and of the second."""

_STEMMED_FROM = 4  # letters: the package leaves shorter words as they are


class RougeScore(NamedTuple):
    """How a text compares with a reference, each number from 0 to 1."""

    precision: float
    recall: float
    f: float


def ascii_words(text: str) -> list[str]:
    """Lower-cased runs of a-z and 0-9."""
    return re.findall(r"[a-z0-9]+", text.lower())


def unicode_words(text: str) -> list[str]:
    """Lower-cased runs of letters, digits and marks of any script."""
    return re.findall(r"\w+", text.lower())


@dataclass(frozen=True)
class Rouge:
    """One of the scores, and which of its three numbers."""

    name: str
    overlap: Overlap
    part: Part = "f"
    words: Callable[[str], list[str]] = ascii_words
    stem: Callable[[str], str] | None = None
    better: Direction = "higher"

    def compare(self, output: str, references: Sequence[str]) -> RougeScore:
        """Hold one text against its references."""
        said = self._words(output)
        scores = (_scored(*self.overlap(said, self._words(each))) for each in references)
        return max(scores, key=lambda score: score.f)

    def statistics(self, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Array:
        """The score of each text, and one for each text."""
        rows = [
            (getattr(self.compare(output, choices), self.part), 1)
            for output, choices in paired(outputs, references)
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    def total(self, sums: Array) -> Array:
        """The mean over texts."""
        return per_cent(sums[..., 0], sums[..., 1], of_nothing=100.0)

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """How texts are compared."""
        tokens = "a-z0-9" if self.words is ascii_words else self.words.__name__
        stemmed = "yes" if self.stem else "no"
        return (
            f"{count_references(references)}|case:lc|tok:{tokens}|stem:{stemmed}|part:{self.part}"
        )

    def _words(self, text: str) -> list[str]:
        stem = self.stem
        if stem is None:
            return self.words(text)
        return [stem(word) if len(word) >= _STEMMED_FROM else word for word in self.words(text)]


def _scored(shared: int, num_said: int, num_wanted: int) -> RougeScore:
    precision, recall = shared / max(num_said, 1), shared / max(num_wanted, 1)
    return RougeScore(precision, recall, 2 * precision * recall / (precision + recall or 1))


def _by_n_grams(order: int) -> Overlap:
    def overlap(said: Sequence[Hashable], wanted: Sequence[Hashable]) -> tuple[int, int, int]:
        one, other = n_grams(said, order), n_grams(wanted, order)
        return in_common(one, other), len(one), len(other)

    return overlap


def _in_order(said: Sequence[str], wanted: Sequence[str]) -> tuple[int, int, int]:
    return common_length(said, wanted), len(said), len(wanted)


ROUGE_1 = Rouge("ROUGE-1", _by_n_grams(1))
"""Words in common."""
ROUGE_2 = Rouge("ROUGE-2", _by_n_grams(2))
"""Pairs of neighbours in common."""
ROUGE_L = Rouge("ROUGE-L", _in_order)
"""The longest sequence of words in common, gaps allowed; a text counts as one sentence."""
