"""The alignments that never turn back, as a configuration names them."""

from __future__ import annotations

from typing import Annotated, Literal

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import pad

from heedful.attention.alignments import AlignmentFunction, mask_scores
from heedful.attention.outputs import AlignmentOutput, AttentionState
from heedful.config import BaseConfig
from heedful.shapes import Bool, Float

# Monotonic alignments: where does a pointer stop that never turns back?
#
# A pointer walks over the places from left to right. At each it stops, which is where attention
# goes, or it goes on; the next query sets out from where it stopped. Law: the weights of a place
# are the chance that the pointer stops there, so a row sums to less than one by the chance that it
# walked off the end. From there nothing brings it back.

PointerAlgorithm = Literal["recursive", "parallel"]
InferenceBehavior = Literal["hard", "expected"]


class MonotonicAlignment(AlignmentFunction):
    """p_ij q_ij, q_ij = (1 - p_i,j-1) q_i,j-1 + weights_i-1,j  (Raffel et al. 2017, eqs. 13, 14).

    The chance to stop is p = sigmoid(gain * score + bias + noise * N(0, 1)), the noise in training
    only, where it teaches the pointer to be sure. Gain and bias are learned, the g and r of the
    paper's energy. A bias that begins below zero keeps the pointer from stopping at the first
    places of all; a gain above one makes scores that begin flat count beside the noise. The paper
    also divides the additive score's vector by its length: that is a matter of the score.

    In use the pointer stops at the first place with gain * score + bias above zero, and the weights
    are ones and zeros: `inference="hard"`; "expected" keeps the chances of training. A row whose
    pointer walked off the end is zeros, and so are those after it. Of those the paper does not
    speak, but so it is in expectation, and what is used should be what was trained.

    The form "recursive" is exact. "parallel" is the paper's own (appendix C.1), which divides by
    the chance to have come so far and loses a pointer for which that chance is below 1e-10: far
    into a long source, or behind a place where it would be foolish not to stop.
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

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        state: AttentionState | None = None,
    ) -> AlignmentOutput:
        """Walk on for every query, from where the one before it stopped."""
        # Emptied before, so that the gain does not learn from hidden places; hidden after, since
        # a gain below one would raise the least number there is.
        energies = mask_scores(self._energies(scores.masked_fill(~mask, 0)), mask)
        if self.training or self.inference == "expected":
            stop, go = energies.sigmoid(), (-energies).sigmoid()
            advance = (
                advance_pointer if self.algorithm == "recursive" else _advance_pointer_parallel
            )
        else:
            stop = torch.where(energies.isnan(), energies, (energies > 0).to(energies.dtype))
            go, advance = 1 - stop, advance_pointer
        pointers = initial_pointer(energies, state)
        weights = []
        for stop_prob, continue_prob in zip(stop.unbind(dim=-2), go.unbind(dim=-2), strict=True):
            pointers = advance(pointers, stop_prob, continue_prob)
            weights.append(pointers)
        return AlignmentOutput(torch.stack(weights, dim=-2).to(scores.dtype))

    def _energies(self, scores: Float[Tensor, "*B T S"]) -> Float[Tensor, "*B T S"]:
        energies = self.gain * upcast(scores) + self.bias
        return energies + self.noise * torch.randn_like(energies) if self.training else energies


def initial_pointer(
    scores: Float[Tensor, "*B T S"], state: AttentionState | None
) -> Float[Tensor, "*B S"]:
    """Say where the next query sets out: where the last stopped, or at the very first place."""
    first = torch.zeros_like(scores[..., 0, :])
    first[..., 0] = 1
    if state is None:
        return first
    return torch.where(
        (state.num_queries == 0).unsqueeze(-1), first, state.last_weights.to(first.dtype)
    )


def advance_pointer(
    pointers: Float[Tensor, "*B S"],
    stop_probs: Float[Tensor, "*B S"],
    continue_probs: Float[Tensor, "*B S"],
) -> Float[Tensor, "*B S"]:
    """Let pointers walk on until they stop, given the chances to stop at and to leave a place."""
    return stop_probs * linear_recurrence(pointers, pad(continue_probs[..., :-1], (1, 0)))


def linear_recurrence(
    gains: Float[Tensor, "*B S"], decays: Float[Tensor, "*B S"]
) -> Float[Tensor, "*B S"]:
    """x_j = gain_j + decay_j x_j-1, for all places at once in log2(S) rounds.

    Each round doubles how far back a place has heard (Hillis & Steele 1986). Nothing is divided,
    so nothing is lost however small the decays.
    """
    reach = 1
    while reach < gains.size(-1):
        gains = gains + decays * pad(gains[..., :-reach], (reach, 0))
        decays = decays * pad(decays[..., :-reach], (reach, 0))
        reach *= 2
    return gains


def upcast(scores: Float[Tensor, "*B T S"]) -> Float[Tensor, "*B T S"]:
    """Give scores the digits that sums and products over many places need."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _advance_pointer_parallel(
    pointers: Tensor, stop_probs: Tensor, continue_probs: Tensor
) -> Tensor:
    reach_probs = pad(continue_probs[..., :-1], (1, 0), value=1.0).cumprod(dim=-1)
    return stop_probs * reach_probs * (pointers / reach_probs.clamp(1e-10, 1)).cumsum(dim=-1)


# Chunkwise alignment: what of the few places before a boundary is looked at?
#
# A monotonic pointer says where the chunk ends; a softmax over the chunk says what is looked at
# there. Law: no weight lies more than the chunk's width before a place where the pointer may stop,
# and a row sums to the chance that it stopped at all.


class MonotonicChunkwiseAlignment(AlignmentFunction):
    """sum_k stop_k softmax(score_l, k - width < l <= k)_j, k from j on  (Chiu & Raffel 2018).

    The paper has one energy for the boundaries and another for the chunks. Here one score serves
    both: it says what stands there, the learned gain and bias of the boundaries what is enough to
    stop.
    """

    is_unnormalized = True

    def __init__(self, boundaries: MonotonicAlignment, *, chunk_size: int) -> None:
        super().__init__()
        assert chunk_size > 0, chunk_size
        self.boundaries = boundaries
        self.chunk_size = chunk_size

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        state: AttentionState | None = None,
    ) -> AlignmentOutput:
        """Find the boundaries, then share what each got among its chunk."""
        stops = self.boundaries(scores, mask, queries, state).weights
        chunk_shares = upcast(stops).unsqueeze(-1) * self._chunk_weights(upcast(scores), mask)
        return AlignmentOutput(
            self._sum_over_chunks(chunk_shares).to(scores.dtype), boundaries=stops
        )

    def _chunk_weights(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Share one unit among the places of the chunk that ends at each place."""
        before = (self.chunk_size - 1, 0)
        seen = pad(mask, before).unfold(-1, self.chunk_size, 1)  # (*B, T or 1, S, width)
        # Windows of scores, not sums of their exponentials: those overflow.
        chunks = mask_scores(
            pad(scores, before).unfold(-1, self.chunk_size, 1), seen
        )  # (*B, T, S, width)
        return chunks.softmax(dim=-1) * seen

    def _sum_over_chunks(self, chunk_shares: Tensor) -> Tensor:
        """Add up what a place got in each of the chunks that hold it."""
        # Turned round, share d of the chunk at k belongs to place k - d: the places of one j
        # lie on a diagonal of the windows that begin at j.
        later = pad(
            chunk_shares.flip(-1), (0, 0, 0, self.chunk_size - 1)
        )  # (*B, T, S + width - 1, width)
        windows = later.unfold(-2, self.chunk_size, 1)  # (*B, T, S, width, width)
        return torch.diagonal(windows, dim1=-2, dim2=-1).sum(dim=-1)


# Marginal alignments: where does the next token come from, if it is not known where the last did?
#
# Each token comes from one place. Which one is never decided, only how likely each is: all paths
# are kept, and added up exactly. Law: the weights are the chances of the places for the next token,
# summed over where the last may have come from.


class MonotonicMarginalAlignment(AlignmentFunction):
    """sum over j' <= j of belief_j' softmax_{k >= j'}(scores)_j  (Wu & Cotterell 2019).

    The belief is where the last token came from, as far as is known: `past.last`, into which a
    decoder puts what it learned from the token itself. Before the first token it is the first
    place, so that the first weights are a softmax over all.

    Masks that change from query to query can hide all places at and after the belief: it then
    falls back on the last visible place, and where none is visible it stays for the next query.
    """

    def forward(
        self,
        scores: Float[Tensor, "*B T S"],
        mask: Bool[Tensor, "*#B #T S"],
        queries: Float[Tensor, "*B T Q"] | None = None,
        state: AttentionState | None = None,
    ) -> AlignmentOutput:
        """Move the belief on for every query."""
        full_mask = mask.expand(scores.shape)
        stop, go = _stop_and_go_probabilities(upcast(scores), full_mask)
        belief = initial_pointer(stop, state)
        weights, beliefs = [], []
        steps = zip(stop.unbind(dim=-2), go.unbind(dim=-2), full_mask.unbind(dim=-2), strict=True)
        for stop_prob, continue_prob, visible in steps:
            moved = advance_pointer(_move_to_visible(belief, visible), stop_prob, continue_prob)
            belief = torch.where(visible.any(dim=-1, keepdim=True), moved, belief)
            weights.append(moved)
            beliefs.append(belief)
        found = [torch.stack(each, dim=-2).to(scores.dtype) for each in (weights, beliefs)]
        return AlignmentOutput(found[0], boundaries=found[1])


def _stop_and_go_probabilities(
    scores: Float[Tensor, "*B T S"], mask: Bool[Tensor, "*B T S"]
) -> tuple[Float[Tensor, "*B T S"], Float[Tensor, "*B T S"]]:
    """Write each softmax over a place and those after it as a walk: stop here, or go on?

    The chance to stop is exp(score_j) / rest_j, that to go on rest_j+1 / rest_j, where rest_j
    sums the exponentials from j on. Every rest is held as a multiple of its own greatest term, so
    that scores of any size neither overflow nor vanish.
    """
    hidden = mask_scores(scores, mask)
    greatest = hidden.flip(-1).cummax(dim=-1).values.flip(-1).detach()
    own = (hidden - greatest).exp() * mask
    fall = pad((greatest[..., 1:] - greatest[..., :-1]).exp(), (0, 1))
    remaining_mass = linear_recurrence(own.flip(-1), fall.flip(-1)).flip(-1)
    divisor = torch.where(
        remaining_mass == 0, 1, remaining_mass
    )  # there is no rest where all that follows is hidden
    return own / divisor, fall * pad(remaining_mass[..., 1:], (0, 1)) / divisor


def _move_to_visible(
    belief: Float[Tensor, "*B S"], mask: Bool[Tensor, "*B S"]
) -> Float[Tensor, "*B S"]:
    """Move what has nothing visible ahead of it to the last visible place."""
    ahead = mask.flip(-1).cumsum(dim=-1).flip(-1)  # visible places from here on
    stranded = (belief * (ahead == 0)).sum(dim=-1, keepdim=True)
    return belief * (ahead > 0) + stranded * (mask & (ahead == 1))


class MonotonicAlignmentConfig(BaseConfig):
    """Walk over the source with a pointer that never turns back (Raffel et al. 2017)."""

    type: Literal["monotonic"] = "monotonic"
    gain: float = 1.0
    """What every score is multiplied by, at first; raise it for scores that begin flat."""
    bias: float = -1.0
    """What is added to every score, at first; the longer the sources, the lower it should be."""
    noise: NonNegativeFloat = 1.0
    """How strong the noise is that teaches the pointer to be sure; the paper has 1."""
    algorithm: PointerAlgorithm = "recursive"
    """How the chances are added up: recursive is exact, parallel is the paper's and is not."""
    inference: InferenceBehavior = "hard"
    """Whether the pointer stops at one place when used, or keeps its chances: expected."""

    def build(self, *, query_size: int) -> MonotonicAlignment:
        """Make the alignment."""
        return MonotonicAlignment(
            gain=self.gain,
            bias=self.bias,
            noise=self.noise,
            algorithm=self.algorithm,
            inference=self.inference,
        )


class MonotonicChunkwiseAlignmentConfig(BaseConfig):
    """Look at the few places before a monotonic pointer (Chiu & Raffel 2018)."""

    type: Literal["monotonic-chunkwise"] = "monotonic-chunkwise"
    chunk_size: PositiveInt = 2
    """Places in a chunk, that of the pointer among them."""
    boundaries: MonotonicAlignmentConfig = MonotonicAlignmentConfig()
    """How the pointer walks."""

    def build(self, *, query_size: int) -> MonotonicChunkwiseAlignment:
        """Make the alignment."""
        return MonotonicChunkwiseAlignment(
            self.boundaries.build(query_size=query_size), chunk_size=self.chunk_size
        )


class MonotonicMarginalAlignmentConfig(BaseConfig):
    """Add up all ways through the source that never turn back (Wu & Cotterell 2019)."""

    type: Literal["monotonic-marginal"] = "monotonic-marginal"

    def build(self, *, query_size: int) -> MonotonicMarginalAlignment:
        """Make the alignment."""
        return MonotonicMarginalAlignment()


AnyMonotonicAlignmentConfig = Annotated[
    MonotonicAlignmentConfig | MonotonicChunkwiseAlignmentConfig | MonotonicMarginalAlignmentConfig,
    Field(discriminator="type"),
]
