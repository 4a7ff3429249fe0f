"""What attention promises whatever it is made of, with heads and without."""

from copy import deepcopy

import pytest
import torch

from heedful.attention import (
    BilinearScore,
    SingleHeadAttention,
    SoftmaxAlignment,
    WeightedSumReadout,
    causal_mask,
    padding_mask,
)
from heedful.attention.additive_scores import AdditiveScoreConfig, ScoreFeatureConfig
from heedful.attention.multi_head import MultiHeadAttention
from heedful.attention.scores import build_per_head_score
from heedful.config.base import types_in
from heedful.pytree import map_tensors
from tests import catalogue
from tests.catalogue import ALIGNMENTS, WIDTH

# One that waits for where the query before it looked, by every feature there is.
LOOKING_BACK = AdditiveScoreConfig(features=tuple(each() for each in types_in(ScoreFeatureConfig)))
SCORES = {**catalogue.SCORES, "looking back": LOOKING_BACK}

TIMES, PLACES, HEADS = 5, 7, 4
SIZES = {"query_size": WIDTH, "memory_size": WIDTH, "num_heads": HEADS, "head_dim": WIDTH}
NUM_GROUPS = {"no heads": None, "heads": HEADS, "two groups": 2}

each_score = pytest.mark.parametrize("score", SCORES)
each_align = pytest.mark.parametrize("align", ALIGNMENTS)
with_and_without_heads = pytest.mark.parametrize("num_groups", [None, HEADS])
each_number_of_groups = pytest.mark.parametrize(
    "num_groups", NUM_GROUPS.values(), ids=NUM_GROUPS.keys()
)


def around(inner, num_kv_heads):
    """The mechanism in use, with so many groups or no heads at all."""
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
    return around(
        SingleHeadAttention(score, SoftmaxAlignment(), WeightedSumReadout()), num_kv_heads
    )


def with_align(name, num_kv_heads):
    torch.manual_seed(0)
    num_heads = None if num_kv_heads is None else HEADS
    score = build_per_head_score(lambda: BilinearScore(WIDTH, WIDTH), num_heads)
    return around(
        SingleHeadAttention(score, deepcopy(ALIGNMENTS[name]), WeightedSumReadout()), num_kv_heads
    )


def vectors(*shape):
    return torch.randn(*shape, WIDTH, dtype=torch.double)


def check_steps(module, mask):
    values, queries = vectors(3, PLACES), vectors(3, TIMES)
    memory = module.build_memory(values, mask)
    whole = module(queries, memory, module.initial_state(memory))
    past, parts = module.initial_state(memory), []
    for time in range(TIMES):
        seen = memory.mask if memory.mask.size(-2) == 1 else memory.mask[..., time : time + 1, :]
        part = module(queries[:, time : time + 1], memory._replace(mask=seen), past)
        past = part.state
        parts.append(part)
    for name in ("context", "weights"):
        together = torch.cat([getattr(part, name) for part in parts], dim=1)
        torch.testing.assert_close(together, getattr(whole, name))
    torch.testing.assert_close(past, whole.state)


MASKS = {
    "padding": padding_mask(torch.tensor([7, 3, 1]), PLACES),
    "a mask for each query": causal_mask(PLACES)[-TIMES:]
    & padding_mask(torch.tensor([7, 6, 4]), PLACES),
}
each_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


@each_score
@each_number_of_groups
@each_mask
def test_step_by_step_is_all_at_once_for_every_score(score, num_kv_heads, mask):
    check_steps(with_score(score, num_kv_heads), mask)


@each_align
@with_and_without_heads
@each_mask
def test_step_by_step_is_all_at_once_for_every_alignment(align, num_kv_heads, mask):
    check_steps(with_align(align, num_kv_heads), mask)


def check_padding(module):
    values, queries = vectors(2, PLACES), vectors(2, TIMES)
    mask = padding_mask(torch.tensor([4, 3]), PLACES)
    loose = module.build_memory(values, mask)
    tight = module.build_memory(values[:, :4], mask[..., :4])
    wide = module(queries, loose, module.initial_state(loose))
    narrow = module(queries, tight, module.initial_state(tight))
    torch.testing.assert_close(wide.context, narrow.context)
    torch.testing.assert_close(wide.weights[..., :4], narrow.weights)
    assert (wide.weights[..., 4:] == 0).all()


@each_score
@each_number_of_groups
def test_padding_has_no_influence_whatever_the_score(score, num_kv_heads):
    check_padding(with_score(score, num_kv_heads))


@each_align
@with_and_without_heads
def test_padding_has_no_influence_whatever_the_alignment(align, num_kv_heads):
    check_padding(with_align(align, num_kv_heads))


@each_score
@pytest.mark.parametrize("num_kv_heads", [1, 2])
def test_a_group_is_heads_with_the_same_keys_and_values(score, num_kv_heads):
    grouped, apart = with_score(score, num_kv_heads), with_score(score, HEADS)
    shared = grouped.state_dict()
    for name in ("key_projection.weight", "value_projection.weight"):
        own = shared[name].unflatten(0, (num_kv_heads, -1))
        shared[name] = own.repeat_interleave(HEADS // num_kv_heads, dim=0).flatten(0, 1)
    apart.load_state_dict(shared)
    queries, values = vectors(3, TIMES), vectors(3, PLACES)
    found, wanted = (
        module(queries, module.build_memory(values, MASKS["padding"]))
        for module in (grouped, apart)
    )
    torch.testing.assert_close(found.alignment.weights, wanted.alignment.weights)
    torch.testing.assert_close(found.context, wanted.context)


@each_score
@each_number_of_groups
def test_a_fully_hidden_source_gives_nothing_and_finite_gradients(score, num_kv_heads):
    module = with_score(score, num_kv_heads)
    queries, values = vectors(2, TIMES).requires_grad_(), vectors(2, PLACES).requires_grad_()
    attended = module(
        queries, module.build_memory(values, padding_mask(torch.tensor([0, 2]), PLACES))
    )
    assert (attended.weights[0] == 0).all()
    assert (attended.context[0] == 0).all()
    slopes = torch.autograd.grad(
        attended.context.square().sum(), (queries, values), materialize_grads=True
    )
    assert all(slope.isfinite().all() for slope in slopes)
    assert all((slope[0] == 0).all() for slope in slopes)


@each_score
def test_half_precision_gives_half_precision(score):
    module = with_score(score, HEADS).bfloat16()
    queries, values = vectors(2, TIMES).bfloat16(), vectors(2, PLACES).bfloat16()
    memory = module.build_memory(values, MASKS["padding"][:2])
    attended = module(queries, memory, module.initial_state(memory))
    assert {attended.context.dtype, attended.weights.dtype} == {torch.bfloat16}
    assert attended.context.isfinite().all()


@each_number_of_groups
def test_a_memory_without_gradient_is_as_good(num_kv_heads):
    module = with_score("additive", num_kv_heads)
    memory = module.build_memory(vectors(2, PLACES), MASKS["padding"][:2])
    queries = vectors(2, TIMES)
    detached = map_tensors(torch.Tensor.detach, memory)
    torch.testing.assert_close(module(queries, detached).context, module(queries, memory).context)
