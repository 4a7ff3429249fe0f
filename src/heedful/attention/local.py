"""Local attention: what if a query looks only at a few places round a centre?

A window of 2 reach + 1 places is laid round the centre, cut off at the ends of the source, and
an alignment shares attention within it. Law: nothing outside the window has weight, and a
centre learns only through the taper, for the window moves in whole places.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from heedful.attention.alignments import Aligned, Alignment, Sharing
from heedful.attention.centres import Centre
from heedful.attention.past import Past
from heedful.shapes import Bool, Float, Int

Taper = Literal["none", "before", "after"]


class Local(Alignment):
    """inner(scores) within |s - floor(p)| <= reach  (Luong et al. 2015, section 3.2).

    The taper exp(-(s - p)^2 / (2 sigma^2)), sigma = reach / 2, favours places near the centre p:

    - "none": the paper's local-m, with a centre that goes on step by step;
    - "after": the paper's local-p; weights are multiplied and not shared out again, so they sum
      to less than one;
    - "before": its logarithm is added to the scores, so that weights sum to one.

    A window consists of whole places: as in its authors' code, the centre is rounded down for it.
    """

    def __init__(
        self, inner: Sharing, centre: Centre, *, reach: int = 10, taper: Taper = "none"
    ) -> None:
        super().__init__()
        assert reach > 0, reach
        self.inner = inner
        self.centre = centre
        self.reach = reach
        self.taper = taper
        self.leaks = taper == "after"

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        past: Past | None = None,
    ) -> Aligned:
        """Share attention among the visible places round each query's centre."""
        lengths = _lengths(mask).expand(scores.shape[:-1])  # (*B, T)
        centres = self.centre(queries, lengths, past)
        seen = mask & self._window(centres, scores)  # (*B, T, S)
        if self.taper == "before":
            scores = scores + self._log_taper(centres, scores).to(scores.dtype)
        weights = self.inner.share(scores, seen)
        if self.taper == "after":
            taper = self._log_taper(centres, scores).exp().to(weights.dtype)
            # A centre that is not a number must not reach where nothing is seen.
            weights = weights * taper.masked_fill(~seen, 0)
        return Aligned(weights, centres=centres)

    def _window(
        self, centres: Float[Tensor, "*B T"], scores: Float[Tensor, "*B T S"]
    ) -> Bool[Tensor, "*B T S"]:
        # Not `<=`: a centre that is not a number would see nothing, and zeros would hide it.
        return ~(_distances(centres.detach().floor(), scores).abs() > self.reach)

    def _log_taper(
        self, centres: Float[Tensor, "*B T"], scores: Float[Tensor, "*B T S"]
    ) -> Float[Tensor, "*B T S"]:
        sigma = self.reach / 2
        return -(_distances(centres, scores) / sigma).square() / 2


def _lengths(mask: Bool[Tensor, "*B T S"]) -> Int[Tensor, "*B T"]:
    """Count the places up to the last visible one."""
    numbers = torch.arange(1, mask.size(-1) + 1, device=mask.device)
    return (mask * numbers).amax(dim=-1)


def _distances(
    centres: Float[Tensor, "*B T"], scores: Float[Tensor, "*B T S"]
) -> Float[Tensor, "*B T S"]:
    """How far each place that has a score lies beyond the centre."""
    dtype = torch.promote_types(scores.dtype, centres.dtype)
    places = torch.arange(scores.size(-1), device=scores.device)
    return places - centres.unsqueeze(-1).to(dtype)
