"""A stack of layers: read both ways, read back, and asked where it looked."""

import pytest
import torch

from heedful.layers.transformer import TransformerConfigBase

ROWS, LENGTH, SIZE = 2, 5, 8


def build(num_layers=2, **settings):
    torch.manual_seed(3)
    config = TransformerConfigBase.model_validate(
        {
            "hidden_size": SIZE,
            "num_layers": num_layers,
            "attention": {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}},
            "feed_forward": [{"intermediate_size": 12}],
            **settings,
        }
    )
    return config.build_stack(config_path="reader").double().eval()


def vectors():
    return torch.randn(ROWS, LENGTH, SIZE, dtype=torch.double)


def read(stack, inputs, **options):
    return stack(inputs, torch.tensor([LENGTH] * ROWS), stack.initial_state(inputs), **options)


def test_the_last_place_of_one_layer_sees_the_same_both_ways_and_back():
    inputs, lengths = vectors(), torch.tensor([LENGTH] * ROWS)
    one = build(num_layers=1)
    both, _ = one.forward_bidirectional(inputs, lengths)
    torch.testing.assert_close(both[:, -1], read(one, inputs).outputs[:, -1])
    # What it sees of the others in a second layer is another matter.
    two = build(num_layers=2)
    both, _ = two.forward_bidirectional(inputs, lengths)
    assert not torch.allclose(both[:, -1], read(two, inputs).outputs[:, -1])


def test_without_a_source_the_weights_are_those_of_the_top_layer():
    stack, inputs = build(), vectors()
    found = read(stack, inputs, need_weights=True)
    below, top = build(num_layers=1), stack.layers[1]
    below.load_state_dict(stack.state_dict(), strict=False)
    lengths, first = torch.tensor([LENGTH] * ROWS), torch.zeros(ROWS, dtype=torch.long)
    heard = read(below, inputs).outputs
    attended = top.self_attention(
        heard, top.self_attention.initial_state(heard), first, lengths, need_weights=True
    )
    torch.testing.assert_close(found.weights, attended.weights)
    assert read(stack, inputs).weights is None
    assert found.attention_records == ()


@pytest.mark.parametrize("placement", ["before", "after"])
def test_skipped_in_training_a_layer_does_nothing_to_some_rows(placement):
    stack = build(num_layers=1, drop_path=0.5, dropout=0.0, norm_order=placement).train()
    stack.norm = None
    inputs = vectors()[:1].expand(64, -1, -1)
    outputs, _ = stack.forward_bidirectional(inputs, torch.tensor([LENGTH] * 64))
    layer = stack.layers[0]
    untouched = inputs
    if placement == "after":
        untouched = layer.residual.norm(layer.self_attention_residual.norm(inputs))
    is_untouched = torch.isclose(outputs, untouched).flatten(1).all(dim=1)
    assert 4 < is_untouched.sum() < 32  # a quarter: both sublayers are skipped
