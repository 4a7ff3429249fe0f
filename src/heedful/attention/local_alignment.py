"""Centres: round which place does a query look?

A centre is a real number for every query, counted in places from 0. Law: it is at least 0 and at
most the number of places, however short the source, and padding does not move it. It is kept in
single precision at least, for bfloat16 cannot count beyond 256.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn

from heedful.attention.alignments import (
    AlignmentFunction,
    SoftAlignment,
    SoftAlignmentConfig,
    SoftmaxAlignmentConfig,
)
from heedful.attention.outputs import AlignmentOutput, AttentionState, query_positions
from heedful.config import BaseConfig
from heedful.shapes import Bool, Float, Int


class WindowCenter(nn.Module, ABC):
    """The place in the middle of what a query sees."""

    @abstractmethod
    def forward(
        self,
        queries: Float[Tensor, "*B T Q"] | None,
        lengths: Int[Tensor, "*B T"],
        state: AttentionState | None = None,
    ) -> Float[Tensor, "*B T"]:
        """Find the centre for each query, given how many places the source has for it."""


class MonotonicCenter(WindowCenter):
    """min(t, length - 1) for query t  (Luong et al. 2015, section 3.2, "local-m").

    The paper takes source and target to run side by side and is silent about targets that run
    on: a centre far beyond the last place would leave nothing to see, so it waits there.
    """

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"] | None,
        lengths: Int[Tensor, "*B T"],
        state: AttentionState | None = None,
    ) -> Float[Tensor, "*B T"]:
        """Go one place on with every query."""
        steps = query_positions(state, lengths.size(-1), lengths.device)
        return torch.minimum(steps, lengths - 1).clamp(min=0).float()


class PredictiveCenter(WindowCenter):
    """length * sigmoid(v . tanh(W q))  (Luong et al. 2015, section 3.2, "local-p")."""

    def __init__(self, query_size: int, *, hidden_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(query_size, hidden_size, bias=False)
        self.reduction = nn.Linear(hidden_size, 1, bias=False)

    def forward(
        self,
        queries: Float[Tensor, "*B T Q"] | None,
        lengths: Int[Tensor, "*B T"],
        state: AttentionState | None = None,
    ) -> Float[Tensor, "*B T"]:
        """Let the query say how far along the source it looks."""
        assert queries is not None, "a predicted centre is the query's to say"
        logits = self.reduction(self.projection(queries).tanh()).squeeze(-1)  # (*B, T)
        return lengths * logits.to(torch.promote_types(logits.dtype, torch.float)).sigmoid()


# Local attention: what if a query looks only at a few places round a centre?
#
# A window of 2 reach + 1 places is laid round the centre, cut off at the ends of the source, and
# an alignment shares attention within it. Law: nothing outside the window has weight, and a
# centre learns only through the taper, for the window moves in whole places.

GaussianPlacement = Literal["none", "before", "after"]


class LocalAlignment(AlignmentFunction):
    """inner(scores) within |s - floor(p)| <= reach  (Luong et al. 2015, section 3.2).

    The taper exp(-(s - p)^2 / (2 sigma^2)), sigma = reach / 2, favours places near the centre p:

    - "none": the paper's local-m, with a centre that goes on step by step;
    - "after": the paper's local-p; weights are multiplied and not shared out again, so they sum
      to less than one;
    - "before": its logarithm is added to the scores, so that weights sum to one.

    A window consists of whole places: as in its authors' code, the centre is rounded down for it.
    """

    def __init__(
        self,
        inner: SoftAlignment,
        center: WindowCenter,
        *,
        half_width: int = 10,
        gaussian: GaussianPlacement = "none",
    ) -> None:
        super().__init__()
        assert half_width > 0, half_width
        self.inner = inner
        self.center = center
        self.half_width = half_width
        self.gaussian = gaussian
        self.is_unnormalized = gaussian == "after"

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        state: AttentionState | None = None,
    ) -> AlignmentOutput:
        """Share attention among the visible places round each query's centre."""
        lengths = _lengths(mask).expand(scores.shape[:-1])  # (*B, T)
        centers = self.center(queries, lengths, state)
        window_mask = mask & self._window(centers, scores)  # (*B, T, S)
        if self.gaussian == "before":
            scores = scores + self._log_gaussian(centers, scores).to(scores.dtype)
        weights = self.inner.normalize(scores, window_mask)
        if self.gaussian == "after":
            gaussian = self._log_gaussian(centers, scores).exp().to(weights.dtype)
            # A centre that is not a number must not reach where nothing is seen.
            weights = weights * gaussian.masked_fill(~window_mask, 0)
        return AlignmentOutput(weights, centers=centers)

    def _window(
        self, centers: Float[Tensor, "*B T"], scores: Float[Tensor, "*B T S"]
    ) -> Bool[Tensor, "*B T S"]:
        # Not `<=`: a centre that is not a number would see nothing, and zeros would hide it.
        return ~(_distances(centers.detach().floor(), scores).abs() > self.half_width)

    def _log_gaussian(
        self, centers: Float[Tensor, "*B T"], scores: Float[Tensor, "*B T S"]
    ) -> Float[Tensor, "*B T S"]:
        sigma = self.half_width / 2
        return -(_distances(centers, scores) / sigma).square() / 2


def _lengths(mask: Bool[Tensor, "*B T S"]) -> Int[Tensor, "*B T"]:
    """Count the places up to the last visible one."""
    numbers = torch.arange(1, mask.size(-1) + 1, device=mask.device)
    return (mask * numbers).amax(dim=-1)


def _distances(
    centers: Float[Tensor, "*B T"], scores: Float[Tensor, "*B T S"]
) -> Float[Tensor, "*B T S"]:
    """How far each place that has a score lies beyond the centre."""
    dtype = torch.promote_types(scores.dtype, centers.dtype)
    places = torch.arange(scores.size(-1), device=scores.device)
    return places - centers.unsqueeze(-1).to(dtype)


# Local attention, as a configuration names it.


class MonotonicCenterConfig(BaseConfig):
    """Go one place on with every query, up to the last (Luong et al. 2015, "local-m")."""

    type: Literal["monotonic"] = "monotonic"

    def build(self, *, query_size: int) -> WindowCenter:
        """Make the centre."""
        return MonotonicCenter()


class PredictiveCenterConfig(BaseConfig):
    """Let the query say how far along the source it looks (Luong et al. 2015, "local-p")."""

    type: Literal["predictive"] = "predictive"
    hidden_size: PositiveInt = 256
    """Width of the layer that says so."""

    def build(self, *, query_size: int) -> WindowCenter:
        """Make the centre."""
        return PredictiveCenter(query_size, hidden_size=self.hidden_size)


WindowCenterConfig = Annotated[
    MonotonicCenterConfig | PredictiveCenterConfig, Field(discriminator="type")
]


class LocalAlignmentConfig(BaseConfig):
    """Look only at places round a centre (Luong et al. 2015); the defaults are "local-p"."""

    type: Literal["local"] = "local"
    center: WindowCenterConfig = PredictiveCenterConfig()
    """Round which place a query looks."""
    half_width: PositiveInt = 10
    """Places to be seen on either side of the centre; 10 in the paper."""
    gaussian: Literal["none", "before", "after"] = "after"
    """How places near the centre are favoured: `after` multiplies the weights by a Gaussian, as in
    the paper, so that they sum to less than one; `before` adds its logarithm to the scores, so
    that they sum to one; `none` favours no place, as in "local-m"."""
    inner: SoftAlignmentConfig = SoftmaxAlignmentConfig()
    """How attention is shared within the window."""

    @model_validator(mode="after")
    def _check_center_is_learnable(self) -> LocalAlignmentConfig:
        if self.center.type == "predictive" and self.gaussian == "none":
            raise ValueError("a predicted centre learns through a taper: 'before' or 'after'")
        return self

    def build(self, *, query_size: int) -> AlignmentFunction:
        """Make the alignment."""
        inner = self.inner.build(query_size=query_size)
        center = self.center.build(query_size=query_size)
        return LocalAlignment(inner, center, half_width=self.half_width, gaussian=self.gaussian)
