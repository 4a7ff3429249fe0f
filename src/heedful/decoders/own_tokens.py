"""Own tokens: which token does a decoder go on from, where it is not told all of them?

Scheduled sampling (Bengio et al. 2015): each token after the first is the known one with a
probability, the teacher's share, and otherwise the decoder's own, drawn as it finds tokens likely
or the likeliest. No gradient passes through it.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from heedful.search.protocol import State, Steps
from heedful.shapes import Float, Int

Own = Literal["drawn", "likeliest"]


def step_by_step(
    model: Steps[State], tokens: Int[Tensor, "B T"], state: State, teacher_share: float, own: Own
) -> tuple[Float[Tensor, "B T N"], Float[Tensor, "B T S"]]:
    """Read a target of which some tokens are the model's own.

    Gives how likely each token was at every step, and where the model looked.
    """
    said, weights = list[Tensor](), list[Tensor]()
    for known in tokens.unbind(dim=1):
        taken = next_token(known, said[-1] if said else None, teacher_share, own)
        step = model.step(taken, state)
        state = step.state
        said.append(step.log_probs)
        weights.append(step.weights)
    return torch.stack(said, dim=1), torch.stack(weights, dim=1)


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
