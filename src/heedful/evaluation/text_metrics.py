"""Metrics of text: exact match, error rates, ROUGE, sacreBLEU's BLEU, chrF and TER, and novelty.

Of several references the most favorable counts. Novel n-grams and copied fragments compare outputs
with their sources: how abstractive a system is, not how good. Invariants: with one reference,
outputs equal to the references score 100, or 0 where lower is better; a contiguous part of its
source has novelty 0 and coverage 100, an output that shares no word with it 100 and 0.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile, zip_longest
from typing import Literal, NamedTuple

import numpy as np
from sacrebleu.metrics import bleu, chrf, ter
from sacrebleu.metrics.base import Metric as SacreMetric
from typing_extensions import override

from heedful.evaluation import base
from heedful.evaluation.base import Array, Counts, Direction, Metric, ReferenceLists, SentenceMetric


@dataclass(frozen=True)
class ExactMatch(SentenceMetric):
    """Percentage of outputs equal to a reference, character by character."""

    name: str = "exact match"
    direction: Direction = "higher"

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        return output in references, 1

    @override
    def signature(self, references: ReferenceLists) -> str:
        return f"{base.count_references(references)}|case:mixed|space:kept".removeprefix("nrefs:1|")


@dataclass(frozen=True)
class NBestExactMatch(ExactMatch):
    """Percentage of texts for which a reference is among the first outputs.

    An output is a line with the outputs for a text, best first, separated by tabs; see
    `join_outputs`.
    """

    name: str
    num_outputs: int = 1

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        outputs = output.split("\t")[: self.num_outputs]
        return any(join_outputs([reference]) in outputs for reference in references), 1

    @override
    def signature(self, references: ReferenceLists) -> str:
        return f"{super().signature(references)}|outputs:{self.num_outputs}"


def join_outputs(texts: Iterable[str]) -> str:
    """Return the outputs for a text in one line; a tab within becomes a space."""
    return "\t".join(text.replace("\t", " ") for text in texts)


@dataclass(frozen=True)
class TokenAccuracy(SentenceMetric):
    """Percentage of positions at which output and reference have the same word.

    The positions are those of the longer one, so extra words count as much as missing ones.
    """

    name: str = "token accuracy"
    direction: Direction = "higher"

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        words, counts = output.split(), []
        for reference in map(str.split, references):
            num_correct = sum(map(str.__eq__, words, reference))
            counts.append((num_correct, max(len(words), len(reference))))
        return max(counts, key=lambda row: (row[0] / row[1] if row[1] else 1.0, row[1]))

    @override
    def signature(self, references: ReferenceLists) -> str:
        return f"{base.count_references(references)}|case:mixed|tok:space|places:longer"


# ----- distances between sequences of words, characters or tokens -----


def edit_distance(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Return the fewest insertions, deletions and substitutions (Levenshtein 1966)."""
    ids = {item: index for index, item in enumerate({*one, *other})}
    columns = np.array([ids[item] for item in other], dtype=np.int64)
    positions = np.arange(len(other) + 1)
    row = positions.copy()
    for item in one:
        substituted = row[:-1] + (columns != ids[item])
        row = np.concatenate([row[:1] + 1, np.minimum(substituted, row[1:] + 1)])
        # Insertions: the cheapest cell to the left, plus one for each column between.
        row = np.minimum.accumulate(row - positions) + positions
    return int(row[-1])


def lcs_length(one: Sequence[Hashable], other: Sequence[Hashable]) -> int:
    """Return the length of the longest common subsequence (Hyyro 2004, one bit per item)."""
    bit_masks: dict[Hashable, int] = {}
    for bit, item in enumerate(one):
        bit_masks[item] = bit_masks.get(item, 0) | 1 << bit
    all_bits = unmatched = (1 << len(one)) - 1
    for item in other:
        matched = unmatched & bit_masks.get(item, 0)
        unmatched = ((unmatched + matched) | (unmatched - matched)) & all_bits
    return len(one) - unmatched.bit_count()


def multiset_overlap(one: Iterable[Hashable], other: Iterable[Hashable]) -> int:
    """Return the number of common items in any order, each with its lower count."""
    return (Counter(one) & Counter(other)).total()


def ngrams(items: Sequence[Hashable], order: int) -> list[tuple[Hashable, ...]]:
    """Return all n-grams of the given order."""
    return list(zip(*(items[start:] for start in range(order)), strict=False))


# ----- error rates -----


@dataclass(frozen=True)
class ErrorRate(SentenceMetric):
    """100 errors / length of the reference, over the whole corpus.

    Words are separated by white space, so texts of phonemes give the phoneme error rate. Of several
    references the one with fewest errors counts, and of those the longest.
    """

    name: str
    unit: str
    tokenize: Callable[[str], Sequence[str]]
    count_errors: Callable[[Sequence[str], Sequence[str]], int]
    direction: Direction = "lower"

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        tokens, others = self.tokenize(output), map(self.tokenize, references)
        rows = [(self.count_errors(tokens, other), len(other)) for other in others]
        return min(rows, key=lambda row: (row[0], -row[1]))

    @override
    def compute(self, sums: Array) -> Array:
        """Return the error rate; 100 for any output where all references are empty."""
        if_empty = np.where(sums[..., 0] > 0, 100.0, 0.0)
        return base.percentage(sums[..., 0], sums[..., 1], if_zero=if_empty)

    @override
    def signature(self, references: ReferenceLists) -> str:
        return f"{base.count_references(references)}|case:mixed|tok:{self.unit}|nearest:errors"


def _bag_of_words_errors(output: Sequence[str], reference: Sequence[str]) -> int:
    return max(len(output), len(reference)) - multiset_overlap(output, reference)


WORD_ERROR_RATE = ErrorRate("WER", "space", str.split, edit_distance)
"""Word error rate: insertions, deletions and substitutions of words."""
POSITION_INDEPENDENT_ERROR_RATE = ErrorRate("PER", "space", str.split, _bag_of_words_errors)
"""Position-independent error rate, which ignores word order (Tillmann et al. 1997)."""
CHARACTER_ERROR_RATE = ErrorRate("CER", "character", list, edit_distance)
"""Character error rate; spaces count."""


# ----- ROUGE -----

RougeVariant = Literal["fmeasure", "precision", "recall"]
OverlapCounts = tuple[int, int, int]
"""Number of shared units, units of the hypothesis, units of the reference."""
Overlap = Callable[[Sequence[str], Sequence[str]], OverlapCounts]

_MIN_STEM_LENGTH = 4  # the package rouge-score leaves shorter words as they are


class RougeScore(NamedTuple):
    """Precision, recall and F-measure of a text, from 0 to 1."""

    precision: float
    recall: float
    fmeasure: float


def ascii_words(text: str) -> list[str]:
    """Split into lower-cased runs of a-z and 0-9: for English only."""
    return re.findall(r"[a-z0-9]+", text.lower())


def unicode_words(text: str) -> list[str]:
    """Split into lower-cased runs of letters, digits and marks of any script."""
    return re.findall(r"\w+", text.lower())


@dataclass(frozen=True)
class Rouge(SentenceMetric):
    """Mean over texts of ROUGE-N or ROUGE-L (Lin 2004), as the package rouge-score computes it.

    Of multiple references the one with the best F-measure counts.
    """

    name: str
    overlap: Overlap
    variant: RougeVariant = "fmeasure"
    tokenize: Callable[[str], list[str]] = ascii_words
    stem: Callable[[str], str] | None = None
    direction: Direction = "higher"

    def score_pair(self, output: str, references: Sequence[str]) -> RougeScore:
        """Score one text against its references."""
        words, scores = self._words(output), []
        for reference in references:
            shared, num_output, num_reference = self.overlap(words, self._words(reference))
            precision, recall = shared / max(num_output, 1), shared / max(num_reference, 1)
            fmeasure = 2 * precision * recall / (precision + recall or 1)
            scores.append(RougeScore(precision, recall, fmeasure))
        return max(scores, key=lambda score: score.fmeasure)

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        return getattr(self.score_pair(output, references), self.variant), 1

    @override
    def signature(self, references: ReferenceLists) -> str:
        tokens = "a-z0-9" if self.tokenize is ascii_words else self.tokenize.__name__
        stem, part = "yes" if self.stem else "no", self.variant.replace("fmeasure", "f")
        return f"{base.count_references(references)}|case:lc|tok:{tokens}|stem:{stem}|part:{part}"

    def _words(self, text: str) -> list[str]:
        words, stem = self.tokenize(text), self.stem or str
        return [stem(word) if len(word) >= _MIN_STEM_LENGTH else word for word in words]


def _ngram_overlap(order: int, words: Sequence[str], reference: Sequence[str]) -> OverlapCounts:
    one, other = ngrams(words, order), ngrams(reference, order)
    return multiset_overlap(one, other), len(one), len(other)


def _lcs_overlap(hypothesis: Sequence[str], reference: Sequence[str]) -> OverlapCounts:
    return lcs_length(hypothesis, reference), len(hypothesis), len(reference)


ROUGE_1 = Rouge("ROUGE-1", partial(_ngram_overlap, 1))
ROUGE_2 = Rouge("ROUGE-2", partial(_ngram_overlap, 2))
ROUGE_L = Rouge("ROUGE-L", _lcs_overlap)
"""Longest common subsequence of words; a text counts as one sentence."""


# ----- sacreBLEU -----


@dataclass(frozen=True)
class SacreBleuMetric(Metric):
    """A metric of sacreBLEU with its sentence statistics and its signature.

    Invariant: the score of all sentences is the number that sacreBLEU prints.
    """

    name: str
    factory: Callable[[], SacreMetric]
    direction: Direction = "higher"

    @override
    def sentence_statistics(self, outputs: Sequence[str], references: ReferenceLists) -> Array:
        pairs = list(zip(outputs, references, strict=True))
        columns = list(zip_longest(*(choices for _, choices in pairs)))
        rows = self.factory()._extract_corpus_statistics(list(outputs), columns)
        return np.array(rows, dtype=np.float64)

    @override
    def compute(self, sums: Array) -> Array:
        metric, rows = self.factory(), sums.reshape(-1, sums.shape[-1]).tolist()
        scores = [metric._compute_score_from_stats(row).score for row in rows]
        return np.array(scores, dtype=np.float64).reshape(sums.shape[:-1])

    @override
    def signature(self, references: ReferenceLists) -> str:
        metric, counts = self.factory(), {len(choices) for choices in references}
        metric.num_refs = counts.pop() if len(counts) == 1 else -1
        return str(metric.get_signature())


_legacy_bleu = partial(bleu.BLEU, lowercase=True, smooth_method="none", force=True)

BLEU = SacreBleuMetric("BLEU", bleu.BLEU)
"""Papineni et al. 2002; of several references the closest length sets the brevity penalty."""
CHRF = SacreBleuMetric("chrF", chrf.CHRF)
"""Character n-gram F-score (Popovic 2015)."""
TER = SacreBleuMetric("TER", ter.TER, direction="lower")
"""Translation edit rate: edits and shifts per reference word (Snover et al. 2006)."""
TOKENIZED_BLEU = SacreBleuMetric("tokenized BLEU", partial(_legacy_bleu, tokenize="13a"))
"""BLEU before sacreBLEU: lower-cased mteval-v13a tokens (not quite those of Moses), unsmoothed."""
MULTI_BLEU = SacreBleuMetric("multi-BLEU", partial(_legacy_bleu, tokenize="none"))
"""multi-bleu.perl -lc: lower-cased, split at white space, no smoothing."""


# ----- outputs against their sources -----

_SOURCE_SIGNATURE = "case:lc|tok:unicode_words"


@dataclass(frozen=True)
class NgramNovelty(SentenceMetric):
    """Percentage of the n-grams of the outputs that their source does not have (See et al. 2017).

    Every occurrence counts, over all outputs; outputs shorter than n words have no n-grams.
    """

    name: str
    order: int
    direction: Direction = "higher"
    compares_with = "sources"

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        known = {ngram for text in references for ngram in ngrams(unicode_words(text), self.order)}
        output_ngrams = ngrams(unicode_words(output), self.order)
        return sum(ngram not in known for ngram in output_ngrams), len(output_ngrams)

    @override
    def compute(self, sums: Array) -> Array:
        return base.percentage(sums[..., 0], sums[..., 1], if_zero=0.0)

    @override
    def signature(self, references: ReferenceLists) -> str:
        return _SOURCE_SIGNATURE


def extractive_fragments(source: Sequence[str], summary: Sequence[str]) -> list[int]:
    """Return the lengths of the fragments F(A, S) that a summary shares with its source.

    From left to right, each is the longest run of words from here on that the source has anywhere
    (Grusky et al. 2018, figure 2).
    """
    positions: dict[str, list[int]] = {}
    for position, word in enumerate(source):
        positions.setdefault(word, []).append(position)
    lengths, start = [], 0
    while start < len(summary):
        length = 0
        for at in positions.get(summary[start], ()):
            pairs = zip(source[at:], summary[start:], strict=False)
            length = max(length, sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs)))
        if length:
            lengths.append(length)
        start += max(length, 1)
    return lengths


@dataclass(frozen=True)
class FragmentStatistic(SentenceMetric):
    """Mean over outputs of a statistic of the fragments that they share with their source.

    `statistic` takes the lengths of the fragments and the number of words of the output. An empty
    output counts as 0.
    """

    name: str
    unit: str
    statistic: Callable[[Sequence[int], int], float]
    direction: Direction = "higher"
    compares_with = "sources"

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        words = unicode_words(output)
        fragments = extractive_fragments(unicode_words(" ".join(references)), words)
        return self.statistic(fragments, max(len(words), 1)), 1

    @override
    def compute(self, sums: Array) -> Array:
        return sums[..., 0] / np.maximum(sums[..., 1], 1)

    @override
    def signature(self, references: ReferenceLists) -> str:
        return f"{_SOURCE_SIGNATURE}|unit:{self.unit}"


FRAGMENT_COVERAGE = FragmentStatistic(
    "fragment coverage", "percent", lambda fragments, size: 100 * sum(fragments) / size
)
"""Share of the words of an output that belong to a fragment (Grusky et al. 2018, equation 1)."""
FRAGMENT_DENSITY = FragmentStatistic(
    "fragment density", "words", lambda fragments, size: sum(n * n for n in fragments) / size
)
"""Mean length of the fragment of a word (Grusky et al. 2018, equation 2)."""
MAX_FRAGMENT_LENGTH = FragmentStatistic(
    "longest fragment", "words", lambda fragments, size: max(fragments, default=0)
)
"""Words of the longest fragment."""
