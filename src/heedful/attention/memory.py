"""Inputs of attention: the memory, and the state after earlier queries.

Modules keep neither: a decoder passes the `AttentionState` of one step to the next, and beam search
reorders its rows.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from heedful.shapes import Bool, Float, Int, PerPosition, Values

# One tensor (*B, S, A), or a nested tuple of them where several scores prepare keys.
PreparedKeys = Any


class Memory(NamedTuple):
    """Values and keys to attend to, prepared once per source."""

    values: Values
    keys: PreparedKeys  # the output of ScoreFunction.prepare_keys
    mask: Bool[Tensor, "*B #T S"]


class AttentionState(NamedTuple):
    """Summary of the queries so far, per row; part of the decoder state. None: there were none."""

    num_queries: Int[Tensor, "*B"]
    last_weights: PerPosition  # `AlignmentOutput.pointers` of the last query; zeros first
    coverage: PerPosition  # sum of the weights of all queries
    last_context: Float[Tensor, "*B V"]  # zeros before the first query
    uniform_sample: Float[Tensor, "*B"]  # in [0, 1), drawn once per source


def query_positions(
    state: AttentionState | None, count: int, device: torch.device
) -> Int[Tensor, "*B T"]:
    """Return the positions of the next `count` queries; the first query has position 0."""
    offsets = torch.arange(count, device=device)
    return offsets if state is None else state.num_queries.unsqueeze(-1) + offsets
