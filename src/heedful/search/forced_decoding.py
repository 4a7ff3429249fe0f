"""Forced decoding: score given outputs token by token.

Invariant: a given output gets the log-probabilities and attention weights that a search which finds
the same output reports for it.
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
    """Score one target, without BOS and EOS, for every row of `state`."""
    recorder = HypothesisRecorder(len(targets))
    remaining = [[*target, eos] for target in targets]
    tokens, depth = torch.full((len(targets),), bos, device=device), 0
    while remaining:
        step = model.step(tokens, state)
        tokens = torch.tensor([target[depth] for target in remaining], device=device)
        depth += 1
        active = [row for row, target in enumerate(remaining) if len(target) > depth]
        active_rows = torch.tensor(active, dtype=torch.long, device=device)
        recorder.record(step, tokens, active_rows)
        is_unchanged = len(active) == len(remaining)
        state = step.state if is_unchanged else select_rows(step.state, active_rows)
        tokens, remaining = tokens[active_rows], [remaining[row] for row in active]
    lengths = source_lengths.tolist() if source_lengths is not None else [None] * len(targets)
    return [
        _with_penalties(hypothesis, length_penalty or LengthPenalty(), coverage_penalty, length)
        for hypothesis, length in zip(recorder.hypotheses(), lengths, strict=True)
    ]


def _with_penalties(
    hypothesis: Hypothesis,
    length_penalty: LengthPenalty,
    coverage_penalty: CoveragePenalty | None,
    source_length: int | None,
) -> Hypothesis:
    score = length_penalty(hypothesis.log_prob, len(hypothesis.log_probs))
    if coverage_penalty is not None:
        weights = np.concatenate([hypothesis.weights, hypothesis.eos_weights[None]])
        score += coverage_penalty(weights[:, :source_length])
    return hypothesis._replace(score=score)
