"""Local attention: weights within a window around a center.

A window covers 2 * half_width + 1 positions, cut off at the ends of the source. Invariants: weights
outside it are zero; a center is between 0 and the source length, whatever the padding.
"""

from abc import ABC, abstractmethod
from typing import Annotated, Literal

import torch
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.alignments import (
    AlignmentFunction,
    AlignmentOutput,
    SoftAlignment,
    SoftAlignmentConfig,
    SoftmaxAlignmentConfig,
)
from heedful.attention.memory import AttentionState, query_positions
from heedful.config import ModuleConfig
from heedful.shapes import Int, Mask, PerQuery, Queries, Scores

RowLengths = Int[Tensor, "*B T"]
GaussianPlacement = Literal["none", "before", "after"]


class LocalAlignment(AlignmentFunction):
    """inner(scores) within |s - floor(p)| <= half_width  (Luong et al. 2015, section 3.2).

    The Gaussian exp(-(s - p)^2 / (2 sigma^2)), sigma = half_width / 2, favors positions near p. The
    paper's local-m has none; its local-p multiplies the weights by it and does not normalize them
    again. The window is made of whole positions, so a center gets gradients only through the
    Gaussian. As in the authors' code, the center is rounded down for the window.
    """

    def __init__(
        self,
        inner: SoftAlignment,
        center: "WindowCenter",
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

    @override
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        positions = torch.arange(scores.size(-1), device=scores.device)
        # The length that a query sees ends at its last unmasked position.
        lengths = (mask * (positions + 1)).amax(dim=-1).expand(scores.shape[:-1])  # (*B, T)
        centers = self.center(queries, lengths, state)
        exact = centers.unsqueeze(-1).to(torch.promote_types(scores.dtype, centers.dtype))
        # Not `<=`: a NaN center would have an empty window, and zeros would hide the NaN.
        is_outside = (positions - exact.detach().floor()).abs() > self.half_width
        window_mask = mask & ~is_outside  # (*B, T, S)
        sigma = self.half_width / 2
        log_gaussian = -((positions - exact) / sigma).square() / 2
        if self.gaussian == "before":
            scores = scores + log_gaussian.to(scores.dtype)
        weights = self.inner.normalize(scores, window_mask)
        if self.gaussian == "after":
            # A NaN center must not reach masked positions.
            gaussian = log_gaussian.exp().to(weights.dtype).masked_fill(~window_mask, 0)
            weights = weights * gaussian
        return AlignmentOutput(weights, centers=centers)


class WindowCenter(nn.Module, ABC):
    """Center of the window of each query, a real position counted from 0."""

    @abstractmethod
    def forward(
        self, queries: Queries | None, lengths: RowLengths, state: AttentionState | None
    ) -> PerQuery:
        """Return the centers, in float32 at least; `lengths` are those that the queries see."""


class MonotonicCenter(WindowCenter):
    """min(t, length - 1) for query t  (Luong et al. 2015, section 3.2, "local-m").

    The paper does not treat targets longer than the source; here their windows are never empty.
    """

    @override
    def forward(
        self, queries: Queries | None, lengths: RowLengths, state: AttentionState | None
    ) -> PerQuery:
        positions = query_positions(state, lengths.size(-1), lengths.device)
        return torch.minimum(positions, lengths - 1).clamp(min=0).float()


class MonotonicCenterConfig(ModuleConfig):
    """Position of the query, limited to the source length (Luong et al. 2015, "local-m")."""

    module_class = MonotonicCenter
    type: Literal["monotonic"] = "monotonic"


class PredictiveCenter(WindowCenter):
    """length * sigmoid(v . tanh(W q))  (Luong et al. 2015, section 3.2, "local-p")."""

    def __init__(self, query_size: int, *, hidden_size: int) -> None:
        super().__init__()
        self.projection = nn.Linear(query_size, hidden_size, bias=False)
        self.reduction = nn.Linear(hidden_size, 1, bias=False)

    @override
    def forward(
        self, queries: Queries | None, lengths: RowLengths, state: AttentionState | None
    ) -> PerQuery:
        assert queries is not None, "a predictive center needs the queries"
        logits = self.reduction(self.projection(queries).tanh()).squeeze(-1)  # (*B, T)
        return lengths * logits.to(torch.promote_types(logits.dtype, torch.float)).sigmoid()


class PredictiveCenterConfig(ModuleConfig):
    """Predicted from the query (Luong et al. 2015, "local-p")."""

    module_class = PredictiveCenter
    type: Literal["predictive"] = "predictive"
    hidden_size: PositiveInt = 256
    """Size of the tanh layer that predicts the center."""


WindowCenterConfig = Annotated[
    MonotonicCenterConfig | PredictiveCenterConfig, Field(discriminator="type")
]


class LocalAlignmentConfig(ModuleConfig):
    """Attention within a window around a center (Luong et al. 2015); by default "local-p"."""

    module_class = LocalAlignment
    type: Literal["local"] = "local"
    center: WindowCenterConfig = PredictiveCenterConfig()
    """Center of the window."""
    half_width: PositiveInt = 10
    """Number of positions on each side of the center; 10 in the paper."""
    gaussian: GaussianPlacement = "after"
    """Gaussian around the center: `after` multiplies the weights by it, as in the paper, so rows
    sum to less than one; `before` adds its logarithm to the scores, so rows sum to one; `none`
    leaves it out, as in "local-m"."""
    inner: SoftAlignmentConfig = SoftmaxAlignmentConfig()
    """How scores become weights within the window."""

    @model_validator(mode="after")
    def _check_center_is_learnable(self) -> "LocalAlignmentConfig":
        if self.center.type == "predictive" and self.gaussian == "none":
            raise ValueError(
                "a predictive center is trained through the Gaussian: set gaussian to 'before' or "
                "'after'"
            )
        return self
