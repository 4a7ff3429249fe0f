"""Invariants of every recurrent encoder."""

from typing import Any

import pytest
import torch

from heedful.config.base import type_of, types_in
from heedful.layers.rnn_cell_config import CellConfig
from heedful.models.recurrent.encoder import (
    ConnectionConfig,
    DirectionConfig,
    PoolingConfig,
    RecurrentEncoderConfig,
)

EXPERTS = {"num_experts": 3, "num_experts_per_token": 2}
HEADS = {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}}
COVERAGE = {"score": {"type": "additive", "features": [{"type": "coverage"}]}}
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
    "two columns": {"direction": "alternating", "num_columns": 2},
    "two columns, deep-att": {
        "cell": "lstm",
        "direction": "alternating",
        "connection": {"type": "fast-forward", "shortcut_size": 4},
        "num_columns": 2,
    },
    "two columns, reversed lstmn": {
        "cell": "lstmn",
        "direction": {"type": "forward", "reverse_source": True},
        "num_columns": 2,
        "pooling": "mean",
        "experts": EXPERTS,
    },
    "experts": {"experts": EXPERTS},
    "experts in groups": {
        "experts": {
            "gating": "strictly-balanced",
            "num_experts": 6,
            "num_experts_per_token": 2,
            "num_groups": 3,
        }
    },
    "experts beside a straight path": {"experts": EXPERTS, "connection": "fast-forward"},
    "lower attention": {"lower_attention": {}},
    "lower attention with heads": {"lower_attention": HEADS, "connection": "fast-forward"},
    "lower attention with coverage": {"lower_attention": COVERAGE, "connection": "residual"},
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
all_settings = pytest.mark.parametrize("name", SETTINGS)
LENGTHS = torch.tensor([5, 1, 3])
VISIBLE = torch.arange(5) < LENGTHS[:, None]
TOKENS = torch.randint(4, 11, (3, 5), generator=torch.Generator().manual_seed(1)) * VISIBLE


def build(name, **settings):
    """Build an encoder with parameters large enough to give distinct outputs."""
    sizes = {"embedding_size": 5, "hidden_size": 6, "num_layers": 3}
    config = RecurrentEncoderConfig.model_validate(sizes | SETTINGS[name] | settings)
    encoder = config.build(vocab_size=11).double().eval()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return encoder


def position_and_row_outputs(output):
    """Return the outputs per position and per row."""
    cell_states = () if output.cell_states is None else (output.cell_states,)
    return (output.states, *cell_states), (output.summary, *output.final_states)


@all_settings
def test_encoder_states_and_summary_have_expected_shapes(name):
    encoder = build(name)
    output = encoder(TOKENS, LENGTHS)
    assert output.states.shape == (3, 5, 6)
    assert output.summary.shape == (3, encoder.output_size)
    assert [end.shape for end in output.final_states] == [(3, 6)] * 3
    assert (output.states[~VISIBLE] == 0).all()
    assert output.states[VISIBLE].abs().sum(dim=-1).all()


@all_settings
def test_padding_has_no_influence(name):
    encoder = build(name)
    wide = torch.cat([TOKENS, torch.zeros(3, 4, dtype=torch.long)], dim=1)
    (narrow_positions, narrow_rows), (wide_positions, wide_rows) = (
        position_and_row_outputs(encoder(tokens, LENGTHS)) for tokens in (TOKENS, wide)
    )
    for narrow, widened in zip(narrow_positions, wide_positions, strict=True):
        torch.testing.assert_close(widened[:, :5], narrow)
    torch.testing.assert_close(wide_rows, narrow_rows)
    auxiliary_losses = (encoder(tokens, LENGTHS).auxiliary_losses for tokens in (TOKENS, wide))
    torch.testing.assert_close(*map(dict, auxiliary_losses))


@all_settings
def test_padding_tokens_have_no_influence(name):
    encoder = build(name)
    corrupted = torch.where(VISIBLE, TOKENS, 7)
    torch.testing.assert_close(
        position_and_row_outputs(encoder(corrupted, LENGTHS)),
        position_and_row_outputs(encoder(TOKENS, LENGTHS)),
    )


@all_settings
def test_batch_same_as_single_rows(name):
    encoder = build(name)
    positions, rows = position_and_row_outputs(encoder(TOKENS, LENGTHS))
    for row, length in enumerate(LENGTHS.tolist()):
        single = encoder(TOKENS[row : row + 1, :length], LENGTHS[row : row + 1])
        single_positions, single_rows = position_and_row_outputs(single)
        for whole, single_row in zip(positions, single_positions, strict=True):
            torch.testing.assert_close(whole[row, :length], single_row[0])
        for whole, single_row in zip(rows, single_rows, strict=True):
            torch.testing.assert_close(whole[row], single_row[0])


@all_settings
def test_every_parameter_has_finite_gradient(name):
    encoder = build(name, dropout=0.2).train()
    output = encoder(TOKENS, LENGTHS)
    positions, rows = position_and_row_outputs(output)
    total = sum(part.sin().sum() for part in (*positions, *rows)) + sum(
        output.auxiliary_losses.values()
    )
    total.backward()
    for parameter_name, parameter in encoder.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
