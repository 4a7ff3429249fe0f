"""Candidates: which continuations of a beam are the best few?

A vocabulary is large and a beam is small. The tokens of a row are cut into chunks; a continuation
among the best C lies in one of the C chunks whose best are best. So one pass finds the maximum of
every chunk, and only the tokens of C chunks are ever sorted. The few that are found go to the
host, where the book of the search is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.shapes import Float, Int

_CHUNK = 128  # tokens; of 32 to 128 the fastest for 160 rows of 8,000 tokens on a CPU


class Candidates(NamedTuple):
    """Continuations (beams, C) of beams, best first; -inf in `totals` where there is none."""

    totals: NDArray[np.float64]  # what they are ranked by: log-probabilities, after the rules
    log_probs: NDArray[np.float64]  # of the last token alone, as the model has it
    tokens: NDArray[np.int64]
    rows: NDArray[np.int64]  # the hypotheses they continue, as rows of the batch
    missing: NDArray[np.int64]  # tokens they still owe to constraints

    def each(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Candidates:
        """Change every table in the same way."""
        return Candidates(
            change(self.totals),
            change(self.log_probs),
            change(self.tokens),
            change(self.rows),
            change(self.missing),
        )

    def only(self, beams: NDArray[np.int64]) -> Candidates:
        """Those of some beams."""
        return self.each(lambda table: table[beams])

    def ordered(self, order: NDArray[np.int64]) -> Candidates:
        """Those at these places (beams, K) of each beam, in this order."""
        return self.each(lambda table: np.take_along_axis(table, order, axis=1))

    def replaced(self, beams: NDArray[np.int64], others: Candidates) -> Candidates:
        """These, but as many others for some beams."""
        tables: list[NDArray[Any]] = [table.copy() for table in self]
        for table, other in zip(tables, others, strict=True):
            table[beams] = other
        return Candidates(*tables)


def ends(
    totals: NDArray[np.float64],
    log_probs: NDArray[np.float64],
    rows: NDArray[np.int64],
    *,
    end: int,
    count: int,
) -> Candidates:
    """So many candidates of beams that can only end; there is one for each of their rows."""
    order = np.argsort(-totals, axis=1, kind="stable")[:, np.arange(count) % totals.shape[1]]
    found = Candidates(totals, log_probs, np.full_like(rows, end), rows, np.zeros_like(rows))
    found = found.ordered(order)
    found.totals[:, totals.shape[1] :] = -np.inf
    return found


def find(
    allowed: Float[Tensor, "R N"],
    said: Float[Tensor, "R N"],
    totals: Float[Tensor, "U K"],
    count: int,
) -> Candidates:
    """Find the best continuations of each beam by what the rules left of the log-probabilities."""
    ranked, rows, tokens = rank(allowed, totals, count)
    own = said[rows, tokens].to(ranked.dtype)
    worth = torch.stack([ranked, own]).cpu().numpy().astype(np.float64)
    where = torch.stack([tokens, rows]).cpu().numpy()
    return Candidates(worth[0], worth[1], where[0], where[1], np.zeros_like(where[0]))


def rank(
    log_probs: Float[Tensor, "R N"], totals: Float[Tensor, "U K"], count: int
) -> tuple[Float[Tensor, "U C"], Int[Tensor, "U C"], Int[Tensor, "U C"]]:
    """Give totals, rows and tokens of the `count` best continuations of each beam."""
    num_beams, held = totals.shape
    num_chunks = -(-log_probs.size(1) // _CHUNK)
    firsts = held * torch.arange(num_beams, device=totals.device)[:, None]
    if num_chunks <= 2 * count:
        grown = (totals.view(-1, 1) + log_probs).view(num_beams, -1)  # (U, K * N)
        best, places = grown.topk(min(count, grown.size(1)))
        size = log_probs.size(1)
        return best, firsts + places // size, places % size
    peaks = (totals.view(-1, 1) + _peaks(log_probs)).view(num_beams, -1)
    chunks = peaks.topk(count).indices  # (U, C) of K * chunks
    rows, starts = firsts + chunks // num_chunks, chunks % num_chunks * _CHUNK
    grown = _inside(log_probs, rows, starts) + totals.flatten()[rows].unsqueeze(-1)
    best, places = grown.flatten(1).topk(count)
    theirs = places // _CHUNK
    tokens = starts.clamp(max=log_probs.size(1) - _CHUNK).gather(1, theirs) + places % _CHUNK
    return best, rows.gather(1, theirs), tokens


def _peaks(log_probs: Float[Tensor, "R N"]) -> Float[Tensor, "R chunks"]:
    """The maximum of every chunk; the last may be a shorter one."""
    whole = log_probs.size(1) // _CHUNK * _CHUNK
    peaks = log_probs[:, :whole].unflatten(1, (-1, _CHUNK)).amax(dim=-1)
    if whole == log_probs.size(1):
        return peaks
    return torch.cat([peaks, log_probs[:, whole:].amax(dim=-1, keepdim=True)], dim=1)


def _inside(
    log_probs: Float[Tensor, "R N"], rows: Int[Tensor, "U C"], starts: Int[Tensor, "U C"]
) -> Float[Tensor, "U C chunk"]:
    """What stands in the chunks that start here; a shorter last one is filled up from its left.

    What fills it up belongs to the chunk before, and is -inf here.
    """
    size = log_probs.size(1)
    fitting = starts.clamp(max=size - _CHUNK)
    windows = log_probs.flatten().unfold(0, _CHUNK, 1)  # one at every place: a view, not a copy
    found = windows.index_select(0, (rows * size + fitting).flatten()).view(*rows.shape, _CHUNK)
    if size % _CHUNK:
        inside = torch.arange(_CHUNK, device=rows.device)
        found.masked_fill_(inside < (starts - fitting).unsqueeze(-1), -torch.inf)
    return found
