"""What every score promises."""

import pytest
import torch

from heedful.attention import AttentionState
from heedful.pytree import select_rows
from tests.catalogue import SCORES

SIZE = 4
BY_NUMBER = {"location", "sum"}  # those that ask where a key stands, counted from the first
BY_DISTANCE = {
    "alibi",
    "gaussian",
    "relative-position-bias",
    "relative-key",
    "rotary",
}  # from the query
BY_PLACE = BY_NUMBER | BY_DISTANCE
BLIND = {"alibi", "gaussian", "relative-position-bias"}  # those that look at no vector at all
each_score = pytest.mark.parametrize("kind", SCORES)
each_score_by_content = pytest.mark.parametrize(
    "kind", [kind for kind in SCORES if kind not in BY_PLACE]
)
each_score_but_by_number = pytest.mark.parametrize(
    "kind", [kind for kind in SCORES if kind not in BY_NUMBER]
)


def build(kind, num_heads=None):
    torch.manual_seed(0)
    return SCORES[kind].build(query_size=SIZE, key_size=SIZE, num_heads=num_heads).double()


def vectors(*shape):
    return torch.randn(*shape, SIZE, dtype=torch.double)


def score(module, queries, keys, past=None):
    return module(queries, module.prepare_keys(keys), past)


def after(asked, keys):
    """The past of sources of which so many queries were asked; where they looked is forgotten."""
    nowhere, nothing = torch.zeros_like(keys[..., 0]), torch.zeros_like(keys[..., 0, :])
    return AttentionState(asked, nowhere, nowhere, nothing, torch.ones_like(nothing[..., 0]))


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


@each_score_but_by_number
@pytest.mark.parametrize("num_heads", [None, 2])
def test_a_query_and_a_key_that_move_together_keep_their_score(kind, num_heads):
    module, leading = build(kind, num_heads), (3,) if num_heads is None else (3, num_heads)
    queries, keys = vectors(*leading, 4), vectors(*leading, 5)
    moved = torch.cat([vectors(*leading, 6), keys], dim=-2)
    later = score(module, queries, moved, after(torch.full(leading, 6), moved))
    torch.testing.assert_close(later[..., 6:], score(module, queries, keys))


@each_score
@pytest.mark.parametrize("num_heads", [None, 2])
def test_queries_asked_one_by_one_are_scored_as_if_together(kind, num_heads):
    module, leading = build(kind, num_heads), (3,) if num_heads is None else (3, num_heads)
    queries, keys = vectors(*leading, 5), vectors(*leading, 7)
    steps = [
        score(module, query, keys, after(torch.full(leading, step), keys))
        for step, query in enumerate(queries.split(1, dim=-2))
    ]
    torch.testing.assert_close(torch.cat(steps, dim=-2), score(module, queries, keys))


@each_score
def test_rows_that_were_asked_more_often_stand_further_on(kind):
    module = build(kind)
    queries, keys = vectors(2, 3), vectors(2, 7)
    together = score(module, queries, keys, after(torch.tensor([4, 1]), keys))
    for row, asked in enumerate((4, 1)):
        alone = score(module, queries[row], keys[row], after(torch.tensor(asked), keys[row]))
        torch.testing.assert_close(together[row], alone)


@each_score
def test_heads_stand_before_the_queries_and_do_not_see_one_another(kind):
    module = build(kind, num_heads=2)
    queries, keys = vectors(2, 2, 5), vectors(2, 2, 7)
    scores = score(module, queries, keys)
    assert torch.broadcast_shapes(scores.shape, (2, 2, 5, 7)) == (2, 2, 5, 7)
    for head in range(2):
        others = torch.arange(2) != head
        queries_beside, keys_beside = queries.clone(), keys.clone()
        queries_beside[:, others], keys_beside[:, others] = vectors(2, 1, 5), vectors(2, 1, 7)
        beside = score(module, queries_beside, keys_beside)
        torch.testing.assert_close(beside[:, head], scores[:, head])
        assert kind in BLIND or not torch.equal(beside[:, others], scores[:, others])


@each_score
def test_rows_of_prepared_keys_can_be_selected_and_repeated(kind):
    module = build(kind)
    queries, keys = vectors(3, 2), vectors(3, 5)
    prepared, rows = module.prepare_keys(keys), torch.tensor([2, 0, 0])
    chosen = module(queries[rows], select_rows(prepared, rows))
    torch.testing.assert_close(chosen, module(queries, prepared)[rows])


@each_score
@pytest.mark.parametrize("dtype", [torch.float, torch.float16, torch.bfloat16], ids=str)
def test_vectors_of_zeros_give_finite_scores_and_gradients(kind, dtype):
    module = build(kind).to(dtype)
    queries = torch.zeros(2, SIZE, dtype=dtype, requires_grad=True)
    keys = torch.zeros(3, SIZE, dtype=dtype, requires_grad=True)
    scores = score(module, queries, keys)
    assert scores.dtype == dtype
    assert scores.isfinite().all()
    inputs = (queries, keys, *module.parameters())
    total = scores.sum() + queries.sum()  # there are scores that depend on no input
    for gradient in torch.autograd.grad(total, inputs, materialize_grads=True):
        assert gradient.isfinite().all()


@each_score
def test_gradients_are_those_of_finite_differences(kind):
    module = build(kind)
    inputs = (vectors(2).requires_grad_(), vectors(3).requires_grad_(), *module.parameters())
    # Fast: along random directions, for the matrices have thousands of entries.
    assert torch.autograd.gradcheck(lambda q, k, *_: score(module, q, k), inputs, fast_mode=True)
