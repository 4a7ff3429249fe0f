"""Traces of attention over images: grids, and gates of the context."""

import pytest
import torch

from heedful.data.text.batching import Batch, SourceBatch
from heedful.errors import DataError
from heedful.inspection.attention_layers import collect_layers, without_words
from heedful.inspection.attention_map import AttentionMap
from heedful.inspection.attention_trace import concatenate_steps, trace_attention
from heedful.models.captioning import CaptioningConfig

VOCABULARY, GRID = 9, (2, 3)
FEATURES = {"type": "features", "num_channels": 4, "grid": GRID, "hidden_size": 8}
SIZES = {"type": "recurrent", "cell": "lstm", "embedding_size": 6, "hidden_size": 8}
HEADS = {"multi_head": {"num_heads": 2}}
TRANSFORMER = {"type": "transformer", "hidden_size": 8, "num_layers": 2}


def build(decoder, encoder=FEATURES):
    torch.manual_seed(0)
    config = CaptioningConfig.model_validate({"encoder": encoder, "decoder": decoder})
    return config.build(source_vocab_size=0, target_vocab_size=VOCABULARY).double().eval()


def batch_of(images):
    tokens = torch.tensor([[1, 4, 5, 6], [1, 7, 8, 4]])
    lengths = torch.full((2,), GRID[0] * GRID[1])
    return Batch(SourceBatch(images, lengths), tokens, tokens.roll(-1, dims=1))


@pytest.fixture
def features():
    return batch_of(torch.randn(2, 6, 4, dtype=torch.double))


def test_weights_over_an_image_are_grids_row_by_row(features):
    model = build({**SIZES, "wiring": {"type": "attend-then-step"}})
    with trace_attention(model) as records, torch.no_grad():
        model(features)
    record = concatenate_steps(records)
    assert record.grid == GRID
    assert record.grid_weights.shape == (2, 1, 4, *GRID)
    for row in range(2):
        for column in range(3):
            expected = record.weights[..., 3 * row + column]
            torch.testing.assert_close(record.grid_weights[..., row, column], expected)


@pytest.mark.parametrize("heads", [{}, HEADS], ids=["alone", "heads"])
def test_readout_gates_are_those_that_scale_the_context_of_each_head(features, heads):
    attention = {"readout": {"type": "gated"}, **heads}
    model = build({**SIZES, "attention": attention, "wiring": {"type": "attend-then-step"}})
    outputs = []
    gate = model.decoder.wiring.attention.readout.gate
    gate.register_forward_hook(lambda module, inputs, output: outputs.append(output))
    with torch.no_grad():
        model(features)
    expected = torch.cat(outputs, dim=-2).sigmoid().squeeze(-1)  # (B, T) or (B, H, T)
    with trace_attention(model) as records, torch.no_grad():
        model(features)
    gates = concatenate_steps(records).extras["readout_gates"]
    torch.testing.assert_close(gates, expected if heads else expected.unsqueeze(1))


@pytest.mark.parametrize("heads", [{}, HEADS], ids=["alone", "heads"])
def test_weights_and_the_gate_of_a_sentinel_sum_to_one(features, heads):
    model = build({**SIZES, "attention": heads, "wiring": {"type": "adaptive"}})
    with trace_attention(model) as records, torch.no_grad():
        model(features)
    record = concatenate_steps(records)
    num_heads = 2 if heads else 1
    assert record.grid_weights.shape == (2, num_heads, 4, *GRID)
    total = record.grid_weights.sum(dim=(-2, -1)) + record.extras["gates"]
    torch.testing.assert_close(total, torch.ones_like(total))
    assert (record.extras["gates"] > 0).all()


def test_decoder_self_attention_has_no_grid():
    encoder = {
        **{"type": "patches", "num_channels": 1, "image_size": (8, 12), "patch_size": (4, 4)},
        **{"hidden_size": 8, "num_layers": 2, "attention": HEADS},
    }
    model = build({**TRANSFORMER, "attention": HEADS}, encoder)
    pixels = torch.randint(0, 256, (2, 1, 8, 12), dtype=torch.uint8)
    with trace_attention(model) as records, torch.no_grad():
        model(batch_of(pixels))
    grids = {}
    for record in records:
        grids.setdefault((record.module_path.split(".")[0], record.role), set()).add(record.grid)
    assert grids == {
        ("encoder", "self"): {GRID},
        ("decoder", "self"): {None},
        ("decoder", "cross"): {GRID},
    }


def collect(model, batch):
    one = Batch(
        SourceBatch(batch.sources.tokens[:1], batch.sources.lengths[:1]),
        batch.decoder_inputs[:1],
        batch.targets[:1],
    )
    with trace_attention(model) as records, torch.no_grad():
        model(one)
    cells = without_words([f"cell {n}" for n in range(6)])._replace(grid=GRID)
    queries = without_words(["a", "b", "c", "d"])
    return records, collect_layers(records, lambda record: ("cross", queries, cells))


def test_layer_has_the_product_of_both_gates(features):
    attention = {"readout": {"type": "gated"}}
    model = build({**SIZES, "attention": attention, "wiring": {"type": "adaptive"}})
    records, (layer,) = collect(model, features)
    extras = concatenate_steps(records).extras
    expected = (1 - extras["gates"]) * extras["readout_gates"]
    torch.testing.assert_close(torch.from_numpy(layer.gates), expected[0].float())
    assert layer.keys.grid == GRID


def test_layer_without_gates_has_none(features):
    _, (layer,) = collect(build({**SIZES, "wiring": {"type": "attend-then-step"}}), features)
    assert layer.gates is None


def test_grid_of_another_size_raises():
    with pytest.raises(DataError) as error:
        AttentionMap(["1", "2"], ["a"], torch.full((1, 2), 0.5).numpy(), grid=(2, 2))
    assert str(error.value) == (
        "attention_map: a grid of 2 x 2 cells has 2 source tokens\n"
        "  give one source token per cell, row by row"
    )
