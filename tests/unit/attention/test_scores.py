"""Each score against its paper's formula, one pair of vectors at a time."""

import math

import pytest
import torch

from heedful.attention import AdditiveScore, BilinearScore, DotScore


def by_hand(formula, queries, keys):
    return torch.tensor([[formula(query, key) for key in keys] for query in queries])


def test_dot_is_the_sum_of_products():
    queries, keys = torch.randn(3, 4), torch.randn(5, 4)
    wanted = by_hand(lambda q, k: sum(a * b for a, b in zip(q, k, strict=True)), queries, keys)
    torch.testing.assert_close(DotScore()(queries, keys), wanted)


def test_bilinear_is_a_product_through_one_matrix():
    score = BilinearScore(3, 4)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    matrix = score.projection.weight.detach()
    wanted = by_hand(lambda q, k: torch.dot(q, matrix @ k).item(), queries, keys)
    torch.testing.assert_close(score(queries, score.prepare(keys)).detach(), wanted)


def test_additive_is_a_small_tanh_layer_of_the_sum_of_two_projections():
    score = AdditiveScore(3, 4, 2)
    queries, keys = torch.randn(2, 3), torch.randn(5, 4)
    of_query = score.query_projection.weight.detach()
    of_key = score.key_projection.weight.detach()
    vector = score.reduction.weight.detach()[0]

    def formula(q, k):
        hidden = of_query @ q + of_key @ k
        return sum(v * math.tanh(h) for v, h in zip(vector.tolist(), hidden.tolist(), strict=True))

    wanted = by_hand(formula, queries, keys)
    torch.testing.assert_close(score(queries, score.prepare(keys)).detach(), wanted)


@pytest.mark.parametrize("name", ["query_projection", "key_projection", "reduction"])
def test_additive_has_the_three_matrices_of_the_paper_and_no_bias(name):
    assert getattr(AdditiveScore(3, 4, 2), name).bias is None
