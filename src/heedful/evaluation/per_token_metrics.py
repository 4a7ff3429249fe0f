"""Metrics over numbers that a model returns for every token: perplexity and attention entropy.

They add up from sentences as every metric does. This module imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from heedful.errors import DataError
from heedful.evaluation.base import Array, Direction, SentenceMetric

_MIN_SUM = -1e12  # of a sentence: -inf times a count of 0 would be NaN


@dataclass(frozen=True)
class PerTokenMetric(SentenceMetric):
    """A function of the mean of per-token numbers over the corpus.

    An output is a line of numbers, one per token: log-probabilities, EOS included, or attention
    entropies.
    """

    name: str
    unit: str
    count_units: Callable[[Sequence[float], Sequence[str]], int]
    transform: Callable[[Array], Array]
    direction: Direction = "lower"

    @override
    def sentence_counts(
        self, output: str, references: Sequence[str], line: int
    ) -> tuple[float, int]:
        numbers = parse_numbers(output, location=f"line {line} of the outputs")
        return max(sum(numbers), _MIN_SUM), self.count_units(numbers, references)

    @override
    def compute(self, sums: Array) -> Array:
        return self.transform(sums[..., 0] / np.maximum(sums[..., 1], 1))

    @override
    def signature(self, references: Sequence[Sequence[str]]) -> str:
        return f"per:{self.unit}"


def format_numbers(numbers: Iterable[float]) -> str:
    """Format the numbers of a sentence so that they parse back exactly."""
    return " ".join(repr(float(number)) for number in numbers)


def parse_numbers(line: str, *, location: str) -> list[float]:
    """Parse the numbers of a sentence."""
    return [_parse_number(word, location) for word in line.split()]


def _parse_number(word: str, location: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise DataError(
            location,
            f"{word!r} is not a number",
            "write one number per token, separated by spaces, or evaluate a run",
        )
    return number


def attention_entropies(weights: NDArray[np.floating[Any]]) -> Array:
    """Return the entropy of each attention row (T, S) in nats: -sum_j a_j log a_j.

    Rows are normalized to sum to one first; rows of zeros are left out.
    """
    rows = weights[weights.sum(axis=-1) > 0].astype(np.float64)
    rows = rows / rows.sum(axis=-1, keepdims=True)
    return -(rows * np.log(np.where(rows > 0, rows, 1))).sum(axis=-1)


def _count_tokens(numbers: Sequence[float], _: Sequence[str]) -> int:
    return len(numbers)


def _count_words_and_eos(_: Sequence[float], references: Sequence[str]) -> int:
    return len(references[0].split()) + 1


def _perplexity(mean: Array) -> Array:
    with np.errstate(over="ignore"):  # an overflow is an infinite perplexity
        return np.exp(-mean)


def _identity(mean: Array) -> Array:
    return mean


PERPLEXITY = PerTokenMetric("perplexity per token", "token|end:counted", _count_tokens, _perplexity)
"""exp(-log p / tokens)."""
PERPLEXITY_PER_WORD = PerTokenMetric(
    "perplexity per word", "word|end:counted", _count_words_and_eos, _perplexity
)
"""exp(-log p / (words of the first reference + 1)): comparable across tokenizers."""
ATTENTION_ENTROPY = PerTokenMetric(
    "attention entropy", "token|end:left out|unit:nat", _count_tokens, _identity
)
"""Mean entropy of the attention rows: log n if uniform over n positions, 0 if on one. Lower is
sharper, which is not always better."""
