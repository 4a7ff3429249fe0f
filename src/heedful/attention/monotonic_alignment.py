"""Monotonic alignments: a pointer moves over the source from left to right and never back.

At each position the pointer stops, with some probability, or moves on; the next query starts where
it stopped. Invariant: the weight of a position is the probability that the pointer stops there, so
a row sums to the probability that it has not passed the end; it never returns from there.
"""

from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import pad
from typing_extensions import override

from heedful.attention.alignments import (
    AlignmentFunction,
    AlignmentOutput,
    InferenceBehavior,
    mask_scores,
    upcast,
)
from heedful.attention.memory import AttentionState
from heedful.config import ModuleConfig
from heedful.ops import op
from heedful.shapes import Bool, Mask, PerPosition, Queries, Scores, Weights

PointerAlgorithm = Literal["recursive", "parallel"]


class MonotonicAlignment(AlignmentFunction):
    """p_ij q_ij, q_ij = (1 - p_i,j-1) q_i,j-1 + weights_i-1,j  (Raffel et al. 2017, eqs. 13, 14).

    The stop probability is p = sigmoid(gain * score + bias + noise * N(0, 1)); the noise, only in
    training, pushes p towards 0 and 1. Gain and bias are learned, the g and r of the paper's
    energy: a negative initial bias keeps the pointer from stopping at the first positions, a gain
    above one lets small initial scores matter beside the noise. The paper also normalizes the
    vector of the additive score, which is left to the score here.

    At inference with `inference="hard"` the pointer stops at the first position with gain * score +
    bias > 0, and weights are ones and zeros; "expected" keeps the probabilities. Once the pointer
    has passed the end, this row and all later ones are zero, as in the expectation that the model
    is trained with; the paper leaves this case open.

    The algorithm "recursive" is exact. "parallel" (appendix C.1) divides by the probability of
    reaching a position and is wrong where that is below 1e-10: in long sources, or after a position
    where stopping is nearly certain.
    """

    is_unnormalized = True

    def __init__(
        self,
        *,
        gain: float = 1.0,
        bias: float = -1.0,
        noise: float = 1.0,
        algorithm: PointerAlgorithm = "recursive",
        inference: InferenceBehavior = "hard",
    ) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(float(gain)))
        self.bias = nn.Parameter(torch.tensor(float(bias)))
        self.noise = noise
        self.algorithm = algorithm
        self.inference = inference

    @override
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        # Zeros first, so that the gain gets no gradient from masked positions; masked again after,
        # since a gain below one would raise finfo.min.
        energies = self.gain * upcast(scores.masked_fill(~mask, 0)) + self.bias
        if self.training:
            energies = energies + self.noise * torch.randn_like(energies)
        energies = mask_scores(energies, mask)
        if self.training or self.inference == "expected":
            stop, move = energies.sigmoid(), (-energies).sigmoid()
            is_exact = self.algorithm == "recursive"
            advance = advance_pointer if is_exact else _advance_pointer_parallel
        else:
            stop = torch.where(energies.isnan(), energies, (energies > 0).to(energies.dtype))
            move, advance = 1 - stop, advance_pointer
        pointer = initial_pointer(energies, state)
        weights = []
        for stop_probs, move_probs in zip(stop.unbind(dim=-2), move.unbind(dim=-2), strict=True):
            pointer = advance(pointer, stop_probs, move_probs)
            weights.append(pointer)
        return AlignmentOutput(torch.stack(weights, dim=-2).to(scores.dtype))


class MonotonicAlignmentConfig(ModuleConfig):
    """A pointer that moves over the source from left to right (Raffel et al. 2017)."""

    module_class = MonotonicAlignment
    type: Literal["monotonic"] = "monotonic"
    gain: float = 1.0
    """Initial factor of the scores; raise it if scores are small at first."""
    bias: float = -1.0
    """Initial offset of the scores; the longer the sources, the lower it should be."""
    noise: NonNegativeFloat = 1.0
    """Standard deviation of the noise that makes stop probabilities discrete; 1 in the paper."""
    algorithm: PointerAlgorithm = "recursive"
    """`recursive` is exact; `parallel` is the paper's, inexact in long sources."""
    inference: InferenceBehavior = "hard"
    """At inference, `hard` stops at one position; `expected` keeps the probabilities."""


def initial_pointer(scores: Scores, state: AttentionState | None) -> PerPosition:
    """Return where the next query starts: where the last one stopped, or the first position."""
    first = pad(torch.ones_like(scores[..., 0, :1]), (0, scores.size(-1) - 1))
    if state is None:
        return first
    is_first_query = (state.num_queries == 0).unsqueeze(-1)
    return torch.where(is_first_query, first, state.last_weights.to(first.dtype))


def advance_pointer(pointer: PerPosition, stop: PerPosition, move: PerPosition) -> PerPosition:
    """Move the distribution of the pointer to where it stops next."""
    return stop * linear_recurrence(pointer, pad(move[..., :-1], (1, 0)))


@op
def linear_recurrence(gains: PerPosition, decays: PerPosition) -> PerPosition:
    """Compute x_j = gain_j + decay_j x_j-1 for all positions in log2(S) steps.

    A parallel prefix scan (Hillis & Steele 1986) without division, exact for any decays.
    """
    offset = 1
    while offset < gains.size(-1):
        gains = gains + decays * pad(gains[..., :-offset], (offset, 0))
        decays = decays * pad(decays[..., :-offset], (offset, 0))
        offset *= 2
    return gains


def _advance_pointer_parallel(pointer: Tensor, stop: Tensor, move: Tensor) -> Tensor:
    reach = pad(move[..., :-1], (1, 0), value=1.0).cumprod(dim=-1)
    return stop * reach * (pointer / reach.clamp(1e-10, 1)).cumsum(dim=-1)


class MonotonicChunkwiseAlignment(AlignmentFunction):
    """sum_{k >= j} stop_k softmax(score_l, k - chunk_size < l <= k)_j  (Chiu & Raffel 2018).

    A monotonic pointer gives the end of a chunk, and a softmax distributes its weight over the
    chunk. The paper has separate energies for pointer and chunk; here both use one score, and the
    gain and bias of the pointer set the threshold for stopping. Invariant: no weight is
    `chunk_size` or more positions before a possible stop, and a row sums to the probability that
    the pointer stopped.
    """

    is_unnormalized = True

    def __init__(self, boundaries: MonotonicAlignment, *, chunk_size: int) -> None:
        super().__init__()
        assert chunk_size > 0, chunk_size
        self.boundaries = boundaries
        self.chunk_size = chunk_size

    @override
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        boundaries = self.boundaries.align(scores, mask, queries, state).weights
        # The chunk that ends at each position, padded before the first: (*B, T, S, chunk_size). A
        # softmax of each window, not cumulative sums of exponentials, which overflow.
        size = self.chunk_size
        chunk_mask = pad(mask, (size - 1, 0)).unfold(-1, size, 1)
        chunks = mask_scores(pad(upcast(scores), (size - 1, 0)).unfold(-1, size, 1), chunk_mask)
        chunk_weights = upcast(boundaries).unsqueeze(-1) * (chunks.softmax(dim=-1) * chunk_mask)
        # Sum the weights of a position over all chunks that contain it. After the flip, entry d of
        # the chunk at k belongs to position k - d, so the weights of position j are on a diagonal
        # of the windows that begin at j: (*B, T, S, chunk_size, chunk_size).
        windows = pad(chunk_weights.flip(-1), (0, 0, 0, size - 1)).unfold(-2, size, 1)
        weights = torch.diagonal(windows, dim1=-2, dim2=-1).sum(dim=-1)
        return AlignmentOutput(weights.to(scores.dtype), boundaries=boundaries)


class MonotonicChunkwiseAlignmentConfig(ModuleConfig):
    """Softmax over a chunk that ends at a monotonic pointer (Chiu & Raffel 2018)."""

    module_class = MonotonicChunkwiseAlignment
    type: Literal["monotonic-chunkwise"] = "monotonic-chunkwise"
    chunk_size: PositiveInt = 2
    """Number of positions in a chunk, including the pointer's."""
    boundaries: MonotonicAlignmentConfig = MonotonicAlignmentConfig()
    """The pointer that gives the end of the chunk."""


class MonotonicMarginalAlignment(AlignmentFunction):
    """sum over j' <= j of belief_j' softmax_{k >= j'}(scores)_j  (Wu & Cotterell 2019).

    Each token comes from one source position; all monotonic paths are summed exactly. The belief is
    the distribution of the position of the last token, `state.last_weights`, which the decoder
    replaces by the posterior given that token. Before the first token it is the first position, so
    the first weights are a softmax over the whole source.

    Masks that differ between queries can hide all positions from the belief on: it then moves to
    the last unmasked position, and stays unchanged if there is none. Invariant: weights are the
    probabilities of the position of the next token, summed over the position of the last one.
    """

    @override
    def align(
        self, scores: Scores, mask: Mask, queries: Queries | None, state: AttentionState | None
    ) -> AlignmentOutput:
        full_mask = mask.expand(scores.shape)
        stop, move = _stop_and_move_probabilities(upcast(scores), full_mask)
        belief = initial_pointer(stop, state)
        weights, beliefs = [], []
        steps = zip(stop.unbind(dim=-2), move.unbind(dim=-2), full_mask.unbind(dim=-2), strict=True)
        for stop_probs, move_probs, step_mask in steps:
            advanced = advance_pointer(_move_to_visible(belief, step_mask), stop_probs, move_probs)
            belief = torch.where(step_mask.any(dim=-1, keepdim=True), advanced, belief)
            weights.append(advanced)
            beliefs.append(belief)
        return AlignmentOutput(
            torch.stack(weights, dim=-2).to(scores.dtype),
            boundaries=torch.stack(beliefs, dim=-2).to(scores.dtype),
        )


class MonotonicMarginalAlignmentConfig(ModuleConfig):
    """Exact marginalization over all monotonic alignments (Wu & Cotterell 2019)."""

    module_class = MonotonicMarginalAlignment
    type: Literal["monotonic-marginal"] = "monotonic-marginal"


def _stop_and_move_probabilities(
    scores: Scores, mask: Bool[Tensor, "*B T S"]
) -> tuple[Weights, Weights]:
    """Write the softmax over each suffix of the source as stop and move probabilities.

    The stop probability is exp(score_j) / rest_j, the move probability rest_j+1 / rest_j, where
    rest_j is the sum of exponentials from j on. Each rest is kept relative to its largest term, so
    scores of any size neither overflow nor underflow.
    """
    masked = mask_scores(scores, mask)
    suffix_max = masked.flip(-1).cummax(dim=-1).values.flip(-1).detach()
    terms = (masked - suffix_max).exp() * mask
    decays = pad((suffix_max[..., 1:] - suffix_max[..., :-1]).exp(), (0, 1))
    rest = linear_recurrence(terms.flip(-1), decays.flip(-1)).flip(-1)
    divisor = torch.where(rest == 0, 1, rest)  # zero where all later positions are masked
    return terms / divisor, decays * pad(rest[..., 1:], (0, 1)) / divisor


def _move_to_visible(belief: PerPosition, mask: Bool[Tensor, "*B S"]) -> PerPosition:
    """Move probability without unmasked positions ahead to the last unmasked position."""
    num_ahead = mask.flip(-1).cumsum(dim=-1).flip(-1)  # unmasked positions from here on
    stranded = (belief * (num_ahead == 0)).sum(dim=-1, keepdim=True)
    return belief * (num_ahead > 0) + stranded * (mask & (num_ahead == 1))


AnyMonotonicAlignmentConfig = Annotated[
    MonotonicAlignmentConfig | MonotonicChunkwiseAlignmentConfig | MonotonicMarginalAlignmentConfig,
    Field(discriminator="type"),
]
