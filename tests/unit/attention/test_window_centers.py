"""Each center against its paper's formula, one query at a time."""

import math

import pytest
import torch

from heedful.attention.local_alignment import MonotonicCenter, PredictiveCenter

QUERY = 3


def lengths_of(*lengths, queries):
    return torch.tensor(lengths)[:, None].expand(-1, queries)


def test_monotonic_center_advances_and_stops_at_last_position():
    centers = MonotonicCenter()(None, lengths_of(9, 3, 1, queries=5), None)
    assert centers.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 2, 2], [0, 0, 0, 0, 0]]


def test_center_of_masked_source_is_zero():
    assert MonotonicCenter()(None, lengths_of(0, queries=2), None).tolist() == [[0, 0]]
    center = PredictiveCenter(QUERY, hidden_size=2)
    assert center(torch.randn(1, 2, QUERY), lengths_of(0, queries=2), None).tolist() == [[0, 0]]


def test_predictive_center_same_as_formula():
    center = PredictiveCenter(QUERY, hidden_size=2)
    queries = torch.randn(2, 3, QUERY)
    matrix, vector = center.projection.weight, center.reduction.weight[0]
    centers = center(queries, lengths_of(9, 4, queries=3), None)
    for row, length in enumerate([9, 4]):
        for step in range(3):
            hidden = [math.tanh(item) for item in (matrix @ queries[row, step]).tolist()]
            logit = sum(v * h for v, h in zip(vector.tolist(), hidden, strict=True))
            expected = length / (1 + math.exp(-logit))
            assert centers[row, step].item() == pytest.approx(expected)


def test_predictive_center_has_no_bias():
    names = {name for name, _ in PredictiveCenter(QUERY, hidden_size=2).named_parameters()}
    assert names == {"projection.weight", "reduction.weight"}


def test_predictive_center_needs_queries():
    with pytest.raises(AssertionError, match="needs the queries"):
        PredictiveCenter(QUERY, hidden_size=2)(None, lengths_of(9, queries=3), None)


@pytest.mark.parametrize("center", [MonotonicCenter(), PredictiveCenter(1, hidden_size=1)], ids=str)
def test_centers_in_half_precision_are_float32(center):
    queries = torch.linspace(-1, 1, 4000, dtype=torch.bfloat16).unsqueeze(-1)
    centers = center.to(torch.bfloat16)(queries, torch.full((4000,), 3999), None)
    assert centers.dtype == torch.float
    if isinstance(center, MonotonicCenter):
        assert centers.diff()[:-1].eq(1).all()
