"""What every recurrent encoder promises, whatever its settings."""

from typing import Any

import pytest
import torch

from heedful.config.base import type_of, types_in
from heedful.layers.pooling import PoolingConfig
from heedful.layers.rnn import CellConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.models.recurrent.encoder_layers import ConnectionConfig, DirectionConfig

EXPERTS = {"num_experts": 3, "num_experts_per_token": 2}
HEADS = {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}}
COVERING = {"score": {"type": "additive", "features": [{"type": "coverage"}]}}
SETTINGS: dict[str, dict[str, Any]] = {}
for family, union in {
    "cell": CellConfig,
    "direction": DirectionConfig,
    "connection": ConnectionConfig,
    "pooling": PoolingConfig,
}.items():
    for member in types_in(union):
        SETTINGS[f"{family} {type_of(member)}"] = {family: type_of(member)}
SETTINGS |= {
    "reversed": {"direction": {"type": "forward", "reverse_source": True}},
    "alternating, reversed": {"direction": {"type": "alternating", "reverse_source": True}},
    "gnmt": {"cell": "lstm", "direction": "bidirectional-then-forward", "connection": "residual"},
    "deep-att": {"cell": "lstm", "direction": "alternating", "connection": "fast-forward"},
    "experts": {"experts": EXPERTS},
    "experts beside a straight path": {"experts": EXPERTS, "connection": "fast-forward"},
    "looks down": {"lower_attention": {}},
    "looks down with heads": {"lower_attention": HEADS, "connection": "fast-forward"},
    "looks down, covering": {"lower_attention": COVERING, "connection": "residual"},
    "positions": {"positional_encoding": {"type": "learned"}},
    "all at once": {
        "cell": "lstm",
        "direction": {
            "type": "bidirectional-then-forward",
            "num_bidirectional": 2,
            "reverse_source": True,
        },
        "connection": "residual",
        "lower_attention": HEADS,
        "experts": EXPERTS | {"after_layers": [2]},
        "pooling": {"type": "attention", "attention": {"alignment": {"type": "sparsemax"}}},
        "positional_encoding": {"type": "sinusoidal"},
    },
}
each_setting = pytest.mark.parametrize("name", SETTINGS)
LENGTHS = torch.tensor([5, 1, 3])
SEEN = torch.arange(5) < LENGTHS[:, None]
TOKENS = torch.randint(4, 11, (3, 5), generator=torch.Generator().manual_seed(1)) * SEEN


def build(name, **settings):
    """An encoder with weights large enough to make its outputs differ."""
    sizes = {"embedding_size": 5, "hidden_size": 6, "num_layers": 3}
    config = RecurrentEncoderConfig.model_validate(sizes | SETTINGS[name] | settings)
    encoder = config.build(vocab_size=11).double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return encoder


def told(encoded):
    """All that is said of the rows."""
    memories = () if encoded.cell_states is None else (encoded.cell_states,)
    return (encoded.states, *memories), (encoded.summary, *encoded.final_states)


@each_setting
def test_states_and_summary_have_the_promised_shapes(name):
    encoder = build(name)
    encoded = encoder(TOKENS, LENGTHS)
    assert encoded.states.shape == (3, 5, 6)
    assert encoded.summary.shape == (3, encoder.size)
    assert [end.shape for end in encoded.final_states] == [(3, 6)] * 3
    assert (encoded.states[~SEEN] == 0).all()
    assert encoded.states[SEEN].abs().sum(dim=-1).all()


@each_setting
def test_padding_has_no_influence(name):
    encoder = build(name)
    wide = torch.cat([TOKENS, torch.zeros(3, 4, dtype=torch.long)], dim=1)
    (narrow_places, narrow_rows), (wide_places, wide_rows) = (
        told(encoder(tokens, LENGTHS)) for tokens in (TOKENS, wide)
    )
    for narrow, widened in zip(narrow_places, wide_places, strict=True):
        torch.testing.assert_close(widened[:, :5], narrow)
    torch.testing.assert_close(wide_rows, narrow_rows)
    auxiliary_losses = (encoder(tokens, LENGTHS).auxiliary_losses for tokens in (TOKENS, wide))
    torch.testing.assert_close(*map(dict, auxiliary_losses))


@each_setting
def test_what_stands_in_the_padding_has_no_influence(name):
    encoder = build(name)
    spoiled = torch.where(SEEN, TOKENS, 7)
    torch.testing.assert_close(told(encoder(spoiled, LENGTHS)), told(encoder(TOKENS, LENGTHS)))


@each_setting
def test_a_row_is_read_in_a_batch_as_it_is_read_alone(name):
    encoder = build(name)
    places, rows = told(encoder(TOKENS, LENGTHS))
    for row, length in enumerate(LENGTHS.tolist()):
        alone = encoder(TOKENS[row : row + 1, :length], LENGTHS[row : row + 1])
        own_places, own_rows = told(alone)
        for whole, own in zip(places, own_places, strict=True):
            torch.testing.assert_close(whole[row, :length], own[0])
        for whole, own in zip(rows, own_rows, strict=True):
            torch.testing.assert_close(whole[row], own[0])


@each_setting
def test_every_weight_has_a_finite_gradient_in_training(name):
    encoder = build(name, dropout=0.2).train()
    encoded = encoder(TOKENS, LENGTHS)
    places, rows = told(encoded)
    total = sum(part.sin().sum() for part in (*places, *rows)) + sum(
        encoded.auxiliary_losses.values()
    )
    total.backward()
    for parameter, weight in encoder.named_parameters():
        assert weight.grad is not None, parameter
        assert weight.grad.isfinite().all(), parameter
