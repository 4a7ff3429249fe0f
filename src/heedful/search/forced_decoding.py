"""Forced decoding: what does a model think of outputs that are given?

It is told an output token by token, as a search would have said it, and what it thinks of it and
where it looks is what the search would have said of the same output.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from heedful.pytree import select_rows
from heedful.search.hypotheses import Hypothesis, HypothesisRecorder
from heedful.search.penalties import CoveragePenalty, LengthPenalty
from heedful.search.protocol import State, StepwiseModel
from heedful.shapes import Int


@torch.no_grad()
def score_targets(
    model: StepwiseModel[State],
    state: State,
    targets: Sequence[Sequence[int]],
    *,
    bos: int,
    eos: int,
    device: torch.device | str = "cpu",
    length_penalty: LengthPenalty | None = None,
    coverage_penalty: CoveragePenalty | None = None,
    source_lengths: Int[Tensor, "B"] | None = None,
) -> list[Hypothesis]:
    """Judge a target for every row of `state`, without its begin and end symbols."""
    length_penalty = length_penalty or LengthPenalty()
    source_length_list = (
        source_lengths.tolist() if source_lengths is not None else [None] * len(targets)
    )
    evidence, remaining_targets = (
        HypothesisRecorder(len(targets)),
        [[*target, eos] for target in targets],
    )
    tokens, depth = torch.full((len(targets),), bos, device=device), 0
    while remaining_targets:
        step = model.step(tokens, state)
        tokens = torch.tensor([row[depth] for row in remaining_targets], device=device)
        depth += 1
        active_rows = [place for place, row in enumerate(remaining_targets) if len(row) > depth]
        kept = torch.tensor(active_rows, dtype=torch.long, device=device)
        evidence.record(step, tokens, kept)
        state = (
            step.state
            if len(active_rows) == len(remaining_targets)
            else select_rows(step.state, kept)
        )
        tokens, remaining_targets = (
            tokens[kept],
            [remaining_targets[place] for place in active_rows],
        )
    return [
        _with_penalties(found, length_penalty, coverage_penalty, end_of_source)
        for found, end_of_source in zip(evidence.hypotheses(), source_length_list, strict=True)
    ]


def _with_penalties(
    found: Hypothesis,
    penalty: LengthPenalty,
    coverage_penalty: CoveragePenalty | None,
    source_length_list: int | None,
) -> Hypothesis:
    penalized_score = penalty(found.log_prob, len(found.log_probs))
    if coverage_penalty is not None:
        all_weights = np.concatenate([found.weights, found.eos_weights[None]])
        penalized_score += coverage_penalty(all_weights[:, :source_length_list])
    return found._replace(score=penalized_score)
