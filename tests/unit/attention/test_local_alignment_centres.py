"""Each centre against its paper's formula, one query at a time."""

import math

import pytest
import torch

from heedful.attention import AttentionState
from heedful.attention.local_alignment import MonotonicCenter, PredictiveCenter

QUERY = 3


def asked(count):
    """A past in which so many queries were asked, of each row."""
    counts = torch.tensor(count)
    nowhere = torch.zeros(*counts.shape, 4)
    return AttentionState(counts, nowhere, nowhere, nowhere, torch.ones(counts.shape))


def lengths_of(*lengths, queries):
    return torch.tensor(lengths)[:, None].expand(-1, queries)


def test_a_step_centre_goes_one_place_on_with_every_query_and_waits_at_the_last():
    centers = MonotonicCenter()(None, lengths_of(9, 3, 1, queries=5))
    assert centers.tolist() == [[0, 1, 2, 3, 4], [0, 1, 2, 2, 2], [0, 0, 0, 0, 0]]


def test_a_step_centre_goes_on_from_where_each_row_stands():
    centers = MonotonicCenter()(None, lengths_of(9, 9, queries=3), asked([2, 5]))
    assert centers.tolist() == [[2, 3, 4], [5, 6, 7]]


def test_a_source_of_which_nothing_is_visible_has_its_centre_at_the_start():
    assert MonotonicCenter()(None, lengths_of(0, queries=2)).tolist() == [[0, 0]]
    center = PredictiveCenter(QUERY, hidden_size=2)
    assert center(torch.randn(1, 2, QUERY), lengths_of(0, queries=2)).tolist() == [[0, 0]]


def test_a_predicted_centre_is_the_length_times_what_a_small_layer_says():
    center = PredictiveCenter(QUERY, hidden_size=2)
    queries = torch.randn(2, 3, QUERY)
    matrix, vector = center.projection.weight, center.reduction.weight[0]
    centers = center(queries, lengths_of(9, 4, queries=3))
    for row, length in enumerate([9, 4]):
        for time in range(3):
            hidden = [math.tanh(each) for each in (matrix @ queries[row, time]).tolist()]
            logit = sum(v * h for v, h in zip(vector.tolist(), hidden, strict=True))
            wanted = length / (1 + math.exp(-logit))
            assert centers[row, time].item() == pytest.approx(wanted)


def test_a_predicted_centre_has_the_two_matrices_of_the_paper_and_no_bias():
    names = {name for name, _ in PredictiveCenter(QUERY, hidden_size=2).named_parameters()}
    assert names == {"projection.weight", "reduction.weight"}


def test_a_predicted_centre_needs_a_query():
    with pytest.raises(AssertionError, match="the query's to say"):
        PredictiveCenter(QUERY, hidden_size=2)(None, lengths_of(9, queries=3))


@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
@pytest.mark.parametrize(
    "center", [MonotonicCenter(), PredictiveCenter(QUERY, hidden_size=2)], ids=str
)
def test_leading_dimensions_are_free(center, leading):
    queries, lengths = torch.randn(*leading, 5, QUERY), torch.randint(0, 9, (*leading, 5))
    together = center(queries, lengths)
    assert together.shape == (*leading, 5)
    flat = zip(queries.view(-1, 5, QUERY), lengths.view(-1, 5), strict=True)
    apart = torch.stack([center(each, length) for each, length in flat])
    torch.testing.assert_close(together.view(-1, 5), apart)


@pytest.mark.parametrize("center", [MonotonicCenter(), PredictiveCenter(1, hidden_size=1)], ids=str)
def test_half_precision_can_still_tell_places_apart(center):
    queries = torch.linspace(-1, 1, 4000, dtype=torch.bfloat16).unsqueeze(-1)
    centers = center.to(torch.bfloat16)(queries, torch.full((4000,), 3999))
    assert centers.dtype == torch.float
    if isinstance(center, MonotonicCenter):
        assert centers.diff()[:-1].eq(1).all()


def test_gradients_of_a_predicted_centre_are_those_of_finite_differences():
    center = PredictiveCenter(QUERY, hidden_size=2).double()
    queries = torch.randn(2, 3, QUERY).double().requires_grad_()
    inputs = (queries, *center.parameters())
    lengths = lengths_of(9, 4, queries=3)
    assert torch.autograd.gradcheck(lambda each, *_: center(each, lengths), inputs)
