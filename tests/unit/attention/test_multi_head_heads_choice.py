"""Heads as a configuration puts them round a mechanism."""

import pytest
import torch
from pydantic import ValidationError

from heedful.attention import SingleHeadAttention, padding_mask
from heedful.attention.config import AttentionConfig
from heedful.attention.multi_head import MultiHeadAttention, MultiHeadConfig
from heedful.attention.scores import PerHeadScore
from heedful.errors import ConfigError


def build(**settings):
    return AttentionConfig.model_validate(settings).build(query_size=5, memory_size=6)


def refusal(**settings):
    with pytest.raises(ConfigError) as caught:
        build(**settings)
    return str(caught.value)


def test_without_heads_there_are_none():
    assert isinstance(build(), SingleHeadAttention)
    assert isinstance(build(multi_head={"num_heads": 1}), MultiHeadAttention)


@pytest.mark.parametrize(
    ("heads", "width"),
    [({"num_heads": 3}, 2), ({"num_heads": 4, "head_dim": 7, "num_kv_heads": 2, "bias": True}, 7)],
    ids=str,
)
def test_the_context_is_as_wide_as_the_memory(heads, width):
    attention = build(multi_head=heads, score={"type": "scaled-dot"})
    assert attention.query_projection.out_features == heads["num_heads"] * width
    memory = attention.build_memory(torch.randn(2, 3, 6), padding_mask(torch.tensor([3, 1]), 3))
    assert memory.values.shape == (2, heads.get("num_kv_heads", heads["num_heads"]), 3, width)
    assert attention(torch.randn(2, 4, 5), memory).context.shape == (2, 4, 6)
    assert (attention.output_projection.bias is not None) == heads.get("bias", False)


def test_a_score_that_learns_is_made_once_for_each_head():
    assert isinstance(build(multi_head={"num_heads": 3}).score, PerHeadScore)
    assert len(build(multi_head={"num_heads": 3}).score.heads) == 3


def test_penalties_are_built_with_and_without_heads():
    for heads in (None, {"num_heads": 2}):
        attention = build(multi_head=heads, auxiliary_losses=[{"type": "coverage"}])
        inner = attention if heads is None else attention.inner
        assert [each.name for each in inner.auxiliary_losses] == ["coverage"]


def test_a_width_that_cannot_be_parted_is_refused():
    assert refusal(multi_head={"num_heads": 4}) == (
        "multi_head.num_heads: a memory of width 6 cannot be parted among 4 heads\n"
        "  choose a number that divides the width, or give head_size"
    )


def test_a_context_for_every_place_is_refused():
    assert refusal(multi_head={"num_heads": 3}, readout={"type": "per-position"}) == (
        "multi_head: the contexts of several heads are put together, but 'per-position' keeps one "
        "for every place\n  leave heads out, or choose another readout"
    )


def test_groups_that_do_not_share_evenly_are_refused():
    with pytest.raises(ValidationError, match="6 heads cannot share 4 groups evenly"):
        MultiHeadConfig(num_heads=6, num_kv_heads=4)
