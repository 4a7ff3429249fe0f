"""What stands between layers: experts, and a look at the layer below."""

import pytest
import torch

from heedful.inspection.attention_trace import trace_attention
from heedful.models.recurrent.encoder import RecurrentEncoderConfig

TOKENS, LENGTHS = torch.tensor([[5, 6, 7, 8], [4, 3, 0, 0]]), torch.tensor([4, 2])
EXPERTS = {"num_experts": 3, "num_experts_per_token": 2, "intermediate_size": 5}


def encoder(**settings):
    config = RecurrentEncoderConfig(embedding_size=3, hidden_size=4, num_layers=3, **settings)
    return config.build(vocab_size=9).double()


def test_each_layer_but_the_first_finds_what_the_layer_below_showed():
    built = encoder(lower_attention={"score": {"type": "additive"}})
    encoded = built(TOKENS, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        read, own = built.embedding(TOKENS[row : row + 1, :length]), LENGTHS[row : row + 1]
        read = built.layers[0](read, own)
        for layer, floor in zip(built.layers[1:], built.layer_wrappers[1:], strict=True):
            score, found = floor.lower_attention.score, []
            keys = score.prepare_keys(read)
            for place in range(length):  # each place asks for itself
                weights = score(read[:, place : place + 1], keys).softmax(dim=-1)
                found.append(weights @ read)
            read = layer(torch.cat([read, torch.cat(found, dim=1)], dim=-1), own)
        torch.testing.assert_close(encoded.states[row, :length], read[0])


def test_a_trace_sees_where_layers_looked_down():
    built = encoder(
        lower_attention={"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}}
    )
    with trace_attention(built) as records:
        built(TOKENS, LENGTHS)
    assert [(each.module_path, each.role, each.layer) for each in records] == [
        ("floors.1.look_down", "self", 1),
        ("floors.2.look_down", "self", 2),
    ]
    for record in records:
        assert record.weights.shape == (2, 2, 4, 4)
        assert (record.weights[1, :, :, 2:] == 0).all()
        torch.testing.assert_close(record.weights.sum(-1), torch.ones(2, 2, 4).double())


def test_under_a_residual_connection_the_layer_asks_with_its_sum_and_finds_what_was_shown():
    built = encoder(lower_attention={}, connection={"type": "residual", "first_residual_layer": 2})
    one = LENGTHS[:1]
    words = built.embedding(TOKENS[:1])
    first = built.layers[0](words, one)
    read, shown = first, first
    for layer, floor in zip(built.layers[1:], built.layer_wrappers[1:], strict=True):
        mask = torch.ones(1, 1, 4, dtype=torch.bool)
        found = floor.lower_attention(read, floor.lower_attention.build_memory(shown, mask)).context
        shown = layer(torch.cat([read, found], dim=-1), one)
        read = shown + read
    torch.testing.assert_close(built(TOKENS[:1], one).states, read)


@pytest.mark.parametrize(("above", "places"), [(None, [0, 1]), ([2], [1]), ([1], [0])])
def test_experts_stand_above_the_layers_they_are_told_to_but_never_above_the_top(above, places):
    built = encoder(experts=EXPERTS | {"after_layers": above})
    assert [
        n for n, floor in enumerate(built.layer_wrappers) if floor.experts is not None
    ] == places


def test_experts_add_to_what_a_layer_passes_on_and_their_penalties_add_up():
    built = encoder(experts=EXPERTS).eval()
    for floor in built.layer_wrappers[:2]:
        torch.nn.init.normal_(floor.experts.experts.gate.score.weight)
    encoded = built(TOKENS, LENGTHS)
    mask = torch.arange(4) < LENGTHS[:, None]
    read, cumulative_log_probs = built.embedding(TOKENS), {}
    for layer, floor in zip(built.layers, built.layer_wrappers, strict=True):
        read = layer(read, LENGTHS)
        if floor.experts is not None:
            mixed = floor.experts.experts(read, mask)
            read = read + mixed.outputs.sigmoid()
            for name, penalty in mixed.auxiliary_losses.items():
                cumulative_log_probs[name] = cumulative_log_probs.get(name, 0) + penalty
    torch.testing.assert_close(encoded.states, read * mask[:, :, None])
    assert set(encoded.auxiliary_losses) == {"expert-importance", "expert-load"}
    torch.testing.assert_close(dict(encoded.auxiliary_losses), cumulative_log_probs)


def test_without_experts_nothing_is_to_be_added_to_the_loss():
    assert dict(encoder()(TOKENS, LENGTHS).auxiliary_losses) == {}
