"""Attention maps: which words, and how much each looked at each.

Every picture in this folder is drawn from an `AttentionMap` and from nothing else. It obeys one
law: a row holds the shares that one word of the output gave to the words of the source, so no
share is negative and a row sums to one, or to less where part of the attention went nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from heedful.errors import DataError
from heedful.shapes import Float

# Rows computed in half precision miss one by up to this much.
TOLERANCE = 0.01


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """Where each word of the output looked in the source."""

    source: Sequence[str]
    """The tokens as shown, cleaned of a tokenizer's own markers."""
    target: Sequence[str]
    weights: Float[np.ndarray, "T S"]
    title: str = ""

    def __post_init__(self) -> None:
        _check_shape(self)
        _check_shares(self)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return self.weights.size == 0


def _check_shape(attention_map: AttentionMap) -> None:
    wanted = (len(attention_map.target), len(attention_map.source))
    if attention_map.weights.shape != wanted:
        raise DataError(
            "attention_map",
            f"{wanted[0]} target and {wanted[1]} source tokens need weights of shape {wanted}, "
            f"found {attention_map.weights.shape}",
            "give one row per target token and one column per source token",
        )


def _check_shares(attention_map: AttentionMap) -> None:
    for position, row in enumerate(attention_map.weights):
        problem = _problem(row)
        if problem:
            raise DataError(
                f"attention_map: row {position} ({attention_map.target[position]!r})",
                problem,
                "give the shares of one word's attention: none negative, at most one in all",
            )


def _problem(row: Float[np.ndarray, " S"]) -> str:
    if not np.isfinite(row).all():
        return "a weight is not a finite number"
    if (row < 0).any():
        return f"a weight is negative: {row.min():.4g}"
    total = row.sum(dtype=np.float64)
    return f"the weights sum to {total:.4g}" if total > 1 + TOLERANCE else ""
