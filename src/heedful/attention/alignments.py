"""Alignments: from scores to weights over the memory.

An alignment obeys two laws, tested for every class here: weights are zero wherever the mask is
False, and a row sums to one unless all of it is hidden, when it is all zero. Two keep less than
one by their papers' will, and say so: `is_unnormalized`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor, nn

from heedful.attention.outputs import AlignmentLossInputs, AlignmentOutput, AttentionState
from heedful.config import BaseConfig
from heedful.shapes import Bool, Float


class AlignmentFunction(nn.Module, ABC):
    """Where attention goes, given how strongly each place calls."""

    is_unnormalized = False
    """Whether a row may sum to less than one."""

    @abstractmethod
    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        state: AttentionState | None = None,
    ) -> AlignmentOutput:
        """Share one unit of attention among the visible places.

        Several queries are answered in their order, as if they were asked one by one. No past
        means that these are the first.
        """

    def compute_auxiliary_losses(
        self, loss_inputs: AlignmentLossInputs
    ) -> dict[str, Float[Tensor, ""]]:
        """Say, by name, what is added to the loss so that this alignment can learn.

        Each is a sum over the real targets of the batch. An alignment that gradients pass
        through needs none.
        """
        return {}


class SoftAlignment(AlignmentFunction):
    """An alignment that a row of scores decides by itself."""

    @abstractmethod
    def normalize(
        self, scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
    ) -> Float[Tensor, "*B T S"]:
        """Share one unit of attention among the visible places."""

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        state: AttentionState | None = None,
    ) -> AlignmentOutput:
        """Share one unit of attention among the visible places."""
        return AlignmentOutput(self.normalize(scores, mask))


class SoftmaxAlignment(SoftAlignment):
    """exp(score / temperature) / sum of the same over the visible places.

    A temperature below one sharpens the weights, one above it evens them out.
    """

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        assert temperature > 0, temperature
        self.temperature = temperature

    def normalize(
        self, scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
    ) -> Float[Tensor, "*B T S"]:
        """Share one unit of attention among the visible places."""
        # Hide after dividing: a low temperature would make finfo.min infinite.
        return mask_scores(scores / self.temperature, mask).softmax(dim=-1) * mask


def mask_scores(
    scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
) -> Float[Tensor, "*B T S"]:
    """Give the hidden places the least score there is."""
    # finfo.min, not -inf: a fully hidden row must give zeros, in value and in gradient,
    # and a NaN in the scores must stay visible rather than be mistaken for one.
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


# Simplex: which weights answer a row of scores, if far places are to get exactly none?
#
# The maps here are one family, alpha-entmax, for any alpha above 1 (Peters et al. 2019):
#
#     weight = [(alpha - 1) score - threshold]_+ ^ (1 / (alpha - 1))
#
# where the threshold makes the row sum to one. Alpha 2 is sparsemax; towards 1 it becomes softmax.
# Law: adding a constant to a row changes nothing, and a place that lies 1 / (alpha - 1) or more below
# the best gets exactly zero.

# Scaled by alpha - 1, scores that lie 1 below the best get nothing, however far below they lie.
# Raising them to 2 below keeps sums of them exact, and leaves room for rounding before 1.
_MIN_SHIFTED_SCORE = -2.0


def entmax(
    scores: Float[Tensor, "*B S"], alpha: float | Float[Tensor, ""]
) -> Float[Tensor, "*B S"]:
    """Map each row of scores to its weights; gradients reach the scores and, as a tensor, alpha."""
    # Sums over many places need more digits than half precision has.
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return _Entmax.apply(wide, alpha).to(scores.dtype)


def sparsemax(scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
    """Alpha 2: the nearest point of the simplex (Martins & Astudillo 2016, algorithm 1)."""
    shifted = _subtract_max(scores).clamp(min=_MIN_SHIFTED_SCORE)
    ranked, ranks = _sort_descending(shifted)
    thresholds = (ranked.cumsum(dim=-1) - 1) / ranks
    return (shifted - _select_threshold(thresholds, ranked)).clamp(min=0)


def entmax15(scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
    """Alpha 1.5: solve a quadratic for each support (Peters et al. 2019, algorithm 2)."""
    shifted = (_subtract_max(scores) / 2).clamp(min=_MIN_SHIFTED_SCORE)
    ranked, ranks = _sort_descending(shifted)
    means = ranked.cumsum(dim=-1) / ranks
    variances = ranked.square().cumsum(dim=-1) / ranks - means.square()
    thresholds = means - (1 / ranks - variances).clamp(min=0).sqrt()
    return (shifted - _select_threshold(thresholds, ranked)).clamp(min=0).square()


def entmax_bisect(
    scores: Float[Tensor, "*B S"], alpha: float | Float[Tensor, ""]
) -> Float[Tensor, "*B S"]:
    """Any alpha: halve the interval that holds the threshold (Peters et al. 2019, algorithm 1).

    The weights are written as [1 + (alpha - 1) (score - level)]_+ ^ (1 / (alpha - 1)). Its power
    is never more than exp(score - level), and tends to it as alpha tends to 1; so with the best
    score at 0 the level lies between 0 and log S, and no digits are lost for an alpha near 1.
    """
    shifted = _subtract_max(scores)
    level = torch.zeros_like(shifted[..., :1])  # (*B, 1)
    step = math.log(shifted.size(-1))
    # A bit for every halving, and some more for large alphas, whose levels lie close to 0.
    for _ in range(8 - int(math.log2(torch.finfo(shifted.dtype).eps))):
        step /= 2
        exceeds_one = _alpha_exp(shifted - (level + step), alpha).sum(dim=-1, keepdim=True) >= 1
        level = level + step * exceeds_one
    weights = _alpha_exp(shifted - level, alpha)
    return weights / weights.sum(dim=-1, keepdim=True)  # at least 1, as it was at level 0


def _subtract_max(scores: Tensor) -> Tensor:
    return scores - scores.amax(dim=-1, keepdim=True)


def _sort_descending(scores: Tensor) -> tuple[Tensor, Tensor]:
    ranked = scores.sort(dim=-1, descending=True).values
    return ranked, torch.arange(1, scores.size(-1) + 1, device=scores.device)


def _select_threshold(thresholds: Tensor, ranked: Tensor) -> Tensor:
    """Of the thresholds for the first 1, 2, ... places, take the one that keeps just those."""
    support = (ranked > thresholds).sum(dim=-1, keepdim=True)  # (*B, 1)
    # A row with NaN keeps no place: it must become NaN, not an index out of range.
    return thresholds.gather(-1, support.clamp(min=1) - 1)


_CLOSED_FORM = {1.5: entmax15, 2.0: sparsemax}


class _Entmax(torch.autograd.Function):
    """The weights, with a gradient that follows from them alone, however they were found.

    With slope = weight ^ (2 - alpha) on the support and 0 elsewhere, and the incoming gradient
    centred by its mean under the slopes (Peters et al. 2019 for the scores; Correia et al. 2019,
    proposition 1, for alpha):

        d score = slope * centred
        d alpha = sum of (weight / (alpha - 1)^2 - weight log(weight) / (alpha - 1)) * centred
    """

    @staticmethod
    def forward(scores: Tensor, alpha: float | Tensor) -> Tensor:
        solve = None if isinstance(alpha, Tensor) else _CLOSED_FORM.get(alpha)
        return solve(scores) if solve else entmax_bisect(scores, alpha)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float | Tensor], output: Tensor) -> None:
        alpha = inputs[1]
        alpha_tensor = alpha if isinstance(alpha, Tensor) else None
        ctx.save_for_backward(output, alpha_tensor)
        ctx.fixed = alpha if alpha_tensor is None else None

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        weights, alpha_tensor = ctx.saved_tensors
        alpha = ctx.fixed if alpha_tensor is None else alpha_tensor
        support = weights > 0
        # Outside the support 1 stands in: logarithms and negative powers of 0 are infinite.
        inside = torch.where(support, weights, 1)
        slopes = inside ** (2 - alpha) * support
        mean = (slopes * gradient).sum(dim=-1, keepdim=True) / slopes.sum(dim=-1, keepdim=True)
        centred = gradient - mean
        if alpha_tensor is None:
            return slopes * centred, None
        entropies = torch.special.entr(inside)
        growth = weights / (alpha - 1) ** 2 + entropies / (alpha - 1)
        return slopes * centred, (growth * centred).sum()


def _alpha_exp(scores: Tensor, alpha: float | Tensor) -> Tensor:
    return (((alpha - 1) * scores).clamp(min=-1).log1p() / (alpha - 1)).exp()


# Sparse alignments: which places deserve no attention at all?
#
# Softmax leaves every visible place some weight. The alignments here give exactly zero to a place
# whose score lies far enough below the best; how far, alpha says: 1 / (alpha - 1) always suffices.


class SparsemaxAlignment(SoftAlignment):
    """argmin over the simplex of |weights - scores|^2  (Martins & Astudillo 2016, equation 2)."""

    def normalize(
        self, scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
    ) -> Float[Tensor, "*B T S"]:
        """Share one unit of attention among the visible places."""
        return entmax(mask_scores(scores, mask), 2.0) * mask


class EntmaxAlignment(SoftAlignment):
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

    def normalize(
        self, scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*#B #T S"]
    ) -> Float[Tensor, "*B T S"]:
        """Share one unit of attention among the visible places."""
        return entmax(mask_scores(scores, mask), self.alpha) * mask


# The alignments that a row of scores decides by itself, as a configuration names them.


class SoftmaxAlignmentConfig(BaseConfig):
    """Share attention in proportion to the exponential of the score."""

    type: Literal["softmax"] = "softmax"
    temperature: PositiveFloat = 1.0
    """What scores are divided by: below 1 sharpens the weights, above 1 evens them out."""

    def build(self, *, query_size: int) -> SoftAlignment:
        """Make the alignment."""
        return SoftmaxAlignment(self.temperature)


class SparsemaxAlignmentConfig(BaseConfig):
    """Take the weights nearest to the scores; most are zero (Martins & Astudillo 2016)."""

    type: Literal["sparsemax"] = "sparsemax"

    def build(self, *, query_size: int) -> SoftAlignment:
        """Make the alignment."""
        return SparsemaxAlignment()


class EntmaxAlignmentConfig(BaseConfig):
    """Stand between softmax and sparsemax; far places get zero (Peters et al. 2019)."""

    type: Literal["entmax"] = "entmax"
    alpha: Annotated[float, Field(gt=1)] = 1.5
    """How sparse: towards 1 it becomes softmax, 2 is sparsemax, more is sparser still."""
    learned: bool = False
    """Whether alpha is learned, between 1 and 2, starting from this one."""

    @model_validator(mode="after")
    def _check_alpha(self) -> EntmaxAlignmentConfig:
        if self.learned and self.alpha >= 2:
            raise ValueError(f"a learned alpha starts between 1 and 2, not at {self.alpha:g}")
        return self

    def build(self, *, query_size: int) -> SoftAlignment:
        """Make the alignment."""
        return EntmaxAlignment(self.alpha, learned=self.learned)


SoftAlignmentConfig = Annotated[
    SoftmaxAlignmentConfig | SparsemaxAlignmentConfig | EntmaxAlignmentConfig,
    Field(discriminator="type"),
]
