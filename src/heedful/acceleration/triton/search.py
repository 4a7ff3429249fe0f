"""Kernels of a step of greedy and beam search over the logits of all rows, in Triton.

A log-probability is a logit minus the logarithm of the sum of exponentials, so no tensor of all
log-probabilities exists. Imported only where there is Triton; `TRITON_INTERPRET=1` runs it on a
CPU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from heedful.acceleration import tuning
from heedful.acceleration.triton.blocks import finite
from heedful.shapes import Bool, Float, Int, Lengths
from heedful.tokenization.vocabulary import EOS

EOS_TOKEN = tl.constexpr(EOS)


@triton.jit
def _without_nan(x):
    """Return x with -inf for NaN, whose index could be any."""
    return tl.where(x == x, x, -float("inf"))  # noqa: PLR0124


@triton.jit(do_not_specialize=["num_tokens"])
def _greedy_kernel(
    logits, row_stride, min_lengths, max_lengths, was_finished,
    tokens, log_probs, is_finished, vocab_size, num_tokens,
    CHUNK: tl.constexpr, HAS_FINISHED: tl.constexpr,
):  # fmt: skip
    """Choose the most likely token of one row."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * row_stride
    is_short = tl.load(min_lengths + row) > num_tokens
    maximum = tl.full([], -float("inf"), tl.float32)
    total = tl.full([], 0.0, tl.float32)
    best = tl.full([], -float("inf"), tl.float32)
    token = tl.full([], 0, tl.int32)
    for start in range(0, vocab_size, CHUNK):
        ids = start + tl.arange(0, CHUNK)
        x = tl.load(logits + ids, mask=ids < vocab_size, other=-float("inf")).to(tl.float32)
        previous = maximum
        maximum = tl.maximum(previous, tl.max(x, axis=0))
        total = total * tl.exp(previous - finite(maximum))
        total += tl.sum(tl.exp(x - finite(maximum)), axis=0)
        x = tl.where((ids == EOS_TOKEN) & is_short, -float("inf"), _without_nan(x))
        chunk_best, index = tl.max(x, axis=0, return_indices=True)
        token = tl.where(chunk_best > best, start + index, token)
        best = tl.maximum(best, chunk_best)
    token = tl.where(tl.load(max_lengths + row) > num_tokens, token, EOS_TOKEN)
    log_prob = tl.load(logits + token).to(tl.float32) - maximum - tl.log(total)
    has_ended = token == EOS_TOKEN
    if HAS_FINISHED:
        has_ended = has_ended | (tl.load(was_finished + row) != 0)
    tl.store(tokens + row, token)
    tl.store(log_probs + row, log_prob)
    tl.store(is_finished + row, has_ended)


@triton.jit(do_not_specialize=["num_tokens", "beam_size"])
def _chunk_kernel(
    logits, row_stride, min_lengths, values, ids, statistics,
    vocab_size, num_chunks, beam_size, num_tokens,
    CHUNK: tl.constexpr, CANDIDATES: tl.constexpr,
):  # fmt: skip
    """Write the largest logits of one chunk of the vocabulary, their ids, maximum and sum."""
    chunk = tl.program_id(0) % num_chunks
    row = (tl.program_id(0) // num_chunks).to(tl.int64)
    offsets = tl.arange(0, CHUNK)
    tokens = chunk * CHUNK + offsets
    is_token = tokens < vocab_size
    x = tl.load(logits + row * row_stride + tokens, mask=is_token, other=-float("inf"))
    x = x.to(tl.float32)
    maximum = tl.max(x, axis=0)
    statistics += 2 * tl.program_id(0)
    tl.store(statistics, maximum)
    tl.store(statistics + 1, tl.sum(tl.exp(x - finite(maximum)), axis=0))
    is_short = tl.load(min_lengths + row // beam_size) > num_tokens
    x = tl.where((tokens == EOS_TOKEN) & is_short, -float("inf"), _without_nan(x))
    for rank in range(CANDIDATES):
        value, index = tl.max(x, axis=0, return_indices=True)
        tl.store(values + tl.program_id(0) * CANDIDATES + rank, value)
        tl.store(ids + tl.program_id(0) * CANDIDATES + rank, chunk * CHUNK + index)
        x = tl.where(offsets == index, -float("inf"), x)


@triton.jit(do_not_specialize=["beam_size", "num_beams"])
def _beam_kernel(
    logits, row_stride, totals, values, ids, statistics,
    scores, candidates, eos_log_probs, open_totals, open_tokens, open_rows,
    beam_size, num_chunks, num_entries, num_beams,
    ROWS: tl.constexpr, CHUNKS: tl.constexpr, ENTRIES: tl.constexpr,
    CANDIDATES: tl.constexpr, NEXT_BEAM_SIZE: tl.constexpr,
):  # fmt: skip
    """Rank the candidates of one beam; the best that do not end stay open."""
    beam = tl.program_id(0).to(tl.int64)
    rows = beam * beam_size + tl.arange(0, ROWS)
    is_row = tl.arange(0, ROWS) < beam_size
    columns = tl.arange(0, CHUNKS)[None, :]
    is_chunk = is_row[:, None] & (columns < num_chunks)
    statistics += (rows[:, None] * num_chunks + columns) * 2
    maxima = tl.load(statistics, mask=is_chunk, other=-float("inf"))
    sums = tl.load(statistics + 1, mask=is_chunk, other=0.0)
    maximum = tl.max(maxima, axis=1)
    total = tl.sum(sums * tl.exp(maxima - finite(maximum)[:, None]), axis=1)
    normalizer = tl.where(is_row, maximum + tl.log(total), 0.0)
    previous = tl.load(totals + rows, mask=is_row, other=-float("inf"))
    eos = tl.load(logits + rows * row_stride + EOS_TOKEN, mask=is_row, other=0.0).to(tl.float32)
    tl.store(eos_log_probs + rows, eos - normalizer, mask=is_row)
    # NaN if a log-probability of an open hypothesis is.
    nan_or_zero = tl.sum(tl.where(previous > -float("inf"), normalizer * 0.0, 0.0), axis=0)
    entries = tl.arange(0, ENTRIES)[None, :]
    is_entry = is_row[:, None] & (entries < num_entries)
    x = tl.load(values + rows[:, None] * num_entries + entries, mask=is_entry, other=-float("inf"))
    x = _without_nan(x - normalizer[:, None])
    log_probs = tl.reshape(x, [ROWS * ENTRIES])
    x = tl.reshape(x + previous[:, None], [ROWS * ENTRIES])
    offsets = tl.arange(0, ROWS * ENTRIES)
    slot = tl.full([], 0, tl.int32)
    for rank in range(CANDIDATES):
        value, index = tl.max(x, axis=0, return_indices=True)
        row = beam * beam_size + index // ENTRIES
        token = tl.load(ids + row * num_entries + index % ENTRIES).to(tl.int64)
        log_prob = tl.sum(tl.where(offsets == index, log_probs, 0.0), axis=0)
        x = tl.where(offsets == index, -float("inf"), x)
        entry = beam * CANDIDATES + rank
        tl.store(scores + entry, value + nan_or_zero)
        tl.store(scores + num_beams * CANDIDATES + entry, log_prob)
        tl.store(candidates + entry, token)
        tl.store(candidates + num_beams * CANDIDATES + entry, row)
        is_open = (value > -float("inf")) & (token != EOS_TOKEN) & (slot < NEXT_BEAM_SIZE)
        tl.store(open_totals + beam * NEXT_BEAM_SIZE + slot, value, mask=is_open)
        tl.store(open_tokens + beam * NEXT_BEAM_SIZE + slot, token, mask=is_open)
        tl.store(open_rows + beam * NEXT_BEAM_SIZE + slot, row, mask=is_open)
        slot += is_open.to(tl.int32)
    for index in range(NEXT_BEAM_SIZE):
        empty = beam * NEXT_BEAM_SIZE + index
        tl.store(open_totals + empty, -float("inf"), mask=index >= slot)
        tl.store(open_tokens + empty, EOS_TOKEN, mask=index >= slot)
        tl.store(open_rows + empty, beam * beam_size, mask=index >= slot)


def triton_choose_tokens(
    logits: Float[Tensor, "R N"],
    min_lengths: Lengths,
    max_lengths: Lengths,
    was_finished: Bool[Tensor, "R"] | None,
    num_tokens: int,
) -> tuple[Int[Tensor, "R"], Float[Tensor, "R"], Bool[Tensor, "R"]]:
    """Kernel of `choose_tokens`."""
    num_rows, vocab_size = logits.shape
    tokens = torch.empty_like(min_lengths)
    log_probs = logits.new_empty(num_rows, dtype=torch.float32)
    is_finished = logits.new_empty(num_rows, dtype=torch.bool)
    chunk = min(tuning.TRITON_VOCABULARY_CHUNKS[0], triton.next_power_of_2(vocab_size))
    _greedy_kernel[(num_rows,)](
        logits, logits.stride(0), min_lengths, max_lengths,
        is_finished if was_finished is None else was_finished,
        tokens, log_probs, is_finished, vocab_size, num_tokens,
        CHUNK=chunk, HAS_FINISHED=was_finished is not None, num_warps=8,
    )  # fmt: skip
    return tokens, log_probs, is_finished


def triton_choose_candidates(
    logits: Float[Tensor, "R N"],
    totals: Float[Tensor, "U K"],
    min_lengths: Lengths,
    num_tokens: int,
    beam_size: int,
) -> tuple[Tensor, ...]:
    """Kernel of `choose_candidates`."""
    (num_rows, vocab_size), (num_beams, rows_per_beam) = logits.shape, totals.shape
    num_candidates = 2 * beam_size
    chunk = min(tuning.TRITON_VOCABULARY_CHUNKS[1], triton.next_power_of_2(vocab_size))
    num_chunks = triton.cdiv(vocab_size, chunk)
    num_entries = num_chunks * num_candidates
    values = totals.new_empty(num_rows, num_entries)
    ids = torch.empty_like(values, dtype=torch.int32)
    statistics = totals.new_empty(num_rows, num_chunks, 2)
    _chunk_kernel[(num_rows * num_chunks,)](
        logits, logits.stride(0), min_lengths, values, ids, statistics,
        vocab_size, num_chunks, rows_per_beam, num_tokens,
        CHUNK=chunk, CANDIDATES=num_candidates, num_warps=4,
    )  # fmt: skip
    scores = totals.new_empty(2, num_beams, num_candidates)
    candidates = torch.empty_like(scores, dtype=torch.long)
    eos_log_probs = totals.new_empty(num_rows)
    open_totals = totals.new_empty(num_beams, beam_size)
    open_tokens = candidates.new_empty(num_beams * beam_size)
    open_rows = torch.empty_like(open_tokens)
    _beam_kernel[(num_beams,)](
        logits, logits.stride(0), totals, values, ids, statistics,
        scores, candidates, eos_log_probs, open_totals, open_tokens, open_rows,
        rows_per_beam, num_chunks, num_entries, num_beams,
        ROWS=triton.next_power_of_2(rows_per_beam), CHUNKS=triton.next_power_of_2(num_chunks),
        ENTRIES=triton.next_power_of_2(num_entries), CANDIDATES=num_candidates,
        NEXT_BEAM_SIZE=beam_size, num_warps=4,
    )  # fmt: skip
    return scores, candidates, eos_log_probs, open_totals, open_tokens, open_rows
