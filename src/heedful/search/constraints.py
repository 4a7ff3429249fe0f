"""Lexically constrained beam search: outputs that contain required phrases.

A hypothesis may end only when no required token is missing, and stays in the beam only while the
missing tokens fit into its remaining length: some token always leads to another one that fits, so
each finished output satisfies its constraints. Banks of hypotheses with the same number of missing
tokens share the beam, and tokens that continue a phrase are always candidates (after Post and Vilar
2018, section 3). Invariants: the number of missing tokens is the smallest that suffices, also where
phrases contain or overlap one another; without constraints the result is that of a plain beam
search.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np
import torch

from heedful.errors import check, format_count
from heedful.search.candidates import Candidates, FloatArray, IntArray
from heedful.search.logits_processors import LogProbs

Phrase = tuple[int, ...]
Progress = tuple[tuple[int, ...] | None, ...]
"""Length of the longest prefix of each phrase of every constraint that the output ends with; None
for a constraint that is satisfied."""

_MAX_GROUP_COST = 1_000_000
"""Bound of 2^constraints * phrases^2 for an exact count: twelve phrases that all overlap."""


class DisjunctiveConstraint(NamedTuple):
    """One of these phrases must occur as consecutive tokens; phrases may overlap."""

    phrases: tuple[Phrase, ...]


Constraints = Sequence[DisjunctiveConstraint]


def require_phrase(*phrases: Sequence[int]) -> DisjunctiveConstraint:
    """Return the constraint that one of these phrases occurs."""
    return DisjunctiveConstraint(tuple(tuple(phrase) for phrase in phrases))


class ConstraintSet:
    """All constraints of a sentence; progress depends only on the generated tokens."""

    def __init__(self, constraints: Constraints) -> None:
        self.constraints = tuple(dict.fromkeys(constraints))
        self._failure_tables = [
            [_failure_table(phrase) for phrase in constraint.phrases]
            for constraint in self.constraints
        ]
        self._groups = [_ConstraintGroup(group) for group in _group_overlapping(self.constraints)]
        self.num_missing = cache(self._num_missing)
        """Number of tokens that suffice after this progress; 0 if all constraints are satisfied."""

    def start(self) -> Progress:
        """Return the progress of an empty output."""
        return tuple((0,) * len(constraint.phrases) for constraint in self.constraints)

    def advance(self, progress: Progress, token: int) -> Progress:
        """Return the progress after one more token."""
        return tuple(
            None if matched is None else self._match_token(index, matched, token)
            for index, matched in enumerate(progress)
        )

    def _num_missing(self, progress: Progress) -> int:
        """Add up the groups; one of them may continue what the output ends with.

        Phrases of two groups never overlap, so no token serves both.
        """
        restarted = saved = 0
        for group in self._groups:
            matched = [progress[self.constraints.index(item)] for item in group.constraints]
            from_start, continued = group.num_missing(matched)
            restarted += from_start
            saved = max(saved, from_start - continued)
        return restarted - saved

    def next_tokens(self, progress: Progress) -> set[int]:
        """Return the tokens that continue a phrase; at least one reduces `num_missing` by one."""
        return {
            phrase[count]
            for constraint, matched in zip(self.constraints, progress, strict=True)
            for phrase, count in zip(constraint.phrases, matched or (), strict=matched is not None)
        }

    def num_tokens_needed(self, prefix: Sequence[int]) -> int:
        """Return the length of an output that starts with `prefix` and satisfies everything."""
        progress = self.start()
        for token in prefix:
            progress = self.advance(progress, token)
        return len(prefix) + self.num_missing(progress)

    def _match_token(
        self, index: int, matched: tuple[int, ...], token: int
    ) -> tuple[int, ...] | None:
        phrases, tables = self.constraints[index].phrases, self._failure_tables[index]
        counts = []
        for phrase, table, num_matched in zip(phrases, tables, matched, strict=True):
            count = num_matched
            while count and phrase[count] != token:
                count = table[count]
            counts.append(count + (phrase[count] == token))
            if counts[-1] == len(phrase):
                return None
        return tuple(counts)


class _ConstraintGroup:
    """Constraints whose phrases may overlap, and the smallest number of tokens for them.

    A shortest output appends phrase after phrase, each from its longest overlap with the one before
    it: the occurrences that lie within no other occurrence, in their order.
    """

    def __init__(self, constraints: Constraints) -> None:
        self.constraints = constraints
        phrases = {phrase for constraint in constraints for phrase in constraint.phrases}
        self._overlaps = {
            last: {phrase: _overlap(last, phrase) for phrase in phrases} for last in phrases
        }
        self._satisfied = {
            phrase: frozenset(
                index
                for index, constraint in enumerate(constraints)
                if any(_contains(phrase, part) for part in constraint.phrases)
            )
            for phrase in phrases
        }
        self._count_after = cache(self._count_after_phrase)

    def num_missing(self, progress: Sequence[tuple[int, ...] | None]) -> tuple[int, int]:
        """Return the number of tokens from the first of a phrase on, and after this progress."""
        unmet = frozenset(index for index, matched in enumerate(progress) if matched is not None)
        counts: dict[Phrase, int] = {}
        for constraint, matched in zip(self.constraints, progress, strict=True):
            counts.update(zip(constraint.phrases, matched or (), strict=matched is not None))
        return self._count(unmet, {}), self._count(unmet, counts)

    def _count(self, unmet: frozenset[int], counts: Mapping[Phrase, int]) -> int:
        phrases = {phrase for index in unmet for phrase in self.constraints[index].phrases}
        lengths = (
            len(phrase)
            - counts.get(phrase, 0)
            + self._count_after(phrase, unmet - self._satisfied[phrase])
            for phrase in phrases
        )
        return min(lengths, default=0)

    def _count_after_phrase(self, last: Phrase, unmet: frozenset[int]) -> int:
        return self._count(unmet, self._overlaps[last])


def _group_overlapping(constraints: Constraints) -> list[list[DisjunctiveConstraint]]:
    """Partition constraints so that no phrases of two groups overlap.

    Where too many do, groups stay separate, and what they save by overlapping is ignored.
    """
    groups: list[list[DisjunctiveConstraint]] = []
    for constraint in constraints:
        joined, others = [constraint], []
        for group in groups:
            phrases = [phrase for item in (*joined, *group) for phrase in item.phrases]
            cost = 2 ** (len(joined) + len(group)) * len(phrases) ** 2
            if cost <= _MAX_GROUP_COST and any(_may_overlap(constraint, item) for item in group):
                joined += group
            else:
                others.append(group)
        groups = [*others, joined]
    return groups


def _may_overlap(first: DisjunctiveConstraint, second: DisjunctiveConstraint) -> bool:
    return any(
        _overlap(*pair) or _contains(*pair)
        for one, other in product(first.phrases, second.phrases)
        for pair in ((one, other), (other, one))
    )


def _contains(phrase: Phrase, part: Phrase) -> bool:
    starts = range(len(phrase) - len(part) + 1)
    return any(phrase[start : start + len(part)] == part for start in starts)


def _overlap(before: Phrase, after: Phrase) -> int:
    """Return the length of the longest suffix of `before` that is a proper prefix of `after`."""
    lengths = range(min(len(before), len(after) - 1), 0, -1)
    return next((length for length in lengths if before[-length:] == after[:length]), 0)


def _failure_table(phrase: Phrase) -> list[int]:
    """Return, for each prefix, the length of its longest proper border (Knuth et al. 1977)."""
    table, length = [0, 0], 0
    for token in phrase[1:]:
        while length and phrase[length] != token:
            length = table[length]
        length += phrase[length] == token
        table.append(length)
    return table


_Scores = tuple[float, float]  # cumulative log-probability, model log-probability of the token
_Pool = dict[tuple[int, int], _Scores]  # candidates by (row, token)


class ConstrainedBeam:
    """The constraints of each sentence and the progress of each hypothesis of a search."""

    def __init__(
        self, constraints: Sequence[Constraints], sentence_ids: IntArray, *, eos: int
    ) -> None:
        self._sentences = [ConstraintSet(phrases) for phrases in constraints]
        self._eos = eos
        row_sets = [self._sentences[sentence] for sentence in sentence_ids.tolist()]
        self._rows = [(constraint_set, constraint_set.start()) for constraint_set in row_sets]

    def check_lengths(self, max_lengths: Sequence[int], prefixes: Sequence[Sequence[int]]) -> None:
        """Raise ConfigError for constraints that no output of these lengths can satisfy."""
        sentences = zip(self._sentences, max_lengths, strict=True)
        for index, (constraint_set, limit) in enumerate(sentences):
            location = f"constraints of sentence {index + 1}"
            for phrases in (constraint.phrases for constraint in constraint_set.constraints):
                is_full = phrases and all(phrases)
                check(is_full, location, "a phrase is empty", "remove the empty phrase")
                has_eos = any(self._eos in phrase for phrase in phrases)
                check(not has_eos, location, "a phrase contains EOS", "remove EOS from the phrase")
            prefix = prefixes[index] if prefixes else ()
            needed = constraint_set.num_tokens_needed(prefix)
            including = f", including the prefix of {len(prefix)}" if prefix else ""
            count = f"{format_count(needed, 'token')}{including}"
            message = f"the constraints need {count}, but max_length is {limit}"
            hint = "require fewer or shorter phrases, or raise max_length"
            check(needed <= limit, location, message, hint)

    def reorder(self, rows: IntArray, tokens: IntArray) -> None:
        """Continue these rows, each with its token."""
        continued = []
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            constraint_set, progress = self._rows[row]
            continued.append((constraint_set, constraint_set.advance(progress, token)))
        self._rows = continued

    def block_eos(self, log_probs: LogProbs) -> LogProbs:
        """Forbid EOS in rows that miss required tokens."""
        rows = [row for row in range(len(log_probs)) if self._num_missing(row)]
        if rows:
            log_probs = log_probs.clone()
            log_probs[rows, self._eos] = -torch.inf
        return log_probs

    def add_candidates(
        self,
        candidates: Candidates,
        cumulative_log_probs: FloatArray,
        remaining: Sequence[int],
        *,
        allowed: LogProbs,
        hard: LogProbs,
        model: LogProbs,
    ) -> Candidates:
        """Add the candidates that constraints need; drop those that leave too few tokens.

        `remaining` is the number of tokens that each beam may add after this one. `model` are the
        log-probabilities of the model, `hard` and `allowed` those after hard and after all
        processors: a required token overrides processors that are not hard.
        """
        beam_size = cumulative_log_probs.shape[1]
        required = self._required_tokens(cumulative_log_probs.flatten(), allowed, hard, model)
        beams = []
        for beam, num_remaining in enumerate(remaining):
            columns = (array[beam].tolist() for array in candidates[:4])
            pool = {
                (row, token): (total, log_prob)
                for total, log_prob, token, row in zip(*columns, strict=True)
                if total > -np.inf
            }
            for (row, token), score in required.items():
                if row // beam_size == beam:
                    pool[row, token] = max(score, pool.get((row, token), score))
            beams.append(self._fitting_candidates(pool, num_remaining))
        max_length = max(1, *map(len, beams))
        for beam, slots in enumerate(beams):
            empty_slot = (-np.inf, -np.inf, self._eos, beam * beam_size, 0)
            slots.extend([empty_slot] * (max_length - len(slots)))
        arrays = np.array(beams, dtype=np.float64).transpose(2, 0, 1)
        return Candidates(*arrays[:2], *arrays[2:].astype(np.int64))

    def _required_tokens(
        self, totals: FloatArray, allowed: LogProbs, hard: LogProbs, model: LogProbs
    ) -> _Pool:
        """Return the tokens that continue a phrase, and the best one, of rows that miss tokens."""
        rows = [row for row in np.flatnonzero(totals > -np.inf).tolist() if self._num_missing(row)]
        if not rows:
            return {}
        next_tokens = {row: self._rows[row][0].next_tokens(self._rows[row][1]) for row in rows}
        best_tokens = allowed[rows].max(dim=-1).indices.tolist()
        keys = [
            (row, token)
            for row, best in zip(rows, best_tokens, strict=True)
            for token in dict.fromkeys([best, *sorted(next_tokens[row])])
        ]
        index = torch.tensor(keys, device=model.device).T.unbind()
        columns = [log_probs[index].tolist() for log_probs in (allowed, hard, model)]
        pool = {}
        for (row, token), if_best, if_next, log_prob in zip(keys, *columns, strict=True):
            score = if_next if token in next_tokens[row] else if_best
            pool[row, token] = (float(totals[row]) + score, log_prob)
        return pool

    def _fitting_candidates(
        self, pool: _Pool, remaining: int
    ) -> list[tuple[float, float, int, int, int]]:
        """Sort candidates by score, without those whose missing tokens no longer fit."""
        candidates, fitting = [], []
        for (row, token), (total, log_prob) in pool.items():
            constraint_set, progress = self._rows[row]
            is_end = token == self._eos
            advanced = progress if is_end else constraint_set.advance(progress, token)
            missing = constraint_set.num_missing(advanced)
            candidates.append((total, log_prob, token, row, missing))
            if is_end or missing <= remaining:
                fitting.append(candidates[-1])
        # Within a forced prefix too many overlapping constraints may not seem to fit.
        return sorted(fitting or candidates, key=lambda candidate: -candidate[0])

    def _num_missing(self, row: int) -> int:
        constraint_set, progress = self._rows[row]
        return constraint_set.num_missing(progress)
