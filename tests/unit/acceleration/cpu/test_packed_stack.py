"""Packed and unpadded Transformer stacks give what the plain stack gives."""

from contextlib import nullcontext

import pytest
import torch

from heedful.acceleration.cpu.transformer_stack import PackedEngine, PackedTransformerStack
from heedful.acceleration.cpu.unpadding import Unpadding
from heedful.acceleration.registry import accelerate_for_inference
from heedful.inspection.attention_trace import trace_attention
from heedful.models.language_model import TransformerBackboneConfig
from heedful.models.transformer import TransformerDecoderConfig
from heedful.pytree import tensors_of
from tests.unit.acceleration.cpu.standard_layers import OTHER, STANDARD

SIZE, NUM_STEPS = 8, 4
LENGTHS = torch.tensor([5, 1, 3])
MASK = torch.arange(5) < LENGTHS[:, None]
STATES = torch.randn(3, 5, SIZE, generator=torch.Generator().manual_seed(2)).double()
HEADS = {"attention": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}}}

each_standard = pytest.mark.parametrize("settings", STANDARD, ids=str)
each_other = pytest.mark.parametrize("settings", OTHER.values(), ids=OTHER)


def build_decoder(settings):
    torch.manual_seed(1)
    config = TransformerDecoderConfig.model_validate(
        {"type": "transformer", "hidden_size": SIZE, "num_layers": 2, "dropout": 0.3}
        | HEADS
        | settings
    )
    decoder = config.build(vocab_size=11, memory_size=SIZE).double().eval()
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return decoder


def build_encoder_stack(settings):
    stack = build_decoder(settings).stack
    for layer in stack.layers:
        layer.cross_attention = None
    return stack


def initial_stack_state(stack):
    memories = stack.build_memory(STATES, MASK.unsqueeze(1))
    return stack.initial_state(STATES, memories), memories


@pytest.fixture
def packed_calls(monkeypatch):
    """Calls of the packed layers."""
    calls, run = [], PackedEngine.run
    monkeypatch.setattr(PackedEngine, "run", lambda *args: calls.append(0) or run(*args))
    return calls


def read_steps(stack, inputs):
    """Outputs, weights and the final state of reading one position at a time."""
    state, memories = initial_stack_state(stack)
    outputs = []
    for position in range(inputs.size(1)):
        output = stack(
            inputs[:, position : position + 1],
            torch.ones(len(inputs), dtype=torch.long),
            state,
            memories,
            need_weights=True,
        )
        state = output.state
        outputs.append((output.outputs, output.weights))
    return outputs, list(tensors_of(state))


@each_standard
@torch.no_grad()
def test_packed_steps_equal_plain_steps(settings, packed_calls):
    plain, inputs = build_decoder(settings).stack, STATES[:, :NUM_STEPS]
    expected = read_steps(plain, inputs)
    assert not packed_calls
    stack = accelerate_for_inference(plain, "cpu")
    torch.testing.assert_close(read_steps(stack, inputs), expected)
    assert len(packed_calls) == NUM_STEPS


@each_other
def test_other_layers_not_packed(settings):
    stack = build_decoder(settings).stack
    assert not isinstance(accelerate_for_inference(stack, "cpu"), PackedTransformerStack)


def test_packed_backbone_continues_like_the_plain_one(packed_calls):
    torch.manual_seed(1)
    config = TransformerBackboneConfig(
        hidden_size=SIZE,
        num_layers=2,
        attention={"score": {"type": "dot"}, "multi_head": {"num_heads": 2}},
    )
    plain = config.build(input_size=SIZE).double().eval()
    lengths, ones = torch.full((3,), NUM_STEPS), torch.ones(3, dtype=torch.long)
    inputs = STATES[:, :NUM_STEPS]
    with torch.no_grad():
        whole = plain(inputs, lengths, plain.initial_state(inputs), need_weights=True)
        backbone = accelerate_for_inference(plain, "cpu")
        state = backbone.initial_state(inputs)
        for position in range(NUM_STEPS):
            step = inputs[:, position : position + 1]
            output = backbone(step, ones, state, need_weights=True)
            state = output.state
            torch.testing.assert_close(output.outputs[:, 0], whole.outputs[:, position])
            weights = whole.weights[:, position, : position + 1]
            torch.testing.assert_close(output.weights[:, 0], weights)
    assert len(packed_calls) == NUM_STEPS


@pytest.mark.parametrize(
    "reason", ["gradients", "training", "several positions", "trace", "ragged rows"]
)
def test_plain_stack_runs_where_the_packed_one_does_not_apply(reason, packed_calls):
    stack = accelerate_for_inference(build_decoder({}).stack, "cpu")
    stack.train(reason == "training")
    size = 2 if reason == "several positions" else 1
    trace = trace_attention(stack) if reason == "trace" else nullcontext()
    with torch.set_grad_enabled(reason == "gradients"), trace as records:
        state, memories = initial_stack_state(stack)
        if reason == "ragged rows":
            state = state._replace(start_positions=torch.tensor([0, 1, 0]))
        stack(STATES[:, :size], torch.full((3,), size), state, memories)
    assert not packed_calls
    assert records or reason != "trace"


@each_standard
@torch.no_grad()
def test_unpadded_encoding_equals_plain_encoding(settings, packed_calls):
    plain = build_encoder_stack(settings)
    expected, _ = plain.forward_bidirectional(STATES, LENGTHS)
    assert not packed_calls
    stack = accelerate_for_inference(plain, "cpu")
    outputs, losses = stack.forward_bidirectional(STATES, LENGTHS)
    assert packed_calls
    assert not losses
    torch.testing.assert_close(outputs[MASK], expected[MASK])


@torch.no_grad()
def test_unpadded_encoding_does_not_read_padding():
    stack = accelerate_for_inference(build_encoder_stack({}), "cpu")
    spoiled = STATES.clone()
    spoiled[~MASK] = torch.nan
    outputs, _ = stack.forward_bidirectional(spoiled, LENGTHS)
    assert torch.equal(outputs, stack.forward_bidirectional(STATES, LENGTHS)[0])


@torch.no_grad()
def test_empty_sequence_does_not_change_other_rows():
    stack = accelerate_for_inference(build_encoder_stack({}), "cpu")
    outputs, _ = stack.forward_bidirectional(STATES, torch.tensor([5, 0, 3]))
    expected, _ = stack.forward_bidirectional(STATES, LENGTHS)
    torch.testing.assert_close(outputs[[0, 2]], expected[[0, 2]])


@each_standard
@torch.no_grad()
def test_unpadded_memories_equal_plain_memories(settings):
    plain = build_decoder(settings).stack
    expected = plain.build_memory(STATES, MASK.unsqueeze(1))
    stack = accelerate_for_inference(plain, "cpu")
    memories = stack.build_memory(STATES, MASK.unsqueeze(1))
    for memory, other in zip(memories, expected, strict=True):
        visible = other.mask.expand_as(other.values[..., :1].mT).squeeze(-2)
        assert torch.equal(memory.mask, other.mask)
        torch.testing.assert_close(memory.values[visible], other.values[visible])
        torch.testing.assert_close(memory.keys[visible], other.keys[visible])


def test_padding_loads_with_gradients_or_hooks_or_in_training(packed_calls):
    stack = accelerate_for_inference(build_encoder_stack({}), "cpu")
    stack.forward_bidirectional(STATES, LENGTHS)
    with torch.no_grad(), trace_attention(stack) as records:
        stack.forward_bidirectional(STATES, LENGTHS)
    assert records
    with torch.no_grad():
        stack.train().forward_bidirectional(STATES, LENGTHS)
    assert not packed_calls


def test_padding_restores_what_was_unpadded():
    unpadding = Unpadding.from_mask(MASK)
    tokens = unpadding.unpad(STATES)
    assert len(tokens) == int(LENGTHS.sum())
    padded = unpadding.pad(tokens)
    assert torch.equal(padded, STATES * MASK.unsqueeze(-1))
    assert torch.equal(unpadding.pad(2 * tokens, padded), 2 * STATES * MASK.unsqueeze(-1))
    assert Unpadding.from_mask(torch.zeros(2, 3, dtype=torch.bool)).indices.tolist() == []
