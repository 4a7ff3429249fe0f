"""Transformer readers: what they refuse, and what they make of texts longer than any they read."""

import pytest
import torch

from heedful.errors import ConfigError
from heedful.models.language_model import TransformerBackboneConfig

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
def test_distance_scores_have_no_maximum_length(score):
    """In blocks, a place far out is read as the same place of the first block."""
    reader = build(score, attention_types=[{"type": "block", "block_size": 16}])
    block = torch.randn(1, 16, SIZE, dtype=torch.double)
    actual = read(reader, block.repeat(1, 64, 1))
    torch.testing.assert_close(actual[:, -16:], actual[:, :16])
    state = reader.initial_state(block)  # and read piece by piece too, by numbers that go on
    for _ in range(4):
        piece = reader(block, torch.tensor([16]), state)
        state = piece.state
    assert state.start_positions.tolist() == [64]
    torch.testing.assert_close(piece.outputs, actual[:, :16])


def test_embedding_size_must_equal_hidden_size():
    with pytest.raises(ConfigError) as caught:
        build(input_size=5)
    assert str(caught.value) == (
        "backbone.hidden_size: must equal the size of the embeddings, 5, but is 8\n"
        "  set it to 5, or embedding_size to 8"
    )


def test_stateful_attention_raises():
    with pytest.raises(ConfigError) as caught:
        build(attention={"score": {"type": "additive", "features": [{"type": "coverage"}]}})
    assert str(caught.value) == (
        "backbone.attention: attention that depends on earlier alignments cannot read a text in "
        "pieces\n"
        "  use an alignment such as 'softmax', and a score without features"
    )
