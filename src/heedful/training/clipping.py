"""Clipping: how large may a gradient be?

Law: afterwards no number lies further from zero than `max_value` and the whole is no longer than
`max_norm`; what was within both is unchanged. A gradient that is not finite is left as it is, so
that it can be said where it came from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from heedful.shapes import Float


class Clipping(NamedTuple):
    """Keeps each number of a gradient, and then its length, within bounds.

    The numbers first: g = min(max(g, -max_value), max_value). Then, if what is left of it is too
    long, it is shortened: g = g max_norm / |g|  (Pascanu et al. 2013, algorithm 1).
    """

    max_norm: float | None = None
    max_value: float | None = None

    def __call__(self, weights: Sequence[nn.Parameter]) -> Float[Tensor, ""]:
        """Clip the gradients of weights; give the norm they had before."""
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        norm = _norm(gradients)
        # Nothing here asks a GPU for an answer: a bound that is infinite changes nothing.
        is_sound = norm.isfinite()
        if self.max_value is not None:
            bound = torch.where(is_sound, self.max_value, torch.inf)
            for gradient in gradients:
                gradient.clamp_(-bound, bound)
        if self.max_norm is not None and gradients:
            left = norm if self.max_value is None else _norm(gradients)
            share = torch.where(is_sound, (self.max_norm / left).clamp(max=1), 1)
            torch._foreach_mul_(gradients, share)
        return norm


@torch.no_grad()
def _norm(gradients: Sequence[Tensor]) -> Float[Tensor, ""]:
    norm = get_total_norm(list(gradients))
    # Each rank holds a part of a sharded gradient, and of its norm.
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm
