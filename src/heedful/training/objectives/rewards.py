"""Rewards: how good is one output, held against its reference?

A reward looks at tokens, as the run's own tokenizer cuts them and without begin and end. Laws: it
lies between 0 and 1; an output equal to its reference gets 1, an empty one included; one that has
no token in common with it gets 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

RewardName = Literal["bleu", "gleu"]
Reward = Callable[[Sequence[int], Sequence[int]], float]
"""Of an output and its reference."""

_LONGEST = 4  # tokens in a row that are compared, in both papers


def gleu(output: Sequence[int], reference: Sequence[int]) -> float:
    """min(precision, recall) of all runs of 1 to 4 tokens together  (Wu et al. 2016, section 5)."""
    said, wanted = _runs(output), _runs(reference)
    longer = max(sum(map(len, said)), sum(map(len, wanted)))
    return sum(map(_matching, said, wanted)) / longer if longer else 1.0


def sentence_bleu(output: Sequence[int], reference: Sequence[int]) -> float:
    """min(1, exp(1 - r / c)) * (p_1 p_2 p_3 p_4)^(1/4)  (Papineni et al. 2002, section 2.3).

    Of one sentence a precision is easily 0, so to those of two tokens and more one is added above
    and below (Lin & Och 2004, section 4).
    """
    if not output or not reference:
        return float(len(output) == len(reference))
    logarithms = 0.0
    for added, said, wanted in zip((0, 1, 1, 1), _runs(output), _runs(reference), strict=True):
        matching = _matching(said, wanted) + added
        if not matching:
            return 0.0
        logarithms += math.log(matching / (len(said) + added))
    brevity = min(0.0, 1 - len(reference) / len(output))
    return math.exp(brevity + logarithms / _LONGEST)


REWARDS: Mapping[RewardName, Reward] = {"bleu": sentence_bleu, "gleu": gleu}


def _runs(tokens: Sequence[int]) -> list[list[tuple[int, ...]]]:
    """List the runs of 1, of 2, of 3 and of 4 tokens."""
    shifted = [tokens[first:] for first in range(_LONGEST)]
    return [list(zip(*shifted[:length], strict=False)) for length in range(1, _LONGEST + 1)]


def _matching(said: Iterable[object], wanted: Iterable[object]) -> int:
    """Count what is in both, each as often as in the one that has fewer of it."""
    left = Counter(wanted)
    found = 0
    for run in said:
        if left.get(run, 0):
            left[run] -= 1
            found += 1
    return found
