"""Masks: what may be seen?

A mask is a Boolean tensor, True where a query may look. Masks combine with `&` and `|`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.shapes import Bool, Int


def padding(lengths: Int[Tensor, "B"], size: int) -> Bool[Tensor, "B 1 S"]:
    """Hide what lies beyond each sequence's end."""
    positions = torch.arange(size, device=lengths.device)
    return (positions < lengths[:, None])[:, None, :]
