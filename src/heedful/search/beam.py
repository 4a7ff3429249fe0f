"""Beam search: the few likeliest beginnings, grown side by side.

All sentences are searched in one batch; a sentence that is done leaves it. With width 1 this
is greedy search, and with a beam as wide as the space of outputs it is exhaustive.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from heedful.nested import select
from heedful.search.penalties import LengthPenalty
from heedful.search.protocol import State, Steps
from heedful.search.trellis import Ending, Hypothesis, Trellis
from heedful.shapes import Float, Int


class _Beam(NamedTuple):
    """The hypotheses that are still open: K for each of B sentences."""

    sentences: Int[Tensor, "B"]
    tokens: Int[Tensor, "B K"]  # the last of each hypothesis
    totals: Float[Tensor, "B K"]  # log-probabilities so far; -inf where there is none


class _Candidates(NamedTuple):
    """The best continuations of every sentence, best first."""

    totals: Float[Tensor, "B C"]
    tokens: Int[Tensor, "B C"]
    rows: Int[Tensor, "B C"]  # the hypotheses they continue, as rows of the batch


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
) -> list[list[Hypothesis]]:
    """Find up to `width` likely outputs for every row of `state`, best first.

    A hypothesis that has `max_lengths` tokens must end. A sentence is done when `width`
    hypotheses have ended and none still open, were it to end now, would rank among them:
    without a length penalty nothing the beam holds could do better.
    """
    search = _Search(end, width, max_lengths, penalty or LengthPenalty())
    sentences = torch.arange(len(max_lengths), device=max_lengths.device)
    tokens = torch.full((len(sentences), 1), begin, device=sentences.device)
    beam = _Beam(sentences, tokens, torch.zeros(tokens.shape, device=sentences.device))
    while len(beam.sentences):
        step = model.step(beam.tokens.flatten(), state)
        beam, rows = search.advance(beam, step.log_probs, step.weights)
        state = select(step.state, rows)
    return search.hypotheses()


class _Search:
    """What has ended so far, and the rules by which a beam advances."""

    def __init__(self, end: int, width: int, max_lengths: Tensor, penalty: LengthPenalty) -> None:
        self.end = end
        self.width = width
        self.max_lengths = max_lengths
        self.penalty = penalty
        self.trellis = Trellis()
        self.ended: list[list[Ending]] = [[] for _ in max_lengths]

    def hypotheses(self) -> list[list[Hypothesis]]:
        return [[self.trellis.read(ending) for ending in endings] for endings in self.ended]

    def advance(
        self, beam: _Beam, log_probs: Float[Tensor, "R N"], weights: Float[Tensor, "R S"]
    ) -> tuple[_Beam, Int[Tensor, "R2"]]:
        """Grow the beam by one token; say which rows of the batch the new ones continue."""
        self.trellis.look(weights)
        at_limit = self.trellis.depth >= self.max_lengths[beam.sentences]
        candidates = self._rank(beam, self._bounded(log_probs, at_limit))
        self._put_aside(beam.sentences, candidates)
        opened = candidates.totals.masked_fill(candidates.tokens == self.end, -torch.inf)
        totals, picks = opened.topk(min(self.width, opened.size(1)))
        kept = self._unfinished(beam.sentences, totals[:, 0])
        tokens = candidates.tokens.gather(1, picks)[kept]
        rows = candidates.rows.gather(1, picks)[kept].flatten()
        self.trellis.grow(rows, tokens.flatten())
        return _Beam(beam.sentences[kept], tokens, totals[kept]), rows

    def _bounded(self, log_probs: Float[Tensor, "R N"], at_limit: Tensor) -> Float[Tensor, "R N"]:
        """Leave a hypothesis at its limit nothing but the end."""
        must_end = at_limit.repeat_interleave(len(log_probs) // len(at_limit))
        others = torch.arange(log_probs.size(1), device=log_probs.device) != self.end
        return log_probs.masked_fill(must_end[:, None] & others, -torch.inf)

    def _rank(self, beam: _Beam, log_probs: Float[Tensor, "R N"]) -> _Candidates:
        """Order the continuations; twice the width, since half of them may end at once."""
        num_beams, num_tokens = beam.tokens.size(1), log_probs.size(1)
        grown = beam.totals.flatten()[:, None] + log_probs
        grown = grown.view(len(beam.sentences), -1)  # (B, K * N)
        totals, places = grown.topk(min(2 * self.width, grown.size(1)))
        firsts = torch.arange(len(grown), device=grown.device)[:, None] * num_beams
        return _Candidates(totals, places % num_tokens, firsts + places // num_tokens)

    def _put_aside(self, sentences: Tensor, candidates: _Candidates) -> None:
        """Keep the hypotheses that end among the best `width`."""
        length = self.trellis.depth + 1
        ends = (candidates.tokens == self.end) & candidates.totals.isfinite()
        for place, rank in ends[:, : self.width].nonzero().tolist():
            log_prob = candidates.totals[place, rank].item()
            score = self.penalty(log_prob, length)
            row = int(candidates.rows[place, rank])
            endings = self.ended[int(sentences[place])]
            endings.append(Ending(self.trellis.depth, row, log_prob, score))
            endings.sort(key=lambda ending: -ending.score)
            del endings[self.width :]

    def _unfinished(self, sentences: Tensor, best: Float[Tensor, "B"]) -> Int[Tensor, "B2"]:
        """The sentences whose beam may still hold something better."""
        length = self.trellis.depth + 1
        going_on = [
            place
            for place, (sentence, total) in enumerate(
                zip(sentences.tolist(), best.tolist(), strict=True)
            )
            if total > -torch.inf and self._would_rank(self.penalty(total, length), sentence)
        ]
        return torch.tensor(going_on, dtype=torch.long, device=sentences.device)

    def _would_rank(self, score: float, sentence: int) -> bool:
        endings = self.ended[sentence]
        return len(endings) < self.width or score > endings[-1].score
