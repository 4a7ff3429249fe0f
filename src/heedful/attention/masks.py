"""Masks: what may be seen?

A mask is a Boolean tensor, True where a query may look. Masks combine with `&` and `|`, and those
that are the same for a whole batch broadcast: `padding(lengths, 9) & causal(9)` is (B, 9, 9).
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.shapes import Bool, Int


def padding(lengths: Int[Tensor, "B"], size: int) -> Bool[Tensor, "B 1 S"]:
    """Hide what lies beyond each sequence's end."""
    positions = torch.arange(size, device=lengths.device)
    return (positions < lengths[:, None])[:, None, :]


def causal(size: int, *, device: torch.device | None = None) -> Bool[Tensor, "S S"]:
    """Hide the future: each position sees itself and what came before."""
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()


def window(size: int, reach: int, *, device: torch.device | None = None) -> Bool[Tensor, "S S"]:
    """Hide what is more than `reach` positions away, before or after."""
    positions = torch.arange(size, device=device)
    return (positions[:, None] - positions).abs() <= reach


def block_local(
    size: int, block: int, *, device: torch.device | None = None
) -> Bool[Tensor, "S S"]:
    """Hide what lies outside a position's own block of `block` positions (Liu et al. 2018)."""
    blocks = torch.arange(size, device=device) // block
    return blocks[:, None] == blocks


def prefix(size: int, prefix_lengths: Int[Tensor, "B"]) -> Bool[Tensor, "B 1 S"]:
    """Show everyone the first positions; with `| causal(size)`, a prefix language model's mask."""
    return padding(prefix_lengths, size)


def documents(ids: Int[Tensor, "B S"]) -> Bool[Tensor, "B S S"]:
    """Hide other documents, where several are packed into one row; `ids` says which is where."""
    return ids[:, :, None] == ids[:, None, :]
