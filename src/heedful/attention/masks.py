"""Attention masks: Boolean tensors, True where a query may attend.

Masks combine with `&` and `|` and broadcast over the batch: `padding_mask(lengths, 9) &
causal_mask(9)` is (B, 9, 9). The meaning is that of `scaled_dot_product_attention`;
`nn.MultiheadAttention` uses the opposite.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.shapes import Bool, Int, Lengths


def padding_mask(lengths: Lengths, size: int) -> Bool[Tensor, "B 1 S"]:
    """Mask positions at or after the length of each sequence."""
    positions = torch.arange(size, device=lengths.device)
    return (positions < lengths[:, None])[:, None, :]


def causal_mask(size: int, *, device: torch.device | None = None) -> Bool[Tensor, "S S"]:
    """Mask positions after the query."""
    return torch.ones(size, size, dtype=torch.bool, device=device).tril()


def window_mask(
    size: int, half_width: int, *, device: torch.device | None = None
) -> Bool[Tensor, "S S"]:
    """Mask positions more than `half_width` before or after the query."""
    positions = torch.arange(size, device=device)
    return (positions[:, None] - positions).abs() <= half_width


def block_local_mask(
    size: int, block_size: int, *, device: torch.device | None = None
) -> Bool[Tensor, "S S"]:
    """Mask positions outside the block of the query (Liu et al. 2018)."""
    blocks = torch.arange(size, device=device) // block_size
    return blocks[:, None] == blocks


def prefix_mask(size: int, prefix_lengths: Lengths) -> Bool[Tensor, "B 1 S"]:
    """Mask all but the prefix; `| causal_mask(size)` gives the mask of a prefix language model."""
    return padding_mask(prefix_lengths, size)


def document_mask(document_ids: Int[Tensor, "B S"]) -> Bool[Tensor, "B S S"]:
    """Mask other documents, where several share a row."""
    return document_ids[:, :, None] == document_ids[:, None, :]
