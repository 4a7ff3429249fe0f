"""What every score promises."""

import pytest
import torch

from heedful.nested import select
from tests.catalogue import SCORES

SIZE = 4
BY_PLACE = {"location", "sum"}  # those that ask where a key stands, not only what it holds
each_score = pytest.mark.parametrize("kind", SCORES)
each_score_by_content = pytest.mark.parametrize(
    "kind", [kind for kind in SCORES if kind not in BY_PLACE]
)


def build(kind):
    torch.manual_seed(0)
    return SCORES[kind].build(query_size=SIZE, key_size=SIZE).double()


def vectors(*shape):
    return torch.randn(*shape, SIZE, dtype=torch.double)


def score(module, queries, keys):
    return module(queries, module.prepare(keys))


@each_score
@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
def test_leading_dimensions_are_free(kind, leading):
    module = build(kind)
    queries, keys = vectors(*leading, 5), vectors(*leading, 7)
    together = score(module, queries, keys)
    assert together.shape == (*leading, 5, 7)
    flat = zip(queries.view(-1, 5, SIZE), keys.view(-1, 7, SIZE), strict=True)
    apart = torch.stack([score(module, query, key) for query, key in flat])
    torch.testing.assert_close(together.view(-1, 5, 7), apart)


@each_score
@pytest.mark.parametrize("length", [3, 9], ids=["shorter", "longer"])
def test_a_pair_is_scored_alike_whatever_stands_beside_it(kind, length):
    module = build(kind)
    queries, keys = vectors(3), vectors(4)
    other_queries, other_keys = vectors(2), vectors(length)
    other_queries[1], other_keys[2] = queries[1], keys[2]
    before, after = score(module, queries, keys), score(module, other_queries, other_keys)
    torch.testing.assert_close(before[1, 2], after[1, 2])


@each_score_by_content
def test_scores_by_content_follow_their_keys_to_other_places(kind):
    module = build(kind)
    queries, keys = vectors(3), vectors(4)
    order = torch.tensor([2, 0, 3, 1])
    moved = score(module, queries, keys[order])
    torch.testing.assert_close(moved, score(module, queries, keys)[:, order])


@each_score
def test_rows_of_prepared_keys_can_be_selected_and_repeated(kind):
    module = build(kind)
    queries, keys = vectors(3, 2), vectors(3, 5)
    prepared, rows = module.prepare(keys), torch.tensor([2, 0, 0])
    chosen = module(queries[rows], select(prepared, rows))
    torch.testing.assert_close(chosen, module(queries, prepared)[rows])


@each_score
@pytest.mark.parametrize("dtype", [torch.float, torch.bfloat16], ids=str)
def test_vectors_of_zeros_give_finite_scores_and_gradients(kind, dtype):
    module = build(kind).to(dtype)
    queries = torch.zeros(2, SIZE, dtype=dtype, requires_grad=True)
    keys = torch.zeros(3, SIZE, dtype=dtype, requires_grad=True)
    scores = score(module, queries, keys)
    assert scores.dtype == dtype
    assert scores.isfinite().all()
    inputs = (queries, keys, *module.parameters())
    for gradient in torch.autograd.grad(scores.sum(), inputs, materialize_grads=True):
        assert gradient.isfinite().all()


@each_score
def test_gradients_are_those_of_finite_differences(kind):
    module = build(kind)
    inputs = (vectors(2).requires_grad_(), vectors(3).requires_grad_(), *module.parameters())
    # Fast: along random directions, for the matrices have thousands of entries.
    assert torch.autograd.gradcheck(lambda q, k, *_: score(module, q, k), inputs, fast_mode=True)
