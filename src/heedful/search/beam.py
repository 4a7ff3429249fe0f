"""Beam search: the few likeliest beginnings, grown side by side.

All sentences are searched in one batch; those that are done leave it, a few at a time. With width 1
this is greedy search, and with a beam as wide as the space of outputs it is exhaustive. What the
model says is ranked where the model is; the few candidates come to the host, where the book is
kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.nested import select
from heedful.search.bounds import Bounds, Standing, take_out_least
from heedful.search.candidates import Candidates, find
from heedful.search.choosing import Chosen, Diversity, avoid, choose, note
from heedful.search.constraints import Constraints
from heedful.search.evidence import not_a_number
from heedful.search.following import Follower
from heedful.search.lengths import AtMost
from heedful.search.penalties import CoveragePenalty, LengthPenalty
from heedful.search.phrases import Must
from heedful.search.protocol import State, Steps
from heedful.search.rules import BeginWith, Rule, apply_all
from heedful.search.stopping import FIRST, Settled, SoFar, Stopping
from heedful.search.trellis import Ending, Hypothesis, Trellis
from heedful.shapes import Float, Int

_IDLE = 0.25
"""The share of a batch that may have nothing to do. Whoever leaves makes all others move."""


class Searching(NamedTuple):
    """How outputs are searched for, beside the width of the beam; as it stands, plainly."""

    coverage: CoveragePenalty | None = None
    stopping: Stopping = Settled()
    diversity: Diversity = Diversity()
    rules: tuple[Rule, ...] = ()
    musts: Sequence[Sequence[Must]] | None = None  # what each sentence's outputs must contain


@torch.no_grad()
def beam_search(
    model: Steps[State],
    state: State,
    *,
    begin: int,
    end: int,
    width: int,
    max_lengths: Int[Tensor, "B"],
    penalty: LengthPenalty | None = None,
    how: Searching | None = None,
    source_lengths: Int[Tensor, "B"] | None = None,
    trellis: Trellis | None = None,
) -> list[list[Hypothesis]]:
    """Find up to `width` likely outputs for every row of `state`, best first.

    A hypothesis that has `max_lengths` tokens must end. When a sentence is done is for the policy
    `how.stopping` to say. Where weights reach past `source_lengths` they look at nothing. Whoever
    wants to see the whole search gives a `trellis` to be filled.
    """
    how, trellis = how or Searching(), trellis or Trellis()
    judge = _Judge(trellis, penalty or LengthPenalty(), how.coverage, source_lengths)
    search = _Search(judge, how, end=end, width=width, max_lengths=max_lengths)
    tokens = torch.full_like(search.sentences, begin)
    if len(tokens) != len(max_lengths):
        state = select(state, search.sentences)
    follower = Follower(state)
    while len(tokens):
        step = model.step(tokens, state)
        rows, tokens = search.advance(step.log_probs, step.weights)
        state = follower.follow(
            step.state, rows, same_rows=search.same_rows, same_sentences=search.same_sentences
        )
    return search.hypotheses()


class _Judge:
    """What an output is worth once it has ended."""

    def __init__(
        self,
        trellis: Trellis,
        penalty: LengthPenalty,
        coverage: CoveragePenalty | None,
        source_lengths: Int[Tensor, "B"] | None,
    ) -> None:
        self.trellis = trellis
        self.penalty = penalty
        self.coverage = coverage
        self.places = source_lengths.tolist() if source_lengths is not None else None

    def score(self, total: float, row: int, sentence: int) -> float:
        """Score a row of the present depth that ends here."""
        worth = self.penalty(total, self.trellis.depth + 1)
        if self.coverage is None:
            return worth
        looked = self.trellis.looked(self.trellis.depth, row)
        return worth + self.coverage(looked[:, : self.places[sentence] if self.places else None])


class _Search:
    """The beams that are open, what has ended so far, and how to go on.

    A sentence has a beam, or one for each group; each beam holds as many rows of the batch.
    """

    def __init__(
        self, judge: _Judge, how: Searching, *, end: int, width: int, max_lengths: Int[Tensor, "B"]
    ) -> None:
        self.judge, self.trellis, self.how, self.end = judge, judge.trellis, how, end
        self.width = how.diversity.share(width)
        # A group may have to pass over all that it shares with the groups before it.
        crowd = width * self.width if how.diversity.groups > 1 else 0
        self.rules, least = take_out_least(how.rules) if how.musts is None else (how.rules, None)
        # Without the one end of each hypothesis there must still be enough; who stops at the best
        # end has enough with the best.
        stops_there = width == 1 and how.stopping is FIRST and how.musts is None
        self.num_candidates = 1 if stops_there else 2 * self.width + crowd
        self.limits: list[int] = max_lengths.tolist()
        self.bounds = Bounds(least, self.limits, end=end)
        self.at_most = AtMost(max_lengths, end=end)
        self.constraints = Constraints(how.musts, end=end) if how.musts is not None else None
        self._refuse()
        count, groups = len(max_lengths), how.diversity.groups
        self.beams = np.arange(count * groups)  # number of a beam: groups of a sentence together
        self.totals = np.zeros((len(self.beams), 1))
        self.sentences = torch.from_numpy(self.beams // groups).to(max_lengths.device)
        self.written = self.sentences.new_empty(len(self.beams), 0)
        self.ended: list[list[Ending]] = [[] for _ in self.beams]
        self.num_ended = [0 for _ in self.beams]
        self.same_rows = self.same_sentences = False
        self.trellis.begin(self._owners)
        if self.constraints:
            self.constraints.begin(self._owners)

    def hypotheses(self) -> list[list[Hypothesis]]:
        """Read back the best of each sentence, no output twice."""
        groups = self.how.diversity.groups
        firsts = range(0, len(self.ended), groups)
        ended = [[each for beam in self.ended[at : at + groups] for each in beam] for at in firsts]
        read = iter(self.trellis.read([ending for endings in ended for ending in endings]))
        return [_distinct([next(read) for _ in endings]) for endings in ended]

    def advance(
        self, log_probs: Float[Tensor, "R N"], weights: Float[Tensor, "R S"]
    ) -> tuple[Int[Tensor, "R2"], Int[Tensor, "R2"]]:
        """Grow the beams by a token; say which rows of the batch the new ones continue, and how."""
        self.trellis.look(weights)
        candidates = self._candidates(log_probs)
        chosen = self._choose(candidates)
        self._put_aside(chosen)
        is_open = np.array([self._goes_on(*beam) for beam in self._standing(chosen)])
        chosen.totals[~is_open] = -np.inf
        return self._keep(chosen, np.flatnonzero(is_open | self._stays_behind(is_open)))

    def _stays_behind(self, is_open: NDArray[np.bool_]) -> bool:
        """Whether beams that are done stay in the batch for now: few cost less than moving all."""
        return self.constraints is None and bool(is_open.sum() > (1 - _IDLE) * len(is_open))

    def _candidates(self, said: Float[Tensor, "R N"]) -> Candidates:
        left, bound = self._allowed(said)
        if self.constraints:
            left = self.constraints.hold_back(left)
        found = find(left, said, self.totals, self.num_candidates)
        if np.isnan(found.totals).any():
            raise not_a_number(self.trellis.depth)
        if not self.constraints:
            beams = Standing(self._owners, self.totals, self.trellis.depth)
            if self.bounds.ends_too_soon(found, beams).any():
                found = find(left, said, self.totals, self.num_candidates + self.width)
                found = found.without(self.bounds.ends_too_soon(found, beams))
            return self.bounds.end_long_ones(found, beams, left=left, said=said)
        room = [self.limits[owner] - self.trellis.depth - 1 for owner in self._owners.tolist()]
        return self.constraints.extend(
            found, self.totals, left=left, bound=bound, said=said, room=room
        )

    def _allowed(
        self, said: Float[Tensor, "R N"]
    ) -> tuple[Float[Tensor, "R N"], Float[Tensor, "R N"]]:
        """What the rules leave, and what the binding ones leave."""
        rules = (*self.rules, self.at_most) if self.constraints else self.rules
        if not rules:
            return said, said
        rows = self.sentences.repeat_interleave(self.totals.shape[1])
        return apply_all(rules, said, self.written, rows, end=self.end)

    @property
    def _owners(self) -> NDArray[np.int64]:
        return self.beams // self.how.diversity.groups

    def _choose(self, candidates: Candidates) -> Chosen:
        """Choose in every beam; groups of a sentence one after another."""
        groups = self.how.diversity.groups
        if groups == 1:
            return choose(candidates, end=self.end, width=self.width)
        taken: list[Counter[int]] = [Counter() for _ in self.limits]
        parts, order = [], []
        for group in range(groups):
            beams = np.flatnonzero(self.beams % groups == group)
            owners = self._owners[beams]
            some = avoid(candidates.only(beams), owners, taken, self.how.diversity.strength)
            parts.append(choose(some, end=self.end, width=self.width))
            note(taken, owners, parts[-1])
            order.append(beams)
        places = np.argsort(np.concatenate(order))
        joined = [
            np.concatenate(part)[places] for part in zip(*(p[1:] for p in parts), strict=True)
        ]
        tables = zip(*(part.candidates for part in parts), strict=True)
        return Chosen(Candidates(*(np.concatenate(each)[places] for each in tables)), *joined)

    def _put_aside(self, chosen: Chosen) -> None:
        """Keep the best of those that have ended."""
        found = chosen.candidates
        for place, rank in np.argwhere(chosen.ends).tolist():
            beam, row = int(self.beams[place]), int(found.rows[place, rank])
            owner = beam // self.how.diversity.groups
            score = self.judge.score(float(found.totals[place, rank]), row, owner)
            own = float(found.log_probs[place, rank])
            ending = Ending(self.trellis.depth, row, own, score)
            self.trellis.end(ending)
            self.num_ended[beam] += 1
            self.ended[beam].append(ending)
            self.ended[beam].sort(key=lambda each: -each.score)
            del self.ended[beam][self.width :]

    def _standing(self, chosen: Chosen) -> list[tuple[int, float]]:
        """Each beam with the best total among its open hypotheses."""
        return list(zip(self.beams.tolist(), chosen.totals.max(axis=1).tolist(), strict=True))

    def _goes_on(self, beam: int, best: float) -> bool:
        if best == -np.inf or not self.num_ended[beam]:
            return best > -np.inf  # no policy stops before anything has ended
        ended, penalty, length = self.ended[beam], self.judge.penalty, self.trellis.depth + 1
        longest = self.limits[beam // self.how.diversity.groups] + 1
        so_far = SoFar(
            width=self.width,
            num_ended=self.num_ended[beam],
            worst=ended[-1].score if len(ended) == self.width else -np.inf,
            standing=penalty(best, length),
            hope=penalty.bound(best, length, longest),
        )
        return not self.how.stopping.is_done(so_far)

    def _keep(
        self, chosen: Chosen, kept: NDArray[np.int64]
    ) -> tuple[Int[Tensor, "R2"], Int[Tensor, "R2"]]:
        """Leave only the beams that go on, and their open hypotheses."""
        is_whole = len(kept) == len(self.beams)
        found = chosen.candidates if is_whole else chosen.candidates.only(kept)
        found = found.ordered(chosen.opens[kept])
        rows, tokens, totals = found.rows.flatten(), found.tokens.flatten(), chosen.totals[kept]
        own = np.where(totals > -np.inf, found.log_probs, -np.inf)
        self.trellis.grow(rows, tokens, own.flatten())
        if self.constraints:
            self.constraints.follow(rows, tokens)
        self.same_sentences = self.totals.shape == totals.shape
        self.same_rows = self.same_sentences and bool((rows == np.arange(len(rows))).all())
        device = self.sentences.device
        parents, said = torch.from_numpy(rows).to(device), torch.from_numpy(tokens).to(device)
        if not is_whole:
            self.beams = self.beams[kept]
            self.sentences = torch.from_numpy(self._owners).to(device)
        self.totals = totals
        if self.rules or self.constraints:
            self.written = torch.cat([self.written[parents], said.unsqueeze(1)], dim=1)
        return parents, said

    def _refuse(self) -> None:
        for rule in self.how.rules:
            rule.refuse(self.limits)
        if self.constraints:
            prefixes = [rule.prefixes for rule in self.how.rules if isinstance(rule, BeginWith)]
            self.constraints.refuse(self.limits, prefixes[0] if prefixes else [])


def _distinct(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Those that say something of their own, best first."""
    found: dict[tuple[int, ...], Hypothesis] = {}
    for hypothesis in sorted(hypotheses, key=lambda each: -each.score):
        found.setdefault(tuple(hypothesis.tokens), hypothesis)
    return list(found.values())
