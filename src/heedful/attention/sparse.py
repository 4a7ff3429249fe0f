"""Sparse alignments: which places deserve no attention at all?

Softmax leaves every visible place some weight. The alignments here give exactly zero to a place
whose score lies far enough below the best; how far, alpha says: 1 / (alpha - 1) always suffices.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heedful.attention.alignments import Sharing, hide
from heedful.attention.simplex import entmax
from heedful.shapes import Bool, Float


class Sparsemax(Sharing):
    """argmin over the simplex of |weights - scores|^2  (Martins & Astudillo 2016, equation 2)."""

    def share(
        self, scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
    ) -> Float[Tensor, "*B T S"]:
        """Share one unit of attention among the visible places."""
        return entmax(hide(scores, mask), 2.0) * mask


class Entmax(Sharing):
    """[(alpha - 1) score - threshold]_+ ^ (1 / (alpha - 1))  (Peters et al. 2019).

    A learned alpha is 1 + sigmoid(logit), so it stays between 1 and 2: between softmax and
    sparsemax (Correia et al. 2019).
    """

    def __init__(self, alpha: float = 1.5, *, learned: bool = False) -> None:
        super().__init__()
        assert 1 < alpha < (2 if learned else float("inf")), alpha
        self._alpha = alpha
        self.logit = nn.Parameter(torch.tensor(alpha - 1.0).logit()) if learned else None

    @property
    def alpha(self) -> float | Float[Tensor, ""]:
        """How sparse the weights are: a number, or a tensor where it is learned."""
        return self._alpha if self.logit is None else 1 + self.logit.sigmoid()

    def share(
        self, scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
    ) -> Float[Tensor, "*B T S"]:
        """Share one unit of attention among the visible places."""
        return entmax(hide(scores, mask), self.alpha) * mask
