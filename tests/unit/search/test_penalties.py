"""Penalties against hand computation, and their bounds against all that can follow."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.search import MEAN_LOG_PROB, BeamSearchOptions, LengthPenalty
from heedful.search.penalties import (
    GNMTCoveragePenalty,
    RepeatedCoveragePenalty,
    SummaryCoveragePenalty,
)
from tests.unit.search.tables import Table, search


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
def test_six_nats_over_seven_tokens(penalty, score):
    assert penalty(-6.0, 7) == pytest.approx(score)


@given(
    total=st.floats(-50, 0),
    losses=st.lists(st.floats(0, 5), max_size=8),
    alpha=st.floats(-1, 2),
    form=st.sampled_from(["gnmt", "power"]),
)
def test_nothing_that_follows_scores_more_than_the_bound(total, losses, alpha, form):
    penalty, length = LengthPenalty(alpha, form), 3
    bound = penalty.upper_bound(total, length, length + len(losses))
    for extra in range(len(losses) + 1):
        score = penalty(total - sum(losses[:extra]), length + extra)
        assert score <= bound + 1e-9 * abs(bound)


LOOKED = np.array([[0.5, 0.5, 0.0], [0.75, 0.0, 0.25]], dtype=np.float32)


@pytest.mark.parametrize(
    ("penalty", "score"),
    [
        # Totals are 1.25, 0.5 and 0.25: log(1) + log(0.5) + log(0.25).
        (GNMTCoveragePenalty(0.2), 0.2 * math.log(0.125)),
        # The second token looks at the first place again: min(0.75, 0.5) = 0.5.
        (RepeatedCoveragePenalty(2.0), -1.0),
        # Only the first place got more than one: 1.25 - 1 = 0.25.
        (SummaryCoveragePenalty(2.0), -0.5),
        (GNMTCoveragePenalty(0.0), 0.0),
    ],
)
def test_three_places_and_two_tokens(penalty, score):
    assert penalty(LOOKED) == pytest.approx(score)


def test_hard_attention_is_ranked_by_how_many_places_it_left_out():
    one, both = np.eye(3)[[0, 0]], np.eye(3)[[0, 1]]
    penalty = GNMTCoveragePenalty(1.0)
    worth = [penalty(each.astype(np.float32)) for each in (one, both)]
    assert worth == pytest.approx([2 * math.log(1e-10), math.log(1e-10)])


@given(
    seed=st.integers(0, 999),
    kind=st.sampled_from([GNMTCoveragePenalty, RepeatedCoveragePenalty, SummaryCoveragePenalty]),
)
def test_no_coverage_is_worth_more_than_nothing(seed, kind):
    weights = np.random.default_rng(seed).dirichlet(np.ones(4), size=6).astype(np.float32)
    assert kind(1.0)(weights) <= 0


@pytest.mark.parametrize(
    "penalty", [GNMTCoveragePenalty(0.7), RepeatedCoveragePenalty(1.5), SummaryCoveragePenalty(1.5)]
)
@given(seed=st.integers(0, 999))
def test_a_search_ranks_by_both_penalties(penalty, seed):
    """The scores are those of the formulas, and a wide beam finds the best by them."""
    table, length = Table(seed, 3), LengthPenalty(0.6)
    found = search(
        table,
        width=30,
        longest=3,
        length_penalty=length,
        options=BeamSearchOptions(coverage_penalty=penalty),
    )[0]

    def worth(tokens):
        looked = table.looked(tokens).float().numpy()
        return length(sum(table.of(tokens)), len(tokens) + 1) + penalty(looked)

    best = sorted(table.outputs(3), key=worth, reverse=True)
    assert [each.tokens for each in found] == best
    assert [each.score for each in found] == pytest.approx([worth(tokens) for tokens in best])


def test_places_past_the_end_of_a_source_are_not_missed():
    table = Table(3, 3)
    table.attention_records = torch.cat(
        [table.attention_records[..., :2], torch.zeros_like(table.attention_records)], dim=-1
    )
    how = BeamSearchOptions(coverage_penalty=GNMTCoveragePenalty(0.7))
    padded = search(table, width=3, longest=3, options=how, source_lengths=torch.tensor([2]))[0]
    table.attention_records = table.attention_records[..., :2]
    plain = search(table, width=3, longest=3, options=how)[0]
    assert [each.tokens for each in padded] == [each.tokens for each in plain]
    assert [each.score for each in padded] == pytest.approx([each.score for each in plain])
