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

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.errors import ConfigError
from heedful.search.candidates import Candidates
from heedful.search.phrases import Duties, Must, Progress
from heedful.shapes import Float

_Found = dict[tuple[int, int], tuple[float, float]]  # (row, token): total, log-probability


class Constraints:
    """What the hypotheses of a search must say, and how far each of them is."""

    def __init__(self, musts: Sequence[Sequence[Must]], *, end: int) -> None:
        self._duties = [Duties(each) for each in musts]
        self._end = end
        self._sentences: list[int] = []
        self._progress: list[Progress] = []

    def refuse(self, limits: Sequence[int], prefixes: Sequence[Sequence[int]]) -> None:
        """Complain about what no output of at most these lengths can contain."""
        for number, (duties, limit) in enumerate(zip(self._duties, limits, strict=True)):
            _refuse_phrases(duties.musts, self._end, f"constraints of sentence {number + 1}")
            prefix = prefixes[number] if prefixes else ()
            progress = duties.begin()
            for token in prefix:
                progress = duties.advance(progress, token)
            needed = len(prefix) + duties.missing(progress)
            if needed > limit:
                after = f", its prefix of {len(prefix)} counted" if prefix else ""
                raise ConfigError(
                    f"constraints of sentence {number + 1}",
                    f"they take {needed} tokens{after}, but the output may have {limit}",
                    "require less, or let outputs be longer",
                )

    def begin(self, sentences: NDArray[np.int64]) -> None:
        """Open a hypothesis for each of these sentences."""
        self._sentences = sentences.tolist()
        self._progress = [self._duties[sentence].begin() for sentence in self._sentences]

    def follow(
        self,
        rows: NDArray[np.int64],
        tokens: NDArray[np.int64],
    ) -> None:
        """Go on with these rows, each by its token."""
        parents = rows.tolist()
        self._progress = [
            self._after(row, token) for row, token in zip(parents, tokens.tolist(), strict=True)
        ]
        self._sentences = [self._sentences[row] for row in parents]

    def hold_back(self, log_probs: Float[Tensor, "R N"]) -> Float[Tensor, "R N"]:
        """Forbid the end to rows that have something missing."""
        rows = [row for row in range(len(log_probs)) if self._missing(row)]
        if not rows:
            return log_probs
        log_probs = log_probs.clone()
        log_probs[rows, self._end] = -torch.inf
        return log_probs

    def extend(
        self,
        found: Candidates,
        totals: NDArray[np.float64],
        *,
        left: Float[Tensor, "R N"],
        bound: Float[Tensor, "R N"],
        said: Float[Tensor, "R N"],
        room: Sequence[int],
    ) -> Candidates:
        """Add to the candidates what constraints call for; take away what has no room for them.

        What must be said goes before what may not be: its worth is what binding rules alone leave.
        `room` is how many tokens each beam may say after this one.
        """
        held = totals.shape[1]
        added = self._called_for(totals.flatten(), left, bound, said)
        beams = []
        for beam, space in enumerate(room):
            pool = _listed(found, beam)
            for row in range(beam * held, (beam + 1) * held):
                for token, worth in added.get(row, {}).items():
                    pool[row, token] = max(worth, pool.get((row, token), worth))
            beams.append(self._with_room(pool, space))
        return _padded(beams, held, self._end)

    def _called_for(
        self,
        totals: NDArray[np.float64],
        left: Float[Tensor, "R N"],
        bound: Float[Tensor, "R N"],
        said: Float[Tensor, "R N"],
    ) -> dict[int, dict[int, tuple[float, float]]]:
        """For each row with something missing, what goes on with a phrase, and its best token."""
        rows = [row for row in range(len(totals)) if totals[row] > -np.inf and self._missing(row)]
        if not rows:
            return {}
        wanted = [(row, token) for row in rows for token in sorted(self._next_tokens(row))]
        places = torch.tensor(wanted, device=said.device).T.unbind()
        best = left[rows].max(dim=-1)
        asked = zip(wanted, bound[places].tolist(), said[places].tolist(), strict=True)
        liked = zip(rows, best.indices.tolist(), best.values.tolist(), strict=True)
        own = said[rows, best.indices].tolist()
        added: dict[int, dict[int, tuple[float, float]]] = {row: {} for row in rows}
        for (row, token, worth), log_prob in zip(liked, own, strict=True):
            added[row][token] = (totals[row] + worth, log_prob)
        for (row, token), worth, log_prob in asked:
            added[row][token] = (totals[row] + worth, log_prob)
        return added

    def _with_room(self, pool: _Found, room: int) -> list[tuple[float, float, int, int, int]]:
        """Order candidates by their worth; leave out those that cannot say the rest any more."""
        listed = []
        for (row, token), (total, log_prob) in pool.items():
            is_end = token == self._end
            missing = self._missing(row) if is_end else self._missing_after(row, token)
            listed.append((total, log_prob, token, row, missing))
        fitting = [each for each in listed if each[-1] <= room or each[2] == self._end]
        # A prefix that is forced may lead through places from which it does not seem to fit.
        return sorted(fitting or listed, key=lambda each: -each[0])

    def _after(self, row: int, token: int) -> Progress:
        return self._duties[self._sentences[row]].advance(self._progress[row], token)

    def _missing(self, row: int) -> int:
        return self._duties[self._sentences[row]].missing(self._progress[row])

    def _missing_after(self, row: int, token: int) -> int:
        return self._duties[self._sentences[row]].missing(self._after(row, token))

    def _next_tokens(self, row: int) -> set[int]:
        return self._duties[self._sentences[row]].next_tokens(self._progress[row])


def _refuse_phrases(musts: Sequence[Must], end: int, at: str) -> None:
    for must in musts:
        if not must.phrases or not all(must.phrases):
            raise ConfigError(at, "an empty phrase says nothing", "leave it out")
        if any(end in phrase for phrase in must.phrases):
            raise ConfigError(
                at, "a phrase contains the end symbol", "require only what comes before the end"
            )


def _listed(found: Candidates, beam: int) -> _Found:
    parts = (part[beam].tolist() for part in found[:4])
    return {
        (row, token): (total, log_prob)
        for total, log_prob, token, row in zip(*parts, strict=True)
        if total > -np.inf
    }


def _padded(
    beams: list[list[tuple[float, float, int, int, int]]], held: int, end: int
) -> Candidates:
    """Make all lists equally long, by candidates that are none."""
    longest = max(1, *(len(beam) for beam in beams))
    full = [
        beam + [(-np.inf, -np.inf, end, number * held, 0)] * (longest - len(beam))
        for number, beam in enumerate(beams)
    ]
    parts = [np.array([[each[part] for each in beam] for beam in full]) for part in range(5)]
    return Candidates(
        parts[0].astype(np.float64),
        parts[1].astype(np.float64),
        *(p.astype(np.int64) for p in parts[2:]),
    )
