"""Metrics of captions, of which an image has several: BLEU-1 to 4, ROUGE-L and CIDEr-D.

They are the metrics of coco-caption, which papers on captions report. Invariant: on texts that its
tokenizer leaves as they are, the scores equal those of the package pycocoevalcap.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from sacrebleu.metrics import bleu
from typing_extensions import override

from heedful.evaluation import base
from heedful.evaluation.base import Array, Counts, Direction, Metric, ReferenceLists, SentenceMetric
from heedful.evaluation.cider_d import CiderD
from heedful.evaluation.text_metrics import SacreBleuMetric, lcs_length
from heedful.tokenization.ragged_array import RaggedArray

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
