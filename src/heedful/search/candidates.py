"""Candidates of beam search: top-k continuations, length bounds, and selection of the next beam.

Continuations are ranked on the model's device; the few best of each beam are copied to the host.
Invariants: length bounds equal the length processors; one group is a plain beam.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor

from heedful.config import BaseConfig
from heedful.errors import check
from heedful.ops import op
from heedful.search.logits_processors import MinLength, no_eos_error
from heedful.shapes import Float, Int


class Candidates(NamedTuple):
    """Continuations (beams, C) of every beam, best first.

    An empty slot has -inf in `cumulative_log_probs`.
    """

    cumulative_log_probs: NDArray[np.float64]  # what they are ranked by, after processors
    log_probs: NDArray[np.float64]  # model log-probability of the last token alone
    tokens: NDArray[np.int64]
    rows: NDArray[np.int64]  # rows of the batch that they continue
    num_missing: NDArray[np.int64]  # tokens that constraints still require

    def map_arrays(self, transform: Callable[[NDArray[Any]], NDArray[Any]]) -> Candidates:
        """Apply one function to every array."""
        return Candidates(*map(transform, self))

    def select_beams(self, beams: NDArray[np.int64]) -> Candidates:
        """Return the candidates of these beams."""
        return self.map_arrays(lambda array: array[beams])

    def reorder(self, order: NDArray[np.int64]) -> Candidates:
        """Return the candidates with these indices (beams, K) in each beam, in this order."""
        beams = np.arange(len(order))[:, None]
        return self.map_arrays(lambda array: array[beams, order])

    def drop(self, is_dropped: NDArray[np.bool_]) -> Candidates:
        """Replace these candidates (beams, C) by empty slots and move the slots to the end."""
        totals = np.where(is_dropped, -np.inf, self.cumulative_log_probs)
        order = np.argsort(is_dropped, axis=1, kind="stable")
        return self._replace(cumulative_log_probs=totals).reorder(order)


class OpenBeams(NamedTuple):
    """The beams of the current batch."""

    sentence_ids: NDArray[np.int64]  # (beams,)
    cumulative_log_probs: NDArray[np.float64]  # (beams, K); -inf for an empty slot
    depth: int  # tokens per hypothesis


@op
def find_candidates(
    allowed_log_probs: Float[Tensor, "R N"],
    model_log_probs: Float[Tensor, "R N"],
    cumulative_log_probs: NDArray[np.float64],
    num_candidates: int,
) -> Candidates:
    """Return the best continuations of each beam, ranked by what the processors allow."""
    dtype = torch.promote_types(model_log_probs.dtype, torch.float32)
    totals = torch.from_numpy(cumulative_log_probs).to(model_log_probs.device, dtype)
    best, indices = rank_all(allowed_log_probs, totals, num_candidates)
    first_rows = totals.size(1) * torch.arange(len(totals), device=totals.device)[:, None]
    vocab_size = allowed_log_probs.size(1)
    return to_candidates(
        best, first_rows + indices // vocab_size, indices % vocab_size, model_log_probs
    )


def rank_all(
    log_probs: Float[Tensor, "R N"], totals: Float[Tensor, "U K"], num_candidates: int
) -> tuple[Float[Tensor, "U C"], Int[Tensor, "U C"]]:
    """Rank all tokens of all rows of each beam; return totals and indices into (K * N)."""
    extended_totals = (totals.view(-1, 1) + log_probs).view(len(totals), -1)  # (U, K * N)
    return extended_totals.topk(min(num_candidates, extended_totals.size(1)))


def to_candidates(
    totals: Float[Tensor, "U C"],
    rows: Int[Tensor, "U C"],
    tokens: Int[Tensor, "U C"],
    model_log_probs: Float[Tensor, "R N"],
) -> Candidates:
    """Copy ranked continuations to the host, in two transfers."""
    log_probs = model_log_probs[rows, tokens].to(totals)
    scores = torch.stack([totals, log_probs]).cpu().numpy().astype(np.float64)
    indices = torch.stack([tokens, rows]).cpu().numpy()
    return Candidates(scores[0], scores[1], indices[0], indices[1], np.zeros_like(indices[0]))


class LengthBounds:
    """Minimum and maximum output lengths, applied to candidates.

    The result is that of the processors `MinLength` and `MaxLength`, which would copy the
    log-probabilities of the whole vocabulary at every step.
    """

    def __init__(
        self, min_length: MinLength | None, max_lengths: Sequence[int], *, eos: int
    ) -> None:
        self.min_lengths = min_length.lengths.cpu().numpy() if min_length else np.zeros(0, np.int64)
        self.largest_min_length = int(self.min_lengths.max(initial=0))
        self.max_lengths = np.array(max_lengths, dtype=np.int64)
        self.smallest_max_length = min(max_lengths, default=0)
        self.eos = eos

    def is_eos_too_early(self, candidates: Candidates, beams: OpenBeams) -> NDArray[np.bool_]:
        """Return which candidates (beams, C) are EOS below the minimum length."""
        is_end = candidates.tokens == self.eos
        if beams.depth >= self.largest_min_length:
            return np.zeros_like(is_end)
        return is_end & (self.min_lengths[beams.sentence_ids] > beams.depth)[:, None]

    def force_eos(
        self,
        candidates: Candidates,
        beams: OpenBeams,
        *,
        allowed_log_probs: Float[Tensor, "R N"],
        model_log_probs: Float[Tensor, "R N"],
    ) -> Candidates:
        """Replace the candidates of beams at their maximum length by EOS for every hypothesis."""
        if beams.depth < self.smallest_max_length:
            return candidates
        is_long = self.max_lengths[beams.sentence_ids] <= beams.depth
        at_limit = np.flatnonzero(is_long & (beams.cumulative_log_probs.max(axis=1) > -np.inf))
        if not len(at_limit):
            return candidates
        beam_size = beams.cumulative_log_probs.shape[1]
        rows = beam_size * at_limit[:, None] + np.arange(beam_size)
        device_rows = torch.from_numpy(rows).to(model_log_probs.device)
        of_model, allowed = (
            log_probs[device_rows, self.eos].double().cpu().numpy()
            for log_probs in (model_log_probs, allowed_log_probs)
        )
        if (of_model == -np.inf).any():
            raise no_eos_error(beams.depth)
        # Where processors forbid EOS, too, it is still the only token left.
        totals = beams.cumulative_log_probs[at_limit] + np.where(
            allowed > -np.inf, allowed, of_model
        )
        # One candidate per row, best first, then empty slots up to the number of candidates.
        best_first = np.argsort(-totals, axis=1, kind="stable")
        slots = np.arange(candidates.tokens.shape[1]) % beam_size
        ended = Candidates(
            totals, of_model, np.full_like(rows, self.eos), rows, np.zeros_like(rows)
        ).reorder(best_first[:, slots])
        ended.cumulative_log_probs[:, beam_size:] = -np.inf
        arrays: list[NDArray[Any]] = [array.copy() for array in candidates]
        for array, values in zip(arrays, ended, strict=True):
            array[at_limit] = values
        return Candidates(*arrays)


class BeamGroups(NamedTuple):
    """Groups of hypotheses that avoid each other's tokens (Vijayakumar et al. 2018, section 4).

    A group ranks by log P - penalty * (number of hypotheses of earlier groups that selected the
    token at this step); the score of a hypothesis remains log P. One group is a plain beam.
    """

    num_groups: int = 1
    penalty: float = 0.5

    def group_size(self, beam_size: int) -> int:
        """Return the number of hypotheses per group."""
        check(
            self.num_groups >= 1 and beam_size % self.num_groups == 0,
            "diversity.num_beam_groups",
            f"beam_size {beam_size} is not divisible by {self.num_groups} groups",
            "choose a number of groups that divides beam_size",
        )
        return beam_size // self.num_groups


class BeamSelection(NamedTuple):
    """Candidates of some beams that finish or stay open."""

    candidates: Candidates
    is_finished: NDArray[np.bool_]  # (beams, C)
    open_indices: NDArray[np.int64]  # (beams, K) indices of the open candidates
    cumulative_log_probs: NDArray[np.float64]  # (beams, K) of these; -inf if there are fewer


def select_candidates(candidates: Candidates, *, eos: int, beam_size: int) -> BeamSelection:
    """Select the next hypotheses of every beam from candidates in their order.

    EOS finishes a hypothesis if it is among the best `beam_size` candidates of its bank; the open
    ones are taken from the banks in turn, the best of each bank first.
    """
    is_real = candidates.cumulative_log_probs > -np.inf
    is_end = is_real & (candidates.tokens == eos)
    is_open = is_real & ~is_end
    if candidates.num_missing.any():
        ranks = _rank_within_bank(candidates.num_missing, is_real)
        open_ranks = _rank_within_bank(candidates.num_missing, is_open)
        order = np.lexsort((candidates.num_missing, open_ranks, ~is_open))
    else:
        ranks = np.arange(is_real.shape[1])
        order = np.argsort(~is_open, axis=1, kind="stable")
    open_indices = order[:, :beam_size]
    totals = np.where(is_open, candidates.cumulative_log_probs, -np.inf)
    beams = np.arange(len(open_indices))[:, None]
    return BeamSelection(
        candidates, is_end & (ranks < beam_size), open_indices, totals[beams, open_indices]
    )


def select_in_groups(
    candidates: Candidates,
    beam_ids: NDArray[np.int64],
    groups: BeamGroups,
    *,
    eos: int,
    beam_size: int,
) -> BeamSelection:
    """Select group after group; each is penalized for the tokens of the groups before it.

    Beam i belongs to sentence i // num_groups and to group i % num_groups of it.
    """
    if groups.num_groups == 1:
        return select_candidates(candidates, eos=eos, beam_size=beam_size)
    token_counts: dict[int, Counter[int]] = defaultdict(Counter)
    selections, order = [], []
    for group in range(groups.num_groups):
        beams = np.flatnonzero(beam_ids % groups.num_groups == group)
        sentence_ids = beam_ids[beams] // groups.num_groups
        penalized = apply_diversity_penalty(
            candidates.select_beams(beams), sentence_ids, token_counts, groups.penalty
        )
        selections.append(select_candidates(penalized, eos=eos, beam_size=beam_size))
        count_selected_tokens(token_counts, sentence_ids, selections[-1])
        order.append(beams)
    positions = np.argsort(np.concatenate(order))
    arrays = zip(*(selection.candidates for selection in selections), strict=True)
    others = zip(*(selection[1:] for selection in selections), strict=True)
    return BeamSelection(
        Candidates(*(np.concatenate(parts)[positions] for parts in arrays)),
        *(np.concatenate(parts)[positions] for parts in others),
    )


def apply_diversity_penalty(
    candidates: Candidates,
    sentence_ids: NDArray[np.int64],
    token_counts: Mapping[int, Counter[int]],
    penalty: float,
) -> Candidates:
    """Sort candidates by their scores less the penalty for tokens that earlier groups selected."""
    counts = [
        [token_counts[sentence][token] for token in tokens]
        for sentence, tokens in zip(sentence_ids.tolist(), candidates.tokens.tolist(), strict=True)
    ]
    totals = candidates.cumulative_log_probs
    cost = penalty * np.array(counts, dtype=np.float64).reshape(totals.shape)
    return candidates.reorder(np.argsort(cost - totals, axis=1, kind="stable"))


def count_selected_tokens(
    token_counts: Mapping[int, Counter[int]],
    sentence_ids: NDArray[np.int64],
    selection: BeamSelection,
) -> None:
    """Add the tokens that a group selected to the counts of its sentences."""
    for beam, sentence in enumerate(sentence_ids.tolist()):
        tokens = selection.candidates.tokens[beam]
        is_real = selection.cumulative_log_probs[beam] > -np.inf
        token_counts[sentence].update(tokens[selection.is_finished[beam]].tolist())
        token_counts[sentence].update(tokens[selection.open_indices[beam]][is_real].tolist())


def _rank_within_bank(banks: NDArray[np.int64], is_counted: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return how many counted candidates of the same bank precede each candidate."""
    is_before = np.tri(banks.shape[1], k=-1, dtype=bool)
    is_same_bank = banks[:, :, None] == banks[:, None, :]
    return (is_same_bank & is_before & is_counted[:, None, :]).sum(axis=-1)


class BeamGroupsConfig(BaseConfig):
    """Groups of hypotheses that avoid each other's tokens (Vijayakumar et al. 2018, section 4)."""

    num_beam_groups: PositiveInt = 1
    """Number of groups that share the beam; 1 is a plain beam."""
    diversity_penalty: NonNegativeFloat = 0.5
    """Subtracted from log P for every earlier group that selected the token at the same step."""

    def build(self) -> BeamGroups:
        return BeamGroups(self.num_beam_groups, self.diversity_penalty)
