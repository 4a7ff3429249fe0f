"""Every layer and head of a Transformer is seen, whether or not a fast form made its weights."""

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
        told = model(examples, need_weights=need_weights)
    return records, told


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_weights_are_the_same_whichever_form_made_the_context(name):
    plain, fused = (records_of(name, need_weights=each)[0] for each in (True, False))
    assert [record.module_path for record in plain] == [record.module_path for record in fused]
    for one, other in zip(plain, fused, strict=True):
        torch.testing.assert_close(one.weights, other.weights)


def test_every_layer_looks_within_and_a_decoders_at_the_source():
    records, told = records_of("transformer", need_weights=False)
    assert told.weights is None
    sites = [(record.module_path, record.role, record.layer) for record in records]
    within = "{}.stack.layers.{}.self_attention.attention"
    cross_attention = "decoder.stack.layers.{}.source_attention.attention"
    wanted = [(within.format("encoder", each), "self", each) for each in range(NUM_LAYERS)]
    for each in range(NUM_LAYERS):
        wanted.append((within.format("decoder", each), "self", each))
        wanted.append((cross_attention.format(each), "cross", each))
    assert sites == wanted
    assert {record.weights.size(1) for record in records} == {2}, "both heads of each"


def test_where_the_model_says_it_looked_is_the_mean_over_the_heads_of_its_top_layer():
    records, told = records_of("transformer", need_weights=True)
    top = records[-1]
    torch.testing.assert_close(told.weights, top.weights.mean(dim=1))


def test_a_decoder_looks_back_only():
    records, _ = records_of("transformer", need_weights=False)
    within = [each for each in records if each.role == "self" and "decoder" in each.module_path]
    for record in within:
        assert (record.weights.triu(1) == 0).all()
        torch.testing.assert_close(record.weights.sum(-1), torch.ones_like(record.weights[..., 0]))
