"""Transformer readers: what they refuse, and what they make of texts longer than any they read."""

import pytest
import torch

from heedful.errors import ConfigError
from heedful.models.backbones import TransformerBackboneConfig

SIZE = 8


def build(score="scaled-dot", input_size=SIZE, **settings):
    torch.manual_seed(2)
    config = TransformerBackboneConfig.model_validate(
        {
            "hidden_size": SIZE,
            "num_layers": 2,
            "attention": {"multi_head": {"num_heads": 2}, "score": {"type": score}},
            "feed_forward": [{"intermediate_size": 12}],
            **settings,
        }
    )
    return config.build(input_size=input_size).double().eval()


def read(reader, inputs):
    return reader(
        inputs, torch.full((len(inputs),), inputs.size(1)), reader.initial_state(inputs)
    ).outputs


@pytest.mark.parametrize("score", ["rotary", "alibi", "relative-key", "relative-position-bias"])
def test_scores_that_know_distances_go_on_past_any_length(score):
    """In blocks, a place far out is read as the same place of the first block."""
    reader = build(score, attention_types=[{"type": "block", "block_size": 16}])
    block = torch.randn(1, 16, SIZE, dtype=torch.double)
    found = read(reader, block.repeat(1, 64, 1))
    torch.testing.assert_close(found[:, -16:], found[:, :16])
    state = reader.initial_state(block)  # and read piece by piece too, by numbers that go on
    for _ in range(4):
        piece = reader(block, torch.tensor([16]), state)
        state = piece.state
    assert state.start_positions.tolist() == [64]
    torch.testing.assert_close(piece.outputs, found[:, :16])


@pytest.mark.parametrize("score", ["alibi", "relative-position-bias"])
def test_a_text_much_longer_than_the_scores_tell_apart_is_read_calmly(score):
    inputs = torch.randn(1, 300, SIZE, dtype=torch.double)
    assert read(build(score), inputs).isfinite().all()


def test_vectors_of_another_width_are_refused():
    with pytest.raises(ConfigError) as caught:
        build(input_size=5)
    assert str(caught.value) == (
        "backbone.hidden_size: layers of width 8 cannot read vectors of width 5\n"
        "  set it to 5, or embedding_size to 8"
    )


def test_attention_that_goes_by_where_it_looked_is_refused():
    with pytest.raises(ConfigError) as caught:
        build(attention={"score": {"type": "additive", "features": [{"type": "coverage"}]}})
    assert str(caught.value) == (
        "backbone.attention: a text that is read piece by piece cannot be looked at by a mechanism "
        "that goes by where it looked before\n"
        "  choose an alignment such as 'softmax', and a score without features"
    )
