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
from heedful.search.evidence import Evidence
from heedful.search.penalties import CoveragePenalty, LengthPenalty
from heedful.search.protocol import State, Steps
from heedful.search.trellis import Hypothesis
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
    evidence, wanted = Evidence(len(targets)), [[*target, end] for target in targets]
    tokens, depth = torch.full((len(targets),), begin, device=device), 0
    while wanted:
        step = model.step(tokens, state)
        tokens = torch.tensor([row[depth] for row in wanted], device=device)
        depth += 1
        alive = [place for place, row in enumerate(wanted) if len(row) > depth]
        kept = torch.tensor(alive, dtype=torch.long, device=device)
        evidence.note(step, tokens, kept)
        state = step.state if len(alive) == len(wanted) else select(step.state, kept)
        tokens, wanted = tokens[kept], [wanted[place] for place in alive]
    return [
        _judged(found, penalty, coverage, end_of_source)
        for found, end_of_source in zip(evidence.hypotheses(), places, strict=True)
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
