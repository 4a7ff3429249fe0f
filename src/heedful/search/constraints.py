"""Lexically constrained beam search: outputs that contain required phrases.

A hypothesis may end only when no required token is missing, and stays in the beam only while the
missing tokens fit into its remaining length: some token always leads to another one that fits, so
each finished output satisfies its constraints. Banks of hypotheses with the same number of missing
tokens share the beam, and tokens that continue a phrase are always candidates (after Post and Vilar
2018, section 3). Invariant: without constraints the result is that of a plain beam search.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from heedful.errors import check
from heedful.search.candidates import Candidates, FloatArray, IntArray
from heedful.search.logits_processors import LogProbs

Phrase = tuple[int, ...]
Progress = tuple[tuple[int, ...] | None, ...]
"""Length of the longest prefix of each phrase of every constraint that the output ends with; None
for a constraint that is satisfied."""


class DisjunctiveConstraint(NamedTuple):
    """One of these phrases must occur as consecutive tokens; phrases may overlap."""

    phrases: tuple[Phrase, ...]

    @property
    def min_length(self) -> int:
        """Number of tokens of the shortest phrase."""
        return min(len(phrase) for phrase in self.phrases)


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

    def start(self) -> Progress:
        """Return the progress of an empty output."""
        return tuple((0,) * len(constraint.phrases) for constraint in self.constraints)

    def advance(self, progress: Progress, token: int) -> Progress:
        """Return the progress after one more token."""
        return tuple(
            None if matched is None else self._match_token(index, matched, token)
            for index, matched in enumerate(progress)
        )

    def num_missing(self, progress: Progress) -> int:
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

    def next_tokens(self, progress: Progress) -> set[int]:
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

    def _unmet(self, progress: Progress) -> list[tuple[DisjunctiveConstraint, tuple[int, ...]]]:
        pairs = zip(self.constraints, progress, strict=True)
        return [(constraint, matched) for constraint, matched in pairs if matched is not None]

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
        self._sentences = [ConstraintSet(of_sentence) for of_sentence in constraints]
        self._eos = eos
        of_rows = [self._sentences[sentence] for sentence in sentence_ids.tolist()]
        self._rows = [(constraint_set, constraint_set.start()) for constraint_set in of_rows]

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
            message = f"the constraints need {needed} tokens{including}, but max_length is {limit}"
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
        for beam, of_beam in enumerate(beams):
            empty_slot = (-np.inf, -np.inf, self._eos, beam * beam_size, 0)
            of_beam.extend([empty_slot] * (max_length - len(of_beam)))
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
        # A forced prefix may pass through states from which the constraints do not seem to fit.
        return sorted(fitting or candidates, key=lambda candidate: -candidate[0])

    def _num_missing(self, row: int) -> int:
        constraint_set, progress = self._rows[row]
        return constraint_set.num_missing(progress)
