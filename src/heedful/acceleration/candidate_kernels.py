"""Kernels that rank the continuations of beams without sorting a whole vocabulary.

The tokens of a row are split into chunks. A continuation among the best C lies in one of the C
chunks with the largest maxima, so one pass finds the maxima and only the tokens of C chunks are
ranked.

Invariant: the candidates are those of the reference, but for the order of equal scores.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.acceleration import tuning
from heedful.search.candidates import Candidates, rank_all, to_candidates
from heedful.shapes import Float, Int


def can_rank_in_chunks(
    allowed_log_probs: Tensor, _: Tensor, __: object, num_candidates: int
) -> bool:
    """Whether there are enough chunks to leave some out."""
    return _num_chunks(allowed_log_probs) > 2 * num_candidates


def find_candidates_in_chunks(
    allowed_log_probs: Float[Tensor, "R N"],
    model_log_probs: Float[Tensor, "R N"],
    cumulative_log_probs: NDArray[np.float64],
    num_candidates: int,
) -> Candidates:
    """Kernel of `find_candidates` that does not synchronize before the result is copied."""
    dtype = torch.promote_types(model_log_probs.dtype, torch.float32)
    totals = torch.from_numpy(cumulative_log_probs).to(model_log_probs.device, dtype)
    size, num_chunks = allowed_log_probs.size(1), _num_chunks(allowed_log_probs)
    first_rows = totals.size(1) * torch.arange(len(totals), device=totals.device)[:, None]
    chunks = _best_chunks(allowed_log_probs, totals, num_candidates)  # (beams, C) of K * chunks
    rows, starts = (
        first_rows + chunks // num_chunks,
        chunks % num_chunks * tuning.CANDIDATE_CHUNK_SIZE,
    )
    fitting = starts.clamp(max=size - tuning.CANDIDATE_CHUNK_SIZE)
    windows = _windows(allowed_log_probs, rows * size + fitting)
    if size % tuning.CANDIDATE_CHUNK_SIZE:
        offsets = torch.arange(tuning.CANDIDATE_CHUNK_SIZE, device=rows.device)
        windows.masked_fill_(offsets < (starts - fitting).unsqueeze(-1), -torch.inf)
    extended_totals = windows + totals.flatten()[rows].unsqueeze(-1)
    best, indices = extended_totals.flatten(1).topk(num_candidates)
    chosen = indices // tuning.CANDIDATE_CHUNK_SIZE
    tokens = fitting.gather(1, chosen) + indices % tuning.CANDIDATE_CHUNK_SIZE
    return to_candidates(best, rows.gather(1, chosen), tokens, model_log_probs)


def can_rank_with_numpy(_: Tensor, model_log_probs: Tensor, *__: object) -> bool:
    """Whether log-probabilities are on the CPU, in a precision in which scores are added."""
    is_wide = model_log_probs.dtype in {torch.float32, torch.float64}
    return is_wide and model_log_probs.device.type == "cpu"


def find_candidates_with_numpy(
    allowed_log_probs: Float[Tensor, "R N"],
    model_log_probs: Float[Tensor, "R N"],
    cumulative_log_probs: NDArray[np.float64],
    num_candidates: int,
) -> Candidates:
    """Kernel of `find_candidates` on a CPU: numpy has less overhead than torch for small arrays."""
    totals = torch.from_numpy(cumulative_log_probs).to(model_log_probs.dtype)
    if num_candidates == totals.size(1) == 1:
        tokens = allowed_log_probs.numpy().argmax(axis=1)[:, None]
        rows = np.arange(len(tokens))[:, None]
    else:
        rows, tokens = _rank_with_numpy(allowed_log_probs, totals, num_candidates)
    scores = totals.numpy().reshape(-1)[rows] + allowed_log_probs.numpy()[rows, tokens]
    log_probs = model_log_probs.numpy()[rows, tokens]
    return Candidates(
        scores.astype(np.float64),
        log_probs.astype(np.float64),
        tokens,
        rows,
        np.zeros_like(tokens),
    )


def _rank_with_numpy(
    log_probs: Float[Tensor, "R N"], totals: Float[Tensor, "U K"], num_candidates: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows and tokens of the best continuations of each beam."""
    size, num_chunks = log_probs.size(1), _num_chunks(log_probs)
    beams = np.arange(len(totals))[:, None]
    first_rows = totals.size(1) * beams
    if num_chunks <= 2 * num_candidates:
        indices = rank_all(log_probs, totals, num_candidates)[1].numpy()
        row_in_beam, tokens = np.divmod(indices, size)
        return first_rows + row_in_beam, tokens
    chunks = _best_chunks(log_probs, totals, num_candidates).numpy()
    row_in_beam, chunk_in_row = np.divmod(chunks, num_chunks)
    rows, starts = first_rows + row_in_beam, chunk_in_row * tuning.CANDIDATE_CHUNK_SIZE
    fitting = np.minimum(starts, size - tuning.CANDIDATE_CHUNK_SIZE)
    windows = _windows(log_probs, torch.from_numpy(rows * size + fitting))
    if size % tuning.CANDIDATE_CHUNK_SIZE:
        windows.numpy()[starts > fitting, : -(size % tuning.CANDIDATE_CHUNK_SIZE)] = -np.inf
    row_totals = torch.from_numpy(totals.numpy()[beams, row_in_beam])
    extended_totals = windows.add_(row_totals.unsqueeze(-1)).flatten(1)
    indices = extended_totals.topk(num_candidates).indices.numpy()
    chosen, offsets = np.divmod(indices, tuning.CANDIDATE_CHUNK_SIZE)
    return rows[beams, chosen], fitting[beams, chosen] + offsets


def _num_chunks(log_probs: Float[Tensor, "R N"]) -> int:
    return -(-log_probs.size(1) // tuning.CANDIDATE_CHUNK_SIZE)


def _best_chunks(
    log_probs: Float[Tensor, "R N"], totals: Float[Tensor, "U K"], count: int
) -> Int[Tensor, "U C"]:
    """Return the chunks of each beam with the largest maxima; the last of a row may be shorter."""
    whole = log_probs.size(1) // tuning.CANDIDATE_CHUNK_SIZE * tuning.CANDIDATE_CHUNK_SIZE
    maxima = log_probs[:, :whole].unflatten(1, (-1, tuning.CANDIDATE_CHUNK_SIZE)).amax(dim=-1)
    if whole < log_probs.size(1):
        maxima = torch.cat([maxima, log_probs[:, whole:].amax(dim=-1, keepdim=True)], dim=1)
    return (totals.view(-1, 1) + maxima).view(len(totals), -1).topk(count).indices


def _windows(
    log_probs: Float[Tensor, "R N"], starts: Int[Tensor, "U C"]
) -> Float[Tensor, "U C chunk"]:
    """Return a chunk of tokens from each of these indices of the flattened rows.

    A shorter last chunk is filled up from its left; what fills it belongs to the one before.
    """
    windows = log_probs.flatten().unfold(0, tuning.CANDIDATE_CHUNK_SIZE, 1)  # a view, not a copy
    return windows.index_select(0, starts.flatten()).view(
        *starts.shape, tuning.CANDIDATE_CHUNK_SIZE
    )
