"""Attention masks: Boolean, True where a query may attend.

As in `scaled_dot_product_attention`; `nn.MultiheadAttention` uses the opposite. The masks built
here have three dimensions, combine with `&` and `|` and broadcast: `padding_mask(lengths, 9) &
causal_mask(9)` is (B, 9, 9). Invariant: the number of dimensions of a mask decides what they
mean, never their sizes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.errors import ArgumentError
from heedful.shapes import AnyMask, Bool, Int, Lengths, Mask, Values

Device = torch.device | None


def padding_mask(lengths: Lengths, size: int) -> Bool[Tensor, "B 1 S"]:
    """Mask positions at or after the length of each sequence."""
    positions = torch.arange(size, device=lengths.device)
    return (positions < lengths[:, None])[:, None, :]


def causal_mask(
    size: int, query_positions: Int[Tensor, "#B T"] | None = None, *, device: Device = None
) -> Bool[Tensor, "#B T S"]:
    """Mask keys after the query; without positions, there is one query per key."""
    keys, queries = _positions(size, query_positions, device)
    return keys <= queries


def block_local_mask(
    size: int,
    block_size: int,
    query_positions: Int[Tensor, "#B T"] | None = None,
    *,
    device: Device = None,
) -> Bool[Tensor, "#B T S"]:
    """Mask keys outside the block of the query (Liu et al. 2018)."""
    keys, queries = _positions(size, query_positions, device)
    return keys // block_size == queries // block_size


def _positions(
    size: int, query_positions: Int[Tensor, "#B T"] | None, device: Device
) -> tuple[Int[Tensor, "S"], Int[Tensor, "#B T 1"]]:
    if query_positions is not None:
        device = query_positions.device
    keys = torch.arange(size, device=device)
    queries = keys.unsqueeze(0) if query_positions is None else query_positions
    return keys, queries.unsqueeze(-1)


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
