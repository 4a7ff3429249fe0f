"""Accuracy: how much of an output is exactly right?

Of several references the one that flatters most counts.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from typing import Literal, NamedTuple

import numpy as np
from sacrebleu.metrics import bleu, chrf, ter
from sacrebleu.metrics.base import Metric as SacreMetric

from heedful.evaluation.base import Array, Direction, count_references, percentage, zip_references


@dataclass(frozen=True)
class ExactMatch:
    """The share of outputs equal to a reference, character for character."""

    name: str = "exact match"
    direction: Direction = "higher"

    def sentence_statistics(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Array:
        """Whether an output is right, and one for each output."""
        rows = [(output in choices, 1) for output, choices in zip_references(outputs, references)]
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    def compute(self, sums: Array) -> Array:
        """The share of outputs."""
        return percentage(sums[..., 0], sums[..., 1], if_zero=100.0)

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """How texts are compared."""
        several = count_references(references)
        return f"{'' if several == 'nrefs:1' else f'{several}|'}case:mixed|space:kept"


@dataclass(frozen=True)
class TokenAccuracy:
    """The share of places at which output and reference have the same word.

    Places are those of the longer one, so words too many count as much as words too few.
    """

    name: str = "token accuracy"
    direction: Direction = "higher"

    def sentence_statistics(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Array:
        """Words at their places, and places."""
        rows = [
            max((_count_correct(output.split(), each.split()) for each in choices), key=_ratio)
            for output, choices in zip_references(outputs, references)
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    def compute(self, sums: Array) -> Array:
        """The share of places."""
        return percentage(sums[..., 0], sums[..., 1], if_zero=100.0)

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """How texts are compared."""
        return f"{count_references(references)}|case:mixed|tok:space|places:longer"


def _count_correct(output: list[str], reference: list[str]) -> tuple[int, int]:
    equal = sum(map(str.__eq__, output, reference))
    return equal, max(len(output), len(reference))


def _ratio(counted: tuple[int, int]) -> tuple[float, int]:
    right, places = counted
    return (right / places if places else 1.0), places


# Sequences: how much do two of them have in common, and how far are they apart?
#
# Items may be anything that can be compared and hashed: words, characters, tokens.


def edit_distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Fewest insertions, deletions and substitutions from one to the other (Levenshtein 1966)."""
    numbers = {item: number for number, item in enumerate({*one, *other})}
    columns = np.array([numbers[item] for item in other], dtype=np.int64)
    positions = np.arange(len(other) + 1)
    row = positions.copy()
    for item in one:
        kept = row[:-1] + (columns != numbers[item])
        reached = np.concatenate([row[:1] + 1, np.minimum(kept, row[1:] + 1)])
        # Insertions go on from the cheapest place to the left, one for each place between.
        row = np.minimum.accumulate(reached - positions) + positions
    return int(row[-1])


def lcs_length(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Length of the longest sequence that is in both, gaps allowed (Hyyro 2004, bits of a row)."""
    bit_masks: dict[Hashable, int] = {}
    for bit, item in enumerate(one):
        bit_masks[item] = bit_masks.get(item, 0) | 1 << bit
    everywhere = unmatched = (1 << len(one)) - 1
    for item in other:
        met = unmatched & bit_masks.get(item, 0)
        unmatched = ((unmatched + met) | (unmatched - met)) & everywhere
    return len(one) - unmatched.bit_count()


def multiset_overlap(one: Iterable[Hashable], other: Iterable[Hashable]) -> int:
    """How many items are in both, in any order, each as often as in the one that has fewer."""
    return (Counter(one) & Counter(other)).total()


def ngrams(items: Sequence[Hashable], order: int) -> list[tuple[Hashable, ...]]:
    """Every run of `order` items."""
    return list(zip(*(items[start:] for start in range(order)), strict=False))


# Error rates: how many words must be mended, for each word that was wanted?
#
# Words are what white space parts: phonemes, if texts are written in phonemes. Of several references
# the nearest counts: the one with fewest errors, and of those the longest.


@dataclass(frozen=True)
class ErrorRate:
    """100 errors / length of the reference, over all sentences together."""

    name: str
    unit: str
    tokenize: Callable[[str], Sequence[str]]
    count_errors: Callable[[Sequence[str], Sequence[str]], int]
    direction: Direction = "lower"

    def sentence_statistics(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Array:
        """Errors, and the length of the reference they are counted by."""
        rows = [
            min(
                (self._compare(output, each) for each in choices), key=lambda row: (row[0], -row[1])
            )
            for output, choices in zip_references(outputs, references)
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    def compute(self, sums: Array) -> Array:
        """Errors by length; all that is said where nothing was wanted is wrong."""
        return percentage(
            sums[..., 0], sums[..., 1], if_zero=np.where(sums[..., 0] > 0, 100.0, 0.0)
        )

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """How texts are compared."""
        return f"{count_references(references)}|case:mixed|tok:{self.unit}|nearest:errors"

    def _compare(self, output: str, reference: str) -> tuple[int, int]:
        wanted = self.tokenize(reference)
        return self.count_errors(self.tokenize(output), wanted), len(wanted)


def _bag_of_words_errors(output: Sequence[str], reference: Sequence[str]) -> int:
    return max(len(output), len(reference)) - multiset_overlap(output, reference)


WORD_ERROR_RATE = ErrorRate("WER", "space", str.split, edit_distance)
"""Word error rate: insertions, deletions and substitutions of words. Over texts of phonemes it is
the phoneme error rate."""
POSITION_INDEPENDENT_ERROR_RATE = ErrorRate("PER", "space", str.split, _bag_of_words_errors)
"""Position-independent error rate (Tillmann et al. 1997): as if words could be put in order free of
charge."""
CHARACTER_ERROR_RATE = ErrorRate("CER", "character", list, edit_distance)
"""Character error rate, spaces counted."""


# ROUGE: how much of a reference text is in a summary, and of the summary in the reference?
#
# (Lin 2004), as the package rouge-score counts it: precision, recall and their harmonic mean are
# taken text by text and averaged over texts; of several references the one with the best mean
# counts. Words are lower-cased runs of a-z and 0-9, all other letters part words, which suits
# English only: `unicode_words` keeps them. Words are compared as they are unless a stemmer is given.

RougeVariant = Literal["fmeasure", "precision", "recall"]
Overlap = Callable[[Sequence[str], Sequence[str]], tuple[int, int, int]]
"""What two texts share, out of how much of the first and of the second."""

_MIN_STEM_LENGTH = 4  # letters: the package leaves shorter words as they are


class RougeScore(NamedTuple):
    """How a text compares with a reference, each number from 0 to 1."""

    precision: float
    recall: float
    fmeasure: float


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
    variant: RougeVariant = "fmeasure"
    tokenize: Callable[[str], list[str]] = ascii_words
    stem: Callable[[str], str] | None = None
    direction: Direction = "higher"

    def score_pair(self, output: str, references: Sequence[str]) -> RougeScore:
        """Hold one text against its references."""
        said = self._words(output)
        scores = (_make_score(*self.overlap(said, self._words(each))) for each in references)
        return max(scores, key=lambda score: score.fmeasure)

    def sentence_statistics(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Array:
        """The score of each text, and one for each text."""
        rows = [
            (getattr(self.score_pair(output, choices), self.variant), 1)
            for output, choices in zip_references(outputs, references)
        ]
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    def compute(self, sums: Array) -> Array:
        """The mean over texts."""
        return percentage(sums[..., 0], sums[..., 1], if_zero=100.0)

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """How texts are compared."""
        tokens = "a-z0-9" if self.tokenize is ascii_words else self.tokenize.__name__
        stemmed = "yes" if self.stem else "no"
        return f"{count_references(references)}|case:lc|tok:{tokens}|stem:{stemmed}|part:{self.variant}"

    def _words(self, text: str) -> list[str]:
        stem = self.stem
        if stem is None:
            return self.tokenize(text)
        return [
            stem(word) if len(word) >= _MIN_STEM_LENGTH else word for word in self.tokenize(text)
        ]


def _make_score(shared: int, num_hypothesis: int, num_reference: int) -> RougeScore:
    precision, recall = shared / max(num_hypothesis, 1), shared / max(num_reference, 1)
    return RougeScore(precision, recall, 2 * precision * recall / (precision + recall or 1))


def _ngram_overlap(order: int) -> Overlap:
    def overlap(
        hypothesis: Sequence[Hashable], reference: Sequence[Hashable]
    ) -> tuple[int, int, int]:
        one, other = ngrams(hypothesis, order), ngrams(reference, order)
        return multiset_overlap(one, other), len(one), len(other)

    return overlap


def _lcs_overlap(hypothesis: Sequence[str], reference: Sequence[str]) -> tuple[int, int, int]:
    return lcs_length(hypothesis, reference), len(hypothesis), len(reference)


ROUGE_1 = Rouge("ROUGE-1", _ngram_overlap(1))
"""Words in common."""
ROUGE_2 = Rouge("ROUGE-2", _ngram_overlap(2))
"""Pairs of neighbours in common."""
ROUGE_L = Rouge("ROUGE-L", _lcs_overlap)
"""The longest sequence of words in common, gaps allowed; a text counts as one sentence."""


# Measures of translation: what does sacreBLEU say of outputs?
#
# BLEU, chrF and TER are sacreBLEU's and carry its signatures, without which such numbers cannot be
# compared. Beside them stands the BLEU of papers older than signatures: lower-cased, over tokens,
# without smoothing, as multi-bleu.perl -lc counts. Its tokens are those of mteval-v13a (13a), or
# what white space parts in texts that are tokens already; Moses' own tokenizer cuts some words
# otherwise. Law: the score of all sentences is the number sacreBLEU gives.


@dataclass(frozen=True)
class SacreBleuMetric:
    """A metric of sacreBLEU, taken apart into sentences by the means of its own tests."""

    name: str
    factory: Callable[[], SacreMetric]
    direction: Direction = "higher"

    def sentence_statistics(
        self, outputs: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Array:
        """What sacreBLEU counts in each sentence."""
        pairs = list(zip_references(outputs, references))
        columns = list(zip_longest(*(choices for _, choices in pairs)))
        counted = self.factory()._extract_corpus_statistics(list(outputs), columns)
        return np.array(counted, dtype=np.float64)

    def compute(self, sums: Array) -> Array:
        """What sacreBLEU makes of the sums."""
        metric, rows = self.factory(), sums.reshape(-1, sums.shape[-1]).tolist()
        scores = [metric._compute_score_from_stats(row).score for row in rows]
        return np.array(scores, dtype=np.float64).reshape(sums.shape[:-1])

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """SacreBLEU's own."""
        metric, counts = self.factory(), {len(choices) for choices in references}
        metric.num_refs = counts.pop() if len(counts) == 1 else -1
        return str(metric.get_signature())


_legacy_bleu = partial(bleu.BLEU, lowercase=True, smooth_method="none", force=True)

BLEU = SacreBleuMetric("BLEU", bleu.BLEU)
"""Papineni et al. 2002; of several references the nearest in length counts for brevity."""
CHRF = SacreBleuMetric("chrF", chrf.CHRF)
"""F-score of character n-grams (Popovic 2015); of several references the best."""
TER = SacreBleuMetric("TER", ter.TER, direction="lower")
"""Edits and shifts per word of the references (Snover et al. 2006); the fewest over all of them."""
TOKENIZED_BLEU = SacreBleuMetric("tokenized BLEU", partial(_legacy_bleu, tokenize="13a"))
"""Lower-cased BLEU over tokens of mteval-v13a, not smoothed."""
MULTI_BLEU = SacreBleuMetric("multi-BLEU", partial(_legacy_bleu, tokenize="none"))
"""Lower-cased BLEU over what white space parts, not smoothed: multi-bleu.perl -lc."""
