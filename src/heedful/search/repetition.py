"""Repetition: what of what was said may be said again?"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.search.rules import Rule
from heedful.shapes import Float, Int


class NoRepeats(Rule):
    """No run of `size` tokens is in an output twice (Paulus et al. 2018, section 2.5)."""

    def __init__(self, size: int) -> None:
        assert size >= 1, f"runs have at least one token: {size}"
        self.size = size

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        written: Int[Tensor, "R T"],
        sentences: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Forbid what would complete a run that has been said."""
        if written.size(1) < self.size:
            return log_probs
        runs = written.unfold(1, self.size, 1)  # (R, runs, size)
        opening = written[:, written.size(1) - self.size + 1 :].unsqueeze(1)
        is_same = (runs[..., :-1] == opening).all(dim=-1)
        most = torch.zeros_like(runs[..., -1], dtype=log_probs.dtype)
        most = most.masked_fill(~is_same, torch.inf).masked_fill(is_same, -torch.inf)
        return log_probs.scatter_reduce(1, runs[..., -1], most, "amin")


class RepetitionPenalty(Rule):
    """log p * penalty for every token that has been said (after Keskar et al. 2019, section 4.1).

    The paper divides logits, which raises those below zero; log-probabilities are never above
    zero, so that to multiply them always lowers. What is left no longer sums to one.
    """

    def __init__(self, penalty: float) -> None:
        assert penalty >= 1, f"a penalty lowers: {penalty}"
        self.penalty = penalty

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        written: Int[Tensor, "R T"],
        sentences: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Lower what has been said."""
        return log_probs.scatter(1, written, log_probs.gather(1, written) * self.penalty)
