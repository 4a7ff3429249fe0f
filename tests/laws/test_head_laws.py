"""Invariants of attention for every score and alignment, with and without heads."""

from copy import deepcopy

import pytest
import torch

from heedful.attention.additive_scores import AdditiveScoreConfig, ScoreFeatureConfig
from heedful.attention.alignments import SoftmaxAlignment
from heedful.attention.attention import SingleHeadAttention
from heedful.attention.masks import causal_mask, padding_mask
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.readouts import WeightedSumReadout
from heedful.attention.scores import BilinearScore, build_per_head_score
from heedful.config.base import types_in
from heedful.pytree import map_tensors
from tests import catalogue
from tests.catalogue import ALIGNMENTS, WIDTH

# A score with every feature of the state.
WITH_FEATURES = AdditiveScoreConfig(features=tuple(item() for item in types_in(ScoreFeatureConfig)))
SCORES = {**catalogue.SCORES, "looking back": WITH_FEATURES}

NUM_QUERIES, NUM_KEYS, HEADS = 5, 7, 4
SIZES = {"query_size": WIDTH, "memory_size": WIDTH, "num_heads": HEADS, "head_dim": WIDTH}
NUM_KV_HEADS = {"no heads": None, "heads": HEADS, "two groups": 2}

all_scores = pytest.mark.parametrize("score", SCORES)
all_alignments = pytest.mark.parametrize("alignment", ALIGNMENTS)
with_and_without_heads = pytest.mark.parametrize("num_kv_heads", [None, HEADS])
all_kv_heads = pytest.mark.parametrize(
    "num_kv_heads", NUM_KV_HEADS.values(), ids=NUM_KV_HEADS.keys()
)


def build_attention(inner, num_kv_heads):
    """Build attention in eval mode with this number of key-value heads, or without heads."""
    module = (
        inner
        if num_kv_heads is None
        else MultiHeadAttention(inner, **SIZES, num_kv_heads=num_kv_heads)
    )
    return module.double().eval()


def with_score(name, num_kv_heads):
    torch.manual_seed(0)
    num_heads = None if num_kv_heads is None else HEADS
    score = SCORES[name].build(query_size=WIDTH, key_size=WIDTH, num_heads=num_heads)
    return build_attention(
        SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout()), num_kv_heads
    )


def with_alignment(name, num_kv_heads):
    torch.manual_seed(0)
    num_heads = None if num_kv_heads is None else HEADS
    score = build_per_head_score(lambda: BilinearScore(WIDTH, WIDTH), num_heads)
    return build_attention(
        SingleHeadAttention(score, deepcopy(ALIGNMENTS[name]), WeightedSumReadout()), num_kv_heads
    )


def vectors(*shape):
    return torch.randn(*shape, WIDTH, dtype=torch.double)


def check_steps(module, mask):
    values, queries = vectors(3, NUM_KEYS), vectors(3, NUM_QUERIES)
    memory = module.build_memory(values, mask)
    whole = module(queries, memory, module.initial_state(memory))
    state, step_outputs = module.initial_state(memory), []
    for step in range(NUM_QUERIES):
        step_mask = (
            memory.mask if memory.mask.size(-2) == 1 else memory.mask[..., step : step + 1, :]
        )
        step_output = module(queries[:, step : step + 1], memory._replace(mask=step_mask), state)
        state = step_output.state
        step_outputs.append(step_output)
    for name in ("context", "weights"):
        batched = torch.cat([getattr(step_output, name) for step_output in step_outputs], dim=1)
        torch.testing.assert_close(batched, getattr(whole, name))
    torch.testing.assert_close(state, whole.state)


MASKS = {
    "padding": padding_mask(torch.tensor([7, 3, 1]), NUM_KEYS),
    "a mask for each query": causal_mask(NUM_KEYS)[:, -NUM_QUERIES:]
    & padding_mask(torch.tensor([7, 6, 4]), NUM_KEYS),
}
all_masks = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


@all_scores
@all_kv_heads
@all_masks
def test_stepwise_attention_same_as_parallel_for_every_score(score, num_kv_heads, mask):
    check_steps(with_score(score, num_kv_heads), mask)


@all_alignments
@with_and_without_heads
@all_masks
def test_stepwise_attention_same_as_parallel_for_every_alignment(alignment, num_kv_heads, mask):
    check_steps(with_alignment(alignment, num_kv_heads), mask)


def check_padding(module):
    values, queries = vectors(2, NUM_KEYS), vectors(2, NUM_QUERIES)
    mask = padding_mask(torch.tensor([4, 3]), NUM_KEYS)
    wide_memory = module.build_memory(values, mask)
    narrow_memory = module.build_memory(values[:, :4], mask[..., :4])
    wide = module(queries, wide_memory, module.initial_state(wide_memory))
    narrow = module(queries, narrow_memory, module.initial_state(narrow_memory))
    torch.testing.assert_close(wide.context, narrow.context)
    torch.testing.assert_close(wide.weights[..., :4], narrow.weights)
    assert (wide.weights[..., 4:] == 0).all()


@all_scores
@all_kv_heads
def test_padding_has_no_influence_for_every_score(score, num_kv_heads):
    check_padding(with_score(score, num_kv_heads))


@all_alignments
@with_and_without_heads
def test_padding_has_no_influence_for_every_alignment(alignment, num_kv_heads):
    check_padding(with_alignment(alignment, num_kv_heads))


@all_scores
@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_grouped_heads_match_heads_with_repeated_keys_and_values(score, num_kv_heads):
    grouped, separate = with_score(score, num_kv_heads), with_score(score, HEADS)
    shared = grouped.state_dict()
    for name in ("key_projection.weight", "value_projection.weight"):
        head_weights = shared[name].unflatten(0, (num_kv_heads, -1))
        shared[name] = head_weights.repeat_interleave(HEADS // num_kv_heads, dim=0).flatten(0, 1)
    separate.load_state_dict(shared)
    queries, values = vectors(3, NUM_QUERIES), vectors(3, NUM_KEYS)
    actual, expected = (
        module(queries, module.build_memory(values, MASKS["padding"]))
        for module in (grouped, separate)
    )
    torch.testing.assert_close(actual.alignment.weights, expected.alignment.weights)
    torch.testing.assert_close(actual.context, expected.context)


@all_scores
@all_kv_heads
def test_fully_masked_source_returns_zeros_and_finite_gradients(score, num_kv_heads):
    module = with_score(score, num_kv_heads)
    queries, values = (
        vectors(2, NUM_QUERIES).requires_grad_(),
        vectors(2, NUM_KEYS).requires_grad_(),
    )
    output = module(
        queries, module.build_memory(values, padding_mask(torch.tensor([0, 2]), NUM_KEYS))
    )
    assert (output.weights[0] == 0).all()
    assert (output.context[0] == 0).all()
    gradients = torch.autograd.grad(
        output.context.square().sum(), (queries, values), materialize_grads=True
    )
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert all((gradient[0] == 0).all() for gradient in gradients)


@all_scores
def test_attention_keeps_half_precision(score):
    module = with_score(score, HEADS).bfloat16()
    queries, values = vectors(2, NUM_QUERIES).bfloat16(), vectors(2, NUM_KEYS).bfloat16()
    memory = module.build_memory(values, MASKS["padding"][:2])
    output = module(queries, memory, module.initial_state(memory))
    assert {output.context.dtype, output.weights.dtype} == {torch.bfloat16}
    assert output.context.isfinite().all()


@all_kv_heads
def test_detached_memory_returns_same_context(num_kv_heads):
    module = with_score("additive", num_kv_heads)
    memory = module.build_memory(vectors(2, NUM_KEYS), MASKS["padding"][:2])
    queries = vectors(2, NUM_QUERIES)
    detached = map_tensors(torch.Tensor.detach, memory)
    torch.testing.assert_close(module(queries, detached).context, module(queries, memory).context)


def check_mask_forms(module):
    """As many rows as queries: only the number of dimensions tells (B, S) from (T, S)."""
    values, queries = vectors(NUM_QUERIES, NUM_KEYS), vectors(NUM_QUERIES, NUM_QUERIES)
    mask = torch.arange(NUM_KEYS) <= torch.arange(2, 2 + NUM_QUERIES).unsqueeze(1)  # (B, S)
    forms = [mask, mask.unsqueeze(1), mask.unsqueeze(1).expand(-1, NUM_QUERIES, -1)]
    outputs = [module(queries, module.build_memory(values, form)) for form in forms]
    for output in outputs[1:]:
        torch.testing.assert_close(output.weights, outputs[0].weights, rtol=0, atol=0)
        torch.testing.assert_close(output.context, outputs[0].context, rtol=0, atol=0)
    for row, weights in enumerate(outputs[0].weights):
        assert (weights[:, ~mask[row]] == 0).all()
    unmasked = module(queries, module.build_memory(values)).weights
    all_visible = module.build_memory(values, torch.ones_like(mask))
    torch.testing.assert_close(unmasked, module(queries, all_visible).weights, rtol=0, atol=0)


@all_scores
@all_kv_heads
def test_mask_of_rows_is_never_read_as_mask_of_queries_for_every_score(score, num_kv_heads):
    check_mask_forms(with_score(score, num_kv_heads))


@all_alignments
@with_and_without_heads
def test_mask_of_rows_is_never_read_as_mask_of_queries_for_every_alignment(alignment, num_kv_heads):
    check_mask_forms(with_alignment(alignment, num_kv_heads))


@all_alignments
def test_alignment_reads_mask_by_the_dimensions(alignment):
    module = deepcopy(ALIGNMENTS[alignment]).double().eval()
    scores, queries = torch.randn(3, 3, 5, dtype=torch.double), vectors(3, 3)
    mask = torch.arange(5) <= torch.arange(1, 4).unsqueeze(1)
    weights = module(scores, mask, queries).weights
    assert torch.equal(weights, module(scores, mask.unsqueeze(1), queries).weights)
    assert (weights.masked_select(~mask.unsqueeze(1)) == 0).all()
    unmasked = module(scores, None, queries).weights
    assert torch.equal(unmasked, module(scores, torch.ones_like(mask), queries).weights)
