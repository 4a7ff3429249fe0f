"""Bounds: which beams may not end yet, and which must?

The same as the rules `AtLeast` and `AtMost`, said of the few candidates of a beam instead of all
words of the vocabulary: a rule would copy what the model said of every word at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.search.candidates import Candidates, ends
from heedful.search.lengths import AtLeast, endless
from heedful.search.rules import Rule
from heedful.shapes import Float


class Standing(NamedTuple):
    """The beams that are in the batch."""

    owners: NDArray[np.int64]  # (beams,) the sentence of each
    totals: NDArray[np.float64]  # (beams, K) of their hypotheses; -inf where there is none
    depth: int  # tokens that they have


class Bounds:
    """The shortest and the longest output of each sentence."""

    def __init__(self, least: AtLeast | None, limits: Sequence[int], *, end: int) -> None:
        self.shortest = least.lengths.cpu().numpy() if least else None
        self.most_short = 0 if self.shortest is None else int(self.shortest.max(initial=0))
        self.longest = np.array(limits, dtype=np.int64)
        self.least_long = min(limits, default=0)
        self.end = end

    def ends_too_soon(self, found: Candidates, beams: Standing) -> NDArray[np.bool_]:
        """Say which candidates would end beams that are too short."""
        is_end = found.tokens == self.end
        if self.shortest is None or beams.depth >= self.most_short:
            return np.zeros_like(is_end)
        return is_end & (self.shortest[beams.owners] > beams.depth)[:, None]

    def end_long_ones(
        self,
        found: Candidates,
        beams: Standing,
        *,
        left: Float[Tensor, "R N"],
        said: Float[Tensor, "R N"],
    ) -> Candidates:
        """Let beams end that are as long as they may be, and do nothing else.

        `left` is what rules left of what the model `said`.
        """
        if beams.depth < self.least_long:
            return found
        is_long = self.longest[beams.owners] <= beams.depth
        late = np.flatnonzero(is_long & (beams.totals.max(axis=1) > -np.inf))
        if not len(late):
            return found
        held = beams.totals.shape[1]
        rows = held * late[:, None] + np.arange(held)
        there = torch.from_numpy(rows).to(said.device)
        own, allowed = (each[there, self.end].double().cpu().numpy() for each in (said, left))
        if (own == -np.inf).any():
            raise endless(beams.depth)
        # Where rules forbid the end, too, it is all that is left.
        totals = beams.totals[late] + np.where(allowed > -np.inf, allowed, own)
        count = found.totals.shape[1]
        return found.replaced(late, ends(totals, own, rows, end=self.end, count=count))


def take_out_least(rules: Sequence[Rule]) -> tuple[Sequence[Rule], AtLeast | None]:
    """Take out the one rule that bounds keep to by themselves, if it is the only one.

    Beside others it stays: where all of them together leave nothing, the end is left.
    """
    if len(rules) == 1 and isinstance(rules[0], AtLeast):
        return (), rules[0]
    return rules, None
