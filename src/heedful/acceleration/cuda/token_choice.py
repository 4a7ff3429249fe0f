"""Choice of tokens in a step of greedy and beam search on the device, from logits of all rows.

Both also accept log-probabilities: they are logits whose exponentials sum to one. Invariant: Triton
chooses the tokens that torch chooses, up to rounding and the order of equal scores.
"""

from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from heedful.acceleration import tuning
from heedful.search.candidates import rank_all
from heedful.shapes import Bool, Float, Int, Lengths
from heedful.tokenization.vocabulary import EOS

Logits = Float[Tensor, "R N"]
TRITON_DEVICE_TYPE = "cuda"
HAS_TRITON = find_spec("triton") is not None
MAX_TRITON_ENTRIES = 2**14  # candidates of all chunks of a beam, which one program ranks


class GreedyChoice(NamedTuple):
    """The next token of each row."""

    tokens: Int[Tensor, "R"]
    log_probs: Float[Tensor, "R"]
    is_finished: Bool[Tensor, "R"]  # now or before


class BeamChoice(NamedTuple):
    """The candidates of each beam, and those that stay open."""

    scores: Float[Tensor, "2 U C"]  # totals, and log-probabilities of the last tokens
    ids: Int[Tensor, "2 U C"]  # tokens, and the rows that they continue
    eos_log_probs: Float[Tensor, "R"]
    totals: Float[Tensor, "U K"]
    tokens: Int[Tensor, "R2"]
    rows: Int[Tensor, "R2"]


def choose_tokens(
    logits: Logits,
    min_lengths: Lengths,
    max_lengths: Lengths,
    was_finished: Bool[Tensor, "R"] | None,
    num_tokens: int,
) -> GreedyChoice:
    """Choose the most likely token of each row after `num_tokens`; EOS is due at `max_lengths`."""
    arguments = logits, min_lengths, max_lengths, was_finished, num_tokens
    if not _can_choose_with_triton(logits):
        return choose_tokens_with_torch(*arguments)
    from heedful.acceleration.triton.search import triton_choose_tokens

    return GreedyChoice(*triton_choose_tokens(*arguments))


def choose_candidates(
    logits: Logits,
    totals: Float[Tensor, "U K"],
    min_lengths: Lengths,
    num_tokens: int,
    beam_size: int,
) -> BeamChoice:
    """Rank the continuations of each beam; the best `beam_size` that do not end stay open."""
    arguments = logits, totals, min_lengths, num_tokens, beam_size
    num_chunks = -(-logits.size(1) // tuning.TRITON_VOCABULARY_CHUNKS[1])
    num_entries = totals.size(1) * num_chunks * 2 * beam_size
    is_large = totals.size(1) * logits.size(1) >= 2 * beam_size
    if not (_can_choose_with_triton(logits) and is_large and num_entries <= MAX_TRITON_ENTRIES):
        return choose_candidates_with_torch(*arguments)
    from heedful.acceleration.triton.search import triton_choose_candidates

    return BeamChoice(*triton_choose_candidates(*arguments))


def _can_choose_with_triton(logits: Logits) -> bool:
    """Whether logits are on a GPU, in at most 32 bits."""
    is_on_gpu = logits.device.type == TRITON_DEVICE_TYPE
    return HAS_TRITON and is_on_gpu and logits.dtype != torch.float64


def choose_tokens_with_torch(
    logits: Logits,
    min_lengths: Lengths,
    max_lengths: Lengths,
    was_finished: Bool[Tensor, "R"] | None,
    num_tokens: int,
) -> GreedyChoice:
    """Compute `choose_tokens`."""
    log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    allowed = log_probs.clone()
    allowed[:, EOS].masked_fill_(min_lengths > num_tokens, -torch.inf)
    tokens = allowed.argmax(dim=1).where(max_lengths > num_tokens, EOS)
    is_finished = tokens == EOS
    if was_finished is not None:
        is_finished = is_finished | was_finished
    return GreedyChoice(tokens, log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1), is_finished)


def choose_candidates_with_torch(
    logits: Logits,
    totals: Float[Tensor, "U K"],
    min_lengths: Lengths,
    num_tokens: int,
    beam_size: int,
) -> BeamChoice:
    """Compute `choose_candidates`."""
    log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    allowed, size = log_probs.clone(), log_probs.size(1)
    is_short = (min_lengths > num_tokens).repeat_interleave(totals.size(1))
    allowed[:, EOS].masked_fill_(is_short, -torch.inf)
    best, indices = rank_all(allowed, totals, 2 * beam_size)
    if best.size(1) < beam_size:
        raise RuntimeError("the beam is larger than the vocabulary")
    first_rows = totals.size(1) * torch.arange(len(totals), device=totals.device).unsqueeze(1)
    rows, tokens = first_rows + indices // size, indices % size
    is_open = (best > -torch.inf) & (tokens != EOS)
    order = (~is_open).byte().argsort(dim=1, stable=True)[:, :beam_size]
    return BeamChoice(
        torch.stack([best, log_probs[rows, tokens].to(best)]),
        torch.stack([tokens, rows]),
        log_probs[:, EOS].to(best),
        best.masked_fill(~is_open, -torch.inf).gather(1, order),
        tokens.gather(1, order).flatten(),
        rows.gather(1, order).flatten(),
    )
