"""Metrics of captions, of which an image has several: BLEU-1 to 4, ROUGE-L and CIDEr-D.

They are the metrics of coco-caption, which papers on captions report. Invariant: on texts that its
tokenizer leaves as they are, the scores equal those of the package pycocoevalcap. CIDEr-D is also
the reward of sampled outputs in training: n-grams are known by a hash of 64 bits, and outputs are
scored in batches without a loop over them. The score of an output does not depend on its batch.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import bleu
from typing_extensions import override

from heedful.data.shuffling import mix_bits
from heedful.evaluation import base
from heedful.evaluation.base import Array, Counts, Direction, Metric, ReferenceLists, SentenceMetric
from heedful.evaluation.text_metrics import SacreBleuMetric, lcs_length
from heedful.tokenization.ragged_array import (
    Integers,
    RaggedArray,
    offsets_from_lengths,
    range_indices,
)

_BETA_SQUARED = 1.2**2  # weight of recall relative to precision in ROUGE-L
_TINY, _SMALL = 1e-15, 1e-9  # constants of coco-caption's bleu_scorer.py
_CONTRACTION = re.compile(r"(?<=\w)(n't|'(?:s|d|m|ll|re|ve))\b")
_WORD = re.compile(r"n't\b|'(?:s|d|m|ll|re|ve)\b|\w+(?:[-./&]\w+)*|\S")
_PUNCTUATION = frozenset("'`\".?!,:;-(){}\u2018\u2019\u201c\u201d\u2013\u2014\u2026")
_SIGNATURE = "case:lc|tok:caption|punct:no"


def caption_words(text: str) -> list[str]:
    """Split into lower-cased words without punctuation, contractions as in the Penn Treebank.

    coco-caption runs the Java tokenizer of Stanford for it; this one agrees with it on captions of
    plain words ("the man 's t-shirt").
    """
    split = _CONTRACTION.sub(r" \1", text.lower())
    return [word for word in _WORD.findall(split) if word not in _PUNCTUATION]


@dataclass(frozen=True)
class CaptionBleu(SacreBleuMetric):
    """BLEU of n-grams up to an order  (Papineni et al. 2002).

    Of several references the closest length counts for the brevity penalty, the shorter of two.
    There is no smoothing but the constants of coco-caption, which keep a score without a match of
    n-grams above zero: precision (matches + 1e-15) / (n-grams + 1e-9), and the ratio of lengths
    likewise.
    """

    order: int = 4

    @override
    def sentence_statistics(self, outputs: Sequence[str], references: ReferenceLists) -> Array:
        joined = [_join_words(choices) for choices in references]
        return super().sentence_statistics(_join_words(outputs), joined)

    @override
    def compute(self, sums: Array) -> Array:
        length, reference_length = sums[..., 0], sums[..., 1]
        matches, ngrams = np.split(sums[..., 2:], 2, axis=-1)
        precisions = (matches + _TINY) / (ngrams + _SMALL)
        ratio = (length + _TINY) / (reference_length + _SMALL)
        brevity_penalty = np.exp(np.minimum(0, 1 - 1 / ratio))
        return 100 * brevity_penalty * precisions.prod(axis=-1) ** (1 / self.order)

    @override
    def signature(self, references: ReferenceLists) -> str:
        version = super().signature(references).rpartition("|")[2]
        counts = base.count_references(references)
        return f"{counts}|{_SIGNATURE}|order:{self.order}|smooth:none|{version}"


def _join_words(texts: Sequence[str]) -> list[str]:
    return [" ".join(caption_words(text)) for text in texts]


CAPTION_BLEU = tuple(
    CaptionBleu(
        f"BLEU-{order}",
        partial(
            bleu.BLEU, max_ngram_order=order, tokenize="none", smooth_method="none", force=True
        ),
        order=order,
    )
    for order in range(1, 5)
)
"""BLEU-1 to BLEU-4."""


@dataclass(frozen=True)
class CaptionRougeL(SentenceMetric):
    """Mean over captions of (1 + b^2) P R / (R + b^2 P), b = 1.2  (Lin 2004, section 3.1).

    P and R are the longest common subsequence over the words of the caption and over those of the
    reference; each is that of the reference where it is largest, as in coco-caption. `Rouge` has
    b = 1 and one reference for both.
    """

    name: str = "ROUGE-L (captions)"
    direction: Direction = "higher"

    @override
    def sentence_counts(self, output: str, references: Sequence[str], line: int) -> Counts:
        words, precisions, recalls = caption_words(output), [], []
        for reference in map(caption_words, references):
            length = lcs_length(words, reference)
            precisions.append(length / max(len(words), 1))
            recalls.append(length / max(len(reference), 1))
        precision, recall = max(precisions), max(recalls)
        total = recall + _BETA_SQUARED * precision
        return (1 + _BETA_SQUARED) * precision * recall / (total or 1), 1

    @override
    def signature(self, references: ReferenceLists) -> str:
        return f"{base.count_references(references)}|{_SIGNATURE}|beta:1.2"


@dataclass(frozen=True)
class CiderDMetric(Metric):
    """Mean over captions of CIDEr-D, times 100 as papers print it (see `cider_d`).

    Document frequencies are those of the references of the whole test set, and stay so when it is
    resampled: a test set of one caption scores 0.
    """

    name: str = "CIDEr-D"
    direction: Direction = "higher"

    @override
    def sentence_statistics(self, outputs: Sequence[str], references: ReferenceLists) -> Array:
        ids: dict[str, int] = {}
        pairs = zip(_word_ids(outputs, ids), references, strict=True)
        rows = [(output, _word_ids(choices, ids)) for output, choices in pairs]
        if not rows:
            return np.zeros((0, 2))
        scorer = CiderD.from_groups([choices for _, choices in rows])
        output_ids = RaggedArray.from_sequences(output for output, _ in rows)
        scores = scorer.score(output_ids, np.arange(len(rows)))
        return np.stack([scores, np.ones_like(scores)], axis=1)

    @override
    def signature(self, references: ReferenceLists) -> str:
        return f"{base.count_references(references)}|{_SIGNATURE}|n:4|sigma:6|df:references"


def _word_ids(texts: Sequence[str], ids: dict[str, int]) -> list[list[int]]:
    """Return the words of texts as numbers; new words are added to `ids`."""
    return [[ids.setdefault(word, len(ids)) for word in caption_words(text)] for text in texts]


MAX_SCORE = 10.0
"""Of an output equal to its only reference."""

_MAX_ORDER = 4
_SIGMA = 6.0  # of the penalty of a length difference, in tokens
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_UInt64s = NDArray[np.uint64]
_Array = NDArray[np.float64]


class NgramCounts(NamedTuple):
    """How often each sequence has each of its n-grams, of 1 to 4 tokens; a row for every two."""

    hashes: _UInt64s
    sequences: Integers  # index of the sequence
    orders: Integers  # n - 1
    counts: Integers

    @classmethod
    def from_sequences(cls, sequences: RaggedArray) -> Self:
        """Count the n-grams of all sequences."""
        lengths, tokens = sequences.lengths, sequences.values.astype(np.uint64)
        owners = np.repeat(np.arange(len(sequences)), lengths)
        num_behind = np.repeat(sequences.offsets[1:], lengths) - np.arange(len(tokens))
        starts, hashes = np.arange(len(tokens)), np.zeros(len(tokens), np.uint64)
        parts = []
        for order in range(_MAX_ORDER):
            has_ngram = num_behind[starts] > order
            starts, hashes = starts[has_ngram], hashes[has_ngram]
            # The order is a part of the hash: "a" and "a b" differ whatever the tokens are.
            hashes = mix_bits(hashes + _GOLDEN * (tokens[starts + order] + np.uint64(1)))
            parts.append((hashes, owners[starts], np.full(len(starts), order)))
        hashes, owners, orders = map(np.concatenate, zip(*parts, strict=True))
        _, first, counts = np.unique(_join(hashes, owners), return_index=True, return_counts=True)
        return cls(hashes[first], owners[first], orders[first], counts)


class HashTable:
    """Rows of sorted hashes by their leading bits: faster than bisection for many hashes."""

    def __init__(self, hashes: _UInt64s) -> None:
        self.hashes = hashes
        num_bits = max(1, len(hashes).bit_length())
        self._shift = np.uint64(64 - num_bits)
        buckets = np.arange(2**num_bits + 1, dtype=np.uint64)
        self._starts = np.searchsorted(hashes >> self._shift, buckets)

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, hashes: _UInt64s) -> Integers:
        """Return the row of each hash, -1 where there is none."""
        buckets = (hashes >> self._shift).astype(np.int64)
        rows, ends = self._starts[buckets], self._starts[buckets + 1]
        matches = np.full(len(hashes), -1)
        pending = np.flatnonzero(rows < ends)
        while len(pending):  # as often as the fullest bucket has hashes: about ten times
            is_equal = self.hashes[rows[pending]] == hashes[pending]
            matches[pending[is_equal]] = rows[pending[is_equal]]
            pending = pending[~is_equal]
            rows[pending] += 1
            pending = pending[rows[pending] < ends[pending]]
        return matches


class CiderD:
    """CIDEr-D of outputs against groups of references, from 0 to 10  (Vedantam et al. 2015).

    10/4 sum_n 1/m sum_j exp(-(l_c - l_j)^2 / 2 sigma^2) min(g_c, g_j) . g_j / (|g_c| |g_j|), n from
    1 to 4; g_c and g_j are the n-gram vectors of the output c and of the reference j of m, with
    entries count * log(groups / groups with the n-gram), and sigma = 6. As coco-caption has it: the
    paper divides counts by the length of the text, which matters for the minimum; lengths count
    pairs of tokens, so that texts of no and of one token are equally long.
    """

    def __init__(self, references: RaggedArray, groups: Integers) -> None:
        """`groups` has the group of each reference, counted from 0; no group is empty."""
        self.group_sizes = np.bincount(groups)
        assert self.group_sizes.all(), f"no reference in group {self.group_sizes.argmin()}"
        by_group = np.argsort(groups, kind="stable")
        references, groups = references.select(by_group), groups[by_group]
        self._lengths = _count_pairs(references)
        self._first_references = offsets_from_lengths(self.group_sizes)
        ngrams = NgramCounts.from_sequences(references)
        keys = _join(ngrams.hashes, groups[ngrams.sequences])
        by_key = np.argsort(keys, kind="stable")
        keys, self._starts, self._sizes = np.unique(
            keys[by_key], return_index=True, return_counts=True
        )
        self._group_ngrams = HashTable(keys)  # each with `_sizes` entries from `_starts` on
        self._references, self._counts = ngrams.sequences[by_key], ngrams.counts[by_key]
        hashes, num_documents = np.unique(ngrams.hashes[by_key][self._starts], return_counts=True)
        self._ngrams = HashTable(hashes)
        # The last is that of an n-gram without a row, -1: it counts as if one group had it.
        self._weights = math.log(self.num_groups) - np.log([*num_documents, 1])
        self._norms = _vector_norms(ngrams, self._ngram_weights(ngrams), len(references))

    @classmethod
    def from_groups(cls, groups: Sequence[Sequence[Sequence[int]]]) -> Self:
        """Return the scorer of references as token ids, several for each group."""
        references = RaggedArray.from_sequences(ids for group in groups for ids in group)
        return cls(references, np.repeat(np.arange(len(groups)), [len(group) for group in groups]))

    @property
    def num_groups(self) -> int:
        """Number of documents, such as images."""
        return len(self.group_sizes)

    @property
    def num_ngrams(self) -> int:
        """Number of different n-grams of the references."""
        return len(self._ngrams)

    def score(self, outputs: RaggedArray, groups: Integers) -> _Array:
        """Return the score of each output against the references of its group."""
        ngrams = NgramCounts.from_sequences(outputs)
        weights = self._ngram_weights(ngrams)
        # A pair is an output and one of its references.
        num_references = self.group_sizes[groups]
        references = range_indices(self._first_references[groups], num_references)
        owners = np.repeat(np.arange(len(outputs)), num_references)
        dots = self._clipped_products(ngrams, weights, groups)
        norms = _vector_norms(ngrams, weights, len(outputs))[owners] * self._norms[references]
        similarities = np.divide(dots, norms, out=np.zeros_like(norms), where=norms > 0)
        gaps = _count_pairs(outputs)[owners] - self._lengths[references]
        penalties = np.exp(-(gaps**2) / (2 * _SIGMA**2))
        sums = np.bincount(owners, similarities.mean(axis=1) * penalties, minlength=len(outputs))
        return MAX_SCORE * sums / num_references

    def _clipped_products(self, ngrams: NgramCounts, weights: _Array, groups: Integers) -> _Array:
        """Return min(g_c, g_j) . g_j of each output and each of its references, (pairs, orders)."""
        first_pairs = offsets_from_lengths(self.group_sizes[groups])
        matches = self._group_ngrams.find(_join(ngrams.hashes, groups[ngrams.sequences]))
        shared = np.flatnonzero(matches >= 0)
        sizes = self._sizes[matches[shared]]
        entries = range_indices(self._starts[matches[shared]], sizes)
        rows = np.repeat(shared, sizes)  # of n-grams
        outputs = ngrams.sequences[rows]
        first_references = self._first_references[groups[outputs]]
        pairs = first_pairs[outputs] + self._references[entries] - first_references
        counts = self._counts[entries]
        products: _Array = np.minimum(ngrams.counts[rows], counts) * counts * weights[rows] ** 2
        cells, size = _MAX_ORDER * pairs + ngrams.orders[rows], _MAX_ORDER * first_pairs[-1]
        # As floats: without products, bincount returns integers.
        sums = np.bincount(cells, products, minlength=size).astype(np.float64)
        return sums.reshape(-1, _MAX_ORDER)

    def _ngram_weights(self, ngrams: NgramCounts) -> _Array:
        """Return log(groups / groups with the n-gram)."""
        return self._weights[self._ngrams.find(ngrams.hashes)]


def _vector_norms(ngrams: NgramCounts, weights: _Array, num_sequences: int) -> _Array:
    """Return the lengths of the n-gram vectors, (sequences, orders)."""
    cells = _MAX_ORDER * ngrams.sequences + ngrams.orders
    squares = (ngrams.counts * weights) ** 2
    sums = np.bincount(cells, squares, minlength=_MAX_ORDER * num_sequences)
    return np.sqrt(sums).reshape(-1, _MAX_ORDER)


def _count_pairs(sequences: RaggedArray) -> Integers:
    return np.maximum(sequences.lengths - 1, 0)


def _join(hashes: _UInt64s, numbers: Integers) -> _UInt64s:
    """Return a hash of an n-gram and the number of its sequence or group."""
    return mix_bits(hashes ^ mix_bits(numbers.astype(np.uint64) + _GOLDEN))
