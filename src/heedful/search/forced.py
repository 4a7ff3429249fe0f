"""Forced decoding: what does a model think of outputs that are given?

It is told an output token by token, as a search would have said it, and what it thinks of it and
where it looks is what the search would have said of the same output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from heedful.nested import select
from heedful.search.penalties import CoveragePenalty, LengthPenalty
from heedful.search.protocol import State, Steps
from heedful.search.trellis import Ending, Hypothesis, Trellis
from heedful.shapes import Int


@torch.no_grad()
def score(
    model: Steps[State],
    state: State,
    targets: Sequence[Sequence[int]],
    *,
    begin: int,
    end: int,
    device: torch.device | str = "cpu",
    penalty: LengthPenalty | None = None,
    coverage: CoveragePenalty | None = None,
    source_lengths: Int[Tensor, "B"] | None = None,
) -> list[Hypothesis]:
    """Judge a target for every row of `state`, without its begin and end symbols."""
    penalty = penalty or LengthPenalty()
    places = source_lengths.tolist() if source_lengths is not None else [None] * len(targets)
    wanted = [[*target, end] for target in targets]
    rows = np.arange(len(wanted))
    read = torch.full((len(rows),), begin, device=device)
    trellis, endings = Trellis(), [Ending(0, 0, 0.0, 0.0)] * len(rows)
    trellis.begin(rows)
    while len(rows):
        step = model.step(read, state)
        trellis.look(step.weights)
        tokens = np.array([wanted[row][trellis.depth] for row in rows])
        read = torch.from_numpy(tokens).to(device)
        own = step.log_probs.gather(1, read[:, None]).squeeze(1).double().cpu().numpy()
        is_last = np.array([len(wanted[row]) == trellis.depth + 1 for row in rows])
        for place in np.flatnonzero(is_last).tolist():
            endings[rows[place]] = Ending(trellis.depth, place, float(own[place]), 0.0)
        alive = np.flatnonzero(~is_last)
        kept = torch.from_numpy(alive).to(device)
        state, read, rows = select(step.state, kept), read[kept], rows[alive]
        trellis.grow(alive, tokens[alive], own[alive])
    return [
        _judged(trellis.read(ending), penalty, coverage, end_of_source)
        for ending, end_of_source in zip(endings, places, strict=True)
    ]


def _judged(
    found: Hypothesis,
    penalty: LengthPenalty,
    coverage: CoveragePenalty | None,
    places: int | None,
) -> Hypothesis:
    worth = penalty(found.log_prob, len(found.log_probs))
    if coverage is not None:
        looked = np.concatenate([found.weights, found.end_weights[None]])
        worth += coverage(looked[:, :places])
    return found._replace(score=worth)
