"""Lengths: how short and how long may an output be?

Lengths count tokens without begin and end symbols, one number for each sentence; `by_ratio` makes
them from the lengths of sources.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.errors import ConfigError, RunError
from heedful.search.rules import Rule
from heedful.shapes import Float, Int


def by_ratio(lengths: Int[Tensor, "B"], ratio: float, extra: int = 0) -> Int[Tensor, "B"]:
    """So many tokens for each of the source, rounded down, and some on top."""
    return (lengths * ratio + extra).long()


class AtLeast(Rule):
    """No output ends before it has so many tokens."""

    def __init__(self, lengths: Int[Tensor, "B"], *, end: int) -> None:
        self.lengths = lengths
        self.end = end
        self._most = int(lengths.max()) if len(lengths) else 0

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        written: Int[Tensor, "R T"],
        sentences: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Forbid the end to what is too short."""
        if written.size(1) >= self._most:
            return log_probs
        log_probs = log_probs.clone()
        log_probs[:, self.end].masked_fill_(written.size(1) < self.lengths[sentences], -torch.inf)
        return log_probs

    def refuse(self, limits: Sequence[int]) -> None:
        """What is shortest cannot be longer than what is longest."""
        for number, (least, most) in enumerate(zip(self.lengths.tolist(), limits, strict=True)):
            if least > most:
                raise ConfigError(
                    f"lengths of sentence {number + 1}",
                    f"its output must have at least {least} tokens and may have {most}",
                    "lower the least length, or raise the longest",
                )


class AtMost(Rule):
    """Every output that has so many tokens ends."""

    is_binding = True

    def __init__(self, lengths: Int[Tensor, "B"], *, end: int) -> None:
        self.lengths = lengths
        self.end = end
        self._least = int(lengths.min()) if len(lengths) else 0

    def apply(
        self,
        log_probs: Float[Tensor, "R N"],
        written: Int[Tensor, "R T"],
        sentences: Int[Tensor, "R"],
    ) -> Float[Tensor, "R N"]:
        """Forbid all but the end to what is long enough."""
        if written.size(1) < self._least:
            return log_probs
        rows = (written.size(1) >= self.lengths[sentences]).nonzero().flatten()
        if not len(rows):
            return log_probs
        log_probs, ends = log_probs.clone(), log_probs[rows, self.end]
        if (ends == -torch.inf).any():
            raise endless(written.size(1))
        log_probs[rows] = -torch.inf  # a mask over the whole vocabulary takes seven times as long
        log_probs[rows, self.end] = ends
        return log_probs


def endless(length: int) -> RunError:
    """Name a model that would go on for ever."""
    return RunError(
        "search",
        f"the model rules out that an output ends after {length} tokens, the most it may have",
        "let outputs be longer, or use another checkpoint",
    )
