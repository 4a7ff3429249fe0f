"""Settings of self-attention."""

import pytest
from pydantic import TypeAdapter

from heedful.attention.config import AttentionConfig
from heedful.errors import ConfigError
from heedful.layers.self_attention import (
    BlockSelfAttention,
    CompressedSelfAttention,
    FullSelfAttention,
    SelfAttentionConfig,
)
from heedful.layers.transformer import TransformerConfigBase


def build(attention_type, **settings):
    settings = {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}, **settings}
    attention = AttentionConfig.model_validate(settings).build(query_size=8, memory_size=8)
    return TypeAdapter(SelfAttentionConfig).validate_python(attention_type).build(attention, size=8)


def test_attention_types_repeat_over_the_layers():
    parts = TransformerConfigBase.model_validate(
        {"num_layers": 5, "attention_types": ["block", "compressed"]}
    )
    types = [type(layer.self_attention) for layer in parts.build_stack(config_path="reader").layers]
    block, compressed = BlockSelfAttention, CompressedSelfAttention
    assert types == [block, compressed, block, compressed, block]  # LMLML (Liu et al. 2018)
    everywhere = TransformerConfigBase(num_layers=1).build_stack(config_path="encoder").layers
    assert [type(layer.self_attention) for layer in everywhere] == [FullSelfAttention]


def test_blocks_with_stateful_attention_are_an_error():
    with pytest.raises(ConfigError) as caught:
        build("block", score={"type": "additive", "features": [{"type": "coverage"}]})
    assert str(caught.value) == (
        "attention_types.type: 'block' computes all blocks at once, but this attention depends on "
        "earlier alignments\n"
        "  use 'full', or another score or alignment"
    )


@pytest.mark.parametrize("score", ["rotary", "alibi", "relative-key", "relative-position-bias"])
def test_compression_with_positional_scores_raises(score):
    with pytest.raises(ConfigError) as caught:
        build("compressed", score={"type": score})
    assert str(caught.value) == (
        "attention_types.type: compressed positions have no index, but this attention depends on "
        "positions\n"
        "  use 'full', or a score and an alignment that depend on content alone"
    )
