"""What attention promises whatever it is made of, with heads and without."""

from copy import deepcopy

import pytest
import torch

from heedful.attention import Attention, BilinearScore, Expectation, Softmax, causal, padding
from heedful.attention.choices.content import AdditiveScoreConfig
from heedful.attention.choices.features import FeatureConfig
from heedful.attention.heads import MultiHead, headwise
from heedful.config.choice import types_in
from heedful.nested import map_tensors
from tests import catalogue
from tests.catalogue import ALIGNMENTS, WIDTH

# One that waits for where the query before it looked, by every feature there is.
LOOKING_BACK = AdditiveScoreConfig(features=tuple(each() for each in types_in(FeatureConfig)))
SCORES = {**catalogue.SCORES, "looking back": LOOKING_BACK}

TIMES, PLACES, HEADS = 5, 7, 4
SIZES = {"query_size": WIDTH, "memory_size": WIDTH, "num_heads": HEADS, "head_size": WIDTH}
NUM_GROUPS = {"no heads": None, "heads": HEADS, "two groups": 2}

each_score = pytest.mark.parametrize("score", SCORES)
each_align = pytest.mark.parametrize("align", ALIGNMENTS)
with_and_without_heads = pytest.mark.parametrize("num_groups", [None, HEADS])
each_number_of_groups = pytest.mark.parametrize(
    "num_groups", NUM_GROUPS.values(), ids=NUM_GROUPS.keys()
)


def around(inner, num_groups):
    """The mechanism in use, with so many groups or no heads at all."""
    module = inner if num_groups is None else MultiHead(inner, **SIZES, num_groups=num_groups)
    return module.double().eval()


def with_score(name, num_groups):
    torch.manual_seed(0)
    num_heads = None if num_groups is None else HEADS
    score = SCORES[name].build(query_size=WIDTH, key_size=WIDTH, num_heads=num_heads)
    return around(Attention(score, Softmax(), Expectation()), num_groups)


def with_align(name, num_groups):
    torch.manual_seed(0)
    num_heads = None if num_groups is None else HEADS
    score = headwise(lambda: BilinearScore(WIDTH, WIDTH), num_heads)
    return around(Attention(score, deepcopy(ALIGNMENTS[name]), Expectation()), num_groups)


def vectors(*shape):
    return torch.randn(*shape, WIDTH, dtype=torch.double)


def check_steps(module, mask):
    values, queries = vectors(3, PLACES), vectors(3, TIMES)
    memory = module.remember(values, mask)
    whole = module(queries, memory, module.begin(memory))
    past, parts = module.begin(memory), []
    for time in range(TIMES):
        seen = memory.mask if memory.mask.size(-2) == 1 else memory.mask[..., time : time + 1, :]
        part = module(queries[:, time : time + 1], memory._replace(mask=seen), past)
        past = part.past
        parts.append(part)
    for name in ("context", "weights"):
        together = torch.cat([getattr(part, name) for part in parts], dim=1)
        torch.testing.assert_close(together, getattr(whole, name))
    torch.testing.assert_close(past, whole.past)


MASKS = {
    "padding": padding(torch.tensor([7, 3, 1]), PLACES),
    "a mask for each query": causal(PLACES)[-TIMES:] & padding(torch.tensor([7, 6, 4]), PLACES),
}
each_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


@each_score
@each_number_of_groups
@each_mask
def test_step_by_step_is_all_at_once_for_every_score(score, num_groups, mask):
    check_steps(with_score(score, num_groups), mask)


@each_align
@with_and_without_heads
@each_mask
def test_step_by_step_is_all_at_once_for_every_alignment(align, num_groups, mask):
    check_steps(with_align(align, num_groups), mask)


def check_padding(module):
    values, queries = vectors(2, PLACES), vectors(2, TIMES)
    mask = padding(torch.tensor([4, 3]), PLACES)
    loose = module.remember(values, mask)
    tight = module.remember(values[:, :4], mask[..., :4])
    wide = module(queries, loose, module.begin(loose))
    narrow = module(queries, tight, module.begin(tight))
    torch.testing.assert_close(wide.context, narrow.context)
    torch.testing.assert_close(wide.weights[..., :4], narrow.weights)
    assert (wide.weights[..., 4:] == 0).all()


@each_score
@each_number_of_groups
def test_padding_has_no_influence_whatever_the_score(score, num_groups):
    check_padding(with_score(score, num_groups))


@each_align
@with_and_without_heads
def test_padding_has_no_influence_whatever_the_alignment(align, num_groups):
    check_padding(with_align(align, num_groups))


@each_score
@pytest.mark.parametrize("num_groups", [1, 2])
def test_a_group_is_heads_with_the_same_keys_and_values(score, num_groups):
    grouped, apart = with_score(score, num_groups), with_score(score, HEADS)
    shared = grouped.state_dict()
    for name in ("key_projection.weight", "value_projection.weight"):
        own = shared[name].unflatten(0, (num_groups, -1))
        shared[name] = own.repeat_interleave(HEADS // num_groups, dim=0).flatten(0, 1)
    apart.load_state_dict(shared)
    queries, values = vectors(3, TIMES), vectors(3, PLACES)
    found, wanted = (
        module(queries, module.remember(values, MASKS["padding"])) for module in (grouped, apart)
    )
    torch.testing.assert_close(found.aligned.weights, wanted.aligned.weights)
    torch.testing.assert_close(found.context, wanted.context)


@each_score
@each_number_of_groups
def test_a_fully_hidden_source_gives_nothing_and_finite_gradients(score, num_groups):
    module = with_score(score, num_groups)
    queries, values = vectors(2, TIMES).requires_grad_(), vectors(2, PLACES).requires_grad_()
    attended = module(queries, module.remember(values, padding(torch.tensor([0, 2]), PLACES)))
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
    memory = module.remember(values, MASKS["padding"][:2])
    attended = module(queries, memory, module.begin(memory))
    assert {attended.context.dtype, attended.weights.dtype} == {torch.bfloat16}
    assert attended.context.isfinite().all()


@each_number_of_groups
def test_a_memory_without_gradient_is_as_good(num_groups):
    module = with_score("additive", num_groups)
    memory = module.remember(vectors(2, PLACES), MASKS["padding"][:2])
    queries = vectors(2, TIMES)
    detached = map_tensors(torch.Tensor.detach, memory)
    torch.testing.assert_close(module(queries, detached).context, module(queries, memory).context)
