"""Greedy search: the likeliest token, every time."""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.nested import select
from heedful.search.penalties import LengthPenalty
from heedful.search.protocol import State, Steps
from heedful.search.trellis import Ending, Hypothesis, Trellis
from heedful.shapes import Int


@torch.no_grad()
def greedy_search(
    model: Steps[State],
    state: State,
    *,
    begin: int,
    end: int,
    max_lengths: Int[Tensor, "B"],
    penalty: LengthPenalty | None = None,
) -> list[Hypothesis]:
    """Follow the likeliest token of every row; rows that have ended leave the batch.

    A row that has `max_lengths` tokens must end.
    """
    penalty = penalty or LengthPenalty()
    sentences = torch.arange(len(max_lengths), device=max_lengths.device)
    tokens = torch.full_like(sentences, begin)
    totals = torch.zeros(len(sentences), device=max_lengths.device)
    trellis = Trellis()
    endings: dict[int, Ending] = {}
    while len(sentences):
        step = model.step(tokens, state)
        trellis.look(step.weights)
        tokens = step.log_probs.argmax(dim=-1)
        tokens = tokens.masked_fill(trellis.depth >= max_lengths[sentences], end)
        totals = totals + step.log_probs.gather(1, tokens[:, None]).squeeze(1)
        for row in (tokens == end).nonzero().flatten().tolist():
            log_prob = totals[row].item()
            score = penalty(log_prob, trellis.depth + 1)
            endings[int(sentences[row])] = Ending(trellis.depth, row, log_prob, score)
        alive = (tokens != end).nonzero().flatten()
        sentences, tokens, totals = sentences[alive], tokens[alive], totals[alive]
        state = select(step.state, alive)
        trellis.grow(alive, tokens)
    return [trellis.read(endings[sentence]) for sentence in range(len(max_lengths))]
