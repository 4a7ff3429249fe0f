""""""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.shapes import Bool, Float, Int


class AlignmentOutput(NamedTuple):
    """Where attention went, and what the mechanism knows of how it got there."""

    weights: Float[Tensor, "*B T S"]
    probabilities: Float[Tensor, "*B T S"] | None = None  # what places were chosen from
    log_probs: Float[Tensor, "*B T"] | None = None  # of the places sampled; zero where none was
    baselines: Float[Tensor, "*B T"] | None = None  # what reward was expected before sampling
    boundaries: Float[Tensor, "*B T S"] | None = None  # where a monotonic pointer stopped
    centers: Float[Tensor, "*B T"] | None = None  # the place in the middle of a window

    @property
    def pointers(self) -> Float[Tensor, "*B T S"]:
        """Where the next query begins to look, if it begins where this one ended."""
        return self.weights if self.boundaries is None else self.boundaries


class AlignmentLossInputs(NamedTuple):
    """Where attention went for whole targets, and what came of it."""

    alignment: AlignmentOutput
    log_likelihoods: Float[Tensor, "*B T"]  # of the tokens that were to be said
    target_mask: Bool[Tensor, "*B T"]  # which of them are there, and not padding
    source_mask: Bool[Tensor, "*B S"]  # which places of the source are


def concat_alignments(parts: Sequence[AlignmentOutput]) -> AlignmentOutput:
    """Put together what was found for queries that were asked one after the other."""
    first = parts[0]
    merged = {}
    for name, example in first._asdict().items():
        if example is not None:
            axis = first.weights.dim() - 2  # that of the queries, the same in every field
            merged[name] = torch.cat([getattr(part, name) for part in parts], dim=axis)
    return AlignmentOutput(**merged)


# The past: what a mechanism has asked so far.
#
# It is a value: it goes in with the next queries and comes out with what they found. A decoder
# carries it from step to step, and a search selects its rows like those of any other state.


class AttentionState(NamedTuple):
    """What has been asked so far, and where it was looked."""

    num_queries: Int[Tensor, "*B"]  # how many queries
    last_weights: Float[Tensor, "*B S"]  # where the last one looked; zeros before the first
    coverage: Float[Tensor, "*B S"]  # where all of them looked, added up: the coverage
    last_context: Float[Tensor, "*B V"]  # what the last one took; zeros before the first
    uniform_sample: Float[
        Tensor, "*B"
    ]  # between 0 and 1, drawn once per source: decides once and for all


def query_positions(
    state: AttentionState | None, count: int, device: torch.device
) -> Int[Tensor, "*B T"]:
    """Number the next queries, the first ever asked being 0."""
    offsets = torch.arange(count, device=device)
    return offsets if state is None else state.num_queries.unsqueeze(-1) + offsets


# One tensor (*B, S, A), or a nested tuple of them where several scores prepare keys.
PreparedKeys = Any


class Memory(NamedTuple):
    """What can be attended to, made ready once per source."""

    values: Float[Tensor, "*B S V"]
    keys: PreparedKeys  # already passed through Score.prepare
    mask: Bool[Tensor, "*B #T S"]


class AttentionOutput(NamedTuple):
    """What attention found, and where it looked."""

    context: Float[Tensor, "*B T V"] | Float[Tensor, "*B T S V"]  # the latter if per position
    weights: Float[Tensor, "*B T S"] | None  # with many heads, their mean; None if not needed
    alignment: (
        AlignmentOutput | None
    )  # all that is known of where it looked; with many heads, of each
    state: AttentionState | None  # for the next queries to go on from; None where none came in
