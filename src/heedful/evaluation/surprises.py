"""Surprises: what is told by numbers that a model gives beside its outputs?

Perplexity by its log-probabilities, and how widely it looked by its attention. A text is the
numbers of a sentence, one for each token, parted by white space: log-probabilities, the one of the
end among them, or entropies of rows of attention. They add up from sentences as the counts of any
measure do, so intervals and tests are made in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.errors import DataError
from heedful.evaluation.measures import Array, Direction, paired

_LEAST = -1e12  # of a sentence; of minus infinity, taken no times, something would be left


@dataclass(frozen=True)
class Numbers:
    """The sum of the numbers of all sentences, shared out over so many units of text."""

    name: str
    unit: str
    count: Callable[[Sequence[float], Sequence[str]], int]
    tell: Callable[[Array], Array]
    better: Direction = "lower"

    def statistics(self, outputs: Sequence[str], references: Sequence[Sequence[str]]) -> Array:
        """The sum of each sentence, and its units."""
        rows = list[tuple[float, int]]()
        for number, (output, choices) in enumerate(paired(outputs, references), start=1):
            numbers = read_numbers(output, at=f"line {number} of the outputs")
            rows.append((max(sum(numbers), _LEAST), self.count(numbers, choices)))
        return np.array(rows, dtype=np.float64).reshape(-1, 2)

    def total(self, sums: Array) -> Array:
        """What is told by the mean over units; of nothing, the mean is 0."""
        return self.tell(sums[..., 0] / np.maximum(sums[..., 1], 1))

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """What is shared out over what."""
        del references  # they are asked about one by one; the first is the one
        return f"per:{self.unit}"


def write_numbers(numbers: Iterable[float]) -> str:
    """Write the numbers of a sentence so that they can be read back to the last digit."""
    return " ".join(repr(float(number)) for number in numbers)


def read_numbers(line: str, *, at: str) -> list[float]:
    """Read the numbers of a sentence."""
    return [_read_number(word, at) for word in line.split()]


def _read_number(word: str, at: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise DataError(
            at,
            f"{word!r} is no number",
            "write a number for each token, parted by spaces, or measure a run",
        )
    return number


def entropies(weights: NDArray[np.floating[Any]]) -> Array:
    """Entropy of each row of attention (tokens, source tokens) in nats: -sum_j a_j log a_j.

    Rows of zeros looked nowhere and are left out. Others are made to sum to one first.
    """
    looked = weights[weights.sum(axis=-1) > 0].astype(np.float64)
    shares = looked / looked.sum(axis=-1, keepdims=True)
    return -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=-1)


def _each(numbers: Sequence[float], _: Sequence[str]) -> int:
    return len(numbers)


def _words_and_end(_: Sequence[float], references: Sequence[str]) -> int:
    return len(references[0].split()) + 1


def _perplexity(mean: Array) -> Array:
    with np.errstate(over="ignore"):  # a surprise beyond all numbers is infinite
        return np.exp(-mean)


def _as_it_is(mean: Array) -> Array:
    return mean


PERPLEXITY = Numbers("perplexity per token", "token|end:counted", _each, _perplexity)
"""exp(-log p / tokens): as if each token had been one of so many, equally likely."""
PERPLEXITY_PER_WORD = Numbers(
    "perplexity per word", "word|end:counted", _words_and_end, _perplexity
)
"""The same, shared out over the words of the (first) reference and its end: systems that cut words
otherwise can be compared by it."""
ATTENTION_ENTROPY = Numbers("attention entropy", "token|end:left out|unit:nat", _each, _as_it_is)
"""Mean entropy of a row of attention: log n if spread evenly over n places, 0 if all on one. Lower
is sharper, which is not always better."""
