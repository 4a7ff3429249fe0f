"""Alignments: from scores to weights over the memory.

An alignment obeys two laws, tested for every class here: weights are zero wherever the mask is
False, and a row sums to one unless all of it is hidden, when it is all zero. Two keep less than
one by their papers' will, and say so: `leaks`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from heedful.attention.past import Past
from heedful.shapes import Bool, Float


class Aligned(NamedTuple):
    """Where attention went, and what the mechanism knows of how it got there."""

    weights: Float[Tensor, "*B T S"]
    probabilities: Float[Tensor, "*B T S"] | None = None  # what places were chosen from
    log_probs: Float[Tensor, "*B T"] | None = None  # of the places sampled; zero where none was
    baselines: Float[Tensor, "*B T"] | None = None  # what reward was expected before sampling
    boundaries: Float[Tensor, "*B T S"] | None = None  # where a monotonic pointer stopped
    centres: Float[Tensor, "*B T"] | None = None  # the place in the middle of a window

    @property
    def pointers(self) -> Float[Tensor, "*B T S"]:
        """Where the next query begins to look, if it begins where this one ended."""
        return self.weights if self.boundaries is None else self.boundaries


class Looked(NamedTuple):
    """Where attention went for whole targets, and what came of it."""

    aligned: Aligned
    log_likelihoods: Float[Tensor, "*B T"]  # of the tokens that were to be said
    real: Bool[Tensor, "*B T"]  # which of them are there, and not padding
    visible: Bool[Tensor, "*B S"]  # which places of the source are


def join(parts: Sequence[Aligned]) -> Aligned:
    """Put together what was found for queries that were asked one after the other."""
    first = parts[0]
    joined = {}
    for name, example in first._asdict().items():
        if example is not None:
            axis = first.weights.dim() - 2  # that of the queries, the same in every field
            joined[name] = torch.cat([getattr(part, name) for part in parts], dim=axis)
    return Aligned(**joined)


class Alignment(nn.Module, ABC):
    """Where attention goes, given how strongly each place calls."""

    leaks = False
    """Whether a row may sum to less than one."""

    @abstractmethod
    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        past: Past | None = None,
    ) -> Aligned:
        """Share one unit of attention among the visible places.

        Several queries are answered in their order, as if they were asked one by one. No past
        means that these are the first.
        """

    def penalise(self, looked: Looked) -> dict[str, Float[Tensor, ""]]:
        """Say, by name, what is added to the loss so that this alignment can learn.

        Each is a sum over the real targets of the batch. An alignment that gradients pass
        through needs none.
        """
        return {}


class Sharing(Alignment):
    """An alignment that a row of scores decides by itself."""

    @abstractmethod
    def share(
        self, scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
    ) -> Float[Tensor, "*B T S"]:
        """Share one unit of attention among the visible places."""

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        past: Past | None = None,
    ) -> Aligned:
        """Share one unit of attention among the visible places."""
        return Aligned(self.share(scores, mask))


class Softmax(Sharing):
    """exp(score / temperature) / sum of the same over the visible places.

    A temperature below one sharpens the weights, one above it evens them out.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        assert temperature > 0, temperature
        self.temperature = temperature

    def share(
        self, scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
    ) -> Float[Tensor, "*B T S"]:
        """Share one unit of attention among the visible places."""
        # Hide after dividing: a low temperature would make finfo.min infinite.
        return hide(scores / self.temperature, mask).softmax(dim=-1) * mask


def hide(
    scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
) -> Float[Tensor, "*B T S"]:
    """Give the hidden places the least score there is."""
    # finfo.min, not -inf: a fully hidden row must give zeros, in value and in gradient,
    # and a NaN in the scores must stay visible rather than be mistaken for one.
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
