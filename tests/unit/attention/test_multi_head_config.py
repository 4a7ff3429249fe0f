"""The config of multi-head attention."""

import pytest
import torch
from pydantic import ValidationError

from heedful.attention.attention import SingleHeadAttention
from heedful.attention.config import AttentionConfig
from heedful.attention.masks import padding_mask
from heedful.attention.multi_head import MultiHeadAttention, MultiHeadConfig
from heedful.attention.scores import PerHeadScore
from heedful.errors import ConfigError


def build(**settings):
    return AttentionConfig.model_validate(settings).build(query_size=5, memory_size=6)


def error_message(**settings):
    with pytest.raises(ConfigError) as error:
        build(**settings)
    return str(error.value)


def test_multi_head_setting_selects_class():
    assert isinstance(build(), SingleHeadAttention)
    assert isinstance(build(multi_head={"num_heads": 1}), MultiHeadAttention)


@pytest.mark.parametrize(
    ("multi_head", "head_dim"),
    [({"num_heads": 3}, 2), ({"num_heads": 4, "head_dim": 7, "num_kv_heads": 2, "bias": True}, 7)],
    ids=str,
)
def test_context_size_equals_memory_size(multi_head, head_dim):
    attention = build(multi_head=multi_head, score={"type": "scaled-dot"})
    assert attention.query_projection.out_features == multi_head["num_heads"] * head_dim
    memory = attention.build_memory(torch.randn(2, 3, 6), padding_mask(torch.tensor([3, 1]), 3))
    assert memory.values.shape == (
        2,
        multi_head.get("num_kv_heads", multi_head["num_heads"]),
        3,
        head_dim,
    )
    assert attention(torch.randn(2, 4, 5), memory).context.shape == (2, 4, 6)
    assert (attention.output_projection.bias is not None) == multi_head.get("bias", False)


def test_score_with_parameters_is_built_per_head():
    assert isinstance(build(multi_head={"num_heads": 3}).score, PerHeadScore)
    assert len(build(multi_head={"num_heads": 3}).score.heads) == 3


def test_auxiliary_losses_are_built_with_and_without_heads():
    for multi_head in (None, {"num_heads": 2}):
        attention = build(multi_head=multi_head, auxiliary_losses=[{"type": "coverage"}])
        inner = attention if multi_head is None else attention.inner
        assert [loss.name for loss in inner.auxiliary_losses] == ["coverage"]


def test_indivisible_memory_size_raises():
    assert error_message(multi_head={"num_heads": 4}) == (
        "multi_head.num_heads: the memory size 6 is not divisible by 4 heads\n"
        "  choose a divisor of the memory size, or set head_dim"
    )


def test_per_position_readout_with_heads_raises():
    assert error_message(multi_head={"num_heads": 3}, readout={"type": "per-position"}) == (
        "multi_head: the readout 'per-position' does not work with several heads: its contexts "
        "cannot be merged\n  remove multi_head, or choose another readout"
    )


def test_indivisible_num_kv_heads_raises():
    with pytest.raises(
        ValidationError, match="must be a multiple of num_kv_heads, but they are 6 and 4"
    ):
        MultiHeadConfig(num_heads=6, num_kv_heads=4)
