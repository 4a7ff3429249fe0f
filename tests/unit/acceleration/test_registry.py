"""accelerate() replaces modules of exact types and shares their parameters."""

import pytest
import torch
from torch import nn

from heedful.acceleration.cpu.packed_linear import PackedSoftmaxHead
from heedful.acceleration.cpu.training import FastDropout
from heedful.acceleration.cpu.transformer_stack import (
    PackedTransformerDecoder,
    PackedTransformerStack,
)
from heedful.acceleration.registry import (
    FOR_INFERENCE,
    FOR_TRAINING,
    DeferredSoftmaxHead,
    accelerate_for_inference,
    accelerate_for_training,
)
from heedful.inspection.attention_trace import trace_attention
from heedful.models.output_heads import SoftmaxHead
from tests.catalogue import batch, build, store

CPU = torch.device("cpu")


class OwnHead(SoftmaxHead):
    """A subclass, which may compute something else."""


def head_outputs(head, features):
    return head(features, None)


def test_accelerated_model_shares_parameters_and_names():
    model = build("transformer")
    accelerated = accelerate_for_inference(model, CPU)
    assert isinstance(accelerated.decoder, PackedTransformerDecoder)
    assert isinstance(accelerated.encoder.stack, PackedTransformerStack)
    named = dict(model.named_parameters())
    assert {name: id(each) for name, each in accelerated.named_parameters()} == {
        name: id(parameter) for name, parameter in named.items()
    }
    assert accelerated.state_dict().keys() == model.state_dict().keys()


def test_plain_model_is_not_changed():
    model = build("transformer")
    before = [(name, type(module)) for name, module in model.named_modules()]
    accelerate_for_inference(model, CPU)
    assert [(name, type(module)) for name, module in model.named_modules()] == before


def test_modules_without_replacement_are_the_same_objects():
    model = build("transformer")
    accelerated = accelerate_for_inference(model, CPU)
    assert accelerated.decoder.embedding.embedding is model.decoder.embedding.embedding
    linear = nn.Sequential(nn.Linear(2, 2))
    assert accelerate_for_inference(linear, CPU) is linear


def test_accelerating_twice_is_accelerating_once():
    accelerated = accelerate_for_inference(build("transformer"), CPU)
    assert accelerate_for_inference(accelerated, CPU) is accelerated


def test_subclasses_not_replaced():
    head = OwnHead(3, 4)
    assert accelerate_for_inference(head, CPU) is head


@pytest.mark.parametrize(
    "acceleration", FOR_INFERENCE + FOR_TRAINING, ids=lambda each: each.replacement.__name__
)
def test_replacement_is_a_subclass_of_the_original(acceleration):
    assert issubclass(acceleration.replacement, acceleration.original)


def test_accelerated_training_shares_parameters_buffers_and_names():
    model = build("transformer")
    accelerated = accelerate_for_training(model, CPU)
    assert isinstance(accelerated.decoder.output_head, DeferredSoftmaxHead)
    assert isinstance(accelerated.encoder.embedding.dropout, FastDropout)
    before, after = model.state_dict(keep_vars=True), accelerated.state_dict(keep_vars=True)
    assert {name: id(tensor) for name, tensor in after.items()} == {
        name: id(tensor) for name, tensor in before.items()
    }


def test_only_dropout_of_known_parents_is_replaced():
    embedding, other = build("transformer").encoder.embedding, nn.Sequential(nn.Dropout(0.1))
    assert type(accelerate_for_training(embedding, CPU).dropout) is FastDropout
    assert accelerate_for_training(other, CPU) is other


@pytest.mark.parametrize("traced", ["plain", "accelerated"])
def test_trace_of_either_model_records_the_accelerated_one(traced):
    model = build("transformer")
    accelerated = accelerate_for_inference(model, CPU)
    sources = batch(store(), [0, 1]).sources
    with torch.no_grad(), trace_attention(model if traced == "plain" else accelerated) as records:
        state = accelerated.initial_state(sources)
        accelerated.step(torch.tensor([4, 5]), state)
    paths = {record.module_path for record in records}
    assert "decoder.stack.layers.1.cross_attention.attention" in paths
    assert "encoder.stack.layers.0.self_attention.attention" in paths


@pytest.mark.parametrize("num_rows", [1, 8, 300])
@torch.no_grad()
def test_packed_head_equals_plain_head(num_rows):
    head = SoftmaxHead(5, 7).double()
    packed = accelerate_for_inference(head, CPU)
    assert isinstance(packed, PackedSoftmaxHead)
    for length in (1, 3):
        features = torch.randn(num_rows, length, 5).double()
        expected = head_outputs(head, features)
        torch.testing.assert_close(head_outputs(packed, features), expected)


def test_packed_head_passes_gradients():
    head = SoftmaxHead(5, 7)
    packed = accelerate_for_inference(head, CPU)
    head_outputs(packed, torch.randn(9, 1, 5))[..., 0].sum().backward()
    assert head.projection.weight.grad.any()


def test_model_that_is_on_the_device_is_left_in_place():
    """On a GPU, `to` would copy the weights of RNNs into new memory, which CUDA graphs miss."""

    class Fixed(nn.LSTM):
        def _apply(self, *_):
            raise AssertionError("moved")

    model = nn.Sequential(Fixed(2, 3), nn.Linear(3, 2)).train()
    assert not accelerate_for_inference(model, "cpu").training
    with pytest.raises(AssertionError, match="moved"):
        accelerate_for_inference(model, "meta")
