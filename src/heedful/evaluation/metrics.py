"""Metrics: how near are outputs to their references?

BLEU and chrF are sacreBLEU's, and carry its signatures, without which such numbers cannot be
compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF


class Metric(NamedTuple):
    """A number, and exactly how it was computed."""

    name: str
    value: float  # of 100
    signature: str


def exact_match(outputs: Sequence[str], references: Sequence[str]) -> Metric:
    """The share of outputs equal to their reference, character for character."""
    equal = sum(out == ref for out, ref in zip(outputs, references, strict=True))
    return Metric("exact match", 100 * equal / len(outputs), "case:mixed|space:kept")


def bleu(outputs: Sequence[str], references: Sequence[str]) -> Metric:
    """BLEU (Papineni et al. 2002) as sacreBLEU computes it."""
    metric = BLEU()
    score = metric.corpus_score(list(outputs), [list(references)]).score
    return Metric("BLEU", score, str(metric.get_signature()))


def chrf(outputs: Sequence[str], references: Sequence[str]) -> Metric:
    """The character n-gram F-score chrF (Popovic 2015) as sacreBLEU computes it."""
    metric = CHRF()
    score = metric.corpus_score(list(outputs), [list(references)]).score
    return Metric("chrF", score, str(metric.get_signature()))


def measure(outputs: Sequence[str], references: Sequence[str]) -> list[Metric]:
    """Every metric of translation."""
    return [metric(outputs, references) for metric in (exact_match, bleu, chrf)]
