"""Own tokens: which token does a decoder go on from, where it is not told all of them?

Scheduled sampling (Bengio et al. 2015): each token after the first is the known one with a
probability, the teacher's share, and otherwise the decoder's own, drawn as it finds tokens likely
or the likeliest. No gradient passes through it.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from heedful.shapes import Float, Int

Own = Literal["drawn", "likeliest"]


def next_token(
    known: Int[Tensor, "B"], said: Float[Tensor, "B N"] | None, teacher_share: float, own: Own
) -> Int[Tensor, "B"]:
    """Take the known token or the decoder's own, if it has said anything yet."""
    if said is None:
        return known
    chosen = choose(said.detach(), own)
    is_known = torch.rand(known.shape, device=known.device) < teacher_share
    return torch.where(is_known, known, chosen)


def choose(log_probs: Float[Tensor, "B N"], own: Own) -> Int[Tensor, "B"]:
    """Choose the tokens that the decoder itself would say."""
    if own == "likeliest":
        return log_probs.argmax(dim=-1)
    # A race of exponential clocks, not torch.multinomial, which ends a process on a GPU when it
    # meets NaN: the loss is to show it, with the step it came from.
    return (log_probs - torch.empty_like(log_probs).exponential_().log()).argmax(dim=-1)
