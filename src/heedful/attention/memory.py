"""Inputs of attention: the memory and its mask, and the state after earlier queries.

Modules keep none of them: a decoder passes the `AttentionState` of one step to the next, and beam
search reorders its rows. Masks are Boolean, True where a query may attend, as in
`scaled_dot_product_attention` (`nn.MultiheadAttention` uses the opposite). Those of this file have
three dimensions, combine with `&` and `|` and broadcast: `padding_mask(lengths, 9) &
causal_mask(9)` is (B, 9, 9). Invariant: the number of dimensions of a mask decides what they
mean, never their sizes.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from heedful.errors import ArgumentError
from heedful.shapes import AnyMask, Bool, Float, Int, Lengths, Mask, PerPosition, Values

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


def broadcast_mask(
    mask: AnyMask,
    batch: Sequence[int],
    num_keys: int,
    num_queries: int | None = None,
    *,
    device: Device = None,
) -> Mask:
    """Return a mask as (*B, T or 1, S), or raise ArgumentError; `num_queries` is None if unknown.

    None masks nothing; (*B, S) is the same for all queries; dimensions of T and *B may be 1.
    """
    if mask is None:
        return torch.ones(*(1 for _ in batch), 1, num_keys, dtype=torch.bool, device=device)
    _check_boolean(mask)
    expanded = mask.unsqueeze(-2) if mask.dim() == len(batch) + 1 else mask
    if expanded.dim() == len(batch) + 2 and expanded.size(-1) == num_keys:
        pairs = zip(expanded.shape, (*batch, num_queries or expanded.size(-2)), strict=False)
        if all(size in (1, expected) for size, expected in pairs):
            return expanded
    message = f"has shape {_format_shape(*mask.shape)}, but must have "
    message += f"{_format_shape(*batch, num_keys)}, or, if it differs between queries, "
    message += _format_shape(*batch, num_queries or "T", num_keys)
    hint = "a mask (T, S) for all rows needs a batch dimension: mask.unsqueeze(0)"
    raise ArgumentError("mask", message, hint)


def check_padding_mask(mask: AnyMask, values: Values) -> Bool[Tensor, "*B S"]:
    """Return a mask of the positions of `values`, or raise ArgumentError; None masks nothing."""
    if mask is None:
        return torch.ones(values.shape[:-1], dtype=torch.bool, device=values.device)
    _check_boolean(mask)
    if mask.shape != values.shape[:-1]:
        message = f"has shape {_format_shape(*mask.shape)}, but states of shape "
        message += f"{_format_shape(*values.shape)} need {_format_shape(*values.shape[:-1])}"
        raise ArgumentError("mask", message, "give one Boolean for each position")
    return mask


def _check_boolean(mask: Tensor) -> None:
    if mask.dtype != torch.bool:
        message = f"has dtype {mask.dtype}, but must be Boolean, True where a query may attend: "
        message += "numbers may be summands of scores, factors of weights, or mark padding"
        hint = "pass mask == 0 for summands (0 and -inf) or marked padding, mask != 0 for factors"
        raise ArgumentError("mask", message, hint)


def _format_shape(*sizes: int | str) -> str:
    return f"({', '.join(map(str, sizes))}{',' * (len(sizes) == 1)})"


def padding_mask(lengths: Lengths, size: int) -> Bool[Tensor, "B 1 S"]:
    """Mask positions at or after the length of each sequence."""
    positions = torch.arange(size, device=lengths.device)
    return (positions < lengths[:, None])[:, None, :]


def causal_mask(size: int, *, device: Device = None) -> Bool[Tensor, "1 S S"]:
    """Mask positions after the query."""
    return torch.ones(1, size, size, dtype=torch.bool, device=device).tril()


def window_mask(size: int, half_width: int, *, device: Device = None) -> Bool[Tensor, "1 S S"]:
    """Mask positions more than `half_width` before or after the query."""
    positions = torch.arange(size, device=device)
    return (positions[None, :, None] - positions).abs() <= half_width


def block_local_mask(size: int, block_size: int, *, device: Device = None) -> Bool[Tensor, "1 S S"]:
    """Mask positions outside the block of the query (Liu et al. 2018)."""
    blocks = torch.arange(size, device=device) // block_size
    return blocks[None, :, None] == blocks


def prefix_mask(size: int, prefix_lengths: Lengths) -> Bool[Tensor, "B 1 S"]:
    """Mask all but the prefix; `| causal_mask(size)` gives the mask of a prefix language model."""
    return padding_mask(prefix_lengths, size)


def document_mask(document_ids: Int[Tensor, "B S"]) -> Bool[Tensor, "B S S"]:
    """Mask other documents, where several share a row."""
    return document_ids[:, :, None] == document_ids[:, None, :]
