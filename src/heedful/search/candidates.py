""""""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor

from heedful.config import BaseConfig
from heedful.errors import ConfigError
from heedful.shapes import Float, Int

# Candidates: which continuations of a beam are the best few?
#
# A vocabulary is large and a beam is small. The tokens of a row are cut into chunks; a continuation
# among the best C lies in one of the C chunks whose best are best. So one pass finds the maximum of
# every chunk, and only the tokens of C chunks are ever sorted. The few that are found go to the
# host, where the book of the search is kept.

_CHUNK_SIZE = 128  # tokens; of 32 to 128 the fastest for 160 rows of 8,000 tokens on a CPU


class Candidates(NamedTuple):
    """Continuations (beams, C) of beams, best first; -inf in `cumulative_log_probs` where there is none."""

    cumulative_log_probs: NDArray[
        np.float64
    ]  # what they are ranked by: log-probabilities, after the rules
    log_probs: NDArray[np.float64]  # of the last token alone, as the model has it
    tokens: NDArray[np.int64]
    rows: NDArray[np.int64]  # the hypotheses they continue, as rows of the batch
    num_missing: NDArray[np.int64]  # tokens they still owe to constraints

    def map_arrays(self, change: Callable[[NDArray[Any]], NDArray[Any]]) -> Candidates:
        """Change every table in the same way."""
        return Candidates(
            change(self.cumulative_log_probs),
            change(self.log_probs),
            change(self.tokens),
            change(self.rows),
            change(self.num_missing),
        )

    def select_beams(self, beams: NDArray[np.int64]) -> Candidates:
        """Those of some beams."""
        return self.map_arrays(lambda table: table[beams])

    def reorder(self, order: NDArray[np.int64]) -> Candidates:
        """Those at these places (beams, K) of each beam, in this order."""
        beams = np.arange(len(order))[:, None]
        return self.map_arrays(lambda table: table[beams, order])

    def drop(self, is_out: NDArray[np.bool_]) -> Candidates:
        """These, but some (beams, C) are none, and stand last."""
        cumulative_log_probs = np.where(is_out, -np.inf, self.cumulative_log_probs)
        return self._replace(cumulative_log_probs=cumulative_log_probs).reorder(
            np.argsort(is_out, axis=1, kind="stable")
        )

    def with_beams_replaced(self, beams: NDArray[np.int64], replacements: Candidates) -> Candidates:
        """These, but as many others for some beams."""
        tables: list[NDArray[Any]] = [table.copy() for table in self]
        for table, other in zip(tables, replacements, strict=True):
            table[beams] = other
        return Candidates(*tables)


def eos_candidates(
    cumulative_log_probs: NDArray[np.float64],
    log_probs: NDArray[np.float64],
    rows: NDArray[np.int64],
    *,
    eos: int,
    count: int,
) -> Candidates:
    """So many candidates of beams that can only end; there is one for each of their rows."""
    order = np.argsort(-cumulative_log_probs, axis=1, kind="stable")[
        :, np.arange(count) % cumulative_log_probs.shape[1]
    ]
    found = Candidates(
        cumulative_log_probs, log_probs, np.full_like(rows, eos), rows, np.zeros_like(rows)
    )
    found = found.reorder(order)
    found.cumulative_log_probs[:, cumulative_log_probs.shape[1] :] = -np.inf
    return found


class TopContinuations(NamedTuple):
    """The best continuations of beams: what they come to, their rows and their tokens."""

    cumulative_log_probs: Float[Tensor, "U C"]
    rows: Int[Tensor, "U C"]
    tokens: Int[Tensor, "U C"]


def find_candidates(
    allowed_log_probs: Float[Tensor, "R N"],
    model_log_probs: Float[Tensor, "R N"],
    cumulative_log_probs: NDArray[np.float64],
    num_candidates: int,
) -> Candidates:
    """Find the best continuations of each beam by what the rules left of the log-probabilities."""
    precision = torch.promote_types(model_log_probs.dtype, torch.float32)
    so_far = torch.from_numpy(cumulative_log_probs).to(model_log_probs.device, precision)
    if model_log_probs.device.type == "cpu" and model_log_probs.dtype == precision:
        return _find_candidates_cpu(allowed_log_probs, model_log_probs, so_far, num_candidates)
    ranked = topk_continuations(allowed_log_probs, so_far, num_candidates)
    row_in_beam = model_log_probs[ranked.rows, ranked.tokens].to(precision)
    scores, log_probs = (
        torch.stack([ranked.cumulative_log_probs, row_in_beam]).cpu().numpy().astype(np.float64)
    )
    tokens, rows = torch.stack([ranked.tokens, ranked.rows]).cpu().numpy()
    return Candidates(scores, log_probs, tokens, rows, np.zeros_like(tokens))


def topk_continuations(
    log_probs: Float[Tensor, "R N"], cumulative_log_probs: Float[Tensor, "U K"], count: int
) -> TopContinuations:
    """Rank the `n_best` best continuations of each beam without waiting for a device."""
    num_beams, beam_size = cumulative_log_probs.shape
    size, num_chunks = log_probs.size(1), _num_chunks(log_probs)
    firsts = beam_size * torch.arange(num_beams, device=cumulative_log_probs.device)[:, None]
    if num_chunks <= 2 * count:
        best, places = _topk_exhaustive(log_probs, cumulative_log_probs, count)
        return TopContinuations(best, firsts + places // size, places % size)
    peaks = (cumulative_log_probs.view(-1, 1) + _chunk_maxima(log_probs)).view(num_beams, -1)
    chunks = peaks.topk(count).indices  # (U, C) of K * chunks
    rows, starts = firsts + chunks // num_chunks, chunks % num_chunks * _CHUNK_SIZE
    fitting = starts.clamp(max=size - _CHUNK_SIZE)
    found = _windows(log_probs, rows * size + fitting)
    if size % _CHUNK_SIZE:
        inside = torch.arange(_CHUNK_SIZE, device=rows.device)
        found.masked_fill_(inside < (starts - fitting).unsqueeze(-1), -torch.inf)
    extended_totals = found + cumulative_log_probs.flatten()[rows].unsqueeze(-1)
    best, places = extended_totals.flatten(1).topk(count)
    chosen = places // _CHUNK_SIZE
    return TopContinuations(
        best, rows.gather(1, chosen), fitting.gather(1, chosen) + places % _CHUNK_SIZE
    )


def _find_candidates_cpu(
    allowed_log_probs: Float[Tensor, "R N"],
    model_log_probs: Float[Tensor, "R N"],
    cumulative_log_probs: Float[Tensor, "U K"],
    count: int,
) -> Candidates:
    """The same on the host, where numpy does small sums sooner than torch."""
    if count == cumulative_log_probs.size(1) == 1:
        tokens = allowed_log_probs.numpy().argmax(axis=1)[:, None]
        rows = np.arange(len(tokens))[:, None]
    else:
        rows, tokens = _topk_continuations_cpu(allowed_log_probs, cumulative_log_probs, count)
    scores = (
        cumulative_log_probs.numpy().reshape(-1)[rows] + allowed_log_probs.numpy()[rows, tokens]
    )
    row_in_beam = model_log_probs.numpy()[rows, tokens]
    zeros = np.zeros_like(tokens)
    return Candidates(
        scores.astype(np.float64), row_in_beam.astype(np.float64), tokens, rows, zeros
    )


def _topk_continuations_cpu(
    log_probs: Float[Tensor, "R N"], cumulative_log_probs: Float[Tensor, "U K"], count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and tokens of the `n_best` best continuations of each beam."""
    size, num_chunks = log_probs.size(1), _num_chunks(log_probs)
    beams = np.arange(len(cumulative_log_probs))[:, None]
    firsts = cumulative_log_probs.size(1) * beams
    if num_chunks <= 2 * count:
        row_in_beam, tokens = np.divmod(
            _topk_exhaustive(log_probs, cumulative_log_probs, count)[1].numpy(), size
        )
        return firsts + row_in_beam, tokens
    peaks = (cumulative_log_probs.view(-1, 1) + _chunk_maxima(log_probs)).view(
        len(cumulative_log_probs), -1
    )
    row_in_beam, number = np.divmod(peaks.topk(count).indices.numpy(), num_chunks)
    rows, starts = firsts + row_in_beam, number * _CHUNK_SIZE
    fitting = np.minimum(starts, size - _CHUNK_SIZE)
    found = _windows(log_probs, torch.from_numpy(rows * size + fitting))
    if size % _CHUNK_SIZE:
        found.numpy()[starts > fitting, : -(size % _CHUNK_SIZE)] = -np.inf
    extended_totals = found.add_(
        torch.from_numpy(cumulative_log_probs.numpy()[beams, row_in_beam]).unsqueeze(-1)
    )
    chosen, beyond = np.divmod(extended_totals.flatten(1).topk(count).indices.numpy(), _CHUNK_SIZE)
    return rows[beams, chosen], fitting[beams, chosen] + beyond


def _num_chunks(log_probs: Float[Tensor, "R N"]) -> int:
    return -(-log_probs.size(1) // _CHUNK_SIZE)


def _topk_exhaustive(
    log_probs: Float[Tensor, "R N"], cumulative_log_probs: Float[Tensor, "U K"], count: int
) -> tuple[Float[Tensor, "U C"], Int[Tensor, "U C"]]:
    """Rank the tokens of all rows of a beam; there are too few chunks to leave any out."""
    extended_totals = (cumulative_log_probs.view(-1, 1) + log_probs).view(
        len(cumulative_log_probs), -1
    )  # (U, K * N)
    return extended_totals.topk(min(count, extended_totals.size(1)))


def _chunk_maxima(log_probs: Float[Tensor, "R N"]) -> Float[Tensor, "R chunks"]:
    """The maximum of every chunk; the last may be a shorter one."""
    whole = log_probs.size(1) // _CHUNK_SIZE * _CHUNK_SIZE
    peaks = log_probs[:, :whole].unflatten(1, (-1, _CHUNK_SIZE)).amax(dim=-1)
    if whole == log_probs.size(1):
        return peaks
    return torch.cat([peaks, log_probs[:, whole:].amax(dim=-1, keepdim=True)], dim=1)


def _windows(
    log_probs: Float[Tensor, "R N"], starts: Int[Tensor, "U C"]
) -> Float[Tensor, "U C chunk"]:
    """As many tokens as a chunk has, from these places of the flattened rows on.

    A shorter last chunk is filled up from its left; what fills it belongs to the one before.
    """
    windows = log_probs.flatten().unfold(
        0, _CHUNK_SIZE, 1
    )  # one at every place: a view, not a copy
    return windows.index_select(0, starts.flatten()).view(*starts.shape, _CHUNK_SIZE)


# Choosing: which candidates of a beam end, which stay open?
#
# Those that end are put aside if they are among the best `width` of their bank; of the others the
# beam is dealt out, bank by bank in turn, the best of each first. Where beams of a sentence come in
# groups, they choose one after another, and each is shown how often a token was chosen before.


class BeamGroups(NamedTuple):
    """Groups of hypotheses that avoid one another (Vijayakumar et al. 2018, section 4).

    A group ranks by log P - strength * (how many hypotheses of earlier groups chose the token at
    this step); what a hypothesis is worth stays log P. One group is a plain beam.
    """

    num_groups: int = 1
    penalty: float = 0.5

    def group_size(self, beam_size: int) -> int:
        """How many hypotheses each group has."""
        if self.num_groups < 1 or beam_size % self.num_groups:
            raise ConfigError(
                "diversity.num_beam_groups",
                f"a beam of {beam_size} cannot be shared by {self.num_groups} groups",
                "choose a number of groups that divides the width",
            )
        return beam_size // self.num_groups


class BeamSelection(NamedTuple):
    """What became of the candidates of some beams."""

    candidates: Candidates
    is_finished: NDArray[np.bool_]  # (beams, C) those that end and are put aside
    open_indices: NDArray[np.int64]  # (beams, K) places of those that stay open
    cumulative_log_probs: NDArray[np.float64]  # (beams, K) of these; -inf where there is none


def select_candidates(candidates: Candidates, *, eos: int, beam_size: int) -> BeamSelection:
    """Deal out the beams among candidates in the order they stand."""
    is_real = candidates.cumulative_log_probs > -np.inf
    is_end = is_real & (candidates.tokens == eos)
    is_open = is_real & ~is_end
    if candidates.num_missing.any():
        ranks, turns = (
            _rank_within_bank(candidates.num_missing, is_real),
            _rank_within_bank(candidates.num_missing, is_open),
        )
        open_indices = np.lexsort((candidates.num_missing, turns, ~is_open))[:, :beam_size]
    else:
        ranks = np.arange(is_real.shape[1])
        open_indices = np.argsort(~is_open, axis=1, kind="stable")[:, :beam_size]
    cumulative_log_probs = np.where(is_open, candidates.cumulative_log_probs, -np.inf)
    beams = np.arange(len(open_indices))[:, None]
    return BeamSelection(
        candidates,
        is_end & (ranks < beam_size),
        open_indices,
        cumulative_log_probs[beams, open_indices],
    )


def apply_diversity_penalty(
    candidates: Candidates,
    sentence_ids: NDArray[np.int64],
    token_counts: list[Counter[int]],
    penalty: float,
) -> Candidates:
    """Order candidates by what they are worth to a group that knows what others chose."""
    counts = [
        [token_counts[sentence][token] for token in tokens]
        for sentence, tokens in zip(sentence_ids.tolist(), candidates.tokens.tolist(), strict=True)
    ]
    cost = penalty * np.array(counts, dtype=np.float64).reshape(
        candidates.cumulative_log_probs.shape
    )
    order = np.argsort(cost - candidates.cumulative_log_probs, axis=1, kind="stable")
    return candidates.reorder(order)


def count_selected_tokens(
    token_counts: list[Counter[int]], sentence_ids: NDArray[np.int64], selection: BeamSelection
) -> None:
    """Count the tokens that a group has chosen."""
    for beam, sentence in enumerate(sentence_ids.tolist()):
        tokens = selection.candidates.tokens[beam]
        token_counts[sentence].update(tokens[selection.is_finished[beam]].tolist())
        token_counts[sentence].update(
            tokens[selection.open_indices[beam]][
                selection.cumulative_log_probs[beam] > -np.inf
            ].tolist()
        )


def _rank_within_bank(banks: NDArray[np.int64], counts: NDArray[np.bool_]) -> NDArray[np.int64]:
    """How many that count stand before each in its own bank."""
    is_before = np.tri(banks.shape[1], k=-1, dtype=bool)
    same = banks[:, :, None] == banks[:, None, :]
    return (same & is_before & counts[:, None, :]).sum(axis=-1)


class BeamGroupsConfig(BaseConfig):
    """Groups of hypotheses that avoid one another (Vijayakumar et al. 2018, section 4)."""

    num_beam_groups: PositiveInt = 1
    """How many groups share the beam; 1 is a plain beam."""
    diversity_penalty: NonNegativeFloat = 0.5
    """What a token loses for each time an earlier group chose it at the same step."""

    def build(self) -> BeamGroups:
        """Make the groups."""
        return BeamGroups(self.num_beam_groups, self.diversity_penalty)
