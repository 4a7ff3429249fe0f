"""Constraints: how does a beam come to say what its outputs must contain?

A hypothesis may end only when nothing is missing, and stays in the beam only as long as what is
missing fits into the tokens it has left; from any that fits, some token leads to another that
does. So every output that is found contains what it must. That outputs are good as well, and do
not put off to the end what they must say, is the work of the banks (after Post and Vilar 2018,
section 3): the beam is dealt out in turn among hypotheses with as many tokens missing, and
tokens that go on with a phrase are always among the candidates. Without constraints there is one
bank, and all this is a plain beam.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.errors import ConfigError
from heedful.search.candidates import Candidates
from heedful.shapes import Float

# Phrases: what must be in an output?
#
# A `DisjunctiveConstraint` is met when one of its phrases has been said, token after token, wherever and however:
# phrases may overlap, and what must be said twice over is said once. How far an output is with all
# it must say follows from its tokens alone.

Phrase = tuple[int, ...]


class DisjunctiveConstraint(NamedTuple):
    """One of these phrases must be said."""

    phrases: tuple[Phrase, ...]

    @property
    def shortest(self) -> int:
        """The fewest tokens it takes."""
        return min(len(phrase) for phrase in self.phrases)


def require_phrase(*phrases: Sequence[int]) -> DisjunctiveConstraint:
    """Require a phrase, or one of several."""
    return DisjunctiveConstraint(tuple(tuple(phrase) for phrase in phrases))


class ConstraintProgress(NamedTuple):
    """How far an output is: for each `DisjunctiveConstraint`, None if it is met, else what was said of each phrase.

    What was said of a phrase is the longest beginning of it that the output ends with.
    """

    matched: tuple[tuple[int, ...] | None, ...]


class ConstraintSet:
    """All that one output must say, and the fewest tokens that takes."""

    def __init__(self, constraints: Sequence[DisjunctiveConstraint]) -> None:
        self.constraints = tuple(dict.fromkeys(constraints))
        self._failure_tables = [
            [_failure_table(phrase) for phrase in must.phrases] for must in self.constraints
        ]

    def start(self) -> ConstraintProgress:
        """Nothing has been said."""
        return ConstraintProgress(tuple((0,) * len(must.phrases) for must in self.constraints))

    def advance(self, progress: ConstraintProgress, token: int) -> ConstraintProgress:
        """Say a token."""
        return ConstraintProgress(
            tuple(
                None if said is None else self._match_token(number, said, token)
                for number, said in enumerate(progress.matched)
            )
        )

    def num_missing(self, progress: ConstraintProgress) -> int:
        """A number of tokens that is enough to say the rest; 0 if and only if all is said.

        It goes on with one phrase that has been begun and says the others from their beginnings;
        where phrases overlap, fewer might do.
        """
        parts = [
            (must, said)
            for must, said in zip(self.constraints, progress.matched, strict=True)
            if said is not None
        ]
        saved = [
            must.shortest - (len(phrase) - count)
            for must, said in parts
            for phrase, count in zip(must.phrases, said, strict=True)
        ]
        return sum(must.shortest for must, _ in parts) - max([0, *saved])

    def next_tokens(self, progress: ConstraintProgress) -> set[int]:
        """What goes on with a phrase; one of these leaves one token fewer missing."""
        return {
            phrase[count]
            for must, said in zip(self.constraints, progress.matched, strict=True)
            if said is not None
            for phrase, count in zip(must.phrases, said, strict=True)
        }

    def _match_token(
        self, number: int, matched: tuple[int, ...], token: int
    ) -> tuple[int, ...] | None:
        phrases, falls = self.constraints[number].phrases, self._failure_tables[number]
        counts = tuple(
            _next_count(phrase, fall, count, token)
            for phrase, fall, count in zip(phrases, falls, matched, strict=True)
        )
        is_met = any(count == len(phrase) for count, phrase in zip(counts, phrases, strict=True))
        return None if is_met else counts


def _failure_table(phrase: Phrase) -> list[int]:
    """For each beginning, its longest shorter one that it also ends with (Knuth et al. 1977)."""
    falls, length = [0, 0], 0
    for token in phrase[1:]:
        while length and phrase[length] != token:
            length = falls[length]
        length += phrase[length] == token
        falls.append(length)
    return falls


def _next_count(phrase: Phrase, failure_table: list[int], count: int, token: int) -> int:
    while count and phrase[count] != token:
        count = failure_table[count]
    return count + (phrase[count] == token)


_Found = dict[tuple[int, int], tuple[float, float]]  # (row, token): total, log-probability


class ConstrainedBeam:
    """What the hypotheses of a search must say, and how far each of them is."""

    def __init__(self, constraints: Sequence[Sequence[DisjunctiveConstraint]], *, eos: int) -> None:
        self._constraint_sets = [ConstraintSet(each) for each in constraints]
        self._eos = eos
        self._sentences: list[int] = []
        self._progress: list[ConstraintProgress] = []

    def validate(self, max_lengths: Sequence[int], prefixes: Sequence[Sequence[int]]) -> None:
        """Complain about what no output of at most these lengths can contain."""
        for number, (duties, limit) in enumerate(
            zip(self._constraint_sets, max_lengths, strict=True)
        ):
            _validate_phrases(
                duties.constraints, self._eos, f"constraints of sentence {number + 1}"
            )
            prefix = prefixes[number] if prefixes else ()
            progress = duties.start()
            for token in prefix:
                progress = duties.advance(progress, token)
            needed = len(prefix) + duties.num_missing(progress)
            if needed > limit:
                after = f", its prefix of {len(prefix)} counted" if prefix else ""
                raise ConfigError(
                    f"constraints of sentence {number + 1}",
                    f"they take {needed} tokens{after}, but the output may have {limit}",
                    "require less, or let outputs be longer",
                )

    def start(self, sentence_ids: NDArray[np.int64]) -> None:
        """Open a hypothesis for each of these sentences."""
        self._sentences = sentence_ids.tolist()
        self._progress = [self._constraint_sets[sentence].start() for sentence in self._sentences]

    def reorder(
        self,
        rows: NDArray[np.int64],
        tokens: NDArray[np.int64],
    ) -> None:
        """Go on with these rows, each by its token."""
        parents = rows.tolist()
        self._progress = [
            self._progress_after(row, token)
            for row, token in zip(parents, tokens.tolist(), strict=True)
        ]
        self._sentences = [self._sentences[row] for row in parents]

    def block_eos(self, log_probs: Float[Tensor, "R N"]) -> Float[Tensor, "R N"]:
        """Forbid the end to rows that have something missing."""
        rows = [row for row in range(len(log_probs)) if self._missing(row)]
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
        allowed_log_probs: Float[Tensor, "R N"],
        hard_log_probs: Float[Tensor, "R N"],
        model_log_probs: Float[Tensor, "R N"],
        remaining: Sequence[int],
    ) -> Candidates:
        """Add to the candidates what constraints call for; take away what has no room for them.

        What must be said goes before what may not be: its worth is what binding rules alone leave.
        `room` is how many tokens each beam may say after this one.
        """
        held = cumulative_log_probs.shape[1]
        added = self._required_continuations(
            cumulative_log_probs.flatten(), allowed_log_probs, hard_log_probs, model_log_probs
        )
        beams = []
        for beam, remaining_tokens in enumerate(remaining):
            pool = _candidate_pool(candidates, beam)
            for row in range(beam * held, (beam + 1) * held):
                for token, worth in added.get(row, {}).items():
                    pool[row, token] = max(worth, pool.get((row, token), worth))
            beams.append(self._fitting_candidates(pool, remaining_tokens))
        return _pad_candidates(beams, held, self._eos)

    def _required_continuations(
        self,
        cumulative_log_probs: NDArray[np.float64],
        allowed_log_probs: Float[Tensor, "R N"],
        hard_log_probs: Float[Tensor, "R N"],
        model_log_probs: Float[Tensor, "R N"],
    ) -> dict[int, dict[int, tuple[float, float]]]:
        """For each row with something missing, what goes on with a phrase, and its best token."""
        rows = [
            row
            for row in range(len(cumulative_log_probs))
            if cumulative_log_probs[row] > -np.inf and self._missing(row)
        ]
        if not rows:
            return {}
        wanted = [(row, token) for row in rows for token in sorted(self._next_tokens(row))]
        places = torch.tensor(wanted, device=model_log_probs.device).T.unbind()
        best = allowed_log_probs[rows].max(dim=-1)
        required_continuations = zip(
            wanted, hard_log_probs[places].tolist(), model_log_probs[places].tolist(), strict=True
        )
        best_continuations = zip(rows, best.indices.tolist(), best.values.tolist(), strict=True)
        own = model_log_probs[rows, best.indices].tolist()
        added: dict[int, dict[int, tuple[float, float]]] = {row: {} for row in rows}
        for (row, token, worth), log_prob in zip(best_continuations, own, strict=True):
            added[row][token] = (cumulative_log_probs[row] + worth, log_prob)
        for (row, token), worth, log_prob in required_continuations:
            added[row][token] = (cumulative_log_probs[row] + worth, log_prob)
        return added

    def _fitting_candidates(
        self, pool: _Found, remaining: int
    ) -> list[tuple[float, float, int, int, int]]:
        """Order candidates by their worth; leave out those that cannot say the rest any more."""
        listed = []
        for (row, token), (total, log_prob) in pool.items():
            is_end = token == self._eos
            missing = self._missing(row) if is_end else self._missing_after(row, token)
            listed.append((total, log_prob, token, row, missing))
        fitting = [each for each in listed if each[-1] <= remaining or each[2] == self._eos]
        # A prefix that is forced may lead through places from which it does not seem to fit.
        return sorted(fitting or listed, key=lambda each: -each[0])

    def _progress_after(self, row: int, token: int) -> ConstraintProgress:
        return self._constraint_sets[self._sentences[row]].advance(self._progress[row], token)

    def _missing(self, row: int) -> int:
        return self._constraint_sets[self._sentences[row]].num_missing(self._progress[row])

    def _missing_after(self, row: int, token: int) -> int:
        return self._constraint_sets[self._sentences[row]].num_missing(
            self._progress_after(row, token)
        )

    def _next_tokens(self, row: int) -> set[int]:
        return self._constraint_sets[self._sentences[row]].next_tokens(self._progress[row])


def _validate_phrases(constraints: Sequence[DisjunctiveConstraint], eos: int, at: str) -> None:
    for must in constraints:
        if not must.phrases or not all(must.phrases):
            raise ConfigError(at, "an empty phrase says nothing", "leave it out")
        if any(eos in phrase for phrase in must.phrases):
            raise ConfigError(
                at, "a phrase contains the end symbol", "require only what comes before the end"
            )


def _candidate_pool(found: Candidates, beam: int) -> _Found:
    parts = (part[beam].tolist() for part in found[:4])
    return {
        (row, token): (total, log_prob)
        for total, log_prob, token, row in zip(*parts, strict=True)
        if total > -np.inf
    }


def _pad_candidates(
    beams: list[list[tuple[float, float, int, int, int]]], held: int, eos: int
) -> Candidates:
    """Make all lists equally long, by candidates that are none."""
    longest = max(1, *(len(beam) for beam in beams))
    full = [
        beam + [(-np.inf, -np.inf, eos, number * held, 0)] * (longest - len(beam))
        for number, beam in enumerate(beams)
    ]
    parts = [np.array([[each[part] for each in beam] for beam in full]) for part in range(5)]
    return Candidates(
        parts[0].astype(np.float64),
        parts[1].astype(np.float64),
        *(p.astype(np.int64) for p in parts[2:]),
    )
