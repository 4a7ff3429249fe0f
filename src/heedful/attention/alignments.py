"""Alignments: from scores to attention weights; softmax, sparsemax and entmax.

Invariants: weights are zero wherever the mask is False, and a row sums to one, to zero if all of it
is masked, or to less than one in alignments that set `is_unnormalized`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.masks import broadcast_mask
from heedful.attention.memory import AttentionState, query_positions
from heedful.config import ModuleConfig
from heedful.shapes import (
    AnyMask,
    Bool,
    Int,
    Losses,
    Mask,
    PerPosition,
    PerQuery,
    Queries,
    Scores,
    Weights,
)

InferenceBehavior = Literal["hard", "expected"]
"""Whether an alignment that chooses positions does so at inference, or keeps probabilities."""


class AlignmentOutput(NamedTuple):
    """Attention weights, and the quantities of the mechanism that produced them."""

    weights: Weights
    probabilities: Weights | None = None  # the distribution that hard attention chose from
    log_probs: PerQuery | None = None  # of the sampled positions; zero where none was sampled
    baselines: PerQuery | None = None  # expected reward before sampling (REINFORCE)
    boundaries: Weights | None = None  # where a monotonic pointer stopped
    centers: PerQuery | None = None  # center of the window, as a position
    gates: PerQuery | None = None  # weight of a sentinel, which is no position of the source

    @property
    def pointers(self) -> Weights:
        """The start of the next query under monotonic alignment: boundaries, else weights."""
        return self.weights if self.boundaries is None else self.boundaries


def concat_alignments(parts: Sequence[AlignmentOutput]) -> AlignmentOutput:
    """Concatenate the alignments of consecutive queries along the query dimension."""
    query_dim = parts[0].weights.dim() - 2  # the same in every field
    fields = zip(*parts, strict=True)
    return AlignmentOutput._make(
        None if field[0] is None else torch.cat(field, dim=query_dim) for field in fields
    )


class AlignmentLossInputs(NamedTuple):
    """Inputs of auxiliary losses, for whole targets."""

    alignment: AlignmentOutput
    log_likelihoods: PerQuery  # of the target tokens
    target_mask: Bool[Tensor, "*B T"]
    source_mask: Bool[Tensor, "*B S"]


class AlignmentFunction(nn.Module, ABC):
    """Base of all alignments."""

    is_unnormalized = False
    """Whether a row may sum to less than one."""
    has_auxiliary_losses = False
    """Whether `compute_auxiliary_losses` may return any loss."""

    def forward(
        self,
        scores: Scores,
        mask: AnyMask = None,
        queries: Queries | None = None,
        state: AttentionState | None = None,
    ) -> AlignmentOutput:
        """Compute the weights of each query, with a mask (*B, S) or (*B, T, S), or without."""
        *batch, num_queries, num_keys = scores.shape
        device = scores.device
        query_mask = broadcast_mask(mask, batch, num_keys, num_queries, device=device)
        return self.align(scores, query_mask, queries, state)

    @abstractmethod
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        """Compute the weights of each query; several give the same result as one at a time."""

    def compute_auxiliary_losses(self, loss_inputs: AlignmentLossInputs) -> Losses:
        """Return the losses that train this alignment, summed over real targets; here none."""
        return {}


class SoftAlignment(AlignmentFunction):
    """An alignment in which the weights of a query depend only on its own scores."""

    @abstractmethod
    def normalize(self, scores: Scores, mask: Mask) -> Weights:
        """Map each row of scores to weights over the unmasked positions."""

    @override
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        return AlignmentOutput(self.normalize(scores, mask))


class SoftmaxAlignment(SoftAlignment):
    """exp(score / temperature), normalized over the unmasked positions."""

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        assert temperature > 0, temperature
        self.temperature = temperature

    @override
    def normalize(self, scores: Scores, mask: Mask) -> Weights:
        # Mask after dividing: a low temperature would make finfo.min infinite.
        return mask_scores(scores / self.temperature, mask).softmax(dim=-1) * mask


class SoftmaxAlignmentConfig(ModuleConfig):
    """Softmax over the scores."""

    module_class = SoftmaxAlignment
    type: Literal["softmax"] = "softmax"
    temperature: PositiveFloat = 1.0
    """Divisor of the scores: below 1 makes the weights sharper, above 1 flatter."""


class SparsemaxAlignment(SoftAlignment):
    """argmin over the simplex of |weights - scores|^2  (Martins & Astudillo 2016, equation 2)."""

    @override
    def normalize(self, scores: Scores, mask: Mask) -> Weights:
        return entmax(mask_scores(scores, mask), 2.0) * mask


class SparsemaxAlignmentConfig(ModuleConfig):
    """Euclidean projection onto the simplex; most weights are zero (Martins & Astudillo 2016)."""

    module_class = SparsemaxAlignment
    type: Literal["sparsemax"] = "sparsemax"


class EntmaxAlignment(SoftAlignment):
    """[(alpha - 1) score - threshold]_+ ^ (1 / (alpha - 1))  (Peters et al. 2019).

    The threshold makes a row sum to one. Alpha 2 is sparsemax; the limit 1 is softmax. A learned
    alpha is 1 + sigmoid(logit), between the two (Correia et al. 2019).
    """

    def __init__(self, alpha: float = 1.5, *, learned: bool = False) -> None:
        super().__init__()
        assert 1 < alpha < (2 if learned else float("inf")), alpha
        self._alpha = alpha
        self.logit = nn.Parameter(torch.tensor(alpha - 1.0).logit()) if learned else None

    @property
    def alpha(self) -> float | Tensor:
        """The exponent of entmax; a tensor if it is learned."""
        return self._alpha if self.logit is None else 1 + self.logit.sigmoid()

    @override
    def normalize(self, scores: Scores, mask: Mask) -> Weights:
        return entmax(mask_scores(scores, mask), self.alpha) * mask


class EntmaxAlignmentConfig(ModuleConfig):
    """Between softmax and sparsemax; low scores get zero weight (Peters et al. 2019)."""

    module_class = EntmaxAlignment
    type: Literal["entmax"] = "entmax"
    alpha: Annotated[float, Field(gt=1)] = 1.5
    """Sparsity: the limit 1 is softmax, 2 is sparsemax, above 2 is sparser still."""
    learned: bool = False
    """Whether to learn alpha between 1 and 2, starting from `alpha`."""

    @model_validator(mode="after")
    def _check_alpha(self) -> "EntmaxAlignmentConfig":
        if self.learned and self.alpha >= 2:
            raise ValueError(f"a learned alpha must start between 1 and 2, but is {self.alpha:g}")
        return self


SoftAlignmentConfig = Annotated[
    SoftmaxAlignmentConfig | SparsemaxAlignmentConfig | EntmaxAlignmentConfig,
    Field(discriminator="type"),
]


def mask_scores(scores: Scores, mask: Mask) -> Scores:
    """Set masked scores to the lowest finite number."""
    # finfo.min, not -inf: a fully masked row must give zeros, in value and in gradient,
    # and a NaN in the scores must stay visible.
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min)


def upcast(scores: PerPosition) -> PerPosition:
    """Convert to float32 at least: sums over many positions need more digits than bfloat16 has."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def entmax(scores: PerPosition, alpha: float | Tensor) -> PerPosition:
    """Map each row of scores to weights, differentiable in the scores and in a tensor `alpha`.

    Invariants: adding a constant to a row changes nothing, and a score that is 1 / (alpha - 1) or
    more below the maximum gets weight zero.
    """
    return _Entmax.apply(upcast(scores), alpha).to(scores.dtype)


def sparsemax(scores: PerPosition) -> PerPosition:
    """Entmax with alpha 2: projection onto the simplex (Martins & Astudillo 2016, algorithm 1)."""
    shifted, ranked, ranks = _shift_and_rank(scores, alpha=2.0)
    thresholds = (ranked.cumsum(dim=-1) - 1) / ranks
    return (shifted - _select_threshold(thresholds, ranked)).clamp(min=0)


def entmax15(scores: PerPosition) -> PerPosition:
    """Entmax with alpha 1.5: a quadratic for each support (Peters et al. 2019, algorithm 2)."""
    shifted, ranked, ranks = _shift_and_rank(scores, alpha=1.5)
    means = ranked.cumsum(dim=-1) / ranks
    variances = ranked.square().cumsum(dim=-1) / ranks - means.square()
    thresholds = means - (1 / ranks - variances).clamp(min=0).sqrt()
    return (shifted - _select_threshold(thresholds, ranked)).clamp(min=0).square()


def _shift_and_rank(scores: Tensor, alpha: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return (alpha - 1) (score - maximum), the same in descending order, and the ranks from 1."""
    shifted = (scores - scores.amax(dim=-1, keepdim=True)) * (alpha - 1)
    # Those at -1 or below get weight zero. Clamping them to -2 keeps cumulative sums exact and
    # leaves a margin for rounding.
    shifted = shifted.clamp(min=-2.0)
    ranked = shifted.sort(dim=-1, descending=True).values
    return shifted, ranked, torch.arange(1, scores.size(-1) + 1, device=scores.device)


def _select_threshold(thresholds: Tensor, ranked: Tensor) -> Tensor:
    """Select, of the thresholds for supports of size 1, 2, ..., the consistent one."""
    support = (ranked > thresholds).sum(dim=-1, keepdim=True)  # (*B, 1)
    # A row with NaN has an empty support: it must give NaN, not an index error.
    return thresholds.gather(-1, support.clamp(min=1) - 1)


def entmax_bisect(scores: PerPosition, alpha: float | Tensor) -> PerPosition:
    """Entmax with any alpha: find the threshold by bisection (Peters et al. 2019, algorithm 1).

    The weights are written as [1 + (alpha - 1) (score - level)]_+ ^ (1 / (alpha - 1)), which is at
    most exp(score - level) and tends to it as alpha tends to 1. With the maximum score at 0 the
    level is therefore between 0 and log S, and no digits are lost for alpha near 1.
    """
    shifted = scores - scores.amax(dim=-1, keepdim=True)

    def weights_at(level: Tensor) -> Tensor:
        return (((alpha - 1) * (shifted - level)).clamp(min=-1).log1p() / (alpha - 1)).exp()

    level = torch.zeros_like(shifted[..., :1])  # (*B, 1)
    step = math.log(shifted.size(-1))
    # One bit per iteration, and 8 more for large alphas, whose levels are close to 0.
    for _ in range(8 - int(math.log2(torch.finfo(shifted.dtype).eps))):
        step /= 2
        level = level + step * (weights_at(level + step).sum(dim=-1, keepdim=True) >= 1)
    weights = weights_at(level)
    return weights / weights.sum(dim=-1, keepdim=True)  # the sum is at least 1


class _Entmax(torch.autograd.Function):
    """Entmax with a backward pass that needs only the weights, whatever algorithm found them.

    With slope = weight ^ (2 - alpha) on the support and 0 elsewhere, and the incoming gradient
    centered by its mean under the slopes (Peters et al. 2019 for the scores; Correia et al. 2019,
    proposition 1, for alpha):

        d score = slope * centered
        d alpha = sum of (weight / (alpha - 1)^2 - weight log(weight) / (alpha - 1)) * centered
    """

    @staticmethod
    def forward(scores: Tensor, alpha: float | Tensor) -> Tensor:
        closed_forms = {1.5: entmax15, 2.0: sparsemax}
        if isinstance(alpha, Tensor) or alpha not in closed_forms:
            return entmax_bisect(scores, alpha)
        return closed_forms[alpha](scores)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float | Tensor], output: Tensor) -> None:
        is_learned = isinstance(inputs[1], Tensor)
        ctx.save_for_backward(output, inputs[1] if is_learned else None)
        ctx.alpha = None if is_learned else inputs[1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None]:
        weights, learned_alpha = ctx.saved_tensors
        alpha = ctx.alpha if learned_alpha is None else learned_alpha
        support = weights > 0
        # 1 outside the support: logarithms and negative powers of 0 are infinite.
        inside = torch.where(support, weights, 1)
        slopes = inside ** (2 - alpha) * support
        mean = (slopes * gradient).sum(dim=-1, keepdim=True) / slopes.sum(dim=-1, keepdim=True)
        centered = gradient - mean
        if learned_alpha is None:
            return slopes * centered, None
        growth = weights / (alpha - 1) ** 2 + torch.special.entr(inside) / (alpha - 1)
        return slopes * centered, (growth * centered).sum()


FixedPattern = Literal["uniform", "last", "diagonal"]


class FixedAlignment(AlignmentFunction):
    """uniform: 1 / n; last: one at n - 1; diagonal: one at min(t, n - 1) for query t.

    Positions are counted over the n unmasked ones, so padding on either side changes nothing.
    """

    def __init__(self, pattern: FixedPattern = "uniform") -> None:
        super().__init__()
        self.pattern = pattern

    @override
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        ranks = mask.cumsum(dim=-1) - 1  # (*B, T or 1, S), of the unmasked positions
        chosen = mask & self._select(ranks, scores.size(-2), state)  # (*B, T or 1, S)
        # At least float32: half precision cannot count more than 256 or 2048 positions.
        weights = chosen / chosen.sum(dim=-1, keepdim=True).clamp(min=1)
        # Zero times the scores: NaN stays visible, and parameters of the score get a zero gradient
        # instead of none, which several processes could not average.
        return AlignmentOutput(weights.to(scores.dtype) + 0 * scores.masked_fill(~mask, 0))

    def _select(
        self, ranks: Int[Tensor, "*#B #T S"], num_queries: int, state: AttentionState | None
    ) -> Bool[Tensor, "*#B #T S"]:
        """Return which positions a query attends to, by their ranks."""
        if self.pattern == "uniform":
            return torch.ones_like(ranks, dtype=torch.bool)
        last_rank = ranks[..., -1:]
        if self.pattern == "last":
            return ranks == last_rank
        positions = query_positions(state, num_queries, ranks.device).unsqueeze(-1)  # (*B, T, 1)
        return ranks == torch.minimum(positions, last_rank)


class FixedAlignmentConfig(ModuleConfig):
    """Hard-coded connections that ignore the scores: a baseline for learned ones."""

    module_class = FixedAlignment
    type: Literal["fixed"] = "fixed"
    pattern: FixedPattern = "uniform"
    """What every query attends to: all source positions equally (`uniform`), the last one (`last`),
    or the one of its own index, and the last one when the source has ended (`diagonal`)."""
