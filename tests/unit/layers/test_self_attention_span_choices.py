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


def build(span, **looking):
    looking = {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}, **looking}
    attention = AttentionConfig.model_validate(looking).build(query_size=8, memory_size=8)
    return TypeAdapter(SelfAttentionConfig).validate_python(span).build(attention, size=8)


def test_the_papers_numbers_are_the_defaults():
    assert build("blocks").block_size == 256
    assert build("compressed").stride == 3


def test_spans_are_taken_in_turn():
    parts = TransformerConfigBase.model_validate(
        {"num_layers": 5, "attention_types": ["block", "compressed"]}
    )
    kinds = [type(layer.self_attention) for layer in parts.build_stack(config_path="reader").layers]
    local, pressed = BlockSelfAttention, CompressedSelfAttention
    assert kinds == [local, pressed, local, pressed, local]  # LMLML (Liu et al. 2018)
    everywhere = TransformerConfigBase(num_layers=1).build_stack(config_path="encoder").layers
    assert [type(layer.self_attention) for layer in everywhere] == [FullSelfAttention]


def test_blocks_refuse_attention_that_goes_by_where_it_looked():
    with pytest.raises(ConfigError) as caught:
        build("blocks", score={"type": "additive", "features": [{"type": "coverage"}]})
    assert str(caught.value) == (
        "attention_types.type: blocks are looked at side by side, but this attention goes by where it "
        "looked before\n"
        "  choose the span 'full', or another score or alignment"
    )


@pytest.mark.parametrize("score", ["rotary", "alibi", "relative-key", "relative-position-bias"])
def test_what_is_pressed_together_has_no_number(score):
    with pytest.raises(ConfigError) as caught:
        build("compressed", score={"type": score})
    assert str(caught.value) == (
        "attention_types.type: places that were pressed together have no number, but this attention goes "
        "by it\n"
        "  choose the span 'full', or a score and an alignment that go by content"
    )
