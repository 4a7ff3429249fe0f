"""What every score promises."""

import pytest
import torch

from tests.catalogue import SCORES

SIZE = 4
each_score = pytest.mark.parametrize("kind", SCORES)


def build(kind):
    torch.manual_seed(0)
    return SCORES[kind]().build(query_size=SIZE, key_size=SIZE).double()


def score(module, queries, keys):
    return module(queries, module.prepare(keys))


@each_score
@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
def test_leading_dimensions_are_free(kind, leading):
    module = build(kind)
    queries, keys = torch.randn(*leading, 5, SIZE).double(), torch.randn(*leading, 7, SIZE).double()
    together = score(module, queries, keys)
    assert together.shape == (*leading, 5, 7)
    flat = zip(queries.view(-1, 5, SIZE), keys.view(-1, 7, SIZE), strict=True)
    apart = torch.stack([score(module, query, key) for query, key in flat])
    torch.testing.assert_close(together.view(-1, 5, 7), apart)


@each_score
def test_a_pair_is_scored_alike_whatever_stands_beside_it(kind):
    module = build(kind)
    queries, keys = torch.randn(3, SIZE).double(), torch.randn(4, SIZE).double()
    alone = score(module, queries[1:2], keys[2:3])
    torch.testing.assert_close(score(module, queries, keys)[1:2, 2:3], alone)


@each_score
def test_gradients_are_those_of_finite_differences(kind):
    module = build(kind)
    queries = torch.randn(2, SIZE, dtype=torch.double, requires_grad=True)
    keys = torch.randn(3, SIZE, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda q, k: score(module, q, k), (queries, keys))
