"""Choosing: which candidates of a beam end, which stay open?

Those that end are put aside if they are among the best `width` of their bank; of the others the
beam is dealt out, bank by bank in turn, the best of each first. Where beams of a sentence come in
groups, they choose one after another, and each is shown how often a token was chosen before.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ConfigError
from heedful.search.candidates import Candidates


class Diversity(NamedTuple):
    """Groups of hypotheses that avoid one another (Vijayakumar et al. 2018, section 4).

    A group ranks by log P - strength * (how many hypotheses of earlier groups chose the token at
    this step); what a hypothesis is worth stays log P. One group is a plain beam.
    """

    groups: int = 1
    strength: float = 0.5

    def share(self, width: int) -> int:
        """How many hypotheses each group has."""
        if self.groups < 1 or width % self.groups:
            raise ConfigError(
                "diversity.groups",
                f"a beam of {width} cannot be shared by {self.groups} groups",
                "choose a number of groups that divides the width",
            )
        return width // self.groups


class Chosen(NamedTuple):
    """What became of the candidates of some beams."""

    candidates: Candidates
    ends: NDArray[np.bool_]  # (beams, C) those that end and are put aside
    opens: NDArray[np.int64]  # (beams, K) places of those that stay open
    totals: NDArray[np.float64]  # (beams, K) of these; -inf where there is none


def choose(candidates: Candidates, *, end: int, width: int) -> Chosen:
    """Deal out the beams among candidates in the order they stand."""
    is_real = candidates.totals > -np.inf
    is_end = is_real & (candidates.tokens == end)
    is_open = is_real & ~is_end
    if candidates.missing.any():
        ranks, turns = _ranks(candidates.missing, is_real), _ranks(candidates.missing, is_open)
        opens = np.lexsort((candidates.missing, turns, ~is_open))[:, :width]
    else:
        ranks = np.arange(is_real.shape[1])
        opens = np.argsort(~is_open, axis=1, kind="stable")[:, :width]
    totals = np.where(is_open, candidates.totals, -np.inf)
    beams = np.arange(len(opens))[:, None]
    return Chosen(candidates, is_end & (ranks < width), opens, totals[beams, opens])


def avoid(
    candidates: Candidates,
    sentences: NDArray[np.int64],
    chosen: list[Counter[int]],
    strength: float,
) -> Candidates:
    """Order candidates by what they are worth to a group that knows what others chose."""
    counts = [
        [chosen[sentence][token] for token in tokens]
        for sentence, tokens in zip(sentences.tolist(), candidates.tokens.tolist(), strict=True)
    ]
    cost = strength * np.array(counts, dtype=np.float64).reshape(candidates.totals.shape)
    order = np.argsort(cost - candidates.totals, axis=1, kind="stable")
    return candidates.ordered(order)


def note(chosen: list[Counter[int]], sentences: NDArray[np.int64], made: Chosen) -> None:
    """Count the tokens that a group has chosen."""
    for beam, sentence in enumerate(sentences.tolist()):
        tokens = made.candidates.tokens[beam]
        chosen[sentence].update(tokens[made.ends[beam]].tolist())
        chosen[sentence].update(tokens[made.opens[beam]][made.totals[beam] > -np.inf].tolist())


def _ranks(banks: NDArray[np.int64], counts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many that count stand before each in its own bank."""
    is_before = np.tri(banks.shape[1], k=-1, dtype=bool)
    same = banks[:, :, None] == banks[:, None, :]
    return (same & is_before & counts[:, None, :]).sum(axis=-1)
