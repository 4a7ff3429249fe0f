"""Beam search over a batch of sentences, one model step per token.

The model ranks candidates on its own device; the best are copied to the host and kept in a trellis.
Invariants: beam size 1 is greedy search, a beam as large as the output space is exhaustive search,
and the result for a sentence does not depend on the rest of the batch.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, islice, takewhile
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.pytree import select_rows, to_float64
from heedful.search.candidates import (
    BeamGroups,
    BeamPruning,
    BoolArray,
    Candidates,
    FinishedRow,
    IntArray,
    Trellis,
    find_candidates,
    select_candidates,
)
from heedful.search.constraints import ConstrainedBeam, DisjunctiveConstraint
from heedful.search.hypotheses import (
    Hypothesis,
    NaNLogProbsError,
    State,
    StepwiseModel,
    drop_zero_probability,
)
from heedful.search.logits_processors import (
    ForcedPrefix,
    LogitsProcessor,
    LogProbs,
    MinLength,
    apply_processors,
)
from heedful.search.penalties import CoveragePenalty, LengthPenalty
from heedful.search.stopping import (
    FIRST_FINISHED,
    BeamStatus,
    StoppingCriterion,
    heuristic_stopping,
)
from heedful.shapes import Float, Int, Lengths


class BeamSearchOptions(NamedTuple):
    """All options of a search except the beam size."""

    coverage_penalty: CoveragePenalty | None = None
    stopping: StoppingCriterion = heuristic_stopping
    diversity: BeamGroups = BeamGroups()
    pruning: BeamPruning = BeamPruning()
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
    max_lengths: Lengths,
    length_penalty: LengthPenalty | None = None,
    options: BeamSearchOptions | None = None,
    source_lengths: Lengths | None = None,
    trellis: Trellis | None = None,
) -> list[list[Hypothesis]]:
    """Return up to `beam_size` hypotheses for each row of `state`, best first.

    A hypothesis with `max_lengths` tokens must end; one that cannot, as the model gives EOS
    probability 0, is dropped. Where none remains, the best one is cut off and has the score -inf.
    Weights beyond `source_lengths` are padding. Pass a `trellis` to keep the whole search.
    """
    beams = Beams(
        trellis or Trellis(),
        options or BeamSearchOptions(),
        max_lengths,
        eos=eos,
        beam_size=beam_size,
        length_penalty=length_penalty or LengthPenalty(),
        source_lengths=source_lengths,
    )
    for _ in search_steps(model, state, beams, bos=bos):
        pass
    return beams.hypotheses()


@torch.no_grad()
def search_steps(
    model: StepwiseModel[State], state: State, beams: "Beams", *, bos: int
) -> Iterator[None]:
    """Search until all beams are closed; yield after each step."""
    tokens = torch.full_like(beams.sentence_ids, bos)
    if len(tokens) != len(beams.max_lengths):
        state = select_rows(state, beams.sentence_ids)
    while len(tokens):
        step = model.step(tokens, state)
        parents, tokens = beams.advance(step.log_probs, step.weights)
        state = select_rows(step.state, parents)
        yield


def greedy_search(
    model: StepwiseModel[State],
    state: State,
    *,
    bos: int,
    eos: int,
    max_lengths: Lengths,
    options: BeamSearchOptions | None = None,
) -> list[Hypothesis]:
    """Return the hypothesis of the most likely token at each step, for each row of `state`."""
    options = (options or BeamSearchOptions())._replace(stopping=FIRST_FINISHED)
    hypotheses = beam_search(
        model, state, bos=bos, eos=eos, beam_size=1, max_lengths=max_lengths, options=options
    )
    return [best for best, *_ in hypotheses]


class Beams:
    """The open beams of a search and its finished hypotheses.

    A sentence has one beam per group; each beam has the same number of rows in the batch.
    """

    max_finished_fraction = 0.25
    """Fraction of the batch that may be idle; removing a beam copies the state of all others."""

    def __init__(
        self,
        trellis: Trellis,
        options: BeamSearchOptions,
        max_lengths: Lengths,
        *,
        eos: int,
        beam_size: int,
        length_penalty: LengthPenalty,
        source_lengths: Lengths | None,
    ) -> None:
        self.trellis, self.options, self.eos = trellis, options, eos
        self.length_penalty = length_penalty
        self.source_lengths = None if source_lengths is None else source_lengths.tolist()
        self.groups, self.beam_size = options.diversity, options.diversity.group_size(beam_size)
        num_beams = len(max_lengths) * self.groups.num_groups
        self.beam_ids = np.arange(num_beams)  # of the open beams; groups of a sentence are adjacent
        self.cumulative_log_probs = np.zeros((num_beams, 1))
        self.finished: list[list[FinishedRow]] = [[] for _ in self.beam_ids]  # the best, in order
        self.num_finished = [0 for _ in self.beam_ids]
        sentences = self._beam_sentences
        trellis.sentences.append(sentences)
        self.sentence_ids = torch.from_numpy(sentences).to(max_lengths.device)
        self.generated = self.sentence_ids.new_empty(num_beams, 0)
        self.max_lengths = max_lengths.cpu().numpy()
        self.smallest_max_length = min(max_lengths.tolist(), default=0)
        self.min_lengths = np.zeros_like(self.max_lengths)
        self.processors, self.constraints = options.processors, None
        for processor in options.processors:
            processor.check_lengths(max_lengths.tolist())
        if options.constraints is not None:
            self.constraints = ConstrainedBeam(options.constraints, sentences, eos=eos)
            prefixes = [item.prefixes for item in self.processors if isinstance(item, ForcedPrefix)]
            self.constraints.check_lengths(max_lengths.tolist(), prefixes[0] if prefixes else [])
        elif (
            len(self.processors) == 1
            and isinstance(self.processors[0], MinLength)
            and options.pruning.token_threshold == np.inf
        ):
            # It can be applied to the candidates. With others it stays among them, because EOS is
            # the fallback if all together forbid every token; pruning needs the best allowed token.
            self.min_lengths = self.processors[0].lengths.cpu().numpy()
            self.processors = ()
        # Every hypothesis has one EOS; without these, enough candidates must remain. A group may
        # also have to skip all tokens that it shares with the groups before it.
        num_shared = beam_size * self.beam_size if self.groups.num_groups > 1 else 0
        is_greedy = beam_size == 1 and options.stopping is FIRST_FINISHED and not self.constraints
        self.num_candidates = 1 if is_greedy else 2 * self.beam_size + num_shared

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Return the distinct finished hypotheses of each sentence, best first."""
        num_groups = self.groups.num_groups
        finished = [
            list(chain(*self.finished[first_beam : first_beam + num_groups]))
            for first_beam in range(0, len(self.finished), num_groups)
        ]
        hypotheses = iter(self.trellis.backtrack(list(chain(*finished))))
        results = []
        for rows in finished:
            distinct: dict[tuple[int, ...], Hypothesis] = {}
            for hypothesis in sorted(islice(hypotheses, len(rows)), key=lambda item: -item.score):
                distinct.setdefault(tuple(hypothesis.tokens), hypothesis)
            results.append(drop_zero_probability(list(distinct.values())))
        return results

    def common_prefix(self) -> Hypothesis:
        """Return what all hypotheses, the finished ones too, begin with; without EOS.

        The last token of open hypotheses is left out, as it has no weights yet.
        """
        is_open, depth = self.cumulative_log_probs.flatten() > -np.inf, self.trellis.depth - 1
        parents = np.unique(self.trellis.parents[-1][is_open]).tolist()
        ends = [FinishedRow(depth, row, 0.0, 0.0) for row in parents]
        hypotheses = self.trellis.backtrack([*ends, *chain(*self.finished)])
        columns = zip(*(hypothesis.tokens for hypothesis in hypotheses), strict=False)
        count = len(list(takewhile(lambda column: len(set(column)) == 1, columns)))
        tokens, log_prob, _, weights, log_probs, eos_weights = hypotheses[0]
        log_prob = sum(log_probs[:count].tolist())
        partial = tokens[:count], log_prob, log_prob, weights[:count], log_probs[: count + 1]
        return Hypothesis(*partial, eos_weights)

    def advance(
        self, log_probs: LogProbs, weights: Float[Tensor, "R S"]
    ) -> tuple[Int[Tensor, "R2"], Int[Tensor, "R2"]]:
        """Extend each open hypothesis by one token; return parent rows and tokens of the next."""
        return self.select(self._find_candidates(log_probs), weights)

    def select(
        self, candidates: Candidates, weights: Float[Tensor, "R S"] | NDArray[np.float32]
    ) -> tuple[Int[Tensor, "R2"], Int[Tensor, "R2"]]:
        """Store finished hypotheses; return parent rows and tokens of those that stay open."""
        self.trellis.weights.append(weights)
        eos, beam_size = self.eos, self.beam_size
        if self.groups.num_groups > 1:
            candidates = self.groups.rank(candidates, self.beam_ids, eos=eos, beam_size=beam_size)
        is_finished, selected = select_candidates(candidates, eos=eos, beam_size=beam_size)
        self._store_finished(candidates, is_finished)
        best_log_probs = selected.cumulative_log_probs.max(axis=1).tolist()
        self._cut_off(best_log_probs)
        is_open = np.array(list(map(self._is_open, self.beam_ids.tolist(), best_log_probs)))
        selected.cumulative_log_probs[~is_open] = -np.inf
        device, num_open = self.sentence_ids.device, is_open.sum()
        is_mostly_finished = num_open <= (1 - self.max_finished_fraction) * len(is_open)
        if is_mostly_finished or (self.constraints and num_open < len(is_open)):
            selected = selected.select_beams(np.flatnonzero(is_open))
            self.beam_ids = self.beam_ids[is_open]
            self.sentence_ids = torch.from_numpy(self._beam_sentences).to(device)
        self.cumulative_log_probs = selected.cumulative_log_probs
        self.trellis.append(selected)
        rows, tokens = self.trellis.parents[-1], self.trellis.tokens[-1]
        if self.constraints:
            self.constraints.reorder(rows, tokens)
        parents, next_tokens = (torch.from_numpy(ids).to(device) for ids in (rows, tokens))
        if self.processors:
            self.generated = torch.cat([self.generated[parents], next_tokens.unsqueeze(1)], dim=1)
        return parents, next_tokens

    @property
    def _beam_sentences(self) -> IntArray:
        return self.beam_ids // self.groups.num_groups

    def _find_candidates(self, model_log_probs: LogProbs) -> Candidates:
        totals, depth = self.cumulative_log_probs, self.trellis.depth
        allowed = hard = model_log_probs
        if self.processors:
            rows = self.sentence_ids.repeat_interleave(totals.shape[1])
            allowed, hard = apply_processors(
                self.processors, model_log_probs, self.generated, rows, eos=self.eos
            )
        if self.constraints:
            allowed = self.constraints.block_eos(allowed)
        considered = self.options.pruning.prune_tokens(allowed, totals)
        candidates = find_candidates(considered, model_log_probs, totals, self.num_candidates)
        if np.isnan(candidates.cumulative_log_probs).any():
            raise NaNLogProbsError(depth)
        is_short = (self.min_lengths[self._beam_sentences] > depth)[:, None]
        if (is_short & (candidates.tokens == self.eos)).any():
            count = self.num_candidates + self.beam_size  # every hypothesis may have an EOS to drop
            candidates = find_candidates(considered, model_log_probs, totals, count)
            candidates = candidates.drop(is_short & (candidates.tokens == self.eos))
        if depth >= self.smallest_max_length:
            eos_log_probs = allowed[:, self.eos], model_log_probs[:, self.eos]
            candidates = self.force_eos(candidates, *eos_log_probs)
        if not self.constraints:
            return candidates
        remaining = (self.max_lengths[self._beam_sentences] - depth - 1).tolist()
        return self.constraints.add_candidates(
            candidates, totals, remaining, allowed=allowed, hard=hard, model=model_log_probs
        )

    def force_eos(
        self, candidates: Candidates, allowed_eos: Float[Tensor, "R"], model_eos: Float[Tensor, "R"]
    ) -> Candidates:
        """Replace the candidates of beams at their maximum length by EOS for every hypothesis."""
        totals, depth = self.cumulative_log_probs, self.trellis.depth
        is_long = self.max_lengths[self._beam_sentences] <= depth
        at_limit = is_long & (totals.max(axis=1) > -np.inf)
        if not at_limit.any():
            return candidates
        model_log_probs, allowed = (
            to_float64(log_probs).cpu().numpy().reshape(totals.shape)
            for log_probs in (model_eos, allowed_eos)
        )
        # Where processors forbid EOS, too, it is still the only token left.
        totals = totals + np.where(allowed > -np.inf, allowed, model_log_probs)
        rows = np.arange(totals.size).reshape(totals.shape)
        eos_tokens = np.full_like(rows, self.eos)
        finished = Candidates(totals, model_log_probs, eos_tokens, rows, np.zeros_like(rows))
        # One candidate per row, best first, then empty slots up to the number of candidates.
        beam_size, slots = totals.shape[1], np.arange(candidates.tokens.shape[1])
        order = np.argsort(-totals, axis=1, kind="stable")[:, slots % beam_size]
        finished = finished.reorder(order)
        finished.cumulative_log_probs[:, beam_size:] = -np.inf
        pairs = zip(finished, candidates, strict=True)
        return Candidates(*(np.where(at_limit[:, None], new, old) for new, old in pairs))

    def _store_finished(self, candidates: Candidates, is_finished: BoolArray) -> None:
        """Keep the `beam_size` best finished hypotheses of each beam."""
        if not is_finished.any():
            return
        columns = (candidates.cumulative_log_probs, candidates.log_probs, candidates.rows)
        chosen = [array[is_finished].tolist() for array in columns]
        beams = self.beam_ids[np.nonzero(is_finished)[0]].tolist()
        for beam, total, eos_log_prob, row in zip(beams, *chosen, strict=True):
            score = self.length_penalty(total, self.trellis.depth + 1)
            if self.options.coverage_penalty:
                sentence, lengths = beam // self.groups.num_groups, self.source_lengths
                weights = self.trellis.weights_of(row)[:, : lengths[sentence] if lengths else None]
                score += self.options.coverage_penalty(weights)
            finished = FinishedRow(self.trellis.depth, row, eos_log_prob, score)
            self.trellis.finished.append(finished)
            self.num_finished[beam] += 1
            self.finished[beam].append(finished)
            self.finished[beam].sort(key=lambda finished: -finished.score)
            del self.finished[beam][self.beam_size :]
            while self.finished[beam][-1].score < self._min_score(beam):
                self.finished[beam].pop()

    def _min_score(self, beam: int) -> float:
        return self.finished[beam][0].score - self.options.pruning.score_threshold

    def _cut_off(self, best_log_probs: Sequence[float]) -> None:
        """Finish the best hypothesis of beams that can neither end nor continue."""
        if -np.inf not in best_log_probs:
            return
        beam_size = self.cumulative_log_probs.shape[1]
        best_rows = self.cumulative_log_probs.argmax(axis=1).tolist()
        for index, beam in enumerate(self.beam_ids.tolist()):
            if best_log_probs[index] == -np.inf and not self.finished[beam]:
                row = index * beam_size + best_rows[index]
                cut_off = FinishedRow(self.trellis.depth, row, -np.inf, -np.inf)
                self.finished[beam].append(cut_off)

    def _is_open(self, beam: int, best_log_prob: float) -> bool:
        finished, length = self.finished[beam], self.trellis.depth + 1
        if best_log_prob == -np.inf or not finished:
            return best_log_prob > -np.inf  # no criterion stops before a hypothesis has finished
        max_length = int(self.max_lengths[beam // self.groups.num_groups]) + 1
        worst_finished = finished[-1].score if len(finished) == self.beam_size else -np.inf
        status = BeamStatus(
            beam_size=self.beam_size,
            num_finished=self.num_finished[beam],
            worst_finished=max(worst_finished, self._min_score(beam)),
            best_open_score=self.length_penalty(best_log_prob, length),
            best_possible_score=self.length_penalty.upper_bound(best_log_prob, length, max_length),
        )
        return not self.options.stopping(status)
