"""Marginal alignments: where does the next token come from, if it is not known where the last did?

Each token comes from one place. Which one is never decided, only how likely each is: all paths
are kept, and added up exactly. Law: the weights are the chances of the places for the next token,
summed over where the last may have come from.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from heedful.attention.alignments import Aligned, Alignment, hide
from heedful.attention.monotonic import accumulate, setting_out, walk, widen
from heedful.attention.past import Past
from heedful.shapes import Bool, Float


class MonotonicMarginal(Alignment):
    """sum over j' <= j of belief_j' softmax_{k >= j'}(scores)_j  (Wu & Cotterell 2019).

    The belief is where the last token came from, as far as is known: `past.last`, into which a
    decoder puts what it learned from the token itself. Before the first token it is the first
    place, so that the first weights are a softmax over all.

    Masks that change from query to query can hide all places at and after the belief: it then
    falls back on the last visible place, and where none is visible it stays for the next query.
    """

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        past: Past | None = None,
    ) -> Aligned:
        """Move the belief on for every query."""
        seen = mask.expand(scores.shape)
        stop, go = _chances(widen(scores), seen)
        belief = setting_out(stop, past)
        weights, beliefs = [], []
        steps = zip(stop.unbind(dim=-2), go.unbind(dim=-2), seen.unbind(dim=-2), strict=True)
        for stop_here, go_on, visible in steps:
            moved = walk(_within_reach(belief, visible), stop_here, go_on)
            belief = torch.where(visible.any(dim=-1, keepdim=True), moved, belief)
            weights.append(moved)
            beliefs.append(belief)
        found = [torch.stack(each, dim=-2).to(scores.dtype) for each in (weights, beliefs)]
        return Aligned(found[0], boundaries=found[1])


def _chances(
    scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*B T S"]
) -> tuple[Float[Tensor, "*B T S"], Float[Tensor, "*B T S"]]:
    """Write each softmax over a place and those after it as a walk: stop here, or go on?

    The chance to stop is exp(score_j) / rest_j, that to go on rest_j+1 / rest_j, where rest_j
    sums the exponentials from j on. Every rest is held as a multiple of its own greatest term, so
    that scores of any size neither overflow nor vanish.
    """
    hidden = hide(scores, mask)
    greatest = hidden.flip(-1).cummax(dim=-1).values.flip(-1).detach()
    own = (hidden - greatest).exp() * mask
    fall = pad((greatest[..., 1:] - greatest[..., :-1]).exp(), (0, 1))
    rest = accumulate(own.flip(-1), fall.flip(-1)).flip(-1)
    divisor = torch.where(rest == 0, 1, rest)  # there is no rest where all that follows is hidden
    return own / divisor, fall * pad(rest[..., 1:], (0, 1)) / divisor


def _within_reach(
    belief: Float[Tensor, "*B S"], mask: Bool[Tensor, "*B S"]
) -> Float[Tensor, "*B S"]:
    """Move what has nothing visible ahead of it to the last visible place."""
    ahead = mask.flip(-1).cumsum(dim=-1).flip(-1)  # visible places from here on
    stranded = (belief * (ahead == 0)).sum(dim=-1, keepdim=True)
    return belief * (ahead > 0) + stranded * (mask & (ahead == 1))
