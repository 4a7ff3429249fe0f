"""Simplex: which weights answer a row of scores, if far places are to get exactly none?

The maps here are one family, alpha-entmax, for any alpha above 1 (Peters et al. 2019):

    weight = [(alpha - 1) score - threshold]_+ ^ (1 / (alpha - 1))

where the threshold makes the row sum to one. Alpha 2 is sparsemax; towards 1 it becomes softmax.
Law: adding a constant to a row changes nothing, and a place that lies 1 / (alpha - 1) or more below
the best gets exactly zero.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from heedful.shapes import Float

# Scaled by alpha - 1, scores that lie 1 below the best get nothing, however far below they lie.
# Raising them to 2 below keeps sums of them exact, and leaves room for rounding before 1.
_FAR_BELOW = -2.0


def entmax(
    scores: Float[Tensor, "*B S"], alpha: float | Float[Tensor, ""]
) -> Float[Tensor, "*B S"]:
    """Map each row of scores to its weights; gradients reach the scores and, as a tensor, alpha."""
    # Sums over many places need more digits than half precision has.
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    return _Entmax.apply(wide, alpha).to(scores.dtype)


def project(scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
    """Alpha 2: the nearest point of the simplex (Martins & Astudillo 2016, algorithm 1)."""
    below = _below_best(scores).clamp(min=_FAR_BELOW)
    ranked, ranks = _rank(below)
    thresholds = (ranked.cumsum(dim=-1) - 1) / ranks
    return (below - _fitting(thresholds, ranked)).clamp(min=0)


def sort_and_solve(scores: Float[Tensor, "*B S"]) -> Float[Tensor, "*B S"]:
    """Alpha 1.5: solve a quadratic for each support (Peters et al. 2019, algorithm 2)."""
    below = (_below_best(scores) / 2).clamp(min=_FAR_BELOW)
    ranked, ranks = _rank(below)
    means = ranked.cumsum(dim=-1) / ranks
    variances = ranked.square().cumsum(dim=-1) / ranks - means.square()
    thresholds = means - (1 / ranks - variances).clamp(min=0).sqrt()
    return (below - _fitting(thresholds, ranked)).clamp(min=0).square()


def bisect(
    scores: Float[Tensor, "*B S"], alpha: float | Float[Tensor, ""]
) -> Float[Tensor, "*B S"]:
    """Any alpha: halve the interval that holds the threshold (Peters et al. 2019, algorithm 1).

    The weights are written as [1 + (alpha - 1) (score - level)]_+ ^ (1 / (alpha - 1)). Its power
    is never more than exp(score - level), and tends to it as alpha tends to 1; so with the best
    score at 0 the level lies between 0 and log S, and no digits are lost for an alpha near 1.
    """
    below = _below_best(scores)
    level = torch.zeros_like(below[..., :1])  # (*B, 1)
    step = math.log(below.size(-1))
    # A bit for every halving, and some more for large alphas, whose levels lie close to 0.
    for _ in range(8 - int(math.log2(torch.finfo(below.dtype).eps))):
        step /= 2
        has_room = _power(below - (level + step), alpha).sum(dim=-1, keepdim=True) >= 1
        level = level + step * has_room
    weights = _power(below - level, alpha)
    return weights / weights.sum(dim=-1, keepdim=True)  # at least 1, as it was at level 0


_EXACT = {1.5: sort_and_solve, 2.0: project}


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
        solve = None if isinstance(alpha, Tensor) else _EXACT.get(alpha)
        return solve(scores) if solve else bisect(scores, alpha)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float | Tensor], output: Tensor) -> None:
        alpha = inputs[1]
        learned = alpha if isinstance(alpha, Tensor) else None
        ctx.save_for_backward(output, learned)
        ctx.fixed = alpha if learned is None else None

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        weights, learned = ctx.saved_tensors
        alpha = ctx.fixed if learned is None else learned
        support = weights > 0
        # Outside the support 1 stands in: logarithms and negative powers of 0 are infinite.
        inside = torch.where(support, weights, 1)
        slopes = inside ** (2 - alpha) * support
        mean = (slopes * gradient).sum(dim=-1, keepdim=True) / slopes.sum(dim=-1, keepdim=True)
        centred = gradient - mean
        if learned is None:
            return slopes * centred, None
        entropies = torch.special.entr(inside)
        growth = weights / (alpha - 1) ** 2 + entropies / (alpha - 1)
        return slopes * centred, (growth * centred).sum()


def _below_best(scores: Tensor) -> Tensor:
    return scores - scores.amax(dim=-1, keepdim=True)


def _rank(scores: Tensor) -> tuple[Tensor, Tensor]:
    ranked = scores.sort(dim=-1, descending=True).values
    return ranked, torch.arange(1, scores.size(-1) + 1, device=scores.device)


def _fitting(thresholds: Tensor, ranked: Tensor) -> Tensor:
    """Of the thresholds for the first 1, 2, ... places, take the one that keeps just those."""
    support = (ranked > thresholds).sum(dim=-1, keepdim=True)  # (*B, 1)
    # A row with NaN keeps no place: it must become NaN, not an index out of range.
    return thresholds.gather(-1, support.clamp(min=1) - 1)


def _power(scores: Tensor, alpha: float | Tensor) -> Tensor:
    return (((alpha - 1) * scores).clamp(min=-1).log1p() / (alpha - 1)).exp()
