"""What attention reads: the memory and its mask, and the state that earlier queries left.

Modules keep none of them: a decoder passes the `AttentionState` of one step to the next, and beam
search reorders its rows. Masks are Boolean, True where a query may attend, as in
`scaled_dot_product_attention` (`nn.MultiheadAttention` uses the opposite). They combine with `&`
and `|` and broadcast over the batch: `padding_mask(lengths, 9) & causal_mask(9)` is (B, 9, 9).
"""

from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from heedful.shapes import Bool, Float, Int, Lengths, PerPosition, Values

# One tensor (*B, S, A), or a nested tuple of them where several scores prepare keys.
PreparedKeys = Any
Device = torch.device | None


class Memory(NamedTuple):
    """Values and keys to attend to, prepared once per source."""

    values: Values
    keys: PreparedKeys  # the output of ScoreFunction.prepare_keys
    mask: Bool[Tensor, "*B #T S"]


class AttentionState(NamedTuple):
    """Summary of the queries so far, per row; part of the decoder state."""

    num_queries: Int[Tensor, "*B"]
    last_weights: PerPosition  # `AlignmentOutput.pointers` of the last query; zeros first
    coverage: PerPosition  # sum of the weights of all queries
    last_context: Float[Tensor, "*B V"]  # zeros before the first query
    uniform_sample: Float[Tensor, "*B"]  # in [0, 1), drawn once per source


MaybeState: TypeAlias = AttentionState | None
"""None means that these are the first queries."""


def query_positions(state: MaybeState, count: int, device: torch.device) -> Int[Tensor, "*B T"]:
    """Return the positions of the next `count` queries; the first query has position 0."""
    offsets = torch.arange(count, device=device)
    return offsets if state is None else state.num_queries.unsqueeze(-1) + offsets


def padding_mask(lengths: Lengths, size: int) -> Bool[Tensor, "B 1 S"]:
    """Mask positions at or after the length of each sequence."""
    positions = torch.arange(size, device=lengths.device)
    return (positions < lengths[:, None])[:, None, :]


def causal_mask(size: int, *, device: Device = None) -> Bool[Tensor, "S S"]:
    """Mask positions after the query."""
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()


def window_mask(size: int, half_width: int, *, device: Device = None) -> Bool[Tensor, "S S"]:
    """Mask positions more than `half_width` before or after the query."""
    positions = torch.arange(size, device=device)
    return (positions[:, None] - positions).abs() <= half_width


def block_local_mask(size: int, block_size: int, *, device: Device = None) -> Bool[Tensor, "S S"]:
    """Mask positions outside the block of the query (Liu et al. 2018)."""
    blocks = torch.arange(size, device=device) // block_size
    return blocks[:, None] == blocks


def prefix_mask(size: int, prefix_lengths: Lengths) -> Bool[Tensor, "B 1 S"]:
    """Mask all but the prefix; `| causal_mask(size)` gives the mask of a prefix language model."""
    return padding_mask(prefix_lengths, size)


def document_mask(document_ids: Int[Tensor, "B S"]) -> Bool[Tensor, "B S S"]:
    """Mask other documents, where several share a row."""
    return document_ids[:, :, None] == document_ids[:, None, :]
