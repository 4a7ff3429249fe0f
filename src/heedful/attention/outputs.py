"""The values that attention takes and returns: memory, state, alignment and output.

All are NamedTuples of tensors with the batch dimensions first. Modules keep none of them: a decoder
passes the `AttentionState` of one step to the next, and beam search reorders its rows like those
of any other state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.shapes import Bool, Context, Float, Int, PerQuery, TargetMask, Values, Weights

# One tensor (*B, S, A), or a nested tuple of them where several scores prepare keys.
PreparedKeys = Any


class Memory(NamedTuple):
    """Values and keys to attend to, prepared once per source."""

    values: Values
    keys: PreparedKeys  # the output of ScoreFunction.prepare_keys
    mask: Bool[Tensor, "*B #T S"]


class AttentionState(NamedTuple):
    """Summary of the queries so far, per row; part of the decoder state."""

    num_queries: Int[Tensor, "*B"]
    last_weights: Float[Tensor, "*B S"]  # `AlignmentOutput.pointers` of the last query; zeros first
    coverage: Float[Tensor, "*B S"]  # sum of the weights of all queries
    last_context: Float[Tensor, "*B V"]  # zeros before the first query
    uniform_sample: Float[Tensor, "*B"]  # in [0, 1), drawn once per source


def query_positions(
    state: AttentionState | None, count: int, device: torch.device
) -> Int[Tensor, "*B T"]:
    """Return the positions of the next `count` queries; the first query has position 0."""
    offsets = torch.arange(count, device=device)
    return offsets if state is None else state.num_queries.unsqueeze(-1) + offsets


class AlignmentOutput(NamedTuple):
    """Attention weights, and the quantities of the mechanism that produced them."""

    weights: Weights
    probabilities: Weights | None = None  # the distribution that hard attention chose from
    log_probs: PerQuery | None = None  # of the sampled positions; zero where none was sampled
    baselines: PerQuery | None = None  # expected reward before sampling (REINFORCE)
    boundaries: Weights | None = None  # where a monotonic pointer stopped
    centers: PerQuery | None = None  # center of the window, as a position

    @property
    def pointers(self) -> Weights:
        """The start of the next query under monotonic alignment: boundaries, else weights."""
        return self.weights if self.boundaries is None else self.boundaries


def concat_alignments(parts: Sequence[AlignmentOutput]) -> AlignmentOutput:
    """Concatenate the alignments of consecutive queries along the query dimension."""
    first = parts[0]
    query_dim = first.weights.dim() - 2  # the same in every field
    merged = {
        name: torch.cat([getattr(part, name) for part in parts], dim=query_dim)
        for name, field in first._asdict().items()
        if field is not None
    }
    return AlignmentOutput(**merged)


class AttentionOutput(NamedTuple):
    """Output of one attention call."""

    context: Context | Float[Tensor, "*B T S V"]  # the latter from PerPositionReadout
    weights: Weights | None  # the mean over heads; None if not needed
    alignment: AlignmentOutput | None  # with several heads, of every head
    state: AttentionState | None  # for the next queries; None if no state was passed in


class AlignmentLossInputs(NamedTuple):
    """What auxiliary losses are computed from, for whole targets."""

    alignment: AlignmentOutput
    log_likelihoods: PerQuery  # of the target tokens
    target_mask: TargetMask
    source_mask: Bool[Tensor, "*B S"]
