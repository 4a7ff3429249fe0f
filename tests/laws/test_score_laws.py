"""Invariants of every score."""

import pytest
import torch

from heedful.attention.memory import AttentionState
from heedful.pytree import select_rows
from tests.catalogue import SCORES

SIZE = 4
ABSOLUTE = {"location", "sum"}  # depend on absolute key positions
RELATIVE = {
    "alibi",
    "gaussian",
    "relative-position-bias",
    "relative-key",
    "rotary",
}  # depend on the distance
POSITIONAL = ABSOLUTE | RELATIVE
POSITION_ONLY = {
    "alibi",
    "gaussian",
    "relative-position-bias",
}  # ignore all vectors
all_scores = pytest.mark.parametrize("type_name", SCORES)
content_scores = pytest.mark.parametrize(
    "type_name", [type_name for type_name in SCORES if type_name not in POSITIONAL]
)
all_but_absolute_scores = pytest.mark.parametrize(
    "type_name", [type_name for type_name in SCORES if type_name not in ABSOLUTE]
)


def build(type_name, num_heads=None):
    torch.manual_seed(0)
    return SCORES[type_name].build(query_size=SIZE, key_size=SIZE, num_heads=num_heads).double()


def vectors(*shape):
    return torch.randn(*shape, SIZE, dtype=torch.double)


def score(module, queries, keys, state=None):
    return module(queries, module.prepare_keys(keys), state)


def state_after(num_queries, keys):
    """Return the state after this number of queries, with zero weights."""
    zero_weights, zero_context = torch.zeros_like(keys[..., 0]), torch.zeros_like(keys[..., 0, :])
    return AttentionState(
        num_queries, zero_weights, zero_weights, zero_context, torch.ones_like(zero_context[..., 0])
    )


@all_scores
@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
def test_leading_dimensions_are_independent(type_name, leading):
    module = build(type_name)
    queries, keys = vectors(*leading, 5), vectors(*leading, 7)
    batched = score(module, queries, keys)
    assert batched.shape == (*leading, 5, 7)
    flat = zip(queries.view(-1, 5, SIZE), keys.view(-1, 7, SIZE), strict=True)
    separate = torch.stack([score(module, query, key) for query, key in flat])
    torch.testing.assert_close(batched.view(-1, 5, 7), separate)


@all_scores
@pytest.mark.parametrize("length", [3, 9], ids=["shorter", "longer"])
def test_score_of_pair_is_independent_of_other_pairs(type_name, length):
    module = build(type_name)
    queries, keys = vectors(3), vectors(4)
    other_queries, other_keys = vectors(2), vectors(length)
    other_queries[1], other_keys[2] = queries[1], keys[2]
    before, state_after = score(module, queries, keys), score(module, other_queries, other_keys)
    torch.testing.assert_close(before[1, 2], state_after[1, 2])


@content_scores
def test_content_scores_permuted_with_keys(type_name):
    module = build(type_name)
    queries, keys = vectors(3), vectors(4)
    order = torch.tensor([2, 0, 3, 1])
    moved = score(module, queries, keys[order])
    torch.testing.assert_close(moved, score(module, queries, keys)[:, order])


@all_but_absolute_scores
@pytest.mark.parametrize("num_heads", [None, 2])
def test_shifting_query_and_key_together_keeps_score(type_name, num_heads):
    module, leading = build(type_name, num_heads), (3,) if num_heads is None else (3, num_heads)
    queries, keys = vectors(*leading, 4), vectors(*leading, 5)
    moved = torch.cat([vectors(*leading, 6), keys], dim=-2)
    shifted = score(module, queries, moved, state_after(torch.full(leading, 6), moved))
    torch.testing.assert_close(shifted[..., 6:], score(module, queries, keys))


@all_scores
@pytest.mark.parametrize("num_heads", [None, 2])
def test_stepwise_scores_match_batched_scores(type_name, num_heads):
    module, leading = build(type_name, num_heads), (3,) if num_heads is None else (3, num_heads)
    queries, keys = vectors(*leading, 5), vectors(*leading, 7)
    steps = [
        score(module, query, keys, state_after(torch.full(leading, step), keys))
        for step, query in enumerate(queries.split(1, dim=-2))
    ]
    torch.testing.assert_close(torch.cat(steps, dim=-2), score(module, queries, keys))


@all_scores
def test_query_position_is_per_row(type_name):
    module = build(type_name)
    queries, keys = vectors(2, 3), vectors(2, 7)
    batched = score(module, queries, keys, state_after(torch.tensor([4, 1]), keys))
    for row, num_queries in enumerate((4, 1)):
        single = score(
            module, queries[row], keys[row], state_after(torch.tensor(num_queries), keys[row])
        )
        torch.testing.assert_close(batched[row], single)


@all_scores
def test_heads_are_independent(type_name):
    module = build(type_name, num_heads=2)
    queries, keys = vectors(2, 2, 5), vectors(2, 2, 7)
    scores = score(module, queries, keys)
    assert torch.broadcast_shapes(scores.shape, (2, 2, 5, 7)) == (2, 2, 5, 7)
    for head in range(2):
        others = torch.arange(2) != head
        changed_queries, changed_keys = queries.clone(), keys.clone()
        changed_queries[:, others], changed_keys[:, others] = vectors(2, 1, 5), vectors(2, 1, 7)
        changed = score(module, changed_queries, changed_keys)
        torch.testing.assert_close(changed[:, head], scores[:, head])
        assert type_name in POSITION_ONLY or not torch.equal(changed[:, others], scores[:, others])


@all_scores
def test_prepared_key_rows_can_be_selected_and_repeated(type_name):
    module = build(type_name)
    queries, keys = vectors(3, 2), vectors(3, 5)
    prepared, rows = module.prepare_keys(keys), torch.tensor([2, 0, 0])
    chosen = module(queries[rows], select_rows(prepared, rows))
    torch.testing.assert_close(chosen, module(queries, prepared)[rows])


@all_scores
@pytest.mark.parametrize("dtype", [torch.float, torch.float16, torch.bfloat16], ids=str)
def test_zero_vectors_return_finite_scores_and_gradients(type_name, dtype):
    module = build(type_name).to(dtype)
    queries = torch.zeros(2, SIZE, dtype=dtype, requires_grad=True)
    keys = torch.zeros(3, SIZE, dtype=dtype, requires_grad=True)
    scores = score(module, queries, keys)
    assert scores.dtype == dtype
    assert scores.isfinite().all()
    inputs = (queries, keys, *module.parameters())
    total = scores.sum() + queries.sum()  # some scores depend on no input
    for gradient in torch.autograd.grad(total, inputs, materialize_grads=True):
        assert gradient.isfinite().all()


@all_scores
def test_gradients_match_finite_differences(type_name):
    module = build(type_name)
    inputs = (vectors(2).requires_grad_(), vectors(3).requires_grad_(), *module.parameters())
    # Fast mode checks random directions; the matrices have thousands of entries.
    assert torch.autograd.gradcheck(lambda q, k, *_: score(module, q, k), inputs, fast_mode=True)
