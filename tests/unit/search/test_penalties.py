"""Penalties against hand computation, and the bound against every continuation."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.search import MEAN_LOG_PROB, BeamSearchOptions, LengthPenalty
from heedful.search.penalties import CoveragePenalty
from tests.unit.search.tables import TableModel, search


@pytest.mark.parametrize(
    ("penalty", "score"),
    [
        (LengthPenalty(), -6.0),
        (LengthPenalty(1.0), -3.0),  # (5 + 7) / 6 = 2
        (LengthPenalty(2.0), -1.5),
        (LengthPenalty(0.5, "power"), -6.0 / math.sqrt(7)),
        (LengthPenalty(0.0, "power"), -6.0),
        (MEAN_LOG_PROB, -6.0 / 7),
    ],
    ids=str,
)
def test_length_penalty_of_seven_tokens(penalty, score):
    assert penalty(-6.0, 7) == pytest.approx(score)


@given(
    log_prob=st.floats(-50, 0),
    losses=st.lists(st.floats(0, 5), max_size=8),
    alpha=st.floats(-1, 2),
    formula=st.sampled_from(["gnmt", "power"]),
)
def test_no_continuation_scores_above_the_upper_bound(log_prob, losses, alpha, formula):
    penalty, length = LengthPenalty(alpha, formula), 3
    bound = penalty.upper_bound(log_prob, length, length + len(losses))
    for extra in range(len(losses) + 1):
        score = penalty(log_prob - sum(losses[:extra]), length + extra)
        assert score <= bound + 1e-9 * abs(bound)


@pytest.mark.parametrize(
    ("penalty", "score"),
    [
        # Coverage is 1.25, 0.5 and 0.25: log(1) + log(0.5) + log(0.25).
        (CoveragePenalty(0.2, "gnmt"), 0.2 * math.log(0.125)),
        # The second token attends to the first position again: min(0.75, 0.5) = 0.5.
        (CoveragePenalty(2.0, "repeated"), -1.0),
        # Only the first position is above 1: 1.25 - 1 = 0.25.
        (CoveragePenalty(2.0, "summary"), -0.5),
        (CoveragePenalty(0.0, "gnmt"), 0.0),
    ],
)
def test_coverage_penalty_of_two_tokens_over_three_positions(penalty, score):
    weights = np.array([[0.5, 0.5, 0.0], [0.75, 0.0, 0.25]], dtype=np.float32)
    assert penalty(weights) == pytest.approx(score)


def test_gnmt_coverage_of_hard_attention_counts_uncovered_positions():
    penalty = CoveragePenalty(1.0, "gnmt")
    scores = [penalty(np.eye(3, dtype=np.float32)[positions]) for positions in ([0, 0], [0, 1])]
    assert scores == pytest.approx([2 * math.log(1e-10), math.log(1e-10)])


@pytest.mark.parametrize(
    "coverage_penalty",
    [
        CoveragePenalty(0.7, "gnmt"),
        CoveragePenalty(1.5, "repeated"),
        CoveragePenalty(1.5, "summary"),
    ],
)
@given(seed=st.integers(0, 999))
def test_search_ranks_by_length_and_coverage_penalty(coverage_penalty, seed):
    model, length_penalty = TableModel(seed, 3), LengthPenalty(0.6)
    options = BeamSearchOptions(coverage_penalty=coverage_penalty)
    outputs = search(
        model, beam_size=30, max_length=3, length_penalty=length_penalty, options=options
    )[0]

    def score(tokens):
        weights = model.output_weights(tokens).float().numpy()
        log_prob = sum(model.token_log_probs(tokens))
        return length_penalty(log_prob, len(tokens) + 1) + coverage_penalty(weights)

    expected = sorted(model.outputs(3), key=score, reverse=True)
    assert [output.tokens for output in outputs] == expected
    scores = [score(tokens) for tokens in expected]
    assert [output.score for output in outputs] == pytest.approx(scores)


def test_coverage_penalty_ignores_padding():
    model = TableModel(3, 3)
    padding = torch.zeros_like(model.weights)
    model.weights = torch.cat([model.weights[..., :2], padding], dim=-1)
    shared = {
        "beam_size": 3,
        "max_length": 3,
        "options": BeamSearchOptions(coverage_penalty=CoveragePenalty(0.7, "gnmt")),
    }
    padded = search(model, source_lengths=torch.tensor([2]), **shared)[0]
    model.weights = model.weights[..., :2]
    unpadded = search(model, **shared)[0]
    assert [output.tokens for output in padded] == [output.tokens for output in unpadded]
    scores = [output.score for output in unpadded]
    assert [output.score for output in padded] == pytest.approx(scores)
