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
        beams = np.arange(len(order))[:, None]
        return self.each(lambda table: table[beams, order])

    def without(self, is_out: NDArray[np.bool_]) -> Candidates:
        """These, but some (beams, C) are none, and stand last."""
        totals = np.where(is_out, -np.inf, self.totals)
        return self._replace(totals=totals).ordered(np.argsort(is_out, axis=1, kind="stable"))

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


class Ranked(NamedTuple):
    """The best continuations of beams: what they come to, their rows and their tokens."""

    totals: Float[Tensor, "U C"]
    rows: Int[Tensor, "U C"]
    tokens: Int[Tensor, "U C"]


def find(
    allowed: Float[Tensor, "R N"],
    said: Float[Tensor, "R N"],
    totals: NDArray[np.float64],
    count: int,
) -> Candidates:
    """Find the best continuations of each beam by what the rules left of the log-probabilities."""
    precision = torch.promote_types(said.dtype, torch.float32)
    so_far = torch.from_numpy(totals).to(said.device, precision)
    if said.device.type == "cpu" and said.dtype == precision:
        return _find_here(allowed, said, so_far, count)
    ranked = rank(allowed, so_far, count)
    own = said[ranked.rows, ranked.tokens].to(precision)
    worth, log_probs = torch.stack([ranked.totals, own]).cpu().numpy().astype(np.float64)
    tokens, rows = torch.stack([ranked.tokens, ranked.rows]).cpu().numpy()
    return Candidates(worth, log_probs, tokens, rows, np.zeros_like(tokens))


def rank(log_probs: Float[Tensor, "R N"], totals: Float[Tensor, "U K"], count: int) -> Ranked:
    """Rank the `count` best continuations of each beam without waiting for a device."""
    num_beams, held = totals.shape
    size, num_chunks = log_probs.size(1), _num_chunks(log_probs)
    firsts = held * torch.arange(num_beams, device=totals.device)[:, None]
    if num_chunks <= 2 * count:
        best, places = _rank_all(log_probs, totals, count)
        return Ranked(best, firsts + places // size, places % size)
    peaks = (totals.view(-1, 1) + _peaks(log_probs)).view(num_beams, -1)
    chunks = peaks.topk(count).indices  # (U, C) of K * chunks
    rows, starts = firsts + chunks // num_chunks, chunks % num_chunks * _CHUNK
    fitting = starts.clamp(max=size - _CHUNK)
    found = _windows(log_probs, rows * size + fitting)
    if size % _CHUNK:
        inside = torch.arange(_CHUNK, device=rows.device)
        found.masked_fill_(inside < (starts - fitting).unsqueeze(-1), -torch.inf)
    grown = found + totals.flatten()[rows].unsqueeze(-1)
    best, places = grown.flatten(1).topk(count)
    chosen = places // _CHUNK
    return Ranked(best, rows.gather(1, chosen), fitting.gather(1, chosen) + places % _CHUNK)


def _find_here(
    allowed: Float[Tensor, "R N"],
    said: Float[Tensor, "R N"],
    totals: Float[Tensor, "U K"],
    count: int,
) -> Candidates:
    """The same on the host, where numpy does small sums sooner than torch."""
    if count == totals.size(1) == 1:
        tokens = allowed.numpy().argmax(axis=1)[:, None]
        rows = np.arange(len(tokens))[:, None]
    else:
        rows, tokens = _rank_here(allowed, totals, count)
    worth = totals.numpy().reshape(-1)[rows] + allowed.numpy()[rows, tokens]
    own = said.numpy()[rows, tokens]
    zeros = np.zeros_like(tokens)
    return Candidates(worth.astype(np.float64), own.astype(np.float64), tokens, rows, zeros)


def _rank_here(
    log_probs: Float[Tensor, "R N"], totals: Float[Tensor, "U K"], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and tokens of the `count` best continuations of each beam."""
    size, num_chunks = log_probs.size(1), _num_chunks(log_probs)
    beams = np.arange(len(totals))[:, None]
    firsts = totals.size(1) * beams
    if num_chunks <= 2 * count:
        own, tokens = np.divmod(_rank_all(log_probs, totals, count)[1].numpy(), size)
        return firsts + own, tokens
    peaks = (totals.view(-1, 1) + _peaks(log_probs)).view(len(totals), -1)
    own, number = np.divmod(peaks.topk(count).indices.numpy(), num_chunks)
    rows, starts = firsts + own, number * _CHUNK
    fitting = np.minimum(starts, size - _CHUNK)
    found = _windows(log_probs, torch.from_numpy(rows * size + fitting))
    if size % _CHUNK:
        found.numpy()[starts > fitting, : -(size % _CHUNK)] = -np.inf
    grown = found.add_(torch.from_numpy(totals.numpy()[beams, own]).unsqueeze(-1))
    chosen, beyond = np.divmod(grown.flatten(1).topk(count).indices.numpy(), _CHUNK)
    return rows[beams, chosen], fitting[beams, chosen] + beyond


def _num_chunks(log_probs: Float[Tensor, "R N"]) -> int:
    return -(-log_probs.size(1) // _CHUNK)


def _rank_all(
    log_probs: Float[Tensor, "R N"], totals: Float[Tensor, "U K"], count: int
) -> tuple[Float[Tensor, "U C"], Int[Tensor, "U C"]]:
    """Rank the tokens of all rows of a beam; there are too few chunks to leave any out."""
    grown = (totals.view(-1, 1) + log_probs).view(len(totals), -1)  # (U, K * N)
    return grown.topk(min(count, grown.size(1)))


def _peaks(log_probs: Float[Tensor, "R N"]) -> Float[Tensor, "R chunks"]:
    """The maximum of every chunk; the last may be a shorter one."""
    whole = log_probs.size(1) // _CHUNK * _CHUNK
    peaks = log_probs[:, :whole].unflatten(1, (-1, _CHUNK)).amax(dim=-1)
    if whole == log_probs.size(1):
        return peaks
    return torch.cat([peaks, log_probs[:, whole:].amax(dim=-1, keepdim=True)], dim=1)


def _windows(
    log_probs: Float[Tensor, "R N"], starts: Int[Tensor, "U C"]
) -> Float[Tensor, "U C chunk"]:
    """As many tokens as a chunk has, from these places of the flattened rows on.

    A shorter last chunk is filled up from its left; what fills it belongs to the one before.
    """
    windows = log_probs.flatten().unfold(0, _CHUNK, 1)  # one at every place: a view, not a copy
    return windows.index_select(0, starts.flatten()).view(*starts.shape, _CHUNK)
