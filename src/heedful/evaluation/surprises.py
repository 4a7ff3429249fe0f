"""Surprises: what is told by numbers that a model gives beside its outputs?

Perplexity by its log-probabilities, and how widely it looked by its attention. Both add up from
statistics of sentences, so intervals and tests are made as for any measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from heedful.evaluation.measures import Array


def log_prob_statistics(log_probs: Sequence[Sequence[float]]) -> Array:
    """-log p of each sentence, in nats, and its tokens: (sentences, 2)."""
    rows = [(-float(np.sum(each)), len(each)) for each in log_probs]
    return np.array(rows, dtype=np.float64).reshape(-1, 2)


def perplexity_total(sums: Array) -> Array:
    """exp(-log p per token), of sums (*B, 2); 1 where no token was asked for."""
    with np.errstate(over="ignore"):  # a surprise beyond all numbers is infinite
        return np.exp(sums[..., 0] / np.maximum(sums[..., 1], 1))


def entropy_statistics(weights: Sequence[NDArray[np.floating[Any]]]) -> Array:
    """Entropy of the rows (tokens, source tokens) of each sentence, and rows: (sentences, 2).

    Rows of zeros looked nowhere and are left out. Others are made to sum to one first.
    """
    rows = [_entropies(np.asarray(each, dtype=np.float64)) for each in weights]
    return np.array([(each.sum(), each.size) for each in rows], dtype=np.float64).reshape(-1, 2)


def entropy_total(sums: Array) -> Array:
    """Mean entropy of a row in nats, of sums (*B, 2): log n if spread evenly over n places."""
    return sums[..., 0] / np.maximum(sums[..., 1], 1)


def _entropies(weights: Array) -> Array:
    looked = weights[weights.sum(axis=-1) > 0]
    shares = looked / looked.sum(axis=-1, keepdims=True)
    return -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=-1)
