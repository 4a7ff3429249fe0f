"""Beam search over a batch of sentences, one model step per token.

The model ranks candidates on its own device; the few best ones are copied to the host, where the
hypotheses are kept. Sentences that are done leave the batch, several at a time. Invariants: beam
size 1 is greedy search, a beam as large as the output space is exhaustive search, and the result
for a sentence does not depend on the rest of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.pytree import select_rows
from heedful.search.candidates import (
    BeamGroups,
    BeamSelection,
    Candidates,
    LengthBounds,
    OpenBeams,
    find_candidates,
    select_in_groups,
)
from heedful.search.constraints import ConstrainedBeam, DisjunctiveConstraint
from heedful.search.hypotheses import FinishedRow, Hypothesis, Trellis, nan_log_probs_error
from heedful.search.logits_processors import (
    ForcedPrefix,
    LogitsProcessor,
    MaxLength,
    MinLength,
    apply_processors,
)
from heedful.search.penalties import CoveragePenalty, LengthPenalty
from heedful.search.protocol import State, StepwiseModel
from heedful.search.stopping import FIRST_FINISHED, BeamStatus, HeuristicStopping, StoppingCriterion
from heedful.shapes import Float, Int

_MAX_IDLE_FRACTION = 0.25
"""Fraction of the batch that may be idle; removing a beam copies the state of all others."""


class BeamSearchOptions(NamedTuple):
    """Everything but the beam size that changes what a search returns."""

    coverage_penalty: CoveragePenalty | None = None
    stopping: StoppingCriterion = HeuristicStopping()
    diversity: BeamGroups = BeamGroups()
    processors: tuple[LogitsProcessor, ...] = ()
    constraints: Sequence[Sequence[DisjunctiveConstraint]] | None = None  # of each sentence


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
    """Return up to `beam_size` hypotheses for every row of `state`, best first.

    A hypothesis with `max_lengths` tokens must end. Weights beyond `source_lengths` are padding.
    Pass a `trellis` to keep the whole search.
    """
    options, trellis = options or BeamSearchOptions(), trellis or Trellis()
    scorer = _Scorer(
        trellis, length_penalty or LengthPenalty(), options.coverage_penalty, source_lengths
    )
    beams = _Beams(scorer, options, eos=eos, beam_size=beam_size, max_lengths=max_lengths)
    tokens = torch.full_like(beams.sentence_ids, bos)
    if len(tokens) != len(max_lengths):
        state = select_rows(state, beams.sentence_ids)
    while len(tokens):
        step = model.step(tokens, state)
        parents, tokens = beams.advance(step.log_probs, step.weights)
        state = select_rows(step.state, parents)
    return beams.hypotheses()


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
    """Return the hypothesis of the most likely token at every step, for every row of `state`."""
    hypotheses = beam_search(
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
    return [of_sentence[0] for of_sentence in hypotheses]


class _Scorer:
    """Scores of finished hypotheses: log P with length and coverage penalty."""

    def __init__(
        self,
        trellis: Trellis,
        length_penalty: LengthPenalty,
        coverage_penalty: CoveragePenalty | None,
        source_lengths: Int[Tensor, "B"] | None,
    ) -> None:
        self.trellis = trellis
        self.length_penalty = length_penalty
        self.coverage_penalty = coverage_penalty
        self.source_lengths = source_lengths.tolist() if source_lengths is not None else None

    def score(self, log_prob: float, row: int, sentence: int) -> float:
        """Score the hypothesis that a row of the current depth becomes with EOS."""
        score = self.length_penalty(log_prob, self.trellis.depth + 1)
        if self.coverage_penalty is None:
            return score
        weights = self.trellis.weights_of(self.trellis.depth, row)
        source_length = self.source_lengths[sentence] if self.source_lengths else None
        return score + self.coverage_penalty(weights[:, :source_length])


class _Beams:
    """The open beams of a search and its finished hypotheses.

    A sentence has one beam per group; each beam has the same number of rows in the batch.
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
        self.groups, self.beam_size = options.diversity, options.diversity.group_size(beam_size)
        self.max_lengths: list[int] = max_lengths.tolist()
        self.processors, min_length = options.processors, None
        if options.constraints is None:
            self.constraints = None
            self.processors, min_length = split_min_length(options.processors)
        else:
            self.constraints = ConstrainedBeam(options.constraints, eos=eos)
            self.processors = (*options.processors, MaxLength(max_lengths, eos=eos))
        self.length_bounds = LengthBounds(min_length, self.max_lengths, eos=eos)
        self.num_candidates = self._count_candidates(beam_size)
        self._check_lengths()
        num_beams = len(max_lengths) * self.groups.num_groups
        self.beam_ids = np.arange(num_beams)  # of the open beams; groups of a sentence are adjacent
        self.cumulative_log_probs = np.zeros((num_beams, 1))
        self.sentence_ids = torch.from_numpy(self._beam_sentences).to(max_lengths.device)
        self.generated = self.sentence_ids.new_empty(num_beams, 0)
        self.finished: list[list[FinishedRow]] = [[] for _ in self.beam_ids]
        self.num_finished = [0 for _ in self.beam_ids]
        self.trellis.start(self._beam_sentences)
        if self.constraints:
            self.constraints.start(self._beam_sentences)

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Return the distinct finished hypotheses of each sentence, best first."""
        num_groups = self.groups.num_groups
        finished = [
            [row for beam in self.finished[start : start + num_groups] for row in beam]
            for start in range(0, len(self.finished), num_groups)
        ]
        hypotheses = iter(self.trellis.backtrack([row for rows in finished for row in rows]))
        return [_distinct([next(hypotheses) for _ in rows]) for rows in finished]

    def advance(
        self, log_probs: Float[Tensor, "R N"], weights: Float[Tensor, "R S"]
    ) -> tuple[Int[Tensor, "R2"], Int[Tensor, "R2"]]:
        """Extend every open hypothesis by one token; return parent rows and tokens of the next."""
        self.trellis.record_weights(weights)
        selection = select_in_groups(
            self._find_candidates(log_probs),
            self.beam_ids,
            self.groups,
            eos=self.eos,
            beam_size=self.beam_size,
        )
        self._store_finished(selection)
        best_log_probs = selection.cumulative_log_probs.max(axis=1).tolist()
        is_open = np.array(list(map(self._is_open, self.beam_ids.tolist(), best_log_probs)))
        selection.cumulative_log_probs[~is_open] = -np.inf
        keeps_all = self.constraints is None and bool(
            is_open.sum() > (1 - _MAX_IDLE_FRACTION) * len(is_open)
        )
        return self._advance_rows(selection, np.flatnonzero(is_open | keeps_all))

    def _count_candidates(self, beam_size: int) -> int:
        stops_at_best_end = beam_size == 1 and self.options.stopping is FIRST_FINISHED
        if stops_at_best_end and self.constraints is None:
            return 1
        # Every hypothesis has one EOS; without these, enough candidates must remain. A group may
        # also have to skip all tokens that it shares with the groups before it.
        num_shared = beam_size * self.beam_size if self.groups.num_groups > 1 else 0
        return 2 * self.beam_size + num_shared

    def _check_lengths(self) -> None:
        processors = self.options.processors
        for processor in processors:
            processor.check_lengths(self.max_lengths)
        if self.constraints:
            forced = [each.prefixes for each in processors if isinstance(each, ForcedPrefix)]
            self.constraints.check_lengths(self.max_lengths, forced[0] if forced else [])

    @property
    def _beam_sentences(self) -> NDArray[np.int64]:
        return self.beam_ids // self.groups.num_groups

    def _find_candidates(self, model_log_probs: Float[Tensor, "R N"]) -> Candidates:
        allowed, hard = self._apply_processors(model_log_probs)
        if self.constraints:
            allowed = self.constraints.block_eos(allowed)
        totals, count = self.cumulative_log_probs, self.num_candidates
        candidates = find_candidates(allowed, model_log_probs, totals, count)
        if np.isnan(candidates.cumulative_log_probs).any():
            raise nan_log_probs_error(self.trellis.depth)
        if self.constraints:
            num_tokens = self.trellis.depth + 1
            return self.constraints.add_constraint_candidates(
                candidates,
                totals,
                allowed_log_probs=allowed,
                hard_log_probs=hard,
                model_log_probs=model_log_probs,
                remaining=[self.max_lengths[i] - num_tokens for i in self._beam_sentences.tolist()],
            )
        beams = OpenBeams(self._beam_sentences, totals, self.trellis.depth)
        if self.length_bounds.is_eos_too_early(candidates, beams).any():
            count += self.beam_size  # one EOS per hypothesis may have to be dropped
            candidates = find_candidates(allowed, model_log_probs, totals, count)
            candidates = candidates.drop(self.length_bounds.is_eos_too_early(candidates, beams))
        return self.length_bounds.force_eos(
            candidates, beams, allowed_log_probs=allowed, model_log_probs=model_log_probs
        )

    def _apply_processors(
        self, log_probs: Float[Tensor, "R N"]
    ) -> tuple[Float[Tensor, "R N"], Float[Tensor, "R N"]]:
        if not self.processors:
            return log_probs, log_probs
        sentence_ids = self.sentence_ids.repeat_interleave(self.cumulative_log_probs.shape[1])
        return apply_processors(
            self.processors, log_probs, self.generated, sentence_ids, eos=self.eos
        )

    def _store_finished(self, selection: BeamSelection) -> None:
        """Keep the `beam_size` best finished hypotheses of every beam."""
        candidates = selection.candidates
        for index, rank in np.argwhere(selection.is_finished).tolist():
            beam, row = int(self.beam_ids[index]), int(candidates.rows[index, rank])
            log_prob = float(candidates.cumulative_log_probs[index, rank])
            score = self.scorer.score(log_prob, row, beam // self.groups.num_groups)
            eos_log_prob = float(candidates.log_probs[index, rank])
            finished = FinishedRow(self.trellis.depth, row, eos_log_prob, score)
            self.trellis.finish(finished)
            self.num_finished[beam] += 1
            self.finished[beam].append(finished)
            self.finished[beam].sort(key=lambda finished: -finished.score)
            del self.finished[beam][self.beam_size :]

    def _is_open(self, beam: int, best_log_prob: float) -> bool:
        if best_log_prob == -np.inf or not self.num_finished[beam]:
            return best_log_prob > -np.inf  # no criterion stops before a hypothesis has finished
        finished, length_penalty = self.finished[beam], self.scorer.length_penalty
        length, max_length = (
            self.trellis.depth + 1,
            self.max_lengths[beam // self.groups.num_groups] + 1,
        )
        status = BeamStatus(
            beam_size=self.beam_size,
            num_finished=self.num_finished[beam],
            worst_finished=finished[-1].score if len(finished) == self.beam_size else -np.inf,
            best_open_score=length_penalty(best_log_prob, length),
            best_possible_score=length_penalty.upper_bound(best_log_prob, length, max_length),
        )
        return not self.options.stopping.is_done(status)

    def _advance_rows(
        self, selection: BeamSelection, kept: NDArray[np.int64]
    ) -> tuple[Int[Tensor, "R2"], Int[Tensor, "R2"]]:
        """Keep these beams and their open hypotheses."""
        keeps_all = len(kept) == len(self.beam_ids)
        candidates = selection.candidates if keeps_all else selection.candidates.select_beams(kept)
        candidates = candidates.reorder(selection.open_indices[kept])
        totals = selection.cumulative_log_probs[kept]
        rows, tokens = candidates.rows.flatten(), candidates.tokens.flatten()
        log_probs = np.where(totals > -np.inf, candidates.log_probs, -np.inf)
        self.trellis.append(rows, tokens, log_probs.flatten())
        if self.constraints:
            self.constraints.reorder(rows, tokens)
        device = self.sentence_ids.device
        parents, next_tokens = (
            torch.from_numpy(rows).to(device),
            torch.from_numpy(tokens).to(device),
        )
        if not keeps_all:
            self.beam_ids = self.beam_ids[kept]
            self.sentence_ids = torch.from_numpy(self._beam_sentences).to(device)
        self.cumulative_log_probs = totals
        if self.processors:
            self.generated = torch.cat([self.generated[parents], next_tokens.unsqueeze(1)], dim=1)
        return parents, next_tokens


def split_min_length(
    processors: tuple[LogitsProcessor, ...],
) -> tuple[tuple[LogitsProcessor, ...], MinLength | None]:
    """Return `MinLength` apart if it is the only processor, so that `LengthBounds` applies it.

    With others it stays among them: EOS is the fallback if all together forbid every token.
    """
    if len(processors) == 1 and isinstance(processors[0], MinLength):
        return (), processors[0]
    return processors, None


def _distinct(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Return hypotheses with different tokens, best first."""
    distinct: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in sorted(hypotheses, key=lambda hypothesis: -hypothesis.score):
        distinct.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(distinct.values())
