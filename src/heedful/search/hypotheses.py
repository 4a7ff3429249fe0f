"""The interface between search and models, hypotheses, and forced decoding of given outputs.

A state is a nested tuple of tensors with one row per hypothesis, which search selects and reorders.
It is a value: a step returns a new state and never changes the one it received. Invariant: forced
decoding gives an output the log-probabilities and weights that a search reports for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.errors import RunError, format_count
from heedful.pytree import select_rows, to_float64
from heedful.search.penalties import CoveragePenalty, LengthPenalty
from heedful.shapes import Float, Int, Lengths, StepTokens

State = TypeVar("State")


@dataclass(frozen=True)
class StepOutput(Generic[State]):
    """Output of a decoding step."""

    log_probs: Float[Tensor, "B N"]  # of the next token
    state: State
    weights: Float[Tensor, "B S"]  # attention over the source; zeros without attention


@runtime_checkable
class StepwiseModel(Protocol[State]):
    """A model that predicts one token at a time."""

    def step(self, tokens: StepTokens, state: State) -> StepOutput[State]:
        """Process one token per row and predict the next."""
        ...


class Hypothesis(NamedTuple):
    """A complete output with its score and attention weights."""

    tokens: list[int]  # without BOS and EOS
    log_prob: float  # model log-probability of all tokens and EOS
    score: float  # what it was ranked by, after processors and penalties
    weights: NDArray[np.float32]  # (tokens, source positions)
    log_probs: NDArray[np.float64]  # (tokens + 1,), the last one of EOS
    eos_weights: NDArray[np.float32]  # (source positions,)


def drop_zero_probability(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Return the hypotheses with a probability above 0, or the first one if there are none."""
    return [item for item in hypotheses if item.log_prob > -np.inf] or hypotheses[:1]


class NaNLogProbsError(RunError):
    """A model returned NaN log-probabilities."""

    def __init__(self, depth: int) -> None:
        super().__init__(
            "search",
            f"the model's log-probabilities are NaN after {format_count(depth, 'token')}",
            "the parameters or activations have overflowed: use an earlier checkpoint, or float32",
        )


class HypothesisRecorder:
    """Collects outputs that grow without branching: sampled or given ones."""

    def __init__(self, num_outputs: int) -> None:
        self._output_ids = np.arange(num_outputs)  # of the current rows
        self._tokens: list[list[int]] = [[] for _ in range(num_outputs)]
        self._log_probs: list[list[float]] = [[] for _ in range(num_outputs)]
        self._weights: list[list[NDArray[np.float32]]] = [[] for _ in range(num_outputs)]
        self._depth = 0

    def record(
        self, step: StepOutput[Any], tokens: Int[Tensor, "R"], active_rows: Int[Tensor, "R2"]
    ) -> None:
        """Store the next token of each row; it is the last one of rows not in `active_rows`."""
        log_probs = to_float64(step.log_probs.gather(1, tokens.unsqueeze(1)).squeeze(1))
        if log_probs.isnan().any():
            raise NaNLogProbsError(self._depth)
        columns = (tokens.tolist(), log_probs.tolist(), step.weights.float().cpu().numpy())
        for output, token, log_prob, weights in zip(self._output_ids, *columns, strict=True):
            self._tokens[output].append(token)
            self._log_probs[output].append(log_prob)
            self._weights[output].append(weights)
        self._output_ids = self._output_ids[active_rows.cpu().numpy()]
        self._depth += 1

    def hypotheses(self) -> list[Hypothesis]:
        """Return each output without its last token, EOS at the end; its score is log p."""
        hypotheses = []
        columns = zip(self._tokens, self._log_probs, map(np.stack, self._weights), strict=True)
        for (*tokens, _), log_probs, weights in columns:
            total, token_log_probs = sum(log_probs), np.array(log_probs)
            hypotheses.append(
                Hypothesis(tokens, total, total, weights[:-1], token_log_probs, weights[-1])
            )
        return hypotheses


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
    source_lengths: Lengths | None = None,
) -> list[Hypothesis]:
    """Score one target, without BOS and EOS, for each row of `state`."""
    recorder = HypothesisRecorder(len(targets))
    remaining = [[*target, eos] for target in targets]
    tokens, depth = torch.full((len(targets),), bos, device=device), 0
    while remaining:
        step = model.step(tokens, state)
        tokens = torch.tensor([target[depth] for target in remaining], device=device)
        depth += 1
        active = [row for row, target in enumerate(remaining) if len(target) > depth]
        rows = torch.tensor(active, dtype=torch.long, device=device)
        recorder.record(step, tokens, rows)
        state = step.state if len(active) == len(remaining) else select_rows(step.state, rows)
        tokens, remaining = tokens[rows], [remaining[row] for row in active]
    hypotheses = []
    for row, hypothesis in enumerate(recorder.hypotheses()):
        score = (length_penalty or LengthPenalty())(hypothesis.log_prob, len(hypothesis.log_probs))
        if coverage_penalty:
            weights = np.concatenate([hypothesis.weights, hypothesis.eos_weights[None]])
            source_length = None if source_lengths is None else int(source_lengths[row])
            score += coverage_penalty(weights[:, :source_length])
        hypotheses.append(hypothesis._replace(score=score))
    return hypotheses
