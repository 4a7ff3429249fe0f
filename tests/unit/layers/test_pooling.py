import math

import pytest
import torch
from pydantic import TypeAdapter

from heedful.config.base import type_of, types_in
from heedful.errors import ConfigError
from heedful.inspection.attention_trace import trace_attention
from heedful.layers.pooling import MaxPooling, MeanPooling
from heedful.models.recurrent.encoder import PoolingConfig

STATES = torch.tensor(
    [[[1.0, -4.0], [3.0, -2.0], [9.0, 9.0]], [[5.0, -7.0], [9.0, 9.0], [9.0, 9.0]]]
)
MASK = torch.tensor([[True, True, False], [True, False, False]])
KINDS = [type_of(member) for member in types_in(PoolingConfig)]
POOLED = [kind for kind in KINDS if kind != "last"]
each_kind = pytest.mark.parametrize("kind", POOLED)


def pooling(settings, size=2):
    return TypeAdapter(PoolingConfig).validate_python(settings).build(size=size)


def test_mean_pooling_same_as_hand_calculation():
    assert MeanPooling()(STATES, MASK).tolist() == [[2, -3], [5, -7]]


def test_max_pooling_same_as_hand_calculation():
    assert MaxPooling()(STATES, MASK).tolist() == [[3, -2], [5, -7]]


def test_attention_pooling_same_as_hand_calculation():
    pool = pooling({"type": "attention", "attention": {"score": {"type": "dot"}}})
    first, second = ((pool.query @ state).exp() for state in STATES[0, :2])
    expected = (first * STATES[0, 0] + second * STATES[0, 1]) / (first + second)
    pooled = pool(STATES, MASK)
    torch.testing.assert_close(pooled[0], expected)
    torch.testing.assert_close(pooled[1], STATES[1, 0])


def test_trace_records_attention_pooling():
    pool = pooling("attention")
    with trace_attention(pool) as (records):
        pool(STATES, MASK)
    (record,) = records
    assert (record.module_path, record.role) == ("attention", "self")
    assert record.weights.shape == (2, 1, 1, 3)
    assert (record.weights[:, 0, 0][~MASK] == 0).all()


@each_kind
def test_masked_states_have_no_influence_in_value_and_gradient(kind):
    pool = pooling(kind)
    spoiled = STATES.masked_fill(~MASK[:, :, None], math.nan).requires_grad_()
    pooled = pool(spoiled, MASK)
    torch.testing.assert_close(pooled, pool(STATES, MASK))
    (gradient,) = torch.autograd.grad(pooled.sum(), spoiled)
    assert (gradient[~MASK] == 0).all()
    assert gradient.isfinite().all()


@each_kind
def test_sequence_of_padding_returns_zeros(kind):
    states = STATES.clone().requires_grad_()
    pooled = pooling(kind)(states, torch.zeros_like(MASK))
    assert (pooled == 0).all()
    assert (torch.autograd.grad(pooled.sum(), states)[0] == 0).all()


@each_kind
def test_nan_stays_in_the_row(kind):
    states = STATES.clone()
    states[0, 1] = math.nan
    pooled = pooling(kind)(states, MASK)
    assert pooled[0].isnan().all()
    assert pooled[1].isfinite().all()


@each_kind
def test_pooling_accepts_any_leading_dimensions(kind):
    pool, states, mask = pooling(kind), torch.randn(2, 3, 4, 2), torch.rand(2, 3, 4) < 0.6
    separate = torch.stack([pool(*part) for part in zip(states, mask, strict=True)])
    torch.testing.assert_close(pool(states, mask), separate)


@each_kind
def test_gradients_match_finite_differences(kind):
    pool, states = pooling(kind).double(), torch.randn(2, 3, 2, dtype=torch.double)
    assert torch.autograd.gradcheck(lambda states: pool(states, MASK), states.requires_grad_())


@each_kind
@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16], ids=str)
def test_half_precision_is_kept_and_finite(kind, dtype):
    pooled = pooling(kind).to(dtype)((1000 * torch.randn(2, 3, 2)).to(dtype), MASK)
    assert pooled.dtype == dtype
    assert pooled.isfinite().all()


@pytest.mark.parametrize(
    ("attention", "message"),
    [
        (
            {"readout": {"type": "per-position"}},
            "pooling.attention.readout.type: 'per-position' returns a context for every source "
            "position, but self-attention needs one per query\n  choose the readout 'weighted-sum'",
        ),
        (
            {"alignment": {"type": "sampled"}},
            "pooling.attention.alignment.type: 'sampled' learns from the likelihood of target "
            "tokens, but self-attention has no targets\n"
            "  choose 'gumbel-softmax' or 'straight-through'",
        ),
        (
            {"auxiliary_losses": [{"type": "coverage"}]},
            "pooling.attention.auxiliary_losses: self-attention does not support auxiliary losses\n"
            "  remove auxiliary_losses",
        ),
    ],
)
def test_attention_that_needs_targets_raises(attention, message):
    with pytest.raises(ConfigError) as caught:
        pooling({"type": "attention", "attention": attention})
    assert str(caught.value) == message
