"""Lexically constrained beam search: outputs that contain required phrases.

A hypothesis may end only when no required token is missing, and stays in the beam only while the
missing tokens fit into its remaining length. From a hypothesis that fits, some token always leads
to another one that fits, so every finished output satisfies its constraints. For quality the beam
is shared between banks of hypotheses with the same number of missing tokens, and the tokens that
continue a phrase are always candidates (after Post and Vilar 2018, section 3). Invariant: without
constraints the result is that of a plain beam search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.errors import check
from heedful.search.candidates import Candidates
from heedful.shapes import Float

LogProbs = Float[Tensor, "R N"]
Phrase = tuple[int, ...]


class DisjunctiveConstraint(NamedTuple):
    """One of these phrases must occur as consecutive tokens; phrases may overlap."""

    phrases: tuple[Phrase, ...]

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest phrase."""
        return min(len(phrase) for phrase in self.phrases)


def require_phrase(*phrases: Sequence[int]) -> DisjunctiveConstraint:
    """Return the constraint that one of these phrases occurs."""
    return DisjunctiveConstraint(tuple(tuple(phrase) for phrase in phrases))


class ConstraintProgress(NamedTuple):
    """Matched tokens per phrase of every constraint; None for a constraint that is satisfied.

    The matched part of a phrase is its longest prefix that the output ends with.
    """

    matched: tuple[tuple[int, ...] | None, ...]


class ConstraintSet:
    """All constraints of one sentence; progress depends on the generated tokens alone."""

    def __init__(self, constraints: Sequence[DisjunctiveConstraint]) -> None:
        self.constraints = tuple(dict.fromkeys(constraints))
        self._failure_tables = [
            [_failure_table(phrase) for phrase in constraint.phrases]
            for constraint in self.constraints
        ]

    def start(self) -> ConstraintProgress:
        """Return the progress of an empty output."""
        return ConstraintProgress(
            tuple((0,) * len(constraint.phrases) for constraint in self.constraints)
        )

    def advance(self, progress: ConstraintProgress, token: int) -> ConstraintProgress:
        """Return the progress after one more token."""
        return ConstraintProgress(
            tuple(
                None if matched is None else self._match_token(index, matched, token)
                for index, matched in enumerate(progress.matched)
            )
        )

    def num_missing(self, progress: ConstraintProgress) -> int:
        """Return a number of tokens that suffices to satisfy all constraints; 0 if they are.

        It continues one phrase that has started and adds the others in full; where phrases overlap,
        fewer tokens may be enough.
        """
        unmet = self._unmet(progress)
        saved = [
            constraint.min_length - (len(phrase) - count)
            for constraint, matched in unmet
            for phrase, count in zip(constraint.phrases, matched, strict=True)
        ]
        return sum(constraint.min_length for constraint, _ in unmet) - max([0, *saved])

    def next_tokens(self, progress: ConstraintProgress) -> set[int]:
        """Return the tokens that continue a phrase; at least one reduces `num_missing` by one."""
        return {
            phrase[count]
            for constraint, matched in self._unmet(progress)
            for phrase, count in zip(constraint.phrases, matched, strict=True)
        }

    def num_tokens_needed(self, prefix: Sequence[int]) -> int:
        """Return the length of an output that starts with `prefix` and satisfies everything."""
        progress = self.start()
        for token in prefix:
            progress = self.advance(progress, token)
        return len(prefix) + self.num_missing(progress)

    def _unmet(
        self, progress: ConstraintProgress
    ) -> list[tuple[DisjunctiveConstraint, tuple[int, ...]]]:
        pairs = zip(self.constraints, progress.matched, strict=True)
        return [(constraint, matched) for constraint, matched in pairs if matched is not None]

    def _match_token(
        self, index: int, matched: tuple[int, ...], token: int
    ) -> tuple[int, ...] | None:
        phrases, tables = self.constraints[index].phrases, self._failure_tables[index]
        counts = tuple(
            _next_count(phrase, table, count, token)
            for phrase, table, count in zip(phrases, tables, matched, strict=True)
        )
        is_met = any(count == len(phrase) for count, phrase in zip(counts, phrases, strict=True))
        return None if is_met else counts


def _failure_table(phrase: Phrase) -> list[int]:
    """Return, for each prefix, the length of its longest proper border (Knuth et al. 1977)."""
    table, length = [0, 0], 0
    for token in phrase[1:]:
        while length and phrase[length] != token:
            length = table[length]
        length += phrase[length] == token
        table.append(length)
    return table


def _next_count(phrase: Phrase, failure_table: list[int], count: int, token: int) -> int:
    while count and phrase[count] != token:
        count = failure_table[count]
    return count + (phrase[count] == token)


class _Continuation(NamedTuple):
    """Scores of one candidate; tuples compare by the cumulative log-probability first."""

    cumulative_log_prob: float
    log_prob: float


_Pool = dict[tuple[int, int], _Continuation]  # by (row, token)


class ConstrainedBeam:
    """The constraints of every sentence and the progress of every hypothesis of a search."""

    def __init__(self, constraints: Sequence[Sequence[DisjunctiveConstraint]], *, eos: int) -> None:
        self._constraint_sets = [ConstraintSet(of_sentence) for of_sentence in constraints]
        self._eos = eos
        self._sentences: list[int] = []
        self._progress: list[ConstraintProgress] = []

    def check_lengths(self, max_lengths: Sequence[int], prefixes: Sequence[Sequence[int]]) -> None:
        """Raise ConfigError for constraints that no output of these lengths can satisfy."""
        sentences = zip(self._constraint_sets, max_lengths, strict=True)
        for index, (constraint_set, limit) in enumerate(sentences):
            location = f"constraints of sentence {index + 1}"
            _check_phrases(constraint_set.constraints, self._eos, location)
            prefix = prefixes[index] if prefixes else ()
            needed = constraint_set.num_tokens_needed(prefix)
            including = f", including the prefix of {len(prefix)}" if prefix else ""
            check(
                needed <= limit,
                location,
                f"the constraints need {needed} tokens{including}, but max_length is {limit}",
                "require fewer or shorter phrases, or raise max_length",
            )

    def start(self, sentence_ids: NDArray[np.int64]) -> None:
        """Open an empty hypothesis for each of these sentences."""
        self._sentences = sentence_ids.tolist()
        self._progress = [self._constraint_sets[sentence].start() for sentence in self._sentences]

    def reorder(self, rows: NDArray[np.int64], tokens: NDArray[np.int64]) -> None:
        """Continue these rows, each with its token."""
        parents = rows.tolist()
        self._progress = [
            self._progress_after(row, token)
            for row, token in zip(parents, tokens.tolist(), strict=True)
        ]
        self._sentences = [self._sentences[row] for row in parents]

    def block_eos(self, log_probs: LogProbs) -> LogProbs:
        """Forbid EOS in rows that miss required tokens."""
        rows = [row for row in range(len(log_probs)) if self._num_missing(row)]
        if not rows:
            return log_probs
        log_probs = log_probs.clone()
        log_probs[rows, self._eos] = -torch.inf
        return log_probs

    def add_constraint_candidates(
        self,
        candidates: Candidates,
        cumulative_log_probs: NDArray[np.float64],
        *,
        allowed_log_probs: LogProbs,
        hard_log_probs: LogProbs,
        model_log_probs: LogProbs,
        remaining: Sequence[int],
    ) -> Candidates:
        """Add the candidates that constraints need; drop those that leave too few tokens.

        A required token is scored by `hard_log_probs`: it overrides processors that are not hard.
        `remaining` is the number of tokens that each beam may add after this one.
        """
        beam_size = cumulative_log_probs.shape[1]
        required = self._required_continuations(
            cumulative_log_probs.flatten(), allowed_log_probs, hard_log_probs, model_log_probs
        )
        beams = []
        for beam, num_remaining in enumerate(remaining):
            pool = _candidate_pool(candidates, beam)
            for row in range(beam * beam_size, (beam + 1) * beam_size):
                for token, continuation in required.get(row, {}).items():
                    current = pool.get((row, token), continuation)
                    pool[row, token] = max(continuation, current)
            beams.append(self._fitting_candidates(pool, num_remaining))
        return _pad_candidates(beams, beam_size, self._eos)

    def _required_continuations(
        self,
        cumulative_log_probs: NDArray[np.float64],
        allowed_log_probs: LogProbs,
        hard_log_probs: LogProbs,
        model_log_probs: LogProbs,
    ) -> dict[int, dict[int, _Continuation]]:
        """Return, for each row with missing tokens, those that continue a phrase and its best."""
        rows = [
            row
            for row in range(len(cumulative_log_probs))
            if cumulative_log_probs[row] > -np.inf and self._num_missing(row)
        ]
        if not rows:
            return {}
        best = allowed_log_probs[rows].max(dim=-1)
        best_tokens = list(zip(rows, best.indices.tolist(), strict=True))
        next_tokens = [(row, token) for row in rows for token in sorted(self._next_tokens(row))]
        index = torch.tensor([*best_tokens, *next_tokens], device=model_log_probs.device).T.unbind()
        scores = best.values.tolist() + hard_log_probs[index][len(rows) :].tolist()
        continuations: dict[int, dict[int, _Continuation]] = {row: {} for row in rows}
        for (row, token), score, log_prob in zip(
            [*best_tokens, *next_tokens], scores, model_log_probs[index].tolist(), strict=True
        ):
            continuations[row][token] = _Continuation(cumulative_log_probs[row] + score, log_prob)
        return continuations

    def _fitting_candidates(
        self, pool: _Pool, remaining: int
    ) -> list[tuple[float, float, int, int, int]]:
        """Sort candidates by score, without those whose missing tokens no longer fit."""
        candidates = []
        for (row, token), (total, log_prob) in pool.items():
            is_end = token == self._eos
            missing = self._num_missing(row) if is_end else self._num_missing_after(row, token)
            candidates.append((total, log_prob, token, row, missing))
        fitting = [
            candidate
            for candidate in candidates
            if candidate[-1] <= remaining or candidate[2] == self._eos
        ]
        # A forced prefix may pass through states from which the constraints do not seem to fit.
        return sorted(fitting or candidates, key=lambda candidate: -candidate[0])

    def _progress_after(self, row: int, token: int) -> ConstraintProgress:
        return self._constraint_sets[self._sentences[row]].advance(self._progress[row], token)

    def _num_missing(self, row: int) -> int:
        return self._constraint_sets[self._sentences[row]].num_missing(self._progress[row])

    def _num_missing_after(self, row: int, token: int) -> int:
        constraint_set = self._constraint_sets[self._sentences[row]]
        return constraint_set.num_missing(self._progress_after(row, token))

    def _next_tokens(self, row: int) -> set[int]:
        return self._constraint_sets[self._sentences[row]].next_tokens(self._progress[row])


def _check_phrases(constraints: Sequence[DisjunctiveConstraint], eos: int, location: str) -> None:
    for phrases in (constraint.phrases for constraint in constraints):
        check(phrases and all(phrases), location, "a phrase is empty", "remove the empty phrase")
        has_eos = any(eos in phrase for phrase in phrases)
        check(not has_eos, location, "a phrase contains EOS", "remove EOS from the phrase")


def _candidate_pool(candidates: Candidates, beam: int) -> _Pool:
    columns = (array[beam].tolist() for array in candidates[:4])
    return {
        (row, token): _Continuation(total, log_prob)
        for total, log_prob, token, row in zip(*columns, strict=True)
        if total > -np.inf
    }


def _pad_candidates(
    beams: list[list[tuple[float, float, int, int, int]]], beam_size: int, eos: int
) -> Candidates:
    """Pad all lists to one length with candidates of score -inf."""
    max_length = max(1, *(len(beam) for beam in beams))
    padded = [
        beam + [(-np.inf, -np.inf, eos, index * beam_size, 0)] * (max_length - len(beam))
        for index, beam in enumerate(beams)
    ]
    columns = [
        np.array([[candidate[column] for candidate in beam] for beam in padded])
        for column in range(5)
    ]
    totals, log_probs = (column.astype(np.float64) for column in columns[:2])
    return Candidates(totals, log_probs, *(column.astype(np.int64) for column in columns[2:]))
