"""Lower attention and experts between the layers of a recurrent encoder."""

import pytest
import torch

from heedful.inspection.attention_trace import trace_attention
from heedful.models.recurrent.encoder import RecurrentEncoderConfig

TOKENS, LENGTHS = torch.tensor([[5, 6, 7, 8], [4, 3, 0, 0]]), torch.tensor([4, 2])
EXPERTS = {"num_experts": 3, "num_experts_per_token": 2, "intermediate_size": 5}


def encoder(**settings):
    config = RecurrentEncoderConfig(embedding_size=3, hidden_size=4, num_layers=3, **settings)
    return config.build(vocab_size=9).double()


def test_lower_attention_same_as_explicit_loop():
    built = encoder(lower_attention={"score": {"type": "additive"}})
    encoded = built(TOKENS, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        inputs, row_length = built.embedding(TOKENS[row : row + 1, :length]), LENGTHS[row : row + 1]
        inputs = built.layers[0](inputs, row_length)
        for layer, wrapper in zip(built.layers[1:], built.layer_wrappers[1:], strict=True):
            score, contexts = wrapper.lower_attention.score, []
            keys = score.prepare_keys(inputs)
            for position in range(length):  # one query at a time
                weights = score(inputs[:, position : position + 1], keys).softmax(dim=-1)
                contexts.append(weights @ inputs)
            inputs = layer(torch.cat([inputs, torch.cat(contexts, dim=1)], dim=-1), row_length)
        torch.testing.assert_close(encoded.states[row, :length], inputs[0])


def test_trace_records_lower_attention():
    built = encoder(
        lower_attention={"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}}
    )
    with trace_attention(built) as records:
        built(TOKENS, LENGTHS)
    assert [(each.module_path, each.role, each.layer) for each in records] == [
        ("layer_wrappers.1.lower_attention", "self", 1),
        ("layer_wrappers.2.lower_attention", "self", 2),
    ]
    for record in records:
        assert record.weights.shape == (2, 2, 4, 4)
        assert (record.weights[1, :, :, 2:] == 0).all()
        torch.testing.assert_close(record.weights.sum(-1), torch.ones(2, 2, 4).double())


def test_lower_attention_with_residual_uses_sum_as_query_and_outputs_as_values():
    built = encoder(lower_attention={}, connection={"type": "residual", "first_residual_layer": 2})
    one = LENGTHS[:1]
    words = built.embedding(TOKENS[:1])
    first = built.layers[0](words, one)
    inputs, outputs = first, first
    for layer, wrapper in zip(built.layers[1:], built.layer_wrappers[1:], strict=True):
        mask = torch.ones(1, 1, 4, dtype=torch.bool)
        contexts = wrapper.lower_attention(
            inputs, wrapper.lower_attention.build_memory(outputs, mask)
        ).context
        outputs = layer(torch.cat([inputs, contexts], dim=-1), one)
        inputs = outputs + inputs
    torch.testing.assert_close(built(TOKENS[:1], one).states, inputs)


@pytest.mark.parametrize(("after_layers", "expected"), [(None, [0, 1]), ([2], [1]), ([1], [0])])
def test_experts_follow_layers_but_never_the_top(after_layers, expected):
    built = encoder(experts=EXPERTS | {"after_layers": after_layers})
    assert [
        n for n, wrapper in enumerate(built.layer_wrappers) if wrapper.experts is not None
    ] == expected


def test_experts_add_to_connection_and_losses_sum_up():
    built = encoder(experts=EXPERTS).eval()
    for wrapper in built.layer_wrappers[:2]:
        torch.nn.init.normal_(wrapper.experts.experts.gate.score.weight)
    encoded = built(TOKENS, LENGTHS)
    mask = torch.arange(4) < LENGTHS[:, None]
    inputs, losses = built.embedding(TOKENS), {}
    for layer, wrapper in zip(built.layers, built.layer_wrappers, strict=True):
        inputs = layer(inputs, LENGTHS)
        if wrapper.experts is not None:
            moe_output = wrapper.experts.experts(inputs, mask)
            inputs = inputs + moe_output.outputs.sigmoid()
            for name, loss in moe_output.auxiliary_losses.items():
                losses[name] = losses.get(name, 0) + loss
    torch.testing.assert_close(encoded.states, inputs * mask[:, :, None])
    assert set(encoded.auxiliary_losses) == {"expert-importance", "expert-load"}
    torch.testing.assert_close(dict(encoded.auxiliary_losses), losses)
