"""Centres: round which place does a query look?

A centre is a real number for every query, counted in places from 0. Law: it is at least 0 and at
most the number of places, however short the source, and padding does not move it. It is kept in
single precision at least, for bfloat16 cannot count beyond 256.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from heedful.attention.past import Past, positions
from heedful.shapes import Float, Int


class Centre(nn.Module, ABC):
    """The place in the middle of what a query sees."""

    @abstractmethod
    def forward(
        self,
        queries: Float[Tensor, "*B T Q"] | None,
        lengths: Int[Tensor, "*B T"],
        past: Past | None = None,
    ) -> Float[Tensor, "*B T"]:
        """Find the centre for each query, given how many places the source has for it."""


class StepCentre(Centre):
    """min(t, length - 1) for query t  (Luong et al. 2015, section 3.2, "local-m").

    The paper takes source and target to run side by side and is silent about targets that run
    on: a centre far beyond the last place would leave nothing to see, so it waits there.
    """

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"] | None,
        lengths: Int[Tensor, "*B T"],
        past: Past | None = None,
    ) -> Float[Tensor, "*B T"]:
        """Go one place on with every query."""
        steps = positions(past, lengths.size(-1), lengths.device)
        return torch.minimum(steps, lengths - 1).clamp(min=0).float()


class PredictedCentre(Centre):
    """length * sigmoid(v . tanh(W q))  (Luong et al. 2015, section 3.2, "local-p")."""

    def __init__(self, query_size: int, *, hidden_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(query_size, hidden_size, bias=False)
        self.reduction = nn.Linear(hidden_size, 1, bias=False)

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"] | None,
        lengths: Int[Tensor, "*B T"],
        past: Past | None = None,
    ) -> Float[Tensor, "*B T"]:
        """Let the query say how far along the source it looks."""
        assert queries is not None, "a predicted centre is the query's to say"
        logits = self.reduction(self.projection(queries).tanh()).squeeze(-1)  # (*B, T)
        return lengths * logits.to(torch.promote_types(logits.dtype, torch.float)).sigmoid()
