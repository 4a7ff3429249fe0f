"""Residual sublayers: what goes past a change, and where it is normalised.

    after    norm(x + change(x))   (Vaswani et al. 2017: "post-norm")
    before   x + change(norm(x))   (Xiong et al. 2020: "pre-norm"; the last sum wants a norm too)

A sublayer `enter`s, changes what it got, and `leave`s.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from heedful.shapes import Float

Placement = Literal["before", "after"]
NormKind = Literal["layer", "rms"]


def make_norm(kind: NormKind, size: int, *, eps: float) -> nn.Module:
    """Make a norm: of mean and variance (Ba et al. 2016) or of the square alone (Zhang 2019)."""
    return nn.LayerNorm(size, eps=eps) if kind == "layer" else nn.RMSNorm(size, eps=eps)


class Residual(nn.Module):
    """A path past a change, with dropout on what is added.

    With `skipped` above zero a row goes past the change untouched that often in training, and
    what is added to the others counts for more, so that its mean stays (Huang et al. 2016,
    stochastic depth). Rows are drawn one by one: neighbours have no say.
    """

    def __init__(
        self, norm: nn.Module, *, placement: Placement, dropout: float, skipped: float = 0.0
    ) -> None:
        super().__init__()
        self.norm = norm
        self.placement = placement
        self.dropout = nn.Dropout(dropout)
        self.skipped = skipped

    def enter(self, inputs: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        """Give what is to be changed."""
        return self.norm(inputs) if self.placement == "before" else inputs

    def leave(
        self, inputs: Float[Tensor, "*B D"], changed: Float[Tensor, "*B D"]
    ) -> Float[Tensor, "*B D"]:
        """Add what came of it to what went past."""
        outputs = inputs + self._kept(self.dropout(changed))
        return self.norm(outputs) if self.placement == "after" else outputs

    def _kept(self, changed: Float[Tensor, "*B D"]) -> Float[Tensor, "*B D"]:
        if not (self.training and self.skipped):
            return changed
        is_kept = torch.rand(len(changed), 1, 1, device=changed.device) >= self.skipped
        return changed * is_kept / (1 - self.skipped)
