"""Masks: what may be seen?

A mask is a Boolean tensor, True where a query may look. Masks combine with `&` and `|`, and those
that are the same for a whole batch broadcast: `padding_mask(lengths, 9) & causal_mask(9)` is (B, 9, 9).
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.shapes import Bool, Int


def padding_mask(lengths: Int[Tensor, "B"], size: int) -> Bool[Tensor, "B 1 S"]:
    """Hide what lies beyond each sequence's end."""
    positions = torch.arange(size, device=lengths.device)
    return (positions < lengths[:, None])[:, None, :]


def causal_mask(size: int, *, device: torch.device | None = None) -> Bool[Tensor, "S S"]:
    """Hide the future: each position sees itself and what came before."""
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()


def window_mask(
    size: int, half_width: int, *, device: torch.device | None = None
) -> Bool[Tensor, "S S"]:
    """Hide what is more than `reach` positions away, before or after."""
    positions = torch.arange(size, device=device)
    return (positions[:, None] - positions).abs() <= half_width


def block_local_mask(
    size: int, block_size: int, *, device: torch.device | None = None
) -> Bool[Tensor, "S S"]:
    """Hide what lies outside a position's own block of `block_size` positions (Liu et al. 2018)."""
    blocks = torch.arange(size, device=device) // block_size
    return blocks[:, None] == blocks


def prefix_mask(size: int, prefix_lengths: Int[Tensor, "B"]) -> Bool[Tensor, "B 1 S"]:
    """Show everyone the first positions; with `| causal_mask(size)`, a prefix language model's mask."""
    return padding_mask(prefix_lengths, size)


def document_mask(document_ids: Int[Tensor, "B S"]) -> Bool[Tensor, "B S S"]:
    """Hide other documents, where several are packed into one row; `ids` says which is where."""
    return document_ids[:, :, None] == document_ids[:, None, :]
