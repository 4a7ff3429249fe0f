"""Chunkwise alignment: what of the few places before a boundary is looked at?

A monotonic pointer says where the chunk ends; a softmax over the chunk says what is looked at
there. Law: no weight lies more than the chunk's width before a place where the pointer may stop,
and a row sums to the chance that it stopped at all.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from heedful.attention.alignments import Aligned, Alignment, hide
from heedful.attention.monotonic import Monotonic, widen
from heedful.attention.past import Past
from heedful.shapes import Bool, Float


class Chunkwise(Alignment):
    """sum_k stop_k softmax(score_l, k - width < l <= k)_j, k from j on  (Chiu & Raffel 2018).

    The paper has one energy for the boundaries and another for the chunks. Here one score serves
    both: it says what stands there, the learned gain and bias of the boundaries what is enough to
    stop.
    """

    leaks = True

    def __init__(self, boundaries: Monotonic, *, width: int) -> None:
        super().__init__()
        assert width > 0, width
        self.boundaries = boundaries
        self.width = width

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        past: Past | None = None,
    ) -> Aligned:
        """Find the boundaries, then share what each got among its chunk."""
        stops = self.boundaries(scores, mask, queries, past).weights
        shares = widen(stops).unsqueeze(-1) * self._chunks(widen(scores), mask)
        return Aligned(self._gather(shares).to(scores.dtype), boundaries=stops)

    def _chunks(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Share one unit among the places of the chunk that ends at each place."""
        before = (self.width - 1, 0)
        seen = pad(mask, before).unfold(-1, self.width, 1)  # (*B, T or 1, S, width)
        # Windows of scores, not sums of their exponentials: those overflow.
        chunks = hide(pad(scores, before).unfold(-1, self.width, 1), seen)  # (*B, T, S, width)
        return chunks.softmax(dim=-1) * seen

    def _gather(self, shares: Tensor) -> Tensor:
        """Add up what a place got in each of the chunks that hold it."""
        # Turned round, share d of the chunk at k belongs to place k - d: the places of one j
        # lie on a diagonal of the windows that begin at j.
        later = pad(shares.flip(-1), (0, 0, 0, self.width - 1))  # (*B, T, S + width - 1, width)
        windows = later.unfold(-2, self.width, 1)  # (*B, T, S, width, width)
        return torch.diagonal(windows, dim1=-2, dim2=-1).sum(dim=-1)
