"""Every layer and head of a Transformer is recorded, with and without fused kernels."""

import pytest
import torch

from heedful.inspection.attention_trace import trace_attention
from tests.catalogue import LAYERS, SYSTEMS, batch, build, store
from tests.shape_checking import unchecked

TRANSFORMERS = [name for name in SYSTEMS if "transformer" in name or "decoder only" in name]
NUM_LAYERS = LAYERS["num_layers"]


def records_of(name, *, need_weights):
    model, examples = build(name), batch(store(), [0, 3])
    with unchecked(), trace_attention(model) as records:
        output = model(examples, need_weights=need_weights)
    return records, output


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_weights_equal_with_and_without_fused_kernels(name):
    plain, fused = (records_of(name, need_weights=each)[0] for each in (True, False))
    assert [record.module_path for record in plain] == [record.module_path for record in fused]
    for one, other in zip(plain, fused, strict=True):
        torch.testing.assert_close(one.weights, other.weights)


def test_every_self_and_cross_attention_is_recorded():
    records, output = records_of("transformer", need_weights=False)
    assert output.weights is None
    calls = [(record.module_path, record.role, record.layer) for record in records]
    within = "{}.stack.layers.{}.self_attention.attention"
    cross_attention = "decoder.stack.layers.{}.cross_attention.attention"
    expected = [(within.format("encoder", each), "self", each) for each in range(NUM_LAYERS)]
    for each in range(NUM_LAYERS):
        expected.append((within.format("decoder", each), "self", each))
        expected.append((cross_attention.format(each), "cross", each))
    assert calls == expected
    assert {record.weights.size(1) for record in records} == {2}, "both heads of each"


def test_weights_of_the_model_are_the_head_mean_of_the_top_layer():
    records, output = records_of("transformer", need_weights=True)
    top = records[-1]
    torch.testing.assert_close(output.weights, top.weights.mean(dim=1))
