"""Beam search: the few likeliest beginnings, grown side by side.

All sentences are searched in one batch; those that are done leave it, a few at a time. With width 1
this is greedy search, and with a beam as wide as the space of outputs it is exhaustive. What the
model says is ranked where the model is; the few candidates come to the host, where the book is
kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.pytree import map_rows, select_rows, tensors_of
from heedful.search.candidates import (
    BeamGroups,
    BeamSelection,
    Candidates,
    apply_diversity_penalty,
    count_selected_tokens,
    eos_candidates,
    find_candidates,
    select_candidates,
)
from heedful.search.constraints import ConstrainedBeam, DisjunctiveConstraint
from heedful.search.hypotheses import FinishedRow, Hypothesis, Trellis, nan_log_probs_error
from heedful.search.logits_processors import (
    ForcedPrefix,
    LogitsProcessor,
    MaxLength,
    MinLength,
    apply_processors,
    no_eos_error,
)
from heedful.search.penalties import CoveragePenalty, LengthPenalty
from heedful.search.protocol import State, StepwiseModel
from heedful.search.stopping import FIRST_FINISHED, BeamStatus, HeuristicStopping, StoppingCriterion
from heedful.shapes import Float, Int

# Bounds: which beams may not end yet, and which must?
#
# The same as the rules `MinLength` and `MaxLength`, said of the few candidates of a beam instead of all
# words of the vocabulary: a rule would copy what the model said of every word at every step.


class OpenBeams(NamedTuple):
    """The beams that are in the batch."""

    sentence_ids: NDArray[np.int64]  # (beams,) the sentence of each
    cumulative_log_probs: NDArray[
        np.float64
    ]  # (beams, K) of their hypotheses; -inf where there is none
    depth: int  # tokens that they have


class LengthBounds:
    """The shortest and the longest output of each sentence."""

    def __init__(
        self, min_length: MinLength | None, max_lengths: Sequence[int], *, eos: int
    ) -> None:
        self.min_lengths = min_length.lengths.cpu().numpy() if min_length else None
        self.largest_min_length = (
            0 if self.min_lengths is None else int(self.min_lengths.max(initial=0))
        )
        self.max_lengths = np.array(max_lengths, dtype=np.int64)
        self.smallest_max_length = min(max_lengths, default=0)
        self.eos = eos

    def is_eos_too_early(self, candidates: Candidates, beams: OpenBeams) -> NDArray[np.bool_]:
        """Say which candidates would end beams that are too short."""
        is_end = candidates.tokens == self.eos
        if self.min_lengths is None or beams.depth >= self.largest_min_length:
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
        """Let beams end that are as long as they may be, and do nothing else.

        `left` is what rules left of what the model `matched`.
        """
        if beams.depth < self.smallest_max_length:
            return candidates
        is_long = self.max_lengths[beams.sentence_ids] <= beams.depth
        at_limit = np.flatnonzero(is_long & (beams.cumulative_log_probs.max(axis=1) > -np.inf))
        if not len(at_limit):
            return candidates
        beam_size = beams.cumulative_log_probs.shape[1]
        rows = beam_size * at_limit[:, None] + np.arange(beam_size)
        there = torch.from_numpy(rows).to(model_log_probs.device)
        log_probs_of_end, allowed = (
            each[there, self.eos].double().cpu().numpy()
            for each in (model_log_probs, allowed_log_probs)
        )
        if (log_probs_of_end == -np.inf).any():
            raise no_eos_error(beams.depth)
        # Where rules forbid the end, too, it is all that is left.
        cumulative_log_probs = beams.cumulative_log_probs[at_limit] + np.where(
            allowed > -np.inf, allowed, log_probs_of_end
        )
        count = candidates.cumulative_log_probs.shape[1]
        return candidates.with_beams_replaced(
            at_limit,
            eos_candidates(cumulative_log_probs, log_probs_of_end, rows, eos=self.eos, count=count),
        )


def split_min_length(
    processors: Sequence[LogitsProcessor],
) -> tuple[Sequence[LogitsProcessor], MinLength | None]:
    """Take out the one rule that bounds keep to by themselves, if it is the only one.

    Beside others it stays: where all of them together leave nothing, the end is left.
    """
    if len(processors) == 1 and isinstance(processors[0], MinLength):
        return (), processors[0]
    return processors, None


# Following: how does the state of a model follow the hypotheses that are kept?
#
# Every tensor of a state has a row for each hypothesis, and kept rows are copied. Two kinds of copy
# are spared. Where every row stays where it is, nothing is copied. And a tensor that each step so
# far has handed on untouched is what the source gave, the same for all hypotheses of a sentence: it
# is copied only when sentences leave the batch or new hypotheses are opened. What a model itself
# gives out as `SharedRows` is not moved at all: rows only say anew which of it is theirs.


class StateReorderer:
    """Selects rows of the states of one search."""

    def __init__(self, state: Any) -> None:
        self._constant_tensors = {id(tensor): tensor for tensor in tensors_of(state)}

    def reorder(
        self, state: Any, rows: Int[Tensor, "R"], *, same_rows: bool, same_sentences: bool
    ) -> Any:
        """Keep these rows, each in its own place, or in that of another of its sentence, or not."""
        constant_tensors: dict[int, Tensor] = {}

        def change(tensor: Tensor) -> Tensor:
            is_untouched = id(tensor) in self._constant_tensors
            spared = same_rows or (same_sentences and is_untouched)
            moved = tensor if spared else tensor.index_select(0, rows)
            if is_untouched:
                constant_tensors[id(moved)] = moved
            return moved

        followed = map_rows(change, state)
        self._constant_tensors = constant_tensors
        return followed


_MAX_IDLE_SHARE = 0.25
"""The share of a batch that may have nothing to do. Whoever leaves makes all others move."""


class BeamSearchOptions(NamedTuple):
    """How outputs are searched for, beside the width of the beam; as it stands, plainly."""

    coverage_penalty: CoveragePenalty | None = None
    stopping: StoppingCriterion = HeuristicStopping()
    diversity: BeamGroups = BeamGroups()
    processors: tuple[LogitsProcessor, ...] = ()
    constraints: Sequence[Sequence[DisjunctiveConstraint]] | None = (
        None  # what each sentence's outputs must contain
    )


@torch.no_grad()
def beam_search(
    model: StepwiseModel[State],
    state: State,
    *,
    bos: int,
    eos: int,
    beam_size: int,
    max_lengths: Int[Tensor, "B"],
    length_penalty: LengthPenalty | None = None,
    options: BeamSearchOptions | None = None,
    source_lengths: Int[Tensor, "B"] | None = None,
    trellis: Trellis | None = None,
) -> list[list[Hypothesis]]:
    """Find up to `width` likely outputs for every row of `state`, best first.

    A hypothesis that has `max_lengths` tokens must end. When a sentence is done is for the policy
    `options.stopping` to say. Where weights reach past `source_lengths` they look at nothing. Whoever
    wants to see the whole search gives a `trellis` to be filled.
    """
    options, trellis = options or BeamSearchOptions(), trellis or Trellis()
    judge = _Scorer(
        trellis, length_penalty or LengthPenalty(), options.coverage_penalty, source_lengths
    )
    search = _BeamSearch(judge, options, eos=eos, beam_size=beam_size, max_lengths=max_lengths)
    tokens = torch.full_like(search.sentence_ids, bos)
    if len(tokens) != len(max_lengths):
        state = select_rows(state, search.sentence_ids)
    follower = StateReorderer(state)
    while len(tokens):
        step = model.step(tokens, state)
        rows, tokens = search.advance(step.log_probs, step.weights)
        state = follower.reorder(
            step.state, rows, same_rows=search.same_rows, same_sentences=search.same_sentences
        )
    return search.hypotheses()


class _Scorer:
    """What an output is worth once it has ended."""

    def __init__(
        self,
        trellis: Trellis,
        penalty: LengthPenalty,
        coverage_penalty: CoveragePenalty | None,
        source_lengths: Int[Tensor, "B"] | None,
    ) -> None:
        self.trellis = trellis
        self.penalty = penalty
        self.coverage_penalty = coverage_penalty
        self.source_lengths = source_lengths.tolist() if source_lengths is not None else None

    def score(self, total: float, row: int, sentence: int) -> float:
        """Score a row of the present depth that ends here."""
        score = self.penalty(total, self.trellis.depth + 1)
        if self.coverage_penalty is None:
            return score
        looked = self.trellis.weights_of(self.trellis.depth, row)
        return score + self.coverage_penalty(
            looked[:, : self.source_lengths[sentence] if self.source_lengths else None]
        )


class _BeamSearch:
    """The beams that are open, what has ended so far, and how to go on.

    A sentence has a beam, or one for each group; each beam holds as many rows of the batch.
    """

    def __init__(
        self,
        scorer: _Scorer,
        options: BeamSearchOptions,
        *,
        eos: int,
        beam_size: int,
        max_lengths: Int[Tensor, "B"],
    ) -> None:
        self.scorer, self.trellis, self.options, self.eos = scorer, scorer.trellis, options, eos
        self.group_beam_size = options.diversity.group_size(beam_size)
        # A group may have to pass over all that it shares with the groups before it.
        extra_candidates = (
            beam_size * self.group_beam_size if options.diversity.num_groups > 1 else 0
        )
        self.processors, min_length = (
            split_min_length(options.processors)
            if options.constraints is None
            else (options.processors, None)
        )
        # Without the one end of each hypothesis there must still be enough; who stops at the best
        # end has enough with the best.
        stops_there = (
            beam_size == 1 and options.stopping is FIRST_FINISHED and options.constraints is None
        )
        self.num_candidates = 1 if stops_there else 2 * self.group_beam_size + extra_candidates
        self.length_limits: list[int] = max_lengths.tolist()
        self.length_bounds = LengthBounds(min_length, self.length_limits, eos=eos)
        self.max_length_processor = MaxLength(max_lengths, eos=eos)
        self.constraints = (
            ConstrainedBeam(options.constraints, eos=eos)
            if options.constraints is not None
            else None
        )
        self._validate()
        count, groups = len(max_lengths), options.diversity.num_groups
        self.beams = np.arange(count * groups)  # number of a beam: groups of a sentence together
        self.cumulative_log_probs = np.zeros((len(self.beams), 1))
        self.sentence_ids = torch.from_numpy(self.beams // groups).to(max_lengths.device)
        self.generated = self.sentence_ids.new_empty(len(self.beams), 0)
        self.finished: list[list[FinishedRow]] = [[] for _ in self.beams]
        self.num_finished = [0 for _ in self.beams]
        self.same_rows = self.same_sentences = False
        self.trellis.start(self._beam_sentences)
        if self.constraints:
            self.constraints.start(self._beam_sentences)

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Read back the best of each sentence, no output twice."""
        groups = self.options.diversity.num_groups
        firsts = range(0, len(self.finished), groups)
        ended = [
            [each for beam in self.finished[at : at + groups] for each in beam] for at in firsts
        ]
        read = iter(self.trellis.backtrack([ending for endings in ended for ending in endings]))
        return [_distinct([next(read) for _ in endings]) for endings in ended]

    def advance(
        self, log_probs: Float[Tensor, "R N"], weights: Float[Tensor, "R S"]
    ) -> tuple[Int[Tensor, "R2"], Int[Tensor, "R2"]]:
        """Grow the beams by a token; say which rows of the batch the new ones continue, and how."""
        self.trellis.record_weights(weights)
        candidates = self._find_candidates(log_probs)
        chosen = self._select(candidates)
        self._store_finished(chosen)
        is_open = np.array([self._is_open(*beam) for beam in self._best_open_totals(chosen)])
        chosen.cumulative_log_probs[~is_open] = -np.inf
        return self._advance_rows(
            chosen, np.flatnonzero(is_open | self._keeps_finished_rows(is_open))
        )

    def _keeps_finished_rows(self, is_open: NDArray[np.bool_]) -> bool:
        """Whether beams that are done stay in the batch for now: few cost less than moving all."""
        return self.constraints is None and bool(
            is_open.sum() > (1 - _MAX_IDLE_SHARE) * len(is_open)
        )

    def _find_candidates(self, model_log_probs: Float[Tensor, "R N"]) -> Candidates:
        allowed_log_probs, bound = self._apply_processors(model_log_probs)
        if self.constraints:
            allowed_log_probs = self.constraints.block_eos(allowed_log_probs)
        found = find_candidates(
            allowed_log_probs, model_log_probs, self.cumulative_log_probs, self.num_candidates
        )
        if np.isnan(found.cumulative_log_probs).any():
            raise nan_log_probs_error(self.trellis.depth)
        if not self.constraints:
            beams = OpenBeams(self._beam_sentences, self.cumulative_log_probs, self.trellis.depth)
            if self.length_bounds.is_eos_too_early(found, beams).any():
                found = find_candidates(
                    allowed_log_probs,
                    model_log_probs,
                    self.cumulative_log_probs,
                    self.num_candidates + self.group_beam_size,
                )
                found = found.drop(self.length_bounds.is_eos_too_early(found, beams))
            return self.length_bounds.force_eos(
                found, beams, allowed_log_probs=allowed_log_probs, model_log_probs=model_log_probs
            )
        room = [
            self.length_limits[owner] - self.trellis.depth - 1
            for owner in self._beam_sentences.tolist()
        ]
        return self.constraints.add_constraint_candidates(
            found,
            self.cumulative_log_probs,
            allowed_log_probs=allowed_log_probs,
            hard_log_probs=bound,
            model_log_probs=model_log_probs,
            remaining=room,
        )

    def _apply_processors(
        self, model_log_probs: Float[Tensor, "R N"]
    ) -> tuple[Float[Tensor, "R N"], Float[Tensor, "R N"]]:
        """What the rules leave, and what the binding ones leave."""
        rules = (
            (*self.processors, self.max_length_processor) if self.constraints else self.processors
        )
        if not rules:
            return model_log_probs, model_log_probs
        rows = self.sentence_ids.repeat_interleave(self.cumulative_log_probs.shape[1])
        return apply_processors(rules, model_log_probs, self.generated, rows, eos=self.eos)

    @property
    def _beam_sentences(self) -> NDArray[np.int64]:
        return self.beams // self.options.diversity.num_groups

    def _select(self, candidates: Candidates) -> BeamSelection:
        """Choose in every beam; groups of a sentence one after another."""
        groups = self.options.diversity.num_groups
        if groups == 1:
            return select_candidates(candidates, eos=self.eos, beam_size=self.group_beam_size)
        taken: list[Counter[int]] = [Counter() for _ in self.length_limits]
        parts, order = [], []
        for group in range(groups):
            beams = np.flatnonzero(self.beams % groups == group)
            owners = self._beam_sentences[beams]
            some = apply_diversity_penalty(
                candidates.select_beams(beams), owners, taken, self.options.diversity.penalty
            )
            parts.append(select_candidates(some, eos=self.eos, beam_size=self.group_beam_size))
            count_selected_tokens(taken, owners, parts[-1])
            order.append(beams)
        places = np.argsort(np.concatenate(order))
        joined = [
            np.concatenate(part)[places] for part in zip(*(p[1:] for p in parts), strict=True)
        ]
        tables = zip(*(part.candidates for part in parts), strict=True)
        return BeamSelection(
            Candidates(*(np.concatenate(each)[places] for each in tables)), *joined
        )

    def _store_finished(self, chosen: BeamSelection) -> None:
        """Keep the best of those that have ended."""
        found = chosen.candidates
        for place, rank in np.argwhere(chosen.is_finished).tolist():
            beam, row = int(self.beams[place]), int(found.rows[place, rank])
            owner = beam // self.options.diversity.num_groups
            score = self.scorer.score(float(found.cumulative_log_probs[place, rank]), row, owner)
            own = float(found.log_probs[place, rank])
            ending = FinishedRow(self.trellis.depth, row, own, score)
            self.trellis.finish(ending)
            self.num_finished[beam] += 1
            self.finished[beam].append(ending)
            self.finished[beam].sort(key=lambda each: -each.score)
            del self.finished[beam][self.group_beam_size :]

    def _best_open_totals(self, chosen: BeamSelection) -> list[tuple[int, float]]:
        """Each beam with the best total among its open hypotheses."""
        return list(
            zip(self.beams.tolist(), chosen.cumulative_log_probs.max(axis=1).tolist(), strict=True)
        )

    def _is_open(self, beam: int, best: float) -> bool:
        if best == -np.inf or not self.num_finished[beam]:
            return best > -np.inf  # no policy stops before anything has ended
        ended, penalty, length = self.finished[beam], self.scorer.penalty, self.trellis.depth + 1
        longest = self.length_limits[beam // self.options.diversity.num_groups] + 1
        so_far = BeamStatus(
            beam_size=self.group_beam_size,
            num_finished=self.num_finished[beam],
            worst_finished=ended[-1].score if len(ended) == self.group_beam_size else -np.inf,
            best_open_score=penalty(best, length),
            best_possible_score=penalty.upper_bound(best, length, longest),
        )
        return not self.options.stopping.is_done(so_far)

    def _advance_rows(
        self, chosen: BeamSelection, kept: NDArray[np.int64]
    ) -> tuple[Int[Tensor, "R2"], Int[Tensor, "R2"]]:
        """Leave only the beams that go on, and their open hypotheses."""
        is_whole = len(kept) == len(self.beams)
        found = chosen.candidates if is_whole else chosen.candidates.select_beams(kept)
        found = found.reorder(chosen.open_indices[kept])
        rows, tokens, cumulative_log_probs = (
            found.rows.flatten(),
            found.tokens.flatten(),
            chosen.cumulative_log_probs[kept],
        )
        own = np.where(cumulative_log_probs > -np.inf, found.log_probs, -np.inf)
        self.trellis.append(rows, tokens, own.flatten())
        if self.constraints:
            self.constraints.reorder(rows, tokens)
        self.same_sentences = self.cumulative_log_probs.shape == cumulative_log_probs.shape
        self.same_rows = self.same_sentences and bool((rows == np.arange(len(rows))).all())
        device = self.sentence_ids.device
        parents, next_tokens = (
            torch.from_numpy(rows).to(device),
            torch.from_numpy(tokens).to(device),
        )
        if not is_whole:
            self.beams = self.beams[kept]
            self.sentence_ids = torch.from_numpy(self._beam_sentences).to(device)
        self.cumulative_log_probs = cumulative_log_probs
        if self.processors or self.constraints:
            self.generated = torch.cat([self.generated[parents], next_tokens.unsqueeze(1)], dim=1)
        return parents, next_tokens

    def _validate(self) -> None:
        for rule in self.options.processors:
            rule.validate(self.length_limits)
        if self.constraints:
            prefixes = [
                rule.prefixes for rule in self.options.processors if isinstance(rule, ForcedPrefix)
            ]
            self.constraints.validate(self.length_limits, prefixes[0] if prefixes else [])


def _distinct(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Those that say something of their own, best first."""
    found: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in sorted(hypotheses, key=lambda each: -each.score):
        found.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(found.values())


# Greedy search: the likeliest token, every time.
#
# It is a beam of one hypothesis that stops at the first end, and takes no longer for it.


def greedy_search(
    model: StepwiseModel[State],
    state: State,
    *,
    bos: int,
    eos: int,
    max_lengths: Int[Tensor, "B"],
    length_penalty: LengthPenalty | None = None,
    options: BeamSearchOptions | None = None,
    source_lengths: Int[Tensor, "B"] | None = None,
    trellis: Trellis | None = None,
) -> list[Hypothesis]:
    """Follow the likeliest token of every row; rows that have ended leave the batch.

    A row that has `max_lengths` tokens must end.
    """
    found = beam_search(
        model,
        state,
        bos=bos,
        eos=eos,
        beam_size=1,
        max_lengths=max_lengths,
        length_penalty=length_penalty,
        options=(options or BeamSearchOptions())._replace(stopping=FIRST_FINISHED),
        source_lengths=source_lengths,
        trellis=trellis,
    )
    return [hypotheses[0] for hypotheses in found]
