"""Penalties: how is the score of a hypothesis corrected for its length?"""

from __future__ import annotations

from typing import NamedTuple


class LengthPenalty(NamedTuple):
    """log P / ((5 + length) / 6) ^ alpha  (Wu et al. 2016, equation 14); alpha 0 is none."""

    alpha: float = 0.0

    def __call__(self, log_prob: float, length: int) -> float:
        """Score an output of so many tokens, its end symbol counted."""
        return float(log_prob / ((5 + length) / 6) ** self.alpha)
