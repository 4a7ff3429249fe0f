"""Monotonic alignments: where does a pointer stop that never turns back?

A pointer walks over the places from left to right. At each it stops, which is where attention
goes, or it goes on; the next query sets out from where it stopped. Law: the weights of a place
are the chance that the pointer stops there, so a row sums to less than one by the chance that it
walked off the end. From there nothing brings it back.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from heedful.attention.alignments import Aligned, Alignment, hide
from heedful.attention.past import Past
from heedful.shapes import Bool, Float

Form = Literal["recursive", "parallel"]
AtTest = Literal["hard", "expected"]


class Monotonic(Alignment):
    """p_ij q_ij, q_ij = (1 - p_i,j-1) q_i,j-1 + weights_i-1,j  (Raffel et al. 2017, eqs. 13, 14).

    The chance to stop is p = sigmoid(gain * score + bias + noise * N(0, 1)), the noise in training
    only, where it teaches the pointer to be sure. Gain and bias are learned, the g and r of the
    paper's energy. A bias that begins below zero keeps the pointer from stopping at the first
    places of all; a gain above one makes scores that begin flat count beside the noise. The paper
    also divides the additive score's vector by its length: that is a matter of the score.

    In use the pointer stops at the first place with gain * score + bias above zero, and the weights
    are ones and zeros: `at_test="hard"`; "expected" keeps the chances of training. A row whose
    pointer walked off the end is zeros, and so are those after it. Of those the paper does not
    speak, but so it is in expectation, and what is used should be what was trained.

    The form "recursive" is exact. "parallel" is the paper's own (appendix C.1), which divides by
    the chance to have come so far and loses a pointer for which that chance is below 1e-10: far
    into a long source, or behind a place where it would be foolish not to stop.
    """

    leaks = True

    def __init__(
        self,
        *,
        gain: float = 1.0,
        bias: float = -1.0,
        noise: float = 1.0,
        form: Form = "recursive",
        at_test: AtTest = "hard",
    ) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(float(gain)))
        self.bias = nn.Parameter(torch.tensor(float(bias)))
        self.noise = noise
        self.form = form
        self.at_test = at_test

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        past: Past | None = None,
    ) -> Aligned:
        """Walk on for every query, from where the one before it stopped."""
        # Emptied before, so that the gain does not learn from hidden places; hidden after, since
        # a gain below one would raise the least number there is.
        energies = hide(self._energies(scores.masked_fill(~mask, 0)), mask)
        if self.training or self.at_test == "expected":
            stop, go = energies.sigmoid(), (-energies).sigmoid()
            walk_on = walk if self.form == "recursive" else _walk_in_parallel
        else:
            stop = torch.where(energies.isnan(), energies, (energies > 0).to(energies.dtype))
            go, walk_on = 1 - stop, walk
        pointers = setting_out(energies, past)
        weights = []
        for stop_here, go_on in zip(stop.unbind(dim=-2), go.unbind(dim=-2), strict=True):
            pointers = walk_on(pointers, stop_here, go_on)
            weights.append(pointers)
        return Aligned(torch.stack(weights, dim=-2).to(scores.dtype))

    def _energies(self, scores: Float[Tensor, "*B T S"]) -> Float[Tensor, "*B T S"]:
        energies = self.gain * widen(scores) + self.bias
        return energies + self.noise * torch.randn_like(energies) if self.training else energies


def setting_out(scores: Float[Tensor, "*B T S"], past: Past | None) -> Float[Tensor, "*B S"]:
    """Say where the next query sets out: where the last stopped, or at the very first place."""
    first = torch.zeros_like(scores[..., 0, :])
    first[..., 0] = 1
    if past is None:
        return first
    return torch.where((past.asked == 0).unsqueeze(-1), first, past.last.to(first.dtype))


def walk(
    pointers: Float[Tensor, "*B S"], stop: Float[Tensor, "*B S"], go: Float[Tensor, "*B S"]
) -> Float[Tensor, "*B S"]:
    """Let pointers walk on until they stop, given the chances to stop at and to leave a place."""
    return stop * accumulate(pointers, pad(go[..., :-1], (1, 0)))


def accumulate(
    gains: Float[Tensor, "*B S"], decays: Float[Tensor, "*B S"]
) -> Float[Tensor, "*B S"]:
    """x_j = gain_j + decay_j x_j-1, for all places at once in log2(S) rounds.

    Each round doubles how far back a place has heard (Hillis & Steele 1986). Nothing is divided,
    so nothing is lost however small the decays.
    """
    reach = 1
    while reach < gains.size(-1):
        gains = gains + decays * pad(gains[..., :-reach], (reach, 0))
        decays = decays * pad(decays[..., :-reach], (reach, 0))
        reach *= 2
    return gains


def widen(scores: Float[Tensor, "*B T S"]) -> Float[Tensor, "*B T S"]:
    """Give scores the digits that sums and products over many places need."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _walk_in_parallel(pointers: Tensor, stop: Tensor, go: Tensor) -> Tensor:
    come_so_far = pad(go[..., :-1], (1, 0), value=1.0).cumprod(dim=-1)
    return stop * come_so_far * (pointers / come_so_far.clamp(1e-10, 1)).cumsum(dim=-1)
