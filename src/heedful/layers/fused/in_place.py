"""In place: what may be overwritten, when nobody else has it?

A table that is made at every step only to be changed once costs its memory twice, and memory for
large tables is had anew each time, page by page. Law: what is given is what changing a copy gives.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heedful.layers.fused.packing import may_pack
from heedful.shapes import Float


def log_softmax(scores: Float[Tensor, "*B N"]) -> Float[Tensor, "*B N"]:
    """Normalise scores that nobody else has, and nobody learns from while weights are at rest."""
    if may_pack(scores):
        return torch.log_softmax(scores, dim=-1, out=scores)
    return scores.log_softmax(dim=-1)


def bend(activation: nn.Module, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N D"]:
    """Bend a hidden layer that nobody else has, and nobody learns from, where that can be done."""
    bent: Tensor = hidden.relu_() if type(activation) is nn.ReLU else activation(hidden)
    return bent
